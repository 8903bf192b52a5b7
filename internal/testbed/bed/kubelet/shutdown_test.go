package kubelet

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// shutDown shuts the node down, and returns how long that took.
func (b *bench) shutDown(grace time.Duration) time.Duration {
	b.Helper()
	began := time.Now()
	b.k.ShutDown(b.Context(), grace)
	took := time.Since(began)
	b.pass(0)
	return took
}

// wantShutDown checks the phase, and the reason for it, of a pod.
func (b *bench) wantShutDown(name string, phase corev1.PodPhase, reason string) {
	b.Helper()
	status := b.pod(name).Status
	if status.Phase != phase || status.Reason != reason {
		b.Errorf("pod %s is %s %q (%s), want %s %q", name, status.Phase, status.Reason, status.Message, phase, reason)
	}
}

func TestANodeThatShutsDownFailsItsPodsAndUnmountsTheirVolumes(t *testing.T) {
	onBench(t, Config{}, func(b *bench) {
		b.runPod("db", func(pod *corev1.Pod) { pod.Annotations = map[string]string{AnnotationStopDelay: "2s"} })
		if took := b.shutDown(30 * time.Second); took != 2*time.Second {
			t.Errorf("the pod had %s to stop, want the two seconds that it takes", took)
		}
		b.wantShutDown("db", corev1.PodFailed, "Terminated")
		b.wantReady("db", false)
		b.wantOpen()
		if nodeReady(b.node()) {
			t.Error("the node is still Ready")
		}
	})
}

func TestANodeThatIsOffSoonAfterItsPodsLeavesTheirVolumesInUse(t *testing.T) {
	onBench(t, Config{}, func(b *bench) {
		b.runPod("db", nil)
		b.shutDown(30 * time.Second)
		b.pass(time.Second)
		b.k.Crash()
		b.pass(10 * time.Minute)
		b.wantInUse("db")
		b.k.Boot()
		b.pass(time.Second)
		b.wantInUse()
		b.wantShutDown("db", corev1.PodFailed, "Terminated")
		if !nodeReady(b.node()) {
			t.Error("the node is not Ready again")
		}
	})
}

func TestANodeThatTakesItsTimeToBeOffReleasesTheVolumes(t *testing.T) {
	onBench(t, Config{}, func(b *bench) {
		b.runPod("db", nil)
		b.shutDown(30 * time.Second)
		b.pass(11 * time.Second) // the periodic status
		b.wantInUse()
	})
}

func TestAShutdownWaitsForNoPodLongerThanItsGrace(t *testing.T) {
	onBench(t, Config{}, func(b *bench) {
		b.runPod("slow", func(pod *corev1.Pod) {
			pod.Annotations = map[string]string{AnnotationStopDelay: "10m"}
			pod.Spec.TerminationGracePeriodSeconds = new(int64(600))
		})
		b.runPod("stuck", func(pod *corev1.Pod) { pod.Annotations = map[string]string{AnnotationStuck: "true"} })
		if took := b.shutDown(5 * time.Second); took != 5*time.Second {
			t.Errorf("it took %s", took)
		}
		b.pass(time.Second)
		b.wantShutDown("slow", corev1.PodFailed, "Terminated")
		b.wantShutDown("stuck", corev1.PodRunning, "")
		b.wantOpen("stuck")
	})
}

func TestANodeThatShutsDownTakesNoPod(t *testing.T) {
	onBench(t, Config{}, func(b *bench) {
		b.shutDown(30 * time.Second)
		b.createVolume("late", nil)
		b.attach("late")
		b.createPod("late", "late", nil)
		b.pass(time.Second)
		b.wantShutDown("late", corev1.PodFailed, "NodeShutdown")
		b.wantOpen()
	})
}

func TestAPodThatHadCompletedStaysSoWhenItsNodeShutsDown(t *testing.T) {
	onBench(t, Config{}, func(b *bench) {
		b.createPod("job", "", func(pod *corev1.Pod) { pod.Annotations = map[string]string{AnnotationRunFor: "1s"} })
		b.pass(2 * time.Second)
		b.shutDown(30 * time.Second)
		b.wantShutDown("job", corev1.PodSucceeded, "")
	})
}
