package cluster

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// renewing is a memory of kubelets whose Leases are renewed.
type renewing struct {
	*Kubelets
	renewals map[string]int
}

// renew has the Leases of nodes renewed, whose duration is given in seconds.
func (r *renewing) renew(duration int32, nodes ...string) {
	for _, node := range nodes {
		r.renewals[node]++
		l := lease(node, r.renewals[node])
		if l.Spec.LeaseDurationSeconds = &duration; duration == 0 {
			l.Spec.LeaseDurationSeconds = nil
		}
		r.ObserveLease(l)
	}
}

func TestWhatIsLearntOfAKubelet(t *testing.T) {
	t.Parallel()
	const s = time.Second
	// every has A's Lease renewed by gaps of so many seconds, and those of two others every second.
	every := func(duration int32, gaps ...time.Duration) func(*renewing) {
		return func(r *renewing) {
			r.renew(duration, nodeA, nodeB, nodeT)
			for _, gap := range gaps {
				for range gap / s {
					<-time.After(s)
					r.renew(40, nodeB, nodeT)
				}
				r.renew(duration, nodeA)
			}
		}
	}
	// reboot has A be away for half a minute, and come back by another boot: its Node tells that, or its Lease is renewed first.
	reboot := func(renewedFirst bool) func(*renewing) {
		return func(r *renewing) {
			r.ObserveNode(booted(nodeA, "1"))
			every(40, 10*s, 11*s, 10*s, 10*s)(r)
			for range 30 {
				<-time.After(s)
				r.renew(40, nodeB, nodeT)
			}
			if renewedFirst {
				r.renew(40, nodeA)
			}
			r.ObserveNode(booted(nodeA, "2"))
			if !renewedFirst {
				r.renew(40, nodeA)
			}
		}
	}
	for name, tc := range map[string]struct {
		tell func(*renewing)
		want time.Duration
	}{
		"one that has booted again since, and says so, takes no longer":      {reboot(false), 11 * s},
		"one that has booted again since, and says so late, takes no longer": {reboot(true), 11 * s},
		"one that was heard of once may take as long as its Lease lasts":     {every(40), 40 * s},
		"one of which one gap was seen, too":                                 {every(40, 10*s), 40 * s},
		"of two gaps it is the longer one":                                   {every(40, 14*s, 12*s), 14 * s},
		"it is no less than a quarter of the duration":                       {every(120, 5*s, 5*s, 5*s), 30 * s},
		"it is the longest of the last five gaps":                            {every(40, 30*s, 20*s, 10*s, 10*s, 10*s, 10*s), 20 * s},
		"a duration that nobody tells is the usual one":                      {every(0), 40 * s},
		"a kubelet that was away for minutes is not one that takes so long":  {every(40, 10*s, 10*s, 120*s), 40 * s},
		"one that was away for as long as Leases are believed is none of it": {every(40, 10*s, 11*s, 300*s), 11 * s},
		"a gap in which most Leases were late says nothing": {func(r *renewing) {
			every(40, 10*s, 10*s)(r)
			<-time.After(30 * s)
			r.renew(40, nodeB)
			r.renew(40, nodeA)
			r.renew(40, nodeT)
		}, 10 * s},
		"a gap in which few Leases were late does": {func(r *renewing) {
			every(40, 10*s, 10*s)(r)
			<-time.After(11 * s)
			r.renew(40, nodeB, nodeT)
			<-time.After(9 * s)
			r.renew(40, nodeA)
		}, 20 * s},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := &renewing{NewKubelets(clock.RealClock{}, "", nil), make(map[string]int)}
				tc.tell(r)
				if got := r.Node(nodeA); !got.LeaseKnown || got.LeaseGap != tc.want {
					t.Errorf("known: %t, gap %s, want %s", got.LeaseKnown, got.LeaseGap, tc.want)
				}
			})
		})
	}
}

// Where all kubelets renew every 30 s, they are neither silent after 12 s, nor is it the API that is away.
func TestSlowKubeletsAreSilentLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &renewing{NewKubelets(clock.RealClock{}, "", nil), make(map[string]int)}
		for range 4 {
			r.renew(120, nodeA, nodeB, nodeT)
			<-time.After(30 * time.Second)
		}
		r.renew(120, nodeB, nodeT)
		for silence, want := range map[time.Duration][]string{failover.ForceSilence: nil, 10 * time.Second: {nodeA}} {
			if got := r.Silent(silence, time.Hour); !slices.Equal(got, want) {
				t.Errorf("silent for what is %s of a usual kubelet are %v, want %v", silence, got, want)
			}
		}
		<-time.After(5 * time.Second)
		if silent, counted := r.Count(failover.ForceSilence); silent != 1 || counted != 3 {
			t.Errorf("%d of %d are silent, want 1 of 3", silent, counted)
		}
		if !r.Node(nodeA).LeaseKnown {
			t.Error("Leases are not believed")
		}
	})
}

