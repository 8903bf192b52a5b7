package apimodel_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
)

var podKey = client.ObjectKey{Namespace: "default", Name: "web-0"}

// createPod creates a pod that is bound to node-a.
func createPod(t *testing.T, c client.Client, change ...func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: podKey.Namespace, Name: podKey.Name, Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{NodeName: "node-a"},
	}
	for _, f := range change {
		f(pod)
	}
	if err := c.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

// getPod returns the pod, nil when it is gone.
func getPod(t *testing.T, c client.Reader) *corev1.Pod {
	t.Helper()
	var pod corev1.Pod
	err := c.Get(t.Context(), podKey, &pod)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		t.Fatal(err)
	}
	return &pod
}

// The API server deletes in two writes, and goes on with the second one when the pod is deleted again.
func TestADeletionThatIsCutOffIsFinishedByTheNext(t *testing.T) {
	m := apimodel.New()
	api := m.Client("test")
	pod := createPod(t, api, func(*corev1.Pod) {})
	var seen []apimodel.Change
	m.OnChange(func(c apimodel.Change) { seen = append(seen, c) })
	m.CutOff(func(r apimodel.Request) bool { return r.Verb == apimodel.VerbDelete && r.Name == pod.Name })
	for range 2 {
		if err := api.Delete(t.Context(), pod.DeepCopy(), client.GracePeriodSeconds(0)); !apierrors.IsTimeout(err) {
			t.Errorf("got %v, want a timeout", err)
		}
	}
	left := getPod(t, api)
	if left == nil || left.DeletionTimestamp == nil || *left.DeletionGracePeriodSeconds != 0 || len(left.Finalizers) > 0 {
		t.Fatalf("left is %v", left)
	}
	if len(seen) != 1 || seen[0].New == nil {
		t.Errorf("watches saw %v, want the change", seen)
	}
	m.CutOff(nil)
	if err := api.Delete(t.Context(), pod.DeepCopy(), client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	if left := getPod(t, api); left != nil {
		t.Errorf("left is %v", left)
	}
}

func TestDeletingAPod(t *testing.T) {
	type step struct {
		after time.Duration
		grace *int64
	}
	type state struct {
		Gone  bool
		Until time.Duration // the deletion timestamp, from the creation on
		Grace int64
	}
	finalizer := func(p *corev1.Pod) { p.Finalizers = []string{"test/keep"} }
	cases := map[string]struct {
		pod   func(*corev1.Pod)
		steps []step
		want  state
	}{
		"a deletion without a grace takes the default one": {
			steps: []step{{}},
			want:  state{Until: 30 * time.Second, Grace: 30},
		},
		"a deletion without a grace takes the pod's own": {
			pod:   func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(7)) },
			steps: []step{{}},
			want:  state{Until: 7 * time.Second, Grace: 7},
		},
		"the grace counts from the first deletion": {
			steps: []step{{grace: new(int64(30))}, {after: 4 * time.Second, grace: new(int64(10))}},
			want:  state{Until: 10 * time.Second, Grace: 10},
		},
		"a second deletion makes it no longer": {
			steps: []step{{grace: new(int64(5))}, {after: time.Second, grace: new(int64(10))}},
			want:  state{Until: 5 * time.Second, Grace: 5},
		},
		"a second deletion without a grace changes nothing": {
			steps: []step{{grace: new(int64(60))}, {after: time.Second}},
			want:  state{Until: time.Minute, Grace: 60},
		},
		"a pod does not go when its grace has passed": {
			steps: []step{{grace: new(int64(1))}, {after: time.Hour, grace: new(int64(10))}},
			want:  state{Until: time.Second, Grace: 1},
		},
		"without grace it goes at once": {
			steps: []step{{grace: new(int64(0))}},
			want:  state{Gone: true},
		},
		"it goes at once when the grace is taken from it": {
			steps: []step{{grace: new(int64(60))}, {after: time.Second, grace: new(int64(0))}},
			want:  state{Gone: true},
		},
		"a pod that is bound to no node goes at once": {
			pod:   func(p *corev1.Pod) { p.Spec.NodeName = "" },
			steps: []step{{grace: new(int64(10))}},
			want:  state{Gone: true},
		},
		"a finalizer keeps a pod without grace": {
			pod:   finalizer,
			steps: []step{{after: time.Second, grace: new(int64(0))}},
			want:  state{Until: time.Second, Grace: 0},
		},
		"a finalizer keeps a pod whose grace was taken": {
			pod:   finalizer,
			steps: []step{{grace: new(int64(10))}, {after: 2 * time.Second, grace: new(int64(0))}, {after: time.Second, grace: new(int64(0))}},
			want:  state{Until: 2 * time.Second, Grace: 0},
		},
		"a deletion with a grace that is over counts for a second": {
			steps: []step{{grace: new(int64(600))}, {after: time.Minute, grace: new(int64(10))}},
			want:  state{Until: time.Minute, Grace: 1},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := apimodel.New().Client("test")
				if c.pod == nil {
					c.pod = func(*corev1.Pod) {}
				}
				pod := createPod(t, api, c.pod)
				for _, step := range c.steps {
					<-time.After(step.after)
					var opts []client.DeleteOption
					if step.grace != nil {
						opts = append(opts, client.GracePeriodSeconds(*step.grace))
					}
					if err := api.Delete(t.Context(), pod.DeepCopy(), opts...); err != nil {
						t.Fatal(err)
					}
				}
				got := state{Gone: true}
				if left := getPod(t, api); left != nil {
					got = state{Until: left.DeletionTimestamp.Sub(pod.CreationTimestamp.Time), Grace: *left.DeletionGracePeriodSeconds}
					if diff := cmp.Diff(pod.Finalizers, left.Finalizers); diff != "" {
						t.Errorf("finalizers (-want +got):\n%s", diff)
					}
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("pod (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestATerminatingPodCanBeChanged(t *testing.T) {
	api := apimodel.New().Client("test")
	pod := createPod(t, api)
	if err := api.Delete(t.Context(), pod.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	patch := client.RawPatch(types.StrategicMergePatchType, []byte(`{"status":{"phase":"Failed"}}`))
	if err := api.Status().Patch(t.Context(), pod.DeepCopy(), patch); err != nil {
		t.Fatal(err)
	}
	left := getPod(t, api)
	left.Labels["more"] = "yes"
	if err := api.Update(t.Context(), left); err != nil {
		t.Fatal(err)
	}
	left = getPod(t, api)
	if left == nil || left.DeletionTimestamp == nil || left.Status.Phase != corev1.PodFailed || left.Labels["more"] != "yes" {
		t.Errorf("pod: %+v", left)
	}
}

func TestAFinalizerKeepsAnAttachmentUntilItIsTakenAway(t *testing.T) {
	api := apimodel.New().Client("test")
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "csi-1", Finalizers: []string{"attacher"}}}
	if err := api.Create(t.Context(), va); err != nil {
		t.Fatal(err)
	}
	if err := api.Delete(t.Context(), va.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	var left storagev1.VolumeAttachment
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(va), &left); err != nil || left.DeletionTimestamp == nil {
		t.Fatalf("attachment: %+v, %v", left, err)
	}
	before := left.DeepCopy()
	left.Finalizers = nil
	if err := api.Patch(t.Context(), &left, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(va), &left); !apierrors.IsNotFound(err) {
		t.Errorf("attachment: %v, want not found", err)
	}
}

func TestPreconditions(t *testing.T) {
	stale := func(f func(c client.Client, pod *corev1.Pod, uid, version string) error) func(context.Context, client.Client, *corev1.Pod) error {
		return func(_ context.Context, c client.Client, pod *corev1.Pod) error { return f(c, pod, "another", "999") }
	}
	raw := func(text string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(text)) }
	cases := map[string]func(context.Context, client.Client, *corev1.Pod) error{
		"deleting by another UID": stale(func(c client.Client, pod *corev1.Pod, uid, _ string) error {
			return c.Delete(t.Context(), pod, client.Preconditions{UID: new(types.UID(uid))})
		}),
		"deleting by an old version": stale(func(c client.Client, pod *corev1.Pod, _, version string) error {
			return c.Delete(t.Context(), pod, client.Preconditions{ResourceVersion: &version})
		}),
		"patching another UID": stale(func(c client.Client, pod *corev1.Pod, uid, _ string) error {
			return c.Patch(t.Context(), pod, raw(`{"metadata":{"uid":"`+uid+`"}}`))
		}),
		"patching an old version": stale(func(c client.Client, pod *corev1.Pod, _, version string) error {
			return c.Patch(t.Context(), pod, raw(`{"metadata":{"resourceVersion":"`+version+`"}}`))
		}),
		"patching the status of another UID": stale(func(c client.Client, pod *corev1.Pod, uid, _ string) error {
			return c.Status().Patch(t.Context(), pod, raw(`{"metadata":{"uid":"`+uid+`"},"status":{"phase":"Failed"}}`))
		}),
		"patching the status of an old version": stale(func(c client.Client, pod *corev1.Pod, _, version string) error {
			return c.Status().Patch(t.Context(), pod, raw(`{"metadata":{"resourceVersion":"`+version+`"},"status":{"phase":"Failed"}}`))
		}),
		"updating an old version": stale(func(c client.Client, pod *corev1.Pod, _, version string) error {
			pod.ResourceVersion = version
			return c.Update(t.Context(), pod)
		}),
	}
	for name, do := range cases {
		t.Run(name+" is a conflict", func(t *testing.T) {
			api := apimodel.New().Client("test")
			createPod(t, api)
			pod := createOther(t, api)
			before := getPod(t, api)
			if err := do(t.Context(), api, before.DeepCopy()); !apierrors.IsConflict(err) {
				t.Errorf("error: %v, want a conflict", err)
			}
			if diff := cmp.Diff(before, getPod(t, api)); diff != "" {
				t.Errorf("the pod was changed:\n%s", diff)
			}
			if err := api.Delete(t.Context(), pod, client.Preconditions{UID: &pod.UID}); err != nil {
				t.Errorf("the right UID: %v", err)
			}
		})
	}
}

func createOther(t *testing.T, c client.Client) *corev1.Pod {
	t.Helper()
	return createPod(t, c, func(p *corev1.Pod) { p.Name = "web-1" })
}

func TestWhatDoesNotExistIsNotFound(t *testing.T) {
	api := apimodel.New().Client("test")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-0"}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{}`))
	for name, err := range map[string]error{
		"get":          api.Get(t.Context(), podKey, pod.DeepCopy()),
		"update":       api.Update(t.Context(), pod.DeepCopy()),
		"patch":        api.Patch(t.Context(), pod.DeepCopy(), patch),
		"status patch": api.Status().Patch(t.Context(), pod.DeepCopy(), patch),
		"delete":       api.Delete(t.Context(), pod.DeepCopy()),
	} {
		if !apierrors.IsNotFound(err) {
			t.Errorf("%s: %v, want not found", name, err)
		}
	}
}

func TestStatusIsASubresource(t *testing.T) {
	api := apimodel.New().Client("test")
	createPod(t, api, func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning })
	pod := getPod(t, api)
	if pod.Status.Phase != corev1.PodPending {
		t.Errorf("a created pod is %s", pod.Status.Phase)
	}
	pod.Status.Phase, pod.Labels["x"] = corev1.PodFailed, "y"
	if err := api.Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if got := getPod(t, api); got.Status.Phase != corev1.PodPending || got.Labels["x"] != "y" {
		t.Errorf("after an update: %s, %v", got.Status.Phase, got.Labels)
	}
	patch := []byte(`{"metadata":{"labels":{"x":"z"}},"status":{"phase":"Running"}}`)
	if err := api.Status().Patch(t.Context(), getPod(t, api), client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
	if got := getPod(t, api); got.Status.Phase != corev1.PodRunning || got.Labels["x"] != "y" {
		t.Errorf("after a status patch: %s, %v", got.Status.Phase, got.Labels)
	}
}

func TestListsAreSelectedByNode(t *testing.T) {
	api := apimodel.New().Client("test")
	createPod(t, api)
	createPod(t, api, func(p *corev1.Pod) { p.Name, p.Spec.NodeName = "web-1", "node-b" })
	var pods corev1.PodList
	if err := api.List(t.Context(), &pods, client.MatchingFields{"spec.nodeName": "node-b"}); err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) != 1 || pods.Items[0].Name != "web-1" {
		t.Errorf("pods: %v", pods.Items)
	}
}

