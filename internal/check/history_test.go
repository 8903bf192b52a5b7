package check

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/piraeusdatastore/piraeus-ha-controller/controllers"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

const unreachable = "neither LINSTOR nor any peer reaches the node"

// crashedAt is when the node of these stories was lost.
var crashedAt = time.Date(2026, 5, 4, 11, 2, 3, 0, time.UTC)

func ref(kind, namespace, name string, uid types.UID) *corev1.ObjectReference {
	return &corev1.ObjectReference{Kind: kind, Namespace: namespace, Name: name, UID: uid}
}

func event(name string, after time.Duration, reason, action, note string, regarding, related *corev1.ObjectReference) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, EventTime: metav1.NewMicroTime(crashedAt.Add(after)),
		ReportingController: "piraeus-ha-controller", Reason: reason, Action: action, Note: note, Regarding: *regarding, Related: related,
	}
}

func pvOf(name string) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: virtual.Driver, VolumeHandle: "pvc-" + name}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "data-" + name}
	return pv
}

func attached(volume, node string, after time.Duration, attached bool) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{
			Name: "csi-" + volume + node, CreationTimestamp: metav1.NewTime(crashedAt.Add(after)),
		},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: virtual.Driver, NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("pv-" + volume)},
		},
		Status: storagev1.VolumeAttachmentStatus{Attached: attached},
	}
}

func podOf(volume, node string, uid types.UID, phase corev1.PodPhase) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: volume + "-0", UID: uid}}
	pod.Spec.NodeName, pod.Status.Phase = node, phase
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-" + volume},
	}}}
	return pod
}

// removed is the Event of a pod that was deleted for a volume, detached that of an attachment.
func removed(name string, after time.Duration, volume string, uid types.UID, words string) *eventsv1.Event {
	return event(name, after, "ForceDeleted", "ForceDeleting",
		"pod deleted because a used volume is marked as failing: by force, for volume pv-"+volume+" on node node-a: NodeUnreachable: "+words,
		ref("Pod", "default", volume+"-0", uid), ref("PersistentVolume", "", "pv-"+volume, ""))
}

func detached(name string, after time.Duration, volume, words string) *eventsv1.Event {
	return event(name, after, "ForceDetached", "Detaching",
		"volume detached because it is marked as failing: volume pv-"+volume+" from node node-a: NodeUnreachable: "+words,
		ref("VolumeAttachment", "", "csi-"+volume+nodeA, ""), ref("PersistentVolume", "", "pv-"+volume, ""))
}

// leaves is a volume whose pod was removed and whose attachment was deleted, as the controller reports it, and moved one that has come to
// another node.
func leaves(volume string) []client.Object {
	return []client.Object{
		pvOf(volume), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeA}},
		removed(volume+"-1", 16*time.Second, volume, "old", unreachable), detached(volume+"-2", 17*time.Second, volume, unreachable),
	}
}

func moved(volume string) []client.Object {
	return append(leaves(volume), attached(volume, nodeB, 17*time.Second, true), podOf(volume, nodeB, "new", corev1.PodRunning),
		event(volume+"-3", 18*time.Second, "FailedOver", "Moving",
			"volume pv-"+volume+" failed over from node node-a to node node-b 8.4 s after the first sign of the loss, and is attached there: NodeUnreachable: "+unreachable,
			ref("PersistentVolumeClaim", "default", "data-"+volume, ""), ref("VolumeAttachment", "", "csi-"+volume+nodeB, "")))
}

// begun is a volume whose fail-over has not come to the detach.
func begun(volume string) []client.Object {
	old := podOf(volume, nodeA, "old", corev1.PodRunning)
	old.Finalizers, old.DeletionTimestamp = []string{"example.com/hold"}, new(metav1.NewTime(crashedAt.Add(16*time.Second)))
	va := attached(volume, nodeA, -time.Hour, true)
	va.Annotations = map[string]string{cluster.AnnotationFailOver: `{"pods":["old"],"reason":"QuorumLost","time":"2026-05-04T11:02:19Z"}`}
	va.Status.DetachError = &storagev1.VolumeError{Message: "the driver says no"}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeA}}
	node.Spec.Taints = []corev1.Taint{{Key: cluster.TaintLostQuorum, Effect: corev1.TaintEffectNoSchedule}}
	return []client.Object{
		pvOf(volume), node, old, va,
		event(volume+"-1", 16*time.Second, "ForceDeleted", "Deleting",
			"pod deleted because a used volume is marked as failing: gracefully, for volumes pv-first, pv-"+volume+" on node node-a: QuorumLost: no quorum",
			ref("Pod", "default", volume+"-0", "old"), ref("PersistentVolume", "", "pv-first", "")),
	}
}

