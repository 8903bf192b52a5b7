package kubelet

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/csidriver"
)

func TestPodWithoutVolumesRuns(t *testing.T) {
	onBench(t, Config{}, func(b *bench) {
		b.createPod("web", "", nil)
		b.pass(time.Second)
		b.wantReady("web", true)
		pod := b.pod("web")
		if pod.Status.Phase != corev1.PodRunning || pod.Status.PodIP == "" || pod.Status.ContainerStatuses[0].State.Running == nil {
			t.Errorf("status: %+v", pod.Status)
		}
	})
}

func TestVolumeIsReportedInUseBeforeItIsOpenedAndOpenedOnceItIsAttached(t *testing.T) {
	onBench(t, Config{}, func(b *bench) {
		b.createVolume("db", nil)
		b.createPod("db", "db", nil)
		b.pass(time.Second)
		b.wantInUse("db")
		b.wantOpen()
		b.wantReady("db", false)

		b.attachInStatus("db")
		b.pass(time.Second)
		b.wantOpen() // only the node's status says so

		b.createAttachment("db", true)
		b.pass(time.Second)
		b.wantOpen("db")
		b.wantReady("db", true)
	})
}

func TestVolumeIsReportedWithThePeriodicStatusOnly(t *testing.T) {
	onBench(t, Config{Timings: Timings{StatusOnChange: Never}}, func(b *bench) {
		b.createVolume("db", nil)
		b.attach("db")
		b.createPod("db", "db", nil)
		b.pass(5 * time.Second)
		b.wantInUse()
		b.wantOpen()
		b.pass(5 * time.Second)
		b.wantInUse("db")
		b.wantReady("db", true)
	})
}

func TestVolumeIsOpenedByItsKind(t *testing.T) {
	block := func(pv *corev1.PersistentVolume) { pv.Spec.VolumeMode = new(corev1.PersistentVolumeBlock) }
	tests := map[string]struct {
		pv   func(*corev1.PersistentVolume)
		pod  func(*corev1.Pod)
		want []string
	}{
		"a filesystem is opened for writing": {want: []string{"data"}},
		"a claim that the pod uses read-only is opened read-only": {
			pod:  func(pod *corev1.Pod) { pod.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true },
			want: []string{"ro:data"},
		},
		"a read-only volume is opened read-only": {
			pv:   func(pv *corev1.PersistentVolume) { pv.Spec.CSI.ReadOnly = true },
			want: []string{"ro:data"},
		},
		"a volume that is only ReadOnlyMany is opened read-only": {
			pv: func(pv *corev1.PersistentVolume) {
				pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
			},
			want: []string{"ro:data"},
		},
		"a raw block volume is opened by the containers": {pv: block, want: []string{"data"}},
		"a raw block volume that the containers leave alone is not opened": {
			pv:  block,
			pod: func(pod *corev1.Pod) { pod.Annotations = map[string]string{AnnotationOpenBlock: "false"} },
		},
		"an NFS export is not opened": {
			pv: func(pv *corev1.PersistentVolume) {
				pv.Spec.CSI.VolumeAttributes = map[string]string{csidriver.NFSExportKey: "true"}
			},
		},
		"a volume of another number belongs to the same resource": {
			pv:   func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "group/1" },
			want: []string{"group"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			onBench(t, Config{}, func(b *bench) {
				b.createVolume("data", test.pv)
				b.attach("data")
				b.attach("group/1")
				b.createPod("pod", "data", test.pod)
				b.pass(2 * time.Second)
				b.wantReady("pod", true)
				b.wantOpen(test.want...)
				b.deletePod("pod", 30)
				b.pass(time.Second)
				b.wantOpen()
				b.wantInUse()
			})
		})
	}
}

func TestRefusedVolumeIsTriedAgain(t *testing.T) {
	onBench(t, Config{}, func(b *bench) {
		b.storage.set(func(s *fakeStorage) { s.refuse = true })
		b.createVolume("db", nil)
		b.attach("db")
		b.createPod("db", "db", nil)
		b.pass(time.Minute)
		b.wantReady("db", false)
		b.storage.set(func(s *fakeStorage) {
			if s.tries < 10 || s.tries > 30 {
				t.Errorf("%d tries in a minute", s.tries)
			}
			s.refuse = false
		})
		b.pass(6 * time.Second)
		b.wantReady("db", true)
	})
}

func TestGracefulDeletionStopsContainersThenUnmountsThenDeletes(t *testing.T) {
	onBench(t, Config{}, func(b *bench) {
		b.runPod("db", func(pod *corev1.Pod) { pod.Annotations = map[string]string{AnnotationStopDelay: "5s"} })
		b.deletePod("db", 30)
		b.pass(4 * time.Second)
		b.wantOpen("db")
		b.wantInUse("db")
		b.wantReady("db", true)
		b.pass(2 * time.Second)
		b.wantOpen()
		b.wantInUse()
		if pod := b.pod("db"); pod != nil {
			t.Errorf("the pod is still there: %+v", pod.Status)
		}
	})
}

