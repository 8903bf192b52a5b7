package controllers

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

func inUseName(handle string) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName("kubernetes.io/csi/" + virtual.Driver + "^" + handle)
}

// nodeWithVolumes is an API with one node that has the volumes in use, and the writer under test.
func nodeWithVolumes(t *testing.T, handles ...string) (*apimodel.Model, *volumesInUse) {
	t.Helper()
	m := apimodel.New()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeA}}
	for _, handle := range handles {
		node.Status.VolumesInUse = append(node.Status.VolumesInUse, inUseName(handle))
	}
	if err := m.Client("test").Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	api := m.Client("writer")
	return m, &volumesInUse{client: api, live: api}
}

// inTimeAlways is that a release is in time.
func inTimeAlways() error { return nil }

func volumesLeft(t *testing.T, m *apimodel.Model) []corev1.UniqueVolumeName {
	t.Helper()
	var node corev1.Node
	if err := m.Client("test").Get(t.Context(), client.ObjectKey{Name: nodeA}, &node); err != nil {
		t.Fatal(err)
	}
	return node.Status.VolumesInUse
}

func isPatchOfNode(r apimodel.Request) bool {
	return r.Actor == "writer" && r.Verb == apimodel.VerbPatch && r.Kind == "Node"
}

// nodeRead is a node as it is now; nil if there is none.
func nodeRead(t *testing.T, m *apimodel.Model, name string) *corev1.Node {
	t.Helper()
	node, err := cluster.Live{Reader: m.Client("test")}.Node(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return node
}

func TestManyVolumesAreReleasedByOnePatch(t *testing.T) {
	t.Parallel()
	var handles []string
	for i := range 50 {
		handles = append(handles, fmt.Sprintf("pvc-%02d", i))
	}
	m, inUse := nodeWithVolumes(t, append(slices.Clone(handles), "kept")...)
	patches := 0
	m.Fail(func(r apimodel.Request) error {
		if isPatchOfNode(r) {
			patches++
		}
		return nil
	})
	if _, err := inUse.release(t.Context(), nodeRead(t, m, nodeA), virtual.Driver, handles, inTimeAlways); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]corev1.UniqueVolumeName{inUseName("kept")}, volumesLeft(t, m)); diff != "" {
		t.Errorf("volumes in use (-want +got):\n%s", diff)
	}
	if patches != 1 {
		t.Errorf("%d patches", patches)
	}
}