// booted returns a node by a boot ID.
func booted(name, id string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	node.Status.NodeInfo.BootID = id
	return node
}

// A Lease that is read past the cache shows whether its kubelet is silent.
func TestALeaseIsReadPastTheCache(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := NewKubelets(clock.RealClock{}, "", nil)
		for _, node := range []string{nodeA, nodeB, nodeT} {
			k.ObserveLease(lease(node, 1))
		}
		<-time.After(13 * time.Second)
		for _, node := range []string{nodeB, nodeT} {
			k.ObserveLease(lease(node, 2))
		}
		if read := k.Node(nodeA).LeaseRead; !read.IsZero() {
			t.Errorf("nobody has read it, and yet it was at %s", read)
		}
		asked := time.Now()
		<-time.After(time.Second)
		k.confirm(lease(nodeA, 1), asked)
		if a := k.Node(nodeA); !a.LeaseRead.Equal(asked) || a.LeaseSilence != 14*time.Second {
			t.Errorf("the same renewal was read at %s, silent for %s, want %s and 14s", a.LeaseRead, a.LeaseSilence, asked)
		}
		k.confirm(lease(nodeA, 1), asked.Add(-time.Second))
		if read := k.Node(nodeA).LeaseRead; !read.Equal(asked) {
			t.Errorf("an answer that comes late makes the reading that of %s, want %s", read, asked)
		}
		k.confirm(lease(nodeA, 2), time.Now())
		if a := k.Node(nodeA); !a.LeaseRead.IsZero() || a.LeaseSilence != 0 {
			t.Errorf("a renewal that the cache has not seen leaves it silent for %s, read at %s", a.LeaseSilence, a.LeaseRead)
		}
	})
}

// The kubelet renews its Lease four times within its duration.
func TestHowOftenALeaseIsRenewed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		seconds *int32
		want    time.Duration
	}{
		"one that says so":               {new(int32(20)), 5 * time.Second},
		"one that says nothing":          {nil, 10 * time.Second},
		"one that says none":             {new(int32(0)), 10 * time.Second},
		"one that says what can't be so": {new(int32(-20)), 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: tc.seconds}}
			if got := RenewalGap(l); got != tc.want {
				t.Errorf("every %s, want every %s", got, tc.want)
			}
		})
	}
}

// A Lease that was never renewed tells nothing of its kubelet.
func TestALeaseThatWasNeverRenewedTellsNothing(t *testing.T) {
	t.Parallel()
	k := NewKubelets(clock.RealClock{}, "", nil)
	never := lease(nodeA, 0)
	never.Spec.RenewTime = nil
	k.ObserveLease(never)
	k.confirm(never, time.Now())
	if node := k.Node(nodeA); node.LeaseKnown {
		t.Errorf("%+v, want its Lease to be unknown", node)
	}
}

// A node that was lost long ago says nothing of how many are silent now.
func TestALeaseOfLongAgoIsNotCounted(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ago             time.Duration
		silent, counted int
	}{
		"one that was renewed a second ago":            {time.Second, 0, 1},
		"one that was renewed a minute ago":            {time.Minute, 1, 1},
		"one that was renewed nearly five minutes ago": {5*time.Minute - time.Second, 1, 1},
		"one that was renewed five minutes ago":        {5 * time.Minute, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := start.Time
			k := NewKubelets(clockAt{&now}, "", nil)
			k.ObserveLease(lease(nodeA, 1))
			now = now.Add(tc.ago)
			if silent, counted := k.Count(failover.ForceSilence); silent != tc.silent || counted != tc.counted {
				t.Errorf("%d of %d are silent, want %d of %d", silent, counted, tc.silent, tc.counted)
			}
		})
	}
}

// The node of a Lease that is seen for the first time may be dead.
func TestTheFirstSightOfALeaseIsNoRenewal(t *testing.T) {
	t.Parallel()
	k := NewKubelets(clock.RealClock{}, "", nil)
	renewed := 0
	k.OnRenewal(func(string, time.Time) { renewed++ })
	for i, want := range []int{0, 0, 1} {
		k.ObserveLease(lease(nodeA, max(i, 1)))
		if renewed != want {
			t.Errorf("after sight %d there were %d renewals, want %d", i+1, renewed, want)
		}
	}
}
