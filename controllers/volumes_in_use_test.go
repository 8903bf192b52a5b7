package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/apimodel"
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
	return m, newVolumesInUse(api, api)
}

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

func TestManyReleasesAreFewPatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var handles []string
		for i := range 50 {
			handles = append(handles, fmt.Sprintf("pvc-%02d", i))
		}
		m, inUse := nodeWithVolumes(t, append(slices.Clone(handles), "kept")...)
		patches := 0
		m.Fail(func(r apimodel.Request) error {
			if isPatchOfNode(r) {
				patches++
				<-time.After(100 * time.Millisecond) // meanwhile the others come
			}
			return nil
		})
		var group sync.WaitGroup
		for _, handle := range handles {
			group.Go(func() {
				if err := inUse.release(t.Context(), nodeA, virtual.Driver, handle, soon()); err != nil {
					t.Error(err)
				}
				if slices.Contains(volumesLeft(t, m), inUseName(handle)) {
					t.Errorf("%s was released and is still in use", handle)
				}
			})
		}
		group.Wait()
		if diff := cmp.Diff([]corev1.UniqueVolumeName{inUseName("kept")}, volumesLeft(t, m)); diff != "" {
			t.Errorf("volumes in use (-want +got):\n%s", diff)
		}
		if patches > 2 {
			t.Errorf("%d patches, want at most 2", patches)
		}
		synctest.Wait()
		if left := inUse.batches.objects(); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
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
		"a permission that is missing is no error": {
			handle: "pvc-1", left: []string{"pvc-1", "pvc-2"},
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
			if c.fail != nil {
				m.Fail(c.fail(m))
			}
			if c.node == "" {
				c.node = nodeA
			}
			if err := inUse.release(ctrl.LoggerInto(t.Context(), logr.Discard()), c.node, virtual.Driver, c.handle, soon()); (err != nil) != c.failed {
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
			if err := inUse.release(t.Context(), nodeA, virtual.Driver, "pvc-1", soon()); err != nil {
				t.Fatal(err)
			}
			tc.between(t, m)
			if err := inUse.release(t.Context(), nodeA, virtual.Driver, tc.second, soon()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.left, volumesLeft(t, m)); diff != "" {
				t.Errorf("volumes in use (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAReleaseEndsWithItsOwnContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, inUse := nodeWithVolumes(t, "pvc-1", "pvc-2")
		m.Fail(func(r apimodel.Request) error {
			if isPatchOfNode(r) {
				<-time.After(time.Minute)
			}
			return nil
		})
		var group sync.WaitGroup
		group.Go(func() { _ = inUse.release(t.Context(), nodeA, virtual.Driver, "pvc-1", soon()) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := inUse.release(ctx, nodeA, virtual.Driver, "pvc-2", soon()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error: %v", err)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("the release took %s", took)
		}
		group.Wait()
	})
}

// soon is until when what a release rests on counts.
func soon() time.Time { return time.Now().Add(time.Hour) }

// Releases of a node wait for each other's request, and for a busy API server.
func TestNothingIsReleasedByWhatHasBecomeOld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, inUse := nodeWithVolumes(t, "pvc-1", "pvc-2", "pvc-3")
		m.Fail(func(r apimodel.Request) error {
			if isPatchOfNode(r) {
				<-time.After(time.Second)
			}
			return nil
		})
		var group sync.WaitGroup
		for _, wanted := range []struct {
			handle string
			counts time.Duration
		}{{"pvc-1", time.Minute}, {"pvc-2", 900 * time.Millisecond}, {"pvc-3", time.Minute}} {
			until := time.Now().Add(wanted.counts)
			group.Go(func() {
				if err := inUse.release(t.Context(), nodeA, virtual.Driver, wanted.handle, until); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait() // the first one is under way, and the others wait for that
		}
		group.Wait()
		if diff := cmp.Diff([]corev1.UniqueVolumeName{inUseName("pvc-2")}, volumesLeft(t, m)); diff != "" {
			t.Errorf("volumes in use (-want +got):\n%s", diff)
		}
	})
}
