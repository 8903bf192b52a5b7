package cluster

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// lease returns a Lease whose kubelet's clock is a year behind. Its duration is so short that nothing has to be learnt of its kubelet.
func lease(node string, renewals int) *coordinationv1.Lease {
	renewed := metav1.NewMicroTime(start.AddDate(-1, 0, 0).Add(time.Duration(renewals) * 10 * time.Second))
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: LeaseNamespace, Name: node},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &renewed, LeaseDurationSeconds: new(int32(10))},
	}
}

func TestLeaseSilence(t *testing.T) {
	t.Parallel()
	const a, b, c = nodeA, nodeB, nodeT
	everybody := func(k *Kubelets, renewals int, nodes ...string) {
		for _, node := range nodes {
			k.ObserveLease(lease(node, renewals))
		}
	}
	cases := map[string]struct {
		tell    func(*Kubelets)
		known   bool
		silence time.Duration
	}{
		"a Lease that was never seen says nothing": {tell: func(*Kubelets) {}},
		"silence counts from what was seen, not from the kubelet's clock": {
			tell: func(k *Kubelets) {
				everybody(k, 0, a, b, c)
				<-time.After(11 * time.Second)
			},
			known: true, silence: 11 * time.Second,
		},
		"a renewal ends it": {
			tell: func(k *Kubelets) {
				everybody(k, 0, a, b, c)
				<-time.After(11 * time.Second)
				everybody(k, 1, a, b)
				<-time.After(time.Second)
			},
			known: true, silence: time.Second,
		},
		"the same renewal seen again does not": {
			tell: func(k *Kubelets) {
				everybody(k, 0, a, b, c)
				<-time.After(5 * time.Second)
				everybody(k, 0, a)
				<-time.After(5 * time.Second)
			},
			known: true, silence: 10 * time.Second,
		},
		"a clock that is set back is a renewal, too": {
			tell: func(k *Kubelets) {
				everybody(k, 9, a, b, c)
				<-time.After(10 * time.Second)
				everybody(k, 3, a)
			},
			known: true,
		},
		"one of three may be silent": {
			tell: func(k *Kubelets) {
				everybody(k, 0, a, b, c)
				<-time.After(30 * time.Second)
				everybody(k, 1, b, c)
			},
			known: true, silence: 30 * time.Second,
		},
		"two of three silent at once say nothing": {
			tell: func(k *Kubelets) {
				everybody(k, 0, a, b, c)
				<-time.After(30 * time.Second)
				everybody(k, 1, c)
			},
		},
		"one of two may be silent": {
			tell: func(k *Kubelets) {
				everybody(k, 0, a, b)
				<-time.After(30 * time.Second)
				everybody(k, 1, b)
			},
			known: true, silence: 30 * time.Second,
		},
		"nodes that went long ago do not count": {
			tell: func(k *Kubelets) {
				everybody(k, 0, b, c)
				<-time.After(4*time.Minute + 30*time.Second)
				everybody(k, 0, a, "node-x")
				<-time.After(30 * time.Second)
				everybody(k, 1, "node-x")
			},
			known: true, silence: 30 * time.Second,
		},
		"nodes that went less than five minutes ago do": {
			tell: func(k *Kubelets) {
				everybody(k, 0, b, c)
				<-time.After(4*time.Minute + 29*time.Second)
				everybody(k, 0, a, "node-x")
				<-time.After(30 * time.Second)
				everybody(k, 1, "node-x")
			},
		},
		"two of three silent for just long enough say nothing": {
			tell: func(k *Kubelets) {
				everybody(k, 0, a, b, c)
				<-time.After(failover.ForceSilence)
				everybody(k, 1, c)
			},
		},
		"a Lease that was deleted says nothing": {
			tell: func(k *Kubelets) {
				everybody(k, 0, a, b, c)
				k.forgetLease(lease(a, 0))
			},
		},
		"Leases of others than kubelets do not count": {
			tell: func(k *Kubelets) {
				other := lease(a, 0)
				other.Namespace = "default"
				k.ObserveLease(other)
			},
		},
		"a Lease that was never renewed does not count": {
			tell: func(k *Kubelets) {
				empty := lease(a, 0)
				empty.Spec.RenewTime = nil
				k.ObserveLease(empty)
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k := NewKubelets(clock.RealClock{}, "", nil)
				c.tell(k)
				got := k.Node(nodeA)
				if got.LeaseKnown != c.known || got.LeaseKnown && got.LeaseSilence != c.silence {
					t.Errorf("known: %t, silence %s, want %t, %s", got.LeaseKnown, got.LeaseSilence, c.known, c.silence)
				}
			})
		})
	}
}

