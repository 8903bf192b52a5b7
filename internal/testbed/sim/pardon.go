package sim

import (
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

// What a node runs can be known only as far as LINSTOR has shown it for long enough to be read, and as far as somebody has been there to
// remember it. These are the limits that the documentation names.

const (
	// readEvery is how often all definitions are read: what comes and goes in between is never seen.
	readEvery = time.Minute
	// readAboveEvery is how long a value must have lasted on the group or the controller to be read for sure: they are read every 20 s,
	// and a reading may fail.
	readAboveEvery = 45 * time.Second
	// keptAfter is how long a change must have lasted for the leader to have read it and to have written it down.
	keptAfter = readEvery + 12*time.Second
	// believing is how long after it was read a node must be ONLINE for a first setting to be believed.
	believing = 10 * time.Second
	// adjustLate is how late an adjust may be after a reconnect to be taken for done.
	adjustLate = time.Minute
)

// shown is what LINSTOR wanted of a resource, and since when.
type shown struct {
	quorum string
	since  time.Time
	// above is set where the group or the controller has brought it.
	above bool
}

// look notes what LINSTOR shows.
func (w *world) look() {
	if w.linstorDown {
		return
	}
	for _, resource := range w.DRBD.Resources() {
		quorum := w.Linstor.WantedQuorum(resource)
		w.mu.Lock()
		if all := w.shown[resource]; len(all) == 0 || all[len(all)-1].quorum != quorum {
			w.shown[resource] = append(all, shown{quorum, time.Now(), time.Since(w.setAbove[resource]) < time.Second})
		}
		w.mu.Unlock()
	}
}

// unseen tells whether LINSTOR has not shown, for as long as it takes to be read for sure, the quorum that a node runs, since the node has begun to.
func (w *world) unseen(resource, node string) bool {
	state, ok := w.DRBD.Replica(resource, node)
	if !ok {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	all, began := w.shown[resource], w.runsSince[place{resource, node}]
	if w.late[node] {
		began = began.Add(-adjustLate)
	}
	for i, s := range all {
		until, enough := time.Now(), readEvery
		if i+1 < len(all) {
			until = all[i+1].since
			if s.above && all[i+1].above {
				enough = readAboveEvery
			}
		}
		if s.quorum == state.Quorum && until.Sub(s.since) >= enough && !until.Before(began) {
			return false
		}
	}
	return true
}

// apart is a survivor of a resource that has run without quorum while it had no connection to a node.
type apart struct{ resource, node, survivor string }

// noteApart notes since when nodes have run the quorum that they run, and since when survivors of a resource have run with quorum off apart from a node: their data is the newest for whoever asks there.
// Once both are connected again DRBD knows better.
func (w *world) noteApart(resource string) {
	states := w.DRBD.Inspect(resource)
	w.mu.Lock()
	defer w.mu.Unlock()
	for node, state := range states {
		if at := (place{resource, node}); w.runs[at] != state.Quorum {
			w.runs[at], w.runsSince[at] = state.Quorum, time.Now()
		}
		for survivor, other := range states {
			key := apart{resource, node, survivor}
			if state.Connections[survivor] == drbd.Connected {
				delete(w.apart, key)
			} else if _, was := w.apart[key]; !was && survivor != node && other.Quorum == drbd.QuorumOff && other.MayPromote {
				w.apart[key] = time.Now()
			}
		}
	}
}

// cameAndWent tells whether a survivor has run without quorum, apart from the node, by a setting that LINSTOR has shown for less time than it
// takes to be read for sure. Nobody could know that, while the node may have kept its quorum.
func (w *world) cameAndWent(at place) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.shown[at.what]
	for key, ran := range w.apart {
		if key.resource != at.what || key.node != at.node {
			continue
		}
		for i, s := range all {
			if i == 0 || i+1 == len(all) || s.quorum != drbd.QuorumOff {
				continue
			}
			until := all[i+1].since
			if until.Sub(s.since) < readEvery && !ran.Before(s.since) && ran.Before(until.Add(believing)) {
				return true
			}
		}
	}
	return false
}

// forget notes that the last process ends that has seen a change which is too young to have been written down.
func (w *world) forget(ends *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for resource, at := range w.changedAt {
		remembered := time.Since(at) >= keptAfter
		for _, p := range w.processes {
			remembered = remembered || p != ends && p.begun.Before(at)
		}
		if !remembered {
			w.forgotten[resource] = time.Now()
		}
	}
}

// pardon names the excuse for taking a volume from a node that can write it, empty if there is none.
func (w *world) pardon(v Volume, node string, oldWords bool) string {
	at := place{v.Resource(), node}
	w.mu.Lock()
	again, since, silent := w.failedAgain[at], w.forgotten[at.what], w.silent[node]
	// Whoever starts believes what LINSTOR shows only of a node that is ONLINE some time afterwards.
	forgotten := !since.IsZero() && (silent.IsZero() || silent.After(since.Add(believing)))
	w.mu.Unlock()
	switch {
	case w.runsFenced(v, node):
		if oldWords {
			return ExcuseOldWords
		}
		if w.cameAndWent(at) {
			return ExcuseUnseen
		}
	case w.vouched(node):
		return ExcuseVouched
	case again:
		return ExcuseFailedAgain
	case forgotten:
		return ExcuseForgotten
	case w.unseen(at.what, node):
		return ExcuseUnseen
	}
	return ""
}

// pardons collects the excuses for the volumes of a pod: there is one only if each volume has one.
type pardons struct {
	excuse string
	none   bool
}

func (p *pardons) add(excuse string) {
	p.none = p.none || excuse == ""
	p.excuse = excuse
}

func (p *pardons) all() string {
	if p.none {
		return ""
	}
	return p.excuse
}