// past runs check --events on these objects.
func past(t *testing.T, args []string, fault error, objects ...client.Object) (string, Status, error) {
	t.Helper()
	own := make([]client.Object, len(objects)) // the client writes into them, and several tests share some
	for i, o := range objects {
		own[i] = o.DeepCopyObject().(client.Object)
	}
	builder := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(own...).
		WithIndex(&eventsv1.Event{}, fieldReportingController, func(o client.Object) []string { return []string{o.(*eventsv1.Event).ReportingController} }).
		WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if _, ok := list.(*eventsv1.EventList); ok && fault != nil {
					return fault
				}
				return c.List(ctx, list, opts...)
			},
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if _, ok := o.(*appsv1.Deployment); !ok {
					t.Errorf("the check reads %T", o)
				}
				return c.Get(ctx, key, o, opts...)
			},
		})
	c, err := parseCommandLine(append([]string{"--events"}, args...))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	status, err := sources{api: builder.Build(), linstorError: errors.New("LINSTOR is not needed")}.report(t.Context(), c, &out)
	return out.String(), status, err
}

func TestTheEventsOfFailOvers(t *testing.T) {
	t.Parallel()
	earlier := removed("db-0", -30*time.Minute, "db", "older", "long ago")
	earlierDetach := detached("db-00", -29*time.Minute, "db", "long ago")
	refused := event("web-1", 5*time.Second, "NoSurvivor", "FailOver", "no other node could take over", ref("Pod", "default", "web-0", "web"), nil)
	refused.Series = &eventsv1.EventSeries{Count: 2, LastObservedTime: metav1.NewMicroTime(crashedAt.Add(time.Minute))}
	gone := event("old-1", 5*time.Second, "NoSurvivor", "FailOver", "no other node could take over", ref("Pod", "default", "old-0", "gone"), nil)
	foreign := event("foreign", 5*time.Second, "NoSurvivor", "FailOver", "says somebody else", ref("Pod", "default", "web-0", "web"), nil)
	foreign.ReportingController = "somebody-else"
	for name, tc := range map[string]struct {
		objects []client.Object
		args    []string
		status  Status
		answer  string
	}{
		"there was none": {
			objects: []client.Object{pvOf("db"), gone}, status: StatusProtected, answer: `
No Event or mark tells of a fail-over; the API server forgets Events after an hour, unless it is told
otherwise.
`,
		},
		"a volume has moved": {
			objects: append(moved("db"), earlier, earlierDetach),
			status:  StatusProtected, answer: `
2026-05-04T11:02:19Z claim default/data-db, resource pvc-db: from node-a to node-b
  why: NodeUnreachable: neither LINSTOR nor any peer reaches the node
  11:02:19 pod default/db-0 is deleted by force
  11:02:20 the volume is detached from node-a
  11:02:21 the volume is attached to node-b, 8.4 s after the first sign of the loss

1 fail-over, nothing is open.
`,
		},
		"a volume is on its way": {
			objects: append(leaves("db"), attached("db", nodeB, 17*time.Second, false), podOf("db", nodeB, "new", corev1.PodPending)),
			status:  StatusUnprotected, answer: `
2026-05-04T11:02:19Z claim default/data-db, resource pvc-db: from node-a to nowhere yet
  why: NodeUnreachable: neither LINSTOR nor any peer reaches the node
  11:02:19 pod default/db-0 is deleted by force
  11:02:20 the volume is detached from node-a
  open: the volume is not attached to node-b yet
  open: pod default/db-0 on node-b is Pending

1 fail-over, something is open of 1.
`,
		},
		"nobody wants the volume any more": {
			objects: leaves("db"), status: StatusUnprotected, answer: `
2026-05-04T11:02:19Z claim default/data-db, resource pvc-db: from node-a to nowhere yet
  why: NodeUnreachable: neither LINSTOR nor any peer reaches the node
  11:02:19 pod default/db-0 is deleted by force
  11:02:20 the volume is detached from node-a
  open: no pod asks for the volume now

1 fail-over, something is open of 1.
`,
		},
		"a fail-over waits for a finalizer and for the driver": {
			objects: begun("db"), status: StatusUnprotected, answer: `
2026-05-04T11:02:19Z claim default/data-db, resource pvc-db: from node-a to nowhere yet
  why: QuorumLost: no quorum
  11:02:19 the attachment to node-a is marked
  11:02:19 pod default/db-0 is deleted gracefully
  open: pod default/db-0 is still there on node-a, held by finalizers: example.com/hold
  open: the volume is not detached from node-a yet: the driver says no
  open: no pod asks for the volume now
  open: new pods are kept away from node-a by the taint drbd.linbit.com/lost-quorum

1 fail-over, something is open of 1.
`,
		},
		"only the mark is left": {
			objects: []client.Object{begun("db")[0], begun("db")[3]}, status: StatusUnprotected, answer: `
2026-05-04T11:02:19Z claim default/data-db, resource pvc-db: from node-a to nowhere yet
  why: QuorumLost: its Event is not there any more
  11:02:19 the attachment to node-a is marked
  open: the volume is not detached from node-a yet: the driver says no
  open: no pod asks for the volume now

1 fail-over, something is open of 1.
`,
		},
		"a pod is not moved": {
			objects: []client.Object{pvOf("web"), podOf("web", nodeA, "web", corev1.PodRunning), refused, gone, foreign}, status: StatusUnprotected, answer: `
2026-05-04T11:03:03Z pod default/web-0 is not moved, NoSurvivor: no other node could take over

No fail-over; 1 pod is not moved.
`,
		},
		"another namespace is asked about": {
			objects: append(moved("db"), refused, podOf("web", nodeA, "web", corev1.PodRunning)), args: []string{"-n", "other"}, status: StatusProtected, answer: `
No Event or mark tells of a fail-over; the API server forgets Events after an hour, unless it is told
otherwise.
`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, status, err := past(t, tc.args, nil, tc.objects...)
			if diff := cmp.Diff(strings.TrimPrefix(tc.answer, "\n"), out); diff != "" || status != tc.status || err != nil {
				t.Errorf("status %d, want %d; error %v; answer (-want +got):\n%s\n%s", status, tc.status, err, diff, out)
			}
		})
	}
}

