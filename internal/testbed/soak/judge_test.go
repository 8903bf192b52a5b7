package soak

import (
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/oracle"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// reading is a client that can list, which that of the model cannot.
type reading struct {
	client.Client
	view *apimodel.View
}

func (r reading) Get(ctx context.Context, key client.ObjectKey, out client.Object, opts ...client.GetOption) error {
	return r.view.Get(ctx, key, out, opts...)
}

func (r reading) List(ctx context.Context, out client.ObjectList, opts ...client.ListOption) error {
	err := r.view.List(ctx, out, opts...)
	if pods, ok := out.(*corev1.PodList); ok {
		for i := range pods.Items { // the kubelets of the model report the phase only
			status := &pods.Items[i].Status
			ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse}
			if status.Phase == corev1.PodRunning {
				ready.Status = corev1.ConditionTrue
			}
			status.Conditions = append(slices.Clone(status.Conditions), ready)
		}
	}
	return err
}

// world is a soak in virtual time of a cluster that has no controller: what one could do wrong, or leave undone, is done by
// the test.
type world struct {
	*testing.T
	*runner
	cluster *virtual.Cluster
	w       bed.Workload
}

const lost, other = "node-a", "node-b"

func inWorld(t *testing.T, story func(*world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := virtual.New(ctx, virtual.Options{})
		defer func() {
			cancel()
			c.Stop()
		}()
		nodes := []string{lost, other, "node-t"}
		w := workload("db0", nodes)
		volume := w.Volumes[0].Name
		b := &bed.Bed{Client: reading{c.Client(), c.API.View(0, nil)}, DRBD: c.DRBD, LINSTOR: c.Linstor, LogDir: t.TempDir()}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, node := range nodes {
			must(c.AddNode(ctx, node))
		}
		must(os.WriteFile(filepath.Join(b.LogDir, "audit.log"), nil, 0o600))
		must(c.AddVolume(ctx, virtual.Volume{Name: volume, Handle: volume, Namespace: namespace, Claim: volume, Diskful: nodes}))
		c.AddWorkload(virtual.Workload{
			Namespace: namespace, Name: "db0-0", Claims: []string{volume}, Nodes: nodes,
			Labels: map[string]string{bed.SelectedLabel: bed.SelectedValue, "app.kubernetes.io/name": "db0"},
		})
		must(c.Client().Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: bed.ControllerNamespace, Name: bed.ControllerName},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("somebody_1")},
		}))
		r := &runner{
			bed: b, random: rand.New(rand.NewPCG(1, 0)), out: io.Discard, workloads: []bed.Workload{w},
			report: Report{Moved: map[string]int{}, Disturbed: map[string]int{}}, judge: oracle.Watch(b),
		}
		defer r.judge.Stop()
		time.Sleep(time.Minute)
		story(&world{t, r, c, w})
	})
}

// pod returns the workload's only pod.
func (w *world) pod() *corev1.Pod {
	w.Helper()
	pod, err := w.onlyPod(w.Context(), w.w)
	if pod == nil || err != nil {
		w.Fatalf("no pod of the workload: %v", err)
	}
	return pod
}

func crash() loss {
	return losses[slices.IndexFunc(losses, func(l loss) bool { return l.name == "crash" })]
}

// asked writes into the audit log that the controller has asked for something, and was obeyed.
func (w *world) asked(verb, resource string, pod *corev1.Pod) {
	w.Helper()
	body, err := json.Marshal(metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(pod.UID)}})
	if err != nil {
		w.Fatal(err)
	}
	line, err := json.Marshal(auditv1.Event{
		Verb: verb, User: authenticationv1.UserInfo{Username: "system:serviceaccount:ha-controller:ha-controller"},
		ObjectRef:      &auditv1.ObjectReference{Resource: resource, Namespace: pod.Namespace, Name: pod.Name},
		ResponseStatus: &metav1.Status{Code: 200}, StageTimestamp: metav1.NewMicroTime(time.Now()),
		RequestObject: &runtime.Unknown{Raw: body, ContentType: runtime.ContentTypeJSON},
	})
	if err != nil {
		w.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.bed.LogDir, "audit.log"), append(line, '\n'), 0o600); err != nil {
		w.Fatal(err)
	}
}

