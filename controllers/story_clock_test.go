package controllers

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/servertime"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// wrongClock is a controller that leads by default settings, and whose clock is behind that of the API server by so much.
func wrongClock(t *testing.T, behind time.Duration, tell func(w *world, p *process)) {
	t.Helper()
	inWorld(t, virtual.Options{}, func(w *world) {
		w.API.SetClock(behind)
		cfg := defaults()
		cfg.ServerTime = servertime.New()
		cfg.ServerTime.Learn(time.Now(), time.Now(), w.API.Now().Time)
		p := w.startProcess("one", cfg)
		p.leads()
		tell(w, p)
	})
}

// Objects have the API server's times, and a grace is no longer and no shorter for what the controller's own clock shows.
func TestTheControllersClockIsWrong(t *testing.T) {
	for _, behind := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute} {
		t.Run(fmt.Sprintf("by %s, and a node crashes", behind), func(t *testing.T) {
			wrongClock(t, behind, func(w *world, _ *process) {
				w.volume("db")
				w.workload("db", selected)
				w.pass(2 * time.Minute)
				w.wantRunning("db-0", nodeA)
				w.Crash(nodeA)
				w.until(15*time.Second, "the pod is removed", func() bool { return len(w.removed("db-0")) > 0 })
				w.until(15*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
			})
		})
		t.Run(fmt.Sprintf("by %s, and a pod is placed on a node that crashed before", behind), func(t *testing.T) {
			wrongClock(t, behind, func(w *world, _ *process) {
				w.volume("db")
				w.pass(time.Minute)
				w.Crash(nodeA)
				w.pass(30 * time.Second)
				w.workload("db", selected, func(workload *virtual.Workload) { workload.Nodes, workload.Tolerant = []string{nodeA}, true })
				took := w.untilRemoved(2*time.Minute, "db-0")
				if took < 44*time.Second || took > 50*time.Second {
					t.Errorf("the pod is removed after %s, want the known grace", took)
				}
			})
		})
	}
}

// When a container started is told by the clock of its node. By one that is fast it started after its volume was last in use.
func TestTheClockOfANodeIsWrongThatIsDemoted(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{-time.Hour, 10 * time.Minute, time.Hour} {
		t.Run(skew.String(), func(t *testing.T) {
			inWorld(t, virtual.Options{}, func(w *world) {
				w.startProcess("one", defaults()).leads()
				w.SetClock(nodeA, skew)
				w.pass(time.Minute)
				w.volume("db")
				w.workload("db", selected)
				w.pass(2 * time.Minute)
				w.wantRunning("db-0", nodeA)
				w.DRBD.Close("pvc-db", nodeA)
				if took := w.untilRemoved(2*time.Minute, "db-0"); took < 44*time.Second || took > 50*time.Second {
					t.Errorf("the pod is removed after %s, want the known grace", took)
				}
			})
		})
	}
}

// Every time of an object is turned into one of our clock.
func TestTimesOfObjectsAreTurnedIntoOurs(t *testing.T) {
	t.Parallel()
	const behind = 10 * time.Minute
	synctest.Test(t, func(t *testing.T) {
		s := newSteps(t)
		s.r.inputs.Linstor = noLinstor{}
		pod := s.pod()
		pod.DeletionTimestamp = new(metav1.NewTime(start.Add(time.Hour)))
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: start}},
		}}
		inputs := &s.r.inputs
		read, err := s.r.readAttachments(s.ctx, nodeA, []*volume{s.volume()})
		s.must(err)
		reading := cluster.Reading{Node: nodeA, Attachments: read}
		before, err := inputs.Confirmed(s.ctx, s.pv, reading, []corev1.Pod{*pod}, cluster.Remembered{})
		s.must(err)
		inputs.ServerTime = servertime.New()
		inputs.ServerTime.Learn(start.Time, start.Time, start.Add(behind))
		now, err := inputs.Confirmed(s.ctx, s.pv, reading, []corev1.Pod{*pod}, cluster.Remembered{})
		s.must(err)
		for name, at := range map[string][2]time.Time{
			"the creation of the pod":        {before.Pods[0].Created, now.Pods[0].Created},
			"the binding of the pod":         {before.Pods[0].Bound, now.Pods[0].Bound},
			"the start of a container":       {before.Pods[0].Started, now.Pods[0].Started},
			"the start of one that runs":     {before.Pods[0].RunningSince, now.Pods[0].RunningSince},
			"the end of the pod's grace":     {before.Pods[0].DeleteBy, now.Pods[0].DeleteBy},
			"the creation of the attachment": {before.Attachment.Created, now.Attachment.Created},
			"the creation of the volume":     {before.Volume.Created, now.Volume.Created},
		} {
			if at[0].IsZero() || at[0].Sub(at[1]) != behind {
				t.Errorf("%s is %s, was %s", name, at[1], at[0])
			}
		}
	})
}
