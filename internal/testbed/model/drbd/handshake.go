package drbd

import (
	"slices"
	"time"
)

// connect lets every pair of ends that look for each other, and can reach each other, do the handshake.
func (r *resource) connect() (changed bool) {
	now, nodes := time.Now(), r.nodes()
	for i, a := range nodes {
		for _, b := range nodes[i+1:] {
			p, q := r.replicas[a].peers[b], r.replicas[b].peers[a]
			if p == nil || q == nil || now.Before(p.connectAt) || now.Before(q.connectAt) {
				continue
			}
			if !r.reaches(a, b) || p.state == StandAlone || q.state == StandAlone || r.live(a, b) {
				continue
			}
			changed = r.handshake(a, b) || changed
		}
	}
	return changed
}

// handshake connects two replicas, unless their Primaries or their data do not go together.
func (r *resource) handshake(a, b string) (changed bool) {
	x, y := r.replicas[a], r.replicas[b]
	for _, end := range []struct {
		x    *replica
		peer string
	}{{x, b}, {y, a}} {
		// A peer that knocks again has lost the connection that this end still believes in.
		if end.x.peers[end.peer].state == Connected {
			r.lose(end.x, end.peer)
			changed = true
		}
	}
	if changed {
		return true
	}
	if x.data != y.data && !x.diskless() && !y.diskless() && !x.data.newerThan(y.data) && !y.data.newerThan(x.data) {
		x.peers[b].state, y.peers[a].state = StandAlone, StandAlone
		return true
	}
	left, _ := r.component(x)
	right, _ := r.component(y)
	old, conflict := r.suspended(left, right)
	if conflict {
		refused := len(old) == 0
		for _, z := range old {
			refused = refused || z.options[OptionOnSuspendedPrimary] != OnSuspendedPrimaryForceSecond
		}
		if refused {
			return r.refuse(x, y, old)
		}
		for _, z := range old {
			z.role, z.forced = Secondary, true
		}
	}
	r.cluster.sessions++
	r.hurry(x)
	r.hurry(y)
	for _, p := range []*peer{x.peers[b], y.peers[a]} {
		*p = peer{spec: p.spec, state: Connected, session: r.cluster.sessions}
	}
	r.exchange()
	return true
}

// hurry makes an outdated replica that is connected again speak before it knows of the Primary.
func (r *resource) hurry(x *replica) {
	if d := r.cluster.options.HealFlap; d > 0 && x.role != Primary && slices.Contains(x.disks, Outdated) {
		x.hasty = time.Now().Add(d)
		r.cluster.later(d, r.touch)
	}
}

// suspended tells whether two groups can not be joined as they are, because one of them has a Primary and the
// other another Primary or newer data. It returns the Primaries that would have to give way, none where neither
// side's data is the older.
func (r *resource) suspended(left, right []*replica) (old []*replica, conflict bool) {
	for _, side := range [][2][]*replica{{left, right}, {right, left}} {
		for _, x := range side[0] {
			if x.role != Primary || slices.Contains(side[1], x) {
				continue
			}
			for _, y := range side[1] {
				switch {
				case slices.Contains(side[0], y):
				case y.seen.newerThan(x.base()):
					conflict = true
					if !slices.Contains(old, x) {
						old = append(old, x)
					}
				case y.role == Primary && !(x.twoPrimaries() && y.twoPrimaries() && x.seen == y.seen):
					conflict = true
				}
			}
		}
	}
	return old, conflict
}

// base is the generation that a Primary works on: its own, or for one without data of its own the newest that it has
// seen.
func (x *replica) base() *generation {
	if x.diskless() || x.data == nil {
		return x.seen
	}
	return x.data
}