func TestAWorkloadThatNobodyMovesIsMissed(t *testing.T) {
	inWorld(t, func(w *world) {
		before := w.pod()
		w.cluster.Crash(before.Spec.NodeName)
		said := w.outcome(w.Context(), crash(), w.w, before, time.Now())
		if said != "missed" || len(w.report.Missed) != 1 || w.report.OK() || len(w.report.Moved) != 0 {
			w.Errorf("the round says %q, report %+v", said, w.report)
		}
	})
}

func TestAWorkloadThatRunsElsewhereHasMoved(t *testing.T) {
	inWorld(t, func(w *world) {
		before := w.pod().DeepCopy()
		before.Spec.NodeName = other // it was there, and runs on A
		said := w.outcome(w.Context(), crash(), w.w, before, time.Now())
		if len(w.report.Missed) != 0 || w.report.Moved["crash"] != 1 {
			w.Errorf("the round says %q, report %+v", said, w.report)
		}
	})
}

func TestARemovalFromANodeThatWritesIsWrong(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := w.pod()
		w.asked("delete", "pods", pod)
		if err := w.judgeRound("round 1"); err != nil {
			w.Fatal(err)
		}
		if len(w.report.Wrong) != 1 || !strings.Contains(w.report.Wrong[0], lost+" could write") || w.report.OK() {
			w.Errorf("report %+v", w.report)
		}
	})
}

func TestARemovalFromALostNodeIsNotWrong(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := w.pod()
		w.cluster.Crash(lost)
		time.Sleep(20 * time.Second)
		w.asked("delete", "pods", pod)
		if err := w.judgeRound("round 1"); err != nil || len(w.report.Wrong) != 0 {
			w.Errorf("%v, report %+v", err, w.report)
		}
	})
}

func TestWhatIsLeftBehindIsTold(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		leave func(*world)
		want  string
	}{
		"nothing": {leave: func(*world) {}},
		"a taint on a node": {
			leave: func(w *world) {
				w.change(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: lost}}, func(o client.Object) {
					o.(*corev1.Node).Spec.Taints = []corev1.Taint{{Key: "drbd.linbit.com/lost-quorum", Effect: corev1.TaintEffectNoSchedule}}
				})
			},
			want: "taint drbd.linbit.com/lost-quorum on " + lost,
		},
		"a mark on a node": {
			leave: func(w *world) {
				w.change(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: lost}}, func(o client.Object) {
					o.SetAnnotations(map[string]string{markOfNode: "{}"})
				})
			},
			want: "a mark on " + lost,
		},
		"a satellite that is cut": {leave: func(w *world) { w.cluster.Linstor.CutSatellite("node-t") }, want: "the replica of db0 on node-t"},
		"a LINSTOR that is away":  {leave: func(w *world) { w.cluster.Linstor.Stop() }, want: "the replica of db0 on " + lost},
		"no leader": {
			leave: func(w *world) {
				lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: bed.ControllerNamespace, Name: bed.ControllerName}}
				w.change(lease, func(o client.Object) { o.(*coordinationv1.Lease).Spec.HolderIdentity = nil })
			},
			want: "no leader",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				tc.leave(w)
				time.Sleep(20 * time.Second) // until LINSTOR has noticed
				if err := w.settle(w.Context(), "round 1"); err != nil {
					w.Fatal(err)
				}
				if got := strings.Join(w.report.Leftover, "; "); (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
					w.Errorf("left behind: %q, want %q", got, tc.want)
				}
			})
		})
	}
}

// change changes an object as it is now.
func (w *world) change(o client.Object, change func(client.Object)) {
	w.Helper()
	if err := w.bed.Client.Get(w.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		w.Fatal(err)
	}
	change(o)
	if err := w.bed.Client.Update(w.Context(), o); err != nil {
		w.Fatal(err)
	}
}

func TestAProcessThatEndsByItselfIsTold(t *testing.T) {
	t.Parallel()
	now := time.Now()
	r := &runner{}
	r.excuse(now.Add(excuse))
	r.endedAt(bed.ControllerProcess{Pod: "killed"}, now.Add(excuse/2))
	r.endedAt(bed.ControllerProcess{Pod: "alone"}, now.Add(2*excuse))
	if len(r.report.Ended) != 1 || !strings.Contains(r.report.Ended[0], "alone") || r.report.OK() {
		t.Errorf("ended by themselves: %q", r.report.Ended)
	}
}