func TestSilentKubelets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := NewKubelets(clock.RealClock{}, "", nil)
		k.ObserveLease(lease("more", 0))
		<-time.After(time.Second)
		k.ObserveLease(lease("most", 0))
		<-time.After(10 * time.Second)
		k.ObserveLease(lease("least", 0))
		<-time.After(time.Second)
		k.ObserveLease(lease("young", 0))
		<-time.After(20 * time.Second)
		for i := range 4 {
			k.ObserveLease(lease(fmt.Sprintf("alive-%d", i), 0))
		}
		got := k.Silent(21*time.Second, 31*time.Second)
		slices.Sort(got)
		if diff := cmp.Diff([]string{"least", "most"}, got); diff != "" {
			t.Errorf("silent for 21 s to 31 s (-want +got):\n%s", diff)
		}
		k.forgetLease(lease("alive-0", 0))
		if got := k.Silent(0, time.Hour); got != nil {
			t.Errorf("while most are silent, %v count", got)
		}
	})
}

func TestWhatIsWatched(t *testing.T) {
	t.Parallel()
	k := NewKubelets(clock.RealClock{}, "", nil)
	known := func() bool { return k.Node(nodeA).LeaseKnown }
	handler := onChange(k.ObserveLease, k.forgetLease)
	handler.OnAdd("something else", true)
	for _, forget := range []any{lease(nodeA, 0), toolscache.DeletedFinalStateUnknown{Obj: lease(nodeA, 0)}} {
		handler.OnAdd(lease(nodeA, 0), true)
		if !known() {
			t.Error("a Lease that was added is not known")
		}
		handler.OnDelete(forget)
		if known() {
			t.Errorf("a Lease that was deleted is still known: %T", forget)
		}
	}
	handler.OnUpdate(lease(nodeA, 0), lease(nodeA, 1))
	if !known() {
		t.Error("a Lease that was renewed is not known")
	}
}

func TestBoots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := NewKubelets(clock.RealClock{}, "", []string{"off"})
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeA}}
		k.ObserveNode(node)
		if got := k.Node(nodeA); !got.BootSince.IsZero() {
			t.Errorf("a node without a boot ID has booted at %s", got.BootSince)
		}
		<-time.After(time.Minute)
		first := time.Now()
		node.Status.NodeInfo.BootID = "1"
		k.ObserveNode(node)
		<-time.After(time.Minute)
		node.Spec.Taints = []corev1.Taint{{Key: "off"}}
		k.ObserveNode(node)
		if got, want := k.Node(nodeA), (failover.Node{Name: nodeA, BootSince: first, Shutdown: true}); got != want {
			t.Errorf("node %+v, want %+v", got, want)
		}
		second := time.Now()
		node.Status.NodeInfo.BootID, node.Spec.Taints = "2", []corev1.Taint{{Key: "other"}}
		k.ObserveNode(node)
		if got, want := k.Node(nodeA), (failover.Node{Name: nodeA, BootSince: second}); got != want {
			t.Errorf("node %+v, want %+v", got, want)
		}
		node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
		k.ObserveNode(node)
		if got, want := k.Node(nodeA), (failover.Node{Name: nodeA, BootSince: second, OutOfService: true, Evicts: true, NotReady: true}); got != want {
			t.Errorf("node %+v, want %+v", got, want)
		}
		k.forgetNode(node)
		if got, want := k.Node(nodeA), (failover.Node{Name: nodeA}); got != want {
			t.Errorf("node %+v, want %+v", got, want)
		}
	})
}