func TestReleasing(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes/status"}, nodeA, errors.New("no"))
	cases := map[string]struct {
		handle string
		node   string
		fail   func(m *apimodel.Model) func(apimodel.Request) error
		left   []string
		failed bool
	}{
		"a volume in use": {handle: "pvc-1", left: []string{"pvc-2"}},
		"a volume that is not in use": {
			handle: "pvc-3", left: []string{"pvc-1", "pvc-2"},
			fail: func(*apimodel.Model) func(apimodel.Request) error {
				return func(r apimodel.Request) error {
					if isPatchOfNode(r) {
						return errors.New("the list was written although nothing was to be done")
					}
					return nil
				}
			},
		},
		"a volume whose name begins like another's": {handle: "pvc-", left: []string{"pvc-1", "pvc-2"}},
		"a node that is gone":                       {handle: "pvc-1", node: "gone", left: []string{"pvc-1", "pvc-2"}},
		"a kubelet that adds a volume meanwhile": {
			handle: "pvc-1", left: []string{"pvc-2", "pvc-9"},
			fail: func(m *apimodel.Model) func(apimodel.Request) error {
				done := false
				return func(r apimodel.Request) error {
					if !isPatchOfNode(r) || done {
						return nil
					}
					done = true
					kubelet := m.Client("kubelet")
					var node corev1.Node
					if err := kubelet.Get(t.Context(), client.ObjectKey{Name: nodeA}, &node); err != nil {
						return err
					}
					node.Status.VolumesInUse = append(node.Status.VolumesInUse, inUseName("pvc-9"))
					return kubelet.Status().Update(t.Context(), &node)
				}
			},
		},
		"a part of the status that others write meanwhile": {
			handle: "pvc-1", left: []string{"pvc-2"},
			fail: func(m *apimodel.Model) func(apimodel.Request) error {
				patches := 0
				return func(r apimodel.Request) error {
					if !isPatchOfNode(r) {
						return nil
					}
					if patches++; patches > 1 {
						return errors.New("the list was written twice although nobody else has")
					}
					attachDetach := m.Client("attachdetach-controller")
					var node corev1.Node
					if err := attachDetach.Get(t.Context(), client.ObjectKey{Name: nodeA}, &node); err != nil {
						return err
					}
					node.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "pvc-2"}}
					return attachDetach.Status().Update(t.Context(), &node)
				}
			},
		},
		"a permission that is missing": {
			handle: "pvc-1", left: []string{"pvc-1", "pvc-2"}, failed: true,
			fail: func(*apimodel.Model) func(apimodel.Request) error {
				return func(r apimodel.Request) error {
					if isPatchOfNode(r) {
						return forbidden
					}
					return nil
				}
			},
		},
		"an API that fails is one": {
			handle: "pvc-1", left: []string{"pvc-1", "pvc-2"}, failed: true,
			fail: func(*apimodel.Model) func(apimodel.Request) error {
				return func(r apimodel.Request) error {
					if isPatchOfNode(r) {
						return apierrors.NewInternalError(errors.New("etcd"))
					}
					return nil
				}
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, inUse := nodeWithVolumes(t, "pvc-1", "pvc-2")
			if c.node == "" {
				c.node = nodeA
			}
			node := nodeRead(t, m, c.node)
			if c.fail != nil {
				m.Fail(c.fail(m))
			}
			if _, err := inUse.release(ctrl.LoggerInto(t.Context(), logr.Discard()), node, virtual.Driver, []string{c.handle}, inTimeAlways); (err != nil) != c.failed {
				t.Errorf("error: %v", err)
			}
			var want []corev1.UniqueVolumeName
			for _, handle := range c.left {
				want = append(want, inUseName(handle))
			}
			if diff := cmp.Diff(want, volumesLeft(t, m)); diff != "" {
				t.Errorf("volumes in use (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAMissingPermissionToReleaseIsSaidOnce(t *testing.T) {
	t.Parallel()
	m, inUse := nodeWithVolumes(t, "pvc-1", "pvc-2")
	m.Fail(func(r apimodel.Request) error {
		if isPatchOfNode(r) {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes/status"}, nodeA, errors.New("no"))
		}
		return nil
	})
	var said []string
	log := funcr.New(func(_, args string) { said = append(said, args) }, funcr.Options{})
	for _, handle := range []string{"pvc-1", "pvc-2", "pvc-1"} {
		if _, err := inUse.release(ctrl.LoggerInto(t.Context(), log), nodeRead(t, m, nodeA), virtual.Driver, []string{handle}, inTimeAlways); !errors.Is(err, errDenied) {
			t.Error(err)
		}
	}
	if len(said) != 1 || !strings.Contains(said[0], "grant patch on nodes/status") {
		t.Errorf("the log says: %q", said)
	}
}

func TestReleasesOfOneNodeInARow(t *testing.T) {
	t.Parallel()
	kubelet := func(volumes ...corev1.UniqueVolumeName) func(*testing.T, *apimodel.Model) {
		return func(t *testing.T, m *apimodel.Model) {
			t.Helper()
			api := m.Client("kubelet")
			var node corev1.Node
			if err := api.Get(t.Context(), client.ObjectKey{Name: nodeA}, &node); err != nil {
				t.Fatal(err)
			}
			node.Status.VolumesInUse = volumes
			if err := api.Status().Update(t.Context(), &node); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, tc := range map[string]struct {
		between func(*testing.T, *apimodel.Model)
		second  string
		left    []corev1.UniqueVolumeName
	}{
		"another volume": {func(*testing.T, *apimodel.Model) {}, "pvc-2", []corev1.UniqueVolumeName{inUseName("pvc-3")}},
		"another volume, after the kubelet has added one": {
			kubelet(inUseName("pvc-9"), inUseName("pvc-3"), inUseName("pvc-2")), "pvc-2", []corev1.UniqueVolumeName{inUseName("pvc-9"), inUseName("pvc-3")},
		},
		"the same volume, after the kubelet has put it back": {
			kubelet(inUseName("pvc-1"), inUseName("pvc-2")), "pvc-1", []corev1.UniqueVolumeName{inUseName("pvc-2")},
		},
		"another volume, after the kubelet has taken all out": {kubelet(), "pvc-2", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, inUse := nodeWithVolumes(t, "pvc-1", "pvc-2", "pvc-3")
			if _, err := inUse.release(t.Context(), nodeRead(t, m, nodeA), virtual.Driver, []string{"pvc-1"}, inTimeAlways); err != nil {
				t.Fatal(err)
			}
			tc.between(t, m)
			if _, err := inUse.release(t.Context(), nodeRead(t, m, nodeA), virtual.Driver, []string{tc.second}, inTimeAlways); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.left, volumesLeft(t, m)); diff != "" {
				t.Errorf("volumes in use (-want +got):\n%s", diff)
			}
		})
	}
}