func TestChangesAreToldInOrderWithTheirActor(t *testing.T) {
	m := apimodel.New()
	var told []string
	m.OnChange(func(c apimodel.Change) {
		told = append(told, c.Actor+" "+string(c.Verb)+" "+c.Kind+" "+c.Name)
		if c.Verb == apimodel.VerbCreate {
			// A listener may write; what it does is told after its own turn.
			if err := m.Client("listener").Delete(t.Context(), c.New.DeepCopyObject().(client.Object)); err != nil {
				t.Error(err)
			}
		}
	})
	createPod(t, m.Client("user"))
	if err := m.Client("late").Delete(t.Context(), getPod(t, m.Client("user"))); err != nil {
		t.Error(err)
	}
	want := []string{"user create Pod web-0", "listener delete Pod web-0"}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("changes, of which the second deletion is none (-want +got):\n%s", diff)
	}
}

func TestRequestsFailOnDemand(t *testing.T) {
	m := apimodel.New()
	api := m.Client("user")
	pod := createPod(t, api)
	m.Fail(func(r apimodel.Request) error {
		if r.Verb == apimodel.VerbDelete && r.Kind == "Pod" {
			return apierrors.NewInternalError(context.DeadlineExceeded)
		}
		return nil
	})
	if err := api.Delete(t.Context(), pod); !apierrors.IsInternalError(err) {
		t.Errorf("error: %v", err)
	}
	m.Fail(nil)
	if err := api.Delete(t.Context(), pod); err != nil {
		t.Error(err)
	}
}

