package failover

import (
	"maps"
	"testing"
	"time"
)

// The grace of each kind of loss: one nanosecond before its end the decision is pending, at its end it is lost.
// Every fact of the scenario has held for longer than the one that is named.
func TestGraces(t *testing.T) {
	t.Parallel()

	const confirmed, known = 5 * time.Second, 45 * time.Second
	survivors := func(d time.Duration) edit {
		return edited(at(nodeB, func(r *Replica) { r.MayPromote = held(true, d) }), at(nodeT, func(r *Replica) { r.MayPromote = held(true, d) }))
	}
	shutDown := func(in *Input) { in.Node.Shutdown = true }
	notRun := thePod(func(p *Pod) { p.HasRun, p.Runs = false, false })
	newGrace := func(d time.Duration) edit { return func(in *Input) { in.Settings.NewGrace = d } }
	lostFor := func(d time.Duration) edit {
		return edited(survivors(d), at(nodeA, func(r *Replica) { r.Online, r.Reports = held(false, d), held(false, d) }), func(in *Input) {
			for _, node := range []string{nodeB, nodeT} {
				at(node, func(r *Replica) { r.Connections = map[string]Fact[bool]{nodeA: held(false, d)} })(in)
			}
		})
	}
	podAge := func(d time.Duration) edit { return thePod(func(p *Pod) { p.Since = ago(d) }) }
	volumeAge := func(d time.Duration) edit { return func(in *Input) { in.Volume.Since = ago(d) } }

	cases := map[string]struct {
		from  func() Input
		edit  edit
		clock func(time.Duration) edit // lets the youngest condition be so old
		want  time.Duration
	}{
		"an isolated Primary waits the confirmed grace":                {from: isolated, clock: survivors, want: confirmed},
		"a dead node that every peer misses waits the confirmed grace": {from: crashed, clock: survivors, want: confirmed},
		"a replica that fails its IO waits the confirmed grace":        {from: ioErrors, clock: survivors, want: confirmed},
		"too few witnesses wait the known grace":                       {from: crashed, edit: silent(nodeT), clock: survivors, want: known},
		"a missing replica waits the known grace":                      {from: gone, clock: survivors, want: known},
		"a demoted replica waits the known grace":                      {from: demoted, clock: survivors, want: known},
		"a pod that never ran waits the known grace even when all agree": {
			from: crashed, edit: notRun, clock: survivors, want: known,
		},
		"a demoted replica under a young pod waits the new grace": {
			from: demoted, edit: newGrace(50 * time.Second), want: 50 * time.Second,
			clock: func(d time.Duration) edit {
				return edited(podAge(d), thePod(func(p *Pod) { p.Ran = ago(d) }),
					at(nodeA, func(r *Replica) { r.LastInUse = ago(d) }))
			},
		},
		"a demoted replica of a young volume waits the new grace": {
			from: demoted, edit: edited(newGrace(59*time.Second), volumeAge(58*time.Second)), clock: survivors, want: 59 * time.Second,
		},
		"a demoted replica of an old volume under an old pod waits no new grace": {
			from: demoted, edit: newGrace(time.Hour), clock: survivors, want: known,
		},
		"a young pod on a dead node waits no new grace": {
			from: crashed, edit: edited(newGrace(50*time.Second), podAge(49*time.Second)), clock: survivors, want: confirmed,
		},
		"the grace of a node that was shut down is zero, and what remains is to see that the others are still there": {
			from: crashed, edit: edited(shutDown, survivors(2*time.Second)), want: stillThere,
			clock: func(d time.Duration) edit { return at(nodeA, func(r *Replica) { r.Online = held(false, d) }) },
		},
		"a pod that was placed on a node lost for minutes waits half as long again": {
			from: crashed, edit: edited(notRun, lostFor(4*time.Minute)), want: 80 * time.Second, clock: podAge,
		},
		"a pod that was placed on a node lost for an hour waits five minutes": {
			from: crashed, edit: edited(notRun, lostFor(time.Hour)), want: 5 * time.Minute, clock: podAge,
		},
		"a pod that was placed on a node that was shut down waits half as long as that is ago": {
			from: crashed, edit: edited(notRun, shutDown, lostFor(30*time.Second)), want: 10 * time.Second, clock: podAge,
		},
		"a shutdown ends the known grace too, but not the time in which the others may be missed as well": {
			from: crashed, want: stillThere,
			edit:  edited(silent(nodeT), notRun, shutDown, survivors(2*time.Second)),
			clock: func(d time.Duration) edit { return at(nodeA, func(r *Replica) { r.Online = held(false, d) }) },
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for held, want := range map[time.Duration]Verdict{c.want - 1: Pending, c.want: Lost} {
				in := (scenario{from: c.from, edit: c.edit}).input()
				c.clock(held)(&in)
				if d := Decide(in); d.Verdict != want {
					t.Errorf("after %s: %s (%s: %s), want %s", held, d.Verdict, d.Reason, d.Message, want)
				}
			}
		})
	}
}

