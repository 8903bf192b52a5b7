package sim

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

// ruleEarly: what was denied for less than the confirmed grace is removed only where three networks agree on the loss.

// edge is the connection of a resource that one node has, or had, to another.
type edge struct{ resource, from, to string }

// denial is since when a node has not been connected to another, and until when that was so; zero while it is. A newcomer never was connected.
type denial struct {
	since, until time.Time
	newcomer     bool
}

// observeDenials notes who is connected to whom. Who is connected for less than MaxAge may not have been seen so, and counts as denied
// throughout.
func (w *world) observeDenials(resource string) {
	all := w.DRBD.Inspect(resource)
	w.mu.Lock()
	defer w.mu.Unlock()
	for from, state := range all {
		for to, connection := range state.Connections {
			at := edge{resource, from, to}
			w.denied[at] = w.denied[at].observe(connection == drbd.Connected)
		}
	}
}

// observe returns the denial after another look.
func (d denial) observe(connected bool) denial {
	switch {
	case connected && d.until.IsZero():
		d.until = time.Now()
	case connected:
	case d == denial{}:
		return denial{since: time.Now(), newcomer: true}
	case d.since.IsZero(), !d.until.IsZero() && time.Since(d.until) >= failover.ActAge:
		return denial{since: time.Now()}
	default:
		d.until = time.Time{}
	}
	return d
}

// deniedFor tells for how long all have denied that they are connected to a node whom LINSTOR hears, by a reading: nobody else is asked.
// Where it hears none, all others count. It is zero where one is connected, or nobody has anything to say.
func (w *world) deniedFor(r reading, resource, node string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	heard := make(map[string]bool)
	for _, replica := range r.resource.Replicas {
		heard[replica.Node] = replica.Online.Value
	}
	last := func(counts func(from string) bool) (since time.Time, connected bool) {
		for at, d := range w.denied {
			if at.resource != resource || at.to != node || !counts(at.from) {
				continue
			}
			if d.newcomer && time.Since(d.since) < failover.ActAge {
				continue // the request may have crossed its coming
			}
			if d.since.IsZero() || !d.until.IsZero() {
				return time.Time{}, true
			}
			if d.since.After(since) {
				since = d.since
			}
		}
		return since, false
	}
	since, connected := last(func(from string) bool { return heard[from] })
	if since.IsZero() && !connected {
		since, connected = last(func(string) bool { return true })
	}
	if since.IsZero() || connected {
		return 0
	}
	return time.Since(since)
}

// auditEarly holds a removal from a node that was denied for less than the confirmed grace against what three networks must have said: where
// somebody has switched the node off there is no grace. What they say anew for less than MaxAge may have crossed the request.
func (w *world) auditEarly(b basis, pod *corev1.Pod, silence time.Duration, what string) {
	node := home(pod)
	denied, missed := time.Duration(0), false
	for _, v := range w.volumesOf(pod) {
		reading := b.readings[v.Resource()]
		since := w.deniedFor(reading, v.Resource(), node)
		if since == 0 {
			return // who is connected is not lost by the clock, but by old words
		}
		denied = max(denied, since)
		for _, replica := range reading.resource.Replicas {
			missed = missed || replica.Node == node && replica.Online.Known && !replica.Online.Value
			if c, ok := replica.Connections[node]; ok && c.Known && !c.Value && reading.old(replica.Node) {
				w.count("removed early, perhaps by old words")
				return // it may have denied for longer than the truth
			}
		}
	}
	if denied == 0 || denied >= grace.ConfirmedGrace || w.wasSwitchedOff(node) {
		return
	}
	w.count("removed early")
	switch {
	case w.history.World.Patient:
		w.violated(ruleEarly, "%s: denied for %s, and the unanimous grace is off", what, denied)
	case denied < grace.UnanimousGrace:
		w.violated(ruleEarly, "%s: denied for %s", what, denied)
	case !missed:
		w.violated(ruleEarly, "%s: LINSTOR calls the node ONLINE", what)
	case silence > failover.ActAge && silence < failover.ForceSilence:
		w.violated(ruleEarly, "%s: the node's Lease was renewed %s ago", what, silence)
	}
}

// wasSwitchedOff tells whether somebody has said that the node is off, or takes that back while the request is on its way.
func (w *world) wasSwitchedOff(node string) bool {
	w.mu.Lock()
	until := w.untainted[node]
	w.mu.Unlock()
	return w.switchedOff(node) || !until.IsZero() && time.Since(until) < failover.ActAge
}
