package drbd

import "time"

// syncStep is how often both ends of an initial sync tell how far it is.
const syncStep = time.Second

// Sync is an initial sync as one of its two ends shows it.
type Sync struct {
	// Target is set at the end that gets the data.
	Target bool
	// Percent is how much is done, from 0 to 100. It is told once a second.
	Percent float64
}

// fill is an initial sync at the cluster's rate. It ends with the connection that it runs over.
type fill struct{ done, total int64 } // KiB

func (f *fill) percent() float64 {
	const whole = 100
	return whole * float64(f.done) / float64(f.total)
}

// fill copies the source's data to an empty disk at the cluster's rate.
func (r *resource) fill(x, source *replica) {
	f := &fill{total: r.sizeKiB * int64(r.volumes)}
	x.peers[source.Node].fill = f
	r.fillOn(x, source, f)
}

// fillOn lets the next step of an initial sync happen in its time.
func (r *resource) fillOn(x, source *replica, f *fill) {
	rate := r.cluster.options.SyncRate
	left := time.Duration(float64(f.total-f.done) / float64(rate) * float64(time.Second))
	wait, step := syncStep, rate*int64(syncStep/time.Second)
	if left < wait && r.live(x.Node, source.Node) {
		wait, step = max(left, 1), f.total-f.done
	}
	r.cluster.later(wait, func() {
		p := x.peers[source.Node]
		if r.replicas[x.Node] != x || p == nil || p.fill != f {
			return
		}
		if r.live(x.Node, source.Node) {
			f.done = min(f.done+step, f.total)
		}
		if f.done < f.total {
			r.fillOn(x, source, f)
		} else {
			p.resyncing, p.fill = false, nil
			r.copied(x, source)
		}
		r.touch()
	})
}

// stopFilling ends the initial sync of a replica whose disk is another now.
func (x *replica) stopFilling() {
	for _, p := range x.peers {
		if p.fill != nil {
			p.resyncing, p.fill = false, nil
		}
	}
}

// filledFromAnother tells whether a replica gets its data from some peer at the cluster's rate already: it has one source at a time,
// and waits for it until it has noticed that it is gone.
func (x *replica) filledFromAnother() bool {
	for _, p := range x.peers {
		if p.fill != nil {
			return true
		}
	}
	return false
}

// syncs are the initial syncs that a replica takes part in, as it shows them; nil where there are none.
func (r *resource) syncs(x *replica) map[string]Sync {
	var all map[string]Sync
	add := func(name string, f *fill, target bool) {
		if all == nil {
			all = map[string]Sync{}
		}
		all[name] = Sync{Target: target, Percent: f.percent()}
	}
	for name, p := range x.peers {
		if p.fill != nil {
			add(name, p.fill, true)
			continue
		}
		y := r.replicas[name]
		if y == nil || y.peers[x.Node] == nil || y.peers[x.Node].fill == nil {
			continue
		}
		if r.live(x.Node, name) {
			add(name, y.peers[x.Node].fill, false)
		}
	}
	return all
}