func TestContainersAreKilledWhenTheGracePeriodEnds(t *testing.T) {
	onBench(t, Config{}, func(b *bench) {
		b.runPod("db", func(pod *corev1.Pod) { pod.Annotations = map[string]string{AnnotationStopDelay: "1h"} })
		b.deletePod("db", 60)
		b.pass(50 * time.Second)
		b.wantOpen("db")
		b.deletePod("db", 52) // the grace period is shortened while it runs
		b.pass(3 * time.Second)
		b.wantOpen()
	})
}

func TestForceDeletedPodStopsAndUnmounts(t *testing.T) {
	onBench(t, Config{}, func(b *bench) {
		b.runPod("db", nil)
		b.forceDeletePod("db")
		b.pass(time.Second)
		b.wantOpen()
		b.wantInUse()
		b.createPod("db", "db", nil) // of the same name
		b.pass(time.Second)
		b.wantOpen("db")
		b.wantReady("db", true)
	})
}

func TestPodWithHangingIOStaysTerminating(t *testing.T) {
	tests := map[string]struct{ hang, release func(b *bench) }{
		"by annotation": {
			func(b *bench) {
				b.updatePod("db", func(pod *corev1.Pod) { pod.Annotations = map[string]string{AnnotationStuck: "true"} })
			},
			func(b *bench) { b.updatePod("db", func(pod *corev1.Pod) { pod.Annotations = nil }) },
		},
		"by the storage": {
			func(b *bench) { b.storage.set(func(s *fakeStorage) { s.hangs = true }) },
			func(b *bench) { b.storage.set(func(s *fakeStorage) { s.hangs = false }) },
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			onBench(t, Config{}, func(b *bench) {
				b.runPod("db", nil)
				test.hang(b)
				b.deletePod("db", 1)
				b.pass(time.Hour)
				b.wantOpen("db")
				b.wantInUse("db")
				if b.pod("db") == nil {
					t.Fatal("the pod is gone")
				}
				test.release(b)
				b.pass(time.Second)
				b.wantOpen()
				if b.pod("db") != nil {
					t.Error("the pod is still there")
				}
			})
		})
	}
}

func TestTwoPodsShareAVolume(t *testing.T) {
	onBench(t, Config{}, func(b *bench) {
		b.runPod("db", nil)
		b.createPod("reader", "db", nil)
		b.pass(2 * time.Second)
		b.deletePod("db", 30)
		b.pass(time.Second)
		b.wantOpen("db")
		b.wantInUse("db")
		b.deletePod("reader", 30)
		b.pass(time.Second)
		b.wantOpen()
		b.wantInUse()
	})
}

func TestConditionsOfOtherWritersAreKeptOrContradicted(t *testing.T) {
	onBench(t, Config{}, func(b *bench) {
		b.runPod("db", nil)
		b.updatePod("db", func(pod *corev1.Pod) {
			for i := range pod.Status.Conditions { // what happens to the pods of a NotReady node
				if pod.Status.Conditions[i].Type == corev1.PodReady {
					pod.Status.Conditions[i].Status = corev1.ConditionFalse
				}
			}
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(),
			})
		})
		b.pass(time.Second)
		b.wantReady("db", true)
		if kinds := len(b.pod("db").Status.Conditions); kinds != 5 {
			t.Errorf("conditions: %v", b.pod("db").Status.Conditions)
		}
	})
}

func TestPodThatCompletesOrFailsReleasesItsVolume(t *testing.T) {
	tests := map[string]struct {
		change func(*corev1.Pod)
		end    func(b *bench)
		want   corev1.PodPhase
	}{
		"a job's pod completes": {
			change: func(pod *corev1.Pod) {
				pod.Annotations = map[string]string{AnnotationRunFor: "5s"}
				pod.Spec.RestartPolicy = corev1.RestartPolicyNever
			},
			want: corev1.PodSucceeded,
		},
		"somebody fails the pod": {
			end: func(b *bench) {
				b.updatePod("db", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed })
			},
			want: corev1.PodFailed,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			onBench(t, Config{}, func(b *bench) {
				b.runPod("db", test.change)
				b.wantOpen("db")
				if test.end != nil {
					test.end(b)
				}
				b.pass(10 * time.Second)
				b.wantOpen()
				b.wantInUse()
				if phase := b.pod("db").Status.Phase; phase != test.want {
					t.Errorf("phase %s, want %s", phase, test.want)
				}
				b.k.Crash()
				b.k.Boot()
				b.pass(10 * time.Second)
				b.wantOpen()
				b.deletePod("db", 30)
				b.pass(time.Second)
				if b.pod("db") != nil {
					t.Error("the pod is still there")
				}
			})
		})
	}
}