func TestAPatchWhoseTestFailsIsInvalid(t *testing.T) {
	t.Parallel()
	m := apimodel.New()
	api := m.Client("test")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	node.Status.VolumesInUse = []corev1.UniqueVolumeName{"v1", "v2"}
	if err := api.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	for tested, fits := range map[string]bool{`["v1"]`: false, `["v1","v2"]`: true} {
		patch := `[{"op":"test","path":"/status/volumesInUse","value":` + tested + `},
			{"op":"replace","path":"/status/volumesInUse","value":["v2"]}]`
		copied := node.DeepCopy()
		err := api.Status().Patch(t.Context(), copied, client.RawPatch(types.JSONPatchType, []byte(patch)))
		if fits && err != nil || !fits && !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v", tested, err)
		}
		if fits && !slices.Equal(copied.Status.VolumesInUse, []corev1.UniqueVolumeName{"v2"}) {
			t.Errorf("%s: in use is %v", tested, copied.Status.VolumesInUse)
		}
	}
}

func TestAWriteThatChangesNothingGivesNoNewVersion(t *testing.T) {
	m := apimodel.New()
	api := m.Client("test")
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "csi-1", Finalizers: []string{"attacher"}}}
	if err := api.Create(t.Context(), va); err != nil {
		t.Fatal(err)
	}
	if err := api.Delete(t.Context(), va.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(va), va); err != nil {
		t.Fatal(err)
	}
	m.OnChange(func(c apimodel.Change) { t.Errorf("told of %s %s", c.Verb, c.Name) })
	if err := api.Delete(t.Context(), va.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	patched := va.DeepCopy()
	if err := api.Patch(t.Context(), patched, client.RawPatch(types.MergePatchType, []byte(`{}`))); err != nil {
		t.Fatal(err)
	}
	var after storagev1.VolumeAttachment
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(va), &after); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(va, &after); diff != "" || patched.ResourceVersion != va.ResourceVersion {
		t.Errorf("version %s, %s in the answer (-want +got):\n%s", after.ResourceVersion, patched.ResourceVersion, diff)
	}
}

func TestARequestTakesItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := apimodel.New()
		m.Delay(func(r apimodel.Request) time.Duration {
			if r.Verb == apimodel.VerbCreate {
				return time.Second
			}
			return 0
		})
		c, began := m.Client("test"), time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "slow"}}
		if err := c.Create(ctx, node.DeepCopy()); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 100*time.Millisecond {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(node), &corev1.Node{}); !apierrors.IsNotFound(err) {
			t.Errorf("a request that was given up had an effect: %v", err)
		}
		began = time.Now()
		if err := c.Create(t.Context(), node); err != nil || time.Since(began) != time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

func TestWhatIsStoredHasGoneOverTheWire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(1234567 * time.Nanosecond)
		c := apimodel.New().Client("kubelet")
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-node-lease", Name: "node-a", Labels: map[string]string{}}}
		lease.Spec.RenewTime = new(metav1.NowMicro())
		stored := func() (read coordinationv1.Lease) {
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(lease), &read); err != nil {
				t.Fatal(err)
			}
			return read
		}
		if err := c.Create(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		if read := stored(); read.Labels != nil || read.Spec.RenewTime.Nanosecond() != 1234000 {
			t.Errorf("it was created with labels %#v at %s", read.Labels, read.Spec.RenewTime)
		}
		time.Sleep(1234567 * time.Nanosecond)
		lease.Spec.RenewTime = new(metav1.NowMicro())
		if err := c.Update(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		if read := stored(); read.Spec.RenewTime.Nanosecond() != 2469000 {
			t.Errorf("it was renewed at %s", read.Spec.RenewTime)
		}
	})
}

func TestAKindThatNobodyKnowsIsNotMerelyAbsent(t *testing.T) {
	c := apimodel.New().Client("somebody")
	err := c.Get(t.Context(), client.ObjectKey{Name: "x"}, &metav1.PartialObjectMetadata{})
	if err == nil || apierrors.IsNotFound(err) {
		t.Errorf("metadata of no kind were read: %v", err)
	}
}

func TestListsAreSelectedByNamespaceAndLabel(t *testing.T) {
	c := apimodel.New().Client("somebody")
	createPod(t, c)
	createPod(t, c, func(pod *corev1.Pod) { pod.Name, pod.Labels = "labelled", map[string]string{"app": "db"} })
	createPod(t, c, func(pod *corev1.Pod) {
		pod.Namespace, pod.Name, pod.Labels = "other", "elsewhere", map[string]string{"app": "db"}
	})
	var pods corev1.PodList
	if err := c.List(t.Context(), &pods, client.InNamespace("other"), client.MatchingLabels{"app": "db"}); err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) != 1 || pods.Items[0].Name != "elsewhere" {
		t.Errorf("got %d pods: %v", len(pods.Items), pods.Items)
	}
	if err := c.List(t.Context(), &pods, client.MatchingFields{"status.phase": "Running"}); !apierrors.IsBadRequest(err) {
		t.Errorf("a field that the model does not know was answered with %v", err)
	}
}