// The clock of a loss starts at the latest of what it rests on, and inherits nothing from before.
func TestClockStartsAtTheLatest(t *testing.T) {
	t.Parallel()

	peers := func(change func(*Replica, time.Duration)) func(time.Duration) edit {
		return func(d time.Duration) edit {
			return edited(at(nodeB, func(r *Replica) { change(r, d) }), at(nodeT, func(r *Replica) { change(r, d) }))
		}
	}
	agreeing := func(d time.Duration) edit {
		joined := func(peer string, d time.Duration) func(*Replica) {
			return func(r *Replica) {
				r.Connections = maps.Clone(r.Connections)
				r.Connections[peer] = held(true, d)
			}
		}
		return edited(at(nodeB, joined(nodeT, d)), at(nodeT, joined(nodeB, time.Minute)))
	}
	cases := map[string]struct {
		from  func() Input
		clock func(time.Duration) edit
	}{
		"the survivors may promote":                                   {isolated, peers(func(r *Replica, d time.Duration) { r.MayPromote = held(true, d) })},
		"the survivors are ONLINE":                                    {isolated, peers(func(r *Replica, d time.Duration) { r.Online = held(true, d) })},
		"a survivor's peer agrees with it":                            {isolated, agreeing},
		"a survivor's peer agrees with it, where the replica is gone": {gone, agreeing},
		"the last witness denies": {isolated, func(d time.Duration) edit {
			return at(nodeT, func(r *Replica) { r.Connections[nodeA] = held(false, d) })
		}},
		"the last witness is ONLINE": {crashed, func(d time.Duration) edit {
			return at(nodeT, func(r *Replica) { r.Online = held(true, d) })
		}},
		"the attachment exists": {isolated, func(d time.Duration) edit {
			return func(in *Input) { in.Attachment.Since = ago(d) }
		}},
		"the pod is bound to the node": {isolated, func(d time.Duration) edit {
			return thePod(func(p *Pod) { p.Since = ago(d) })
		}},
		"the youngest of several pods is bound to the node": {crashed, func(d time.Duration) edit {
			return func(in *Input) {
				in.Pods = append(in.Pods, runningPod("web-1"))
				in.Pods[1].Since = ago(d)
			}
		}},
		"a replica that fails its IO does so": {ioErrors, func(d time.Duration) edit {
			return at(nodeA, func(r *Replica) { r.Score = held(0, d) })
		}},
		"a replica that fails its IO is no longer in use": {ioErrors, func(d time.Duration) edit {
			return at(nodeA, func(r *Replica) { r.InUse = held(false, d) })
		}},
		"a replica that fails its IO is ONLINE": {ioErrors, func(d time.Duration) edit {
			return at(nodeA, func(r *Replica) { r.Online = held(true, d) })
		}},
		"a demoted replica is Secondary": {demoted, func(d time.Duration) edit {
			return at(nodeA, func(r *Replica) { r.InUse = held(false, d) })
		}},
		"a demoted replica has its score": {demoted, func(d time.Duration) edit {
			return at(nodeA, func(r *Replica) { r.Score = held(10102, d) })
		}},
		"the replica is gone": {gone, func(d time.Duration) edit {
			return func(in *Input) { in.Resource.SetSince = ago(d) }
		}},
		"nobody is Primary in place of a replica that is gone": {gone, func(d time.Duration) edit {
			return at(nodeB, func(r *Replica) { r.InUse = held(false, d) })
		}},
		"the kubelet fell silent, where its silence stands for witnesses": {
			func() Input { in := crashed(); silent(nodeT)(&in); return in }, theLease,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			grace := 5 * time.Second
			if f := find(assess(c.from())); f.grace > grace {
				grace = f.grace
			}
			for held, want := range map[time.Duration]Verdict{grace - 1: Pending, grace: Lost} {
				in := (scenario{from: c.from, edit: c.clock(held)}).input()
				if d := Decide(in); d.Verdict != want {
					t.Errorf("after %s: %s (%s: %s), want %s", held, d.Verdict, d.Reason, d.Message, want)
				}
			}
		})
	}
}

// A pending decision asks to be taken again every second, or at the end of the grace.
func TestPendingAsksAgain(t *testing.T) {
	t.Parallel()

	for held, want := range map[time.Duration]time.Duration{
		time.Second:             time.Second,
		4500 * time.Millisecond: 500 * time.Millisecond,
	} {
		in := isolated()
		at(nodeT, func(r *Replica) { r.Connections[nodeA] = Fact[bool]{Known: true, Since: ago(held), Confirmed: now} })(&in)
		if d := Decide(in); d.Verdict != Pending || d.After != want {
			t.Errorf("after %s: %s, again in %s, want %s in %s", held, d.Verdict, d.After, Pending, want)
		}
	}
}