// Who says that a node was switched off after its last sign of life knows what became of it.
func TestAShutdownTaintThatCameAfterTheLastSignOfLife(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		tell func(k *Kubelets, node func(boot string, off bool), renew, pass func())
		want bool
	}{
		"the taint comes while the kubelet is silent": {
			func(_ *Kubelets, node func(string, bool), renew, pass func()) {
				node("1", false)
				renew()
				pass()
				node("1", true)
			}, true,
		},
		"the taint was there when the node was first seen": {
			func(_ *Kubelets, node func(string, bool), renew, pass func()) { renew(); pass(); node("1", true) }, false,
		},
		"so it was, and nothing is known of its boot": {
			func(_ *Kubelets, node func(string, bool), renew, pass func()) { renew(); pass(); node("", true) }, false,
		},
		"the kubelet has renewed its Lease since": {
			func(_ *Kubelets, node func(string, bool), renew, pass func()) {
				node("1", false)
				renew()
				pass()
				node("1", true)
				pass()
				renew()
			}, false,
		},
		"the node has booted since": {
			func(_ *Kubelets, node func(string, bool), renew, pass func()) {
				node("1", false)
				renew()
				pass()
				node("1", true)
				pass()
				node("2", true)
			}, false,
		},
		"the taint was taken off": {
			func(_ *Kubelets, node func(string, bool), renew, pass func()) {
				node("1", false)
				renew()
				pass()
				node("1", true)
				node("1", false)
			}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := start.Time
			k := NewKubelets(clockAt{&now}, "", []string{"off"})
			renewals := 0
			tc.tell(k, func(boot string, off bool) {
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeA}}
				node.Status.NodeInfo.BootID = boot
				if off {
					node.Spec.Taints = []corev1.Taint{{Key: "off"}, {Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoSchedule}}
				}
				k.ObserveNode(node)
			}, func() {
				renewals++
				lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: LeaseNamespace, Name: nodeA}}
				lease.Spec.RenewTime = &metav1.MicroTime{Time: start.Add(time.Duration(renewals) * time.Second)}
				k.ObserveLease(lease)
			}, func() { now = now.Add(5 * time.Second) })
			if got := k.Node(nodeA); got.SwitchedOff != tc.want || got.TakenOut != tc.want {
				t.Errorf("switched off: %t, taken out of service: %t, want %t", got.SwitchedOff, got.TakenOut, tc.want)
			}
		})
	}
}

// While most kubelets are silent nobody looks at any of them. One that still is when the others are back must not have been silent for too long.
func TestAKubeletThatWasSilentAmongMostCountsOnceTheOthersAreBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := NewKubelets(clock.RealClock{}, "", nil)
		for _, node := range []string{"alive", "dead", "back"} {
			k.ObserveLease(lease(node, 0))
		}
		for i := range 6 {
			<-time.After(10 * time.Second)
			k.ObserveLease(lease("alive", i+1))
		}
		if got := k.Silent(failover.ForceSilence, 40*time.Second); got != nil {
			t.Errorf("while most are silent, %v count", got)
		}
		k.ObserveLease(lease("back", 1))
		<-time.After(time.Second)
		if got := k.Silent(failover.ForceSilence, 40*time.Second); !slices.Equal(got, []string{"dead"}) {
			t.Errorf("%v count, want the one that is dead", got)
		}
		for i := range 5 {
			<-time.After(10 * time.Second)
			k.ObserveLease(lease("alive", i+7))
			k.ObserveLease(lease("back", i+2))
		}
		if got := k.Silent(failover.ForceSilence, 40*time.Second); got != nil {
			t.Errorf("%v count, and are of no use any more", got)
		}
	})
}

// The loss of a node that may be switched off is expected.
func TestWhichNodesMayBeSwitchedOff(t *testing.T) {
	t.Parallel()
	const safe, unsafe = `{"mode":"last-copies","safe":"2026-03-01T12:00:00Z"}`, `{"mode":"last-copies"}`
	for name, tc := range map[string]struct {
		progress string
		effect   corev1.TaintEffect
		spared   bool
	}{
		"a node that is evacuated, its data safe elsewhere":       {safe, corev1.TaintEffectNoSchedule, true},
		"a node that is evacuated, its data not safe elsewhere":   {unsafe, corev1.TaintEffectNoSchedule, false},
		"a node of whose evacuation nothing can be read":          {`{`, corev1.TaintEffectNoSchedule, false},
		"a node of whose evacuation nothing is known":             {"", corev1.TaintEffectNoSchedule, false},
		"a node that is no longer evacuated":                      {safe, "", false},
		"a node whose taint has an effect that evacuates nothing": {safe, corev1.TaintEffectPreferNoSchedule, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := NewKubelets(clock.RealClock{}, "", nil)
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeA}}
			if tc.progress != "" {
				node.Annotations = map[string]string{AnnotationEvacuation: tc.progress}
			}
			if tc.effect != "" {
				node.Spec.Taints = []corev1.Taint{{Key: evacuation.TaintKey, Value: "last-copies", Effect: tc.effect}}
			}
			k.ObserveNode(node)
			if got := k.Spared()[nodeA]; got != tc.spared {
				t.Errorf("it may be switched off: %t, want %t", got, tc.spared)
			}
		})
	}
}