// refuse leaves a pair unconnected. A suspended Primary with old data stays isolated, unless it is told to try
// again; its peer goes on listening.
func (r *resource) refuse(x, y *replica, old []*replica) (changed bool) {
	for _, end := range []struct{ x, y *replica }{{x, y}, {y, x}} {
		p := end.x.peers[end.y.Node]
		if slices.Contains(old, end.x) && end.x.options[OptionRRConflict] != RRConflictRetryConnect && p.state != StandAlone {
			p.state = StandAlone
			changed = true
		}
	}
	return changed
}

// lose marks a connection as noticed to be gone at one end, together with all other dead ones of this replica.
func (r *resource) lose(x *replica, name string) {
	for _, other := range x.peerNames() {
		p := x.peers[other]
		if p.state != Connected || other != name && (p.noticeAt.IsZero() || r.cluster.options.NoticeEach) {
			continue
		}
		if p.role == Primary && x.role != Primary && x.moveDisks(Consistent, UpToDate) {
			// What the Primary wrote last is not known here.
			r.flap(x)
		}
		*p = peer{
			spec: p.spec, state: Connecting, session: p.session, outdated: p.outdated, quorumless: p.quorumless, connectAt: p.connectAt,
		}
	}
}

// flap makes a replica take its time to find out with the others whether it is UpToDate. At first they do not know that it
// is in doubt.
func (r *resource) flap(x *replica) {
	d := r.cluster.options.Flap
	if d <= 0 {
		return
	}
	now := time.Now()
	x.doubtShown, x.agreed = now.Add(d/2), now.Add(d)
	r.cluster.later(d/2, r.touch)
	r.cluster.later(d, r.touch)
}

// breakLink starts the clocks of both ends of a connection that has just gone dead. The caller touches the
// resource when all links of one fault are broken.
func (r *resource) breakLink(a, b string) {
	delays := r.detections(a, b)
	for _, end := range []link{{a, b}, {b, a}} {
		x := r.replicas[end.a]
		if x == nil || !x.up {
			continue
		}
		p := x.peers[end.b]
		if p == nil || p.state != Connected || !p.noticeAt.IsZero() {
			continue
		}
		d := delays[end.a]
		p.noticeAt = time.Now().Add(d)
		if d > 0 {
			r.cluster.later(d, r.touch)
		}
	}
}

// detections are how long each end of a connection that goes dead takes to notice it, by its node.
func (r *resource) detections(a, b string) map[string]time.Duration {
	c := r.cluster
	for _, end := range []link{{a, b}, {b, a}} {
		x, y := r.replicas[end.a], r.replicas[end.b]
		if c.options.DetectCut != nil && x != nil && y != nil && x.up && y.up && x.role == Primary {
			byPeer, byPrimary := c.options.DetectCut(end.a, end.b)
			return map[string]time.Duration{end.a: byPrimary, end.b: byPeer}
		}
	}
	return map[string]time.Duration{a: c.detection(a, b), b: c.detection(b, a)}
}

// notice lets every end whose detection delay is over lose its connection.
func (r *resource) notice() {
	now := time.Now()
	for _, name := range r.nodes() {
		x := r.replicas[name]
		for _, other := range x.peerNames() {
			p := x.peers[other]
			if x.up && p.state == Connected && !p.noticeAt.IsZero() && !now.Before(p.noticeAt) {
				r.lose(x, other)
			}
		}
	}
}

// mendLink is called when two replicas can reach each other again. A connection of which neither end has noticed
// anything goes on; any other begins anew after the reconnect delay. The caller touches the resource.
func (r *resource) mendLink(a, b string) {
	x, y := r.replicas[a], r.replicas[b]
	if x == nil || y == nil || x.peers[b] == nil || y.peers[a] == nil || !r.reaches(a, b) {
		return
	}
	p, q := x.peers[b], y.peers[a]
	if r.live(a, b) {
		p.noticeAt, q.noticeAt = time.Time{}, time.Time{}
		return
	}
	d := r.cluster.reconnection(a, b)
	p.connectAt = time.Now().Add(d)
	q.connectAt = p.connectAt
	if d > 0 {
		r.cluster.later(d, r.touch)
	}
}