func TestTheEventsOfFailOversAsYAML(t *testing.T) {
	t.Parallel()
	out, _, err := past(t, []string{"-o", "yaml"}, nil, moved("db")...)
	if err != nil {
		t.Fatal(err)
	}
	var got History
	if err := yaml.UnmarshalStrict([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	want := History{
		Message: "1 fail-over, nothing is open", Waiting: []Waiting{},
		Failovers: []Failover{{
			Volume: "pv-db", Resource: "pvc-db", Namespace: "default", Claim: "data-db", From: nodeA, To: nodeB, Reason: "NodeUnreachable", Message: unreachable,
			Steps: []Step{
				{crashedAt.Add(16 * time.Second), "pod default/db-0 is deleted by force"},
				{crashedAt.Add(17 * time.Second), "the volume is detached from node-a"},
				{crashedAt.Add(18 * time.Second), "the volume is attached to node-b, 8.4 s after the first sign of the loss"},
			},
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
}

func TestWhoMayNotListEventsIsToldWhatTo(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "events.k8s.io", Resource: "events"}, "", errors.New("not for you"))
	_, status, err := past(t, nil, forbidden)
	const want = "reading Events: events.events.k8s.io is forbidden: not for you; the controller's own account may not list them: run the check outside " +
		"of its pod, by an account that may list events.events.k8s.io, persistentvolumes, volumeattachments, pods and nodes"
	if status != StatusUnknown || err == nil || err.Error() != want {
		t.Errorf("status %d, error %v, want %q", status, err, want)
	}
}

// The names of Events are the controller's; a check does without the controller's code.
func TestEventsAreThoseOfTheController(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		eventForceDeleted: controllers.EventForceDeleted, eventForceDetached: controllers.EventForceDetached,
		eventFailedOver: controllers.EventFailedOver,
	} {
		if got != want {
			t.Errorf("the check looks for %s, the controller says %s", got, want)
		}
	}
}
