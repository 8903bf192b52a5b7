package cluster

import (
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

const (
	// usualLease is a Lease's duration by the kubelet's defaults. A kubelet renews its Lease four times in that time.
	usualLease = 40 * time.Second
	// keptGaps is how many gaps between renewals of a Lease tell what its kubelet does.
	keptGaps = 5
)

// leaseSeen is the newest renewal of a node's Lease, and what is known of how often it is renewed.
type leaseSeen struct {
	renewed  time.Time // by the kubelet's clock, only compared for equality
	seen     time.Time // by ours
	duration time.Duration
	// read is when it was last asked for past the cache, and was still this renewal; zero where it was not.
	read time.Time
	// gaps are the last ones between two renewals, but for those in which most Leases were late, or the node booted.
	gaps []time.Duration
	// booted is set when the node has booted since this renewal.
	booted bool
}

// durationOf returns for how long a renewal of the Lease counts in Kubernetes.
func durationOf(lease *coordinationv1.Lease) time.Duration {
	if seconds := lease.Spec.LeaseDurationSeconds; seconds != nil && *seconds > 0 {
		return time.Duration(*seconds) * time.Second
	}
	return usualLease
}

// RenewalGap returns how long a kubelet takes from one renewal of the Lease to the next, by its settings.
func RenewalGap(lease *coordinationv1.Lease) time.Duration { return durationOf(lease) / 4 }

// gap is how long the kubelet may well take from one renewal to the next: the longest of the last gaps. As long as next to nothing is
// known of it, that is as long as it may take before Kubernetes itself takes the node for gone; a longer gap is none of its habits.
func (l leaseSeen) gap() time.Duration {
	if len(l.gaps) < 2 {
		return l.duration
	}
	return min(max(slices.Max(l.gaps), l.duration/4), l.duration)
}

// silent reports whether the Lease has not been renewed for d, or for longer where its kubelet renews more rarely than is usual.
func (l leaseSeen) silent(now time.Time, d time.Duration) bool {
	return now.Sub(l.seen) >= l.patience(d)
}

func (l leaseSeen) patience(d time.Duration) time.Duration {
	return failover.Node{LeaseGap: l.gap()}.Patience(d)
}

// ObserveLease records a Lease of a kubelet.
func (k *Kubelets) ObserveLease(lease *coordinationv1.Lease) {
	if lease.Namespace != LeaseNamespace || lease.Spec.RenewTime == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.observe(lease)
}

// observe is ObserveLease for a Lease that has been renewed; the caller holds the lock.
func (k *Kubelets) observe(lease *coordinationv1.Lease) {
	now, renewed := k.clock.Now(), lease.Spec.RenewTime.Time
	last, known := k.leases[lease.Name]
	next := leaseSeen{renewed: renewed, seen: now, duration: durationOf(lease), gaps: last.gaps}
	switch {
	case known && last.renewed.Equal(renewed):
		return
	case known:
		next.gaps = k.learn(last, now)
	}
	k.leases[lease.Name] = next
	if known && k.renewed != nil {
		k.renewed(lease.Name, now)
	}
}

// confirm records the Lease of a node that was read past the cache, and asked for at the given time. That it shows the renewal that is known
// is news, too: nobody has renewed it by then.
func (k *Kubelets) confirm(lease *coordinationv1.Lease, asked time.Time) {
	if lease.Spec.RenewTime == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	last, known := k.leases[lease.Name]
	if !known || !last.renewed.Equal(lease.Spec.RenewTime.Time) {
		k.observe(lease)
		return
	}
	if asked.After(last.read) {
		last.read = asked
		k.leases[lease.Name] = last
	}
}

// learn returns the gaps of a Lease that is renewed now. While most Leases are late, it is not their kubelets that take so long.
func (k *Kubelets) learn(last leaseSeen, now time.Time) []time.Duration {
	gap := now.Sub(last.seen)
	if gap >= failover.ForceSilence && !k.watchAlive(now) {
		k.blind = now
	}
	if gap >= forgotten || last.booted || !k.blind.Before(last.seen) {
		return last.gaps
	}
	gaps := append(slices.Clone(last.gaps), gap)
	return gaps[max(0, len(gaps)-keptGaps):]
}

// unlearn forgets how long a node that has booted again was away, which is no habit of its kubelet. Its Node may tell of the boot before its
// Lease is renewed, or after: both the gap that was seen last and the one that has begun may be that time. The caller holds the lock.
func (k *Kubelets) unlearn(node string) {
	lease, known := k.leases[node]
	if !known {
		return
	}
	lease.gaps, lease.booted = lease.gaps[:max(0, len(lease.gaps)-1)], true
	k.leases[node] = lease
}

// watchAlive reports whether Leases can be believed: when most of them fall silent together, it is the API that was
// away, or this process, and not the nodes.
func (k *Kubelets) watchAlive(now time.Time) bool {
	silent, counted := 0, 0
	for _, lease := range k.leases {
		switch {
		case now.Sub(lease.seen) >= forgotten:
		case lease.silent(now, failover.ForceSilence):
			silent++
			counted++
		default:
			counted++
		}
	}
	return 2*silent <= counted
}

// Silent returns the nodes whose kubelets have been silent for at least so long, but not for longer than that, both for a kubelet that
// renews as often as is usual. As long as Leases cannot be believed there are none.
func (k *Kubelets) Silent(atLeast, atMost time.Duration) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock.Now()
	if !k.watchAlive(now) {
		return nil
	}
	var nodes []string
	for node, lease := range k.leases {
		seen := lease.seen
		if seen.Before(k.blind) {
			seen = k.blind // nobody was told of its silence until then
		}
		if lease.silent(now, atLeast) && now.Sub(seen) <= lease.patience(atMost) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// Count returns how many kubelets have been silent for that long, and how many were heard of lately at all.
func (k *Kubelets) Count(silence time.Duration) (silent, counted int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock.Now()
	for _, lease := range k.leases {
		if now.Sub(lease.seen) >= forgotten {
			continue
		}
		counted++
		if lease.silent(now, silence) {
			silent++
		}
	}
	return silent, counted
}
