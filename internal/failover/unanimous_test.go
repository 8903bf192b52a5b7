package failover

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// unanimous is a volume whose node three networks have just agreed on: DRBD has missed it for two seconds, LINSTOR for three, and its
// Lease, of which the last renewal was seen 12.5 s ago, was read again a moment ago. This process has renewed its own since.
func unanimous() Input {
	in := crashed()
	lostSince(2 * time.Second)(&in)
	missedSince(3 * time.Second)(&in)
	theLease(12500 * time.Millisecond)(&in)
	readLease(100 * time.Millisecond)(&in)
	renewedOwn(500 * time.Millisecond)(&in)
	return in
}

// lostSince lets the others have missed A for so long, and be promotable since then.
func lostSince(d time.Duration) edit {
	return func(in *Input) {
		for i := range in.Resource.Replicas {
			if r := &in.Resource.Replicas[i]; r.Node != nodeA {
				r.MayPromote, r.Connections = held(true, d), map[string]Fact[bool]{nodeA: held(false, d)}
			}
		}
	}
}

// missedSince lets LINSTOR have called A OFFLINE for so long.
func missedSince(d time.Duration) edit {
	return at(nodeA, func(r *Replica) { r.Online, r.Reports = held(false, d), held(false, d) })
}

// readLease lets A's Lease have been read so long ago, and have shown no other renewal.
func readLease(d time.Duration) edit {
	return func(in *Input) { in.Node.LeaseRead = ago(d) }
}

// renewedOwn lets this process have renewed its own Lease so long ago.
func renewedOwn(d time.Duration) edit {
	return func(in *Input) { in.Renewed = ago(d) }
}

func unanimousGrace(d time.Duration) edit {
	return func(in *Input) { in.Settings.UnanimousGrace = d }
}

// Three networks that agree end the wait before the confirmed grace does; each that does not leaves it as it is.
func TestUnanimousGrace(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond

	runScenarios(t, map[string]scenario{
		"DRBD, LINSTOR and Kubernetes agree": {
			from: unanimous, want: Lost, reason: NodeUnreachable, state: Unreachable,
		},
		"a grace of zero waits for the three networks only": {
			from: unanimous, edit: edited(unanimousGrace(0), lostSince(1)), want: Lost, reason: NodeUnreachable,
		},

		"DRBD has missed the node for less than the grace": {
			from: unanimous, edit: lostSince(time.Second - 1), want: Pending, reason: NodeUnreachable,
		},
		"DRBD has missed it for just as long as the grace": {
			from: unanimous, edit: lostSince(time.Second), want: Lost, reason: NodeUnreachable,
		},
		"one peer's denial is younger than the grace": {
			from: unanimous, want: Pending, reason: NodeUnreachable,
			edit: at(nodeT, func(r *Replica) { r.Connections[nodeA] = held(false, 900*ms) }),
		},
		"the survivor has flapped a moment ago": {
			from: unanimous, want: Pending, reason: NodeUnreachable,
			edit: edited(at(nodeB, func(r *Replica) { r.MayPromote = held(true, 13*ms) }), at(nodeT, func(r *Replica) { r.MayPromote = held(true, 13*ms) })),
		},
		"the pod was bound to the node a moment ago": {
			from: unanimous, edit: thePod(func(p *Pod) { p.Since = ago(900 * ms) }), want: Pending, reason: NodeUnreachable,
		},
		"the attachment is a moment old": {
			from: unanimous, edit: func(in *Input) { in.Attachment.Since = ago(900 * ms) }, want: Pending, reason: NodeUnreachable,
		},
		"a witness still reaches the node": {
			from: unanimous, edit: at(nodeT, func(r *Replica) { r.Connections[nodeA] = held(true, 2*time.Second) }),
			want: NotLost, reason: PrimaryConnected,
		},
		"a witness cannot be asked, so that the known grace applies": {
			from: unanimous, edit: edited(silent(nodeT), theLease(25*time.Second)), want: Pending, reason: NodeUnreachable,
		},
		"what a witness says of the node is unknown": {
			from: unanimous, edit: at(nodeT, func(r *Replica) { r.Connections = nil }), want: Undecided, reason: TooFewWitnesses,
		},
		"a witness's word is too old": {
			from: unanimous, want: Undecided, reason: TooFewWitnesses,
			edit: at(nodeT, func(r *Replica) {
				r.Connections[nodeA] = Fact[bool]{Known: true, Since: ago(3 * time.Second), Confirmed: ago(MaxAge + 1)}
			}),
		},

		"LINSTOR is blind and calls the node ONLINE": {
			from: unanimous, want: NotLost, reason: PrimaryHealthy,
			edit: at(nodeA, func(r *Replica) {
				r.Online, r.Reports = held(true, time.Hour), held(true, time.Hour)
				r.InUse, r.Score = held(true, time.Hour), held(10102, time.Hour)
			}),
		},
		"LINSTOR calls the node ONLINE, whose kubelet is silent": {
			from: unanimous, want: Pending, reason: NodeUnreachable,
			edit: edited(theLease(22*time.Second), at(nodeA, func(r *Replica) {
				r.Online, r.Reports = held(true, time.Hour), held(true, time.Hour)
			})),
		},
		"LINSTOR calls the node ONLINE and has no state of its replica": {
			from: unanimous, want: Pending, reason: NodeUnreachable,
			edit: at(nodeA, func(r *Replica) { r.Online = held(true, time.Hour) }),
		},
		"LINSTOR has forgotten the replica": {
			from: unanimous, edit: at(nodeA, func(r *Replica) { r.Gone = true }), want: Pending, reason: NodeUnreachable,
		},
		"all satellites were cut off together, and LINSTOR misses the others a moment later": {
			from: unanimous, edit: missedSince(stillThere - 1), want: Pending, reason: NodeUnreachable,
		},
		"the others were seen ONLINE only before LINSTOR would have missed them": {
			from: unanimous, want: Pending, reason: NodeUnreachable,
			edit: edited(missedSince(4*time.Second), at(nodeB, func(r *Replica) { r.Online.Confirmed = ago(1501 * ms) })),
		},

		"A's Lease has been silent for less than twelve seconds": {
			from: unanimous, edit: edited(theLease(ForceSilence-1), readLease(0)), want: Pending, reason: NodeUnreachable,
		},
		"A's Lease has been silent for just twelve seconds, and was read then": {
			from: unanimous, edit: edited(theLease(ForceSilence), readLease(0)), want: Lost, reason: NodeUnreachable,
		},
		"a kubelet that renews half as often is given twice the time": {
			from: unanimous, edit: theGap(2 * usualGap), want: Pending, reason: NodeUnreachable,
		},
		"a kubelet that renews half as often was silent for twice the time": {
			from: unanimous, edit: edited(theGap(2*usualGap), theLease(24*time.Second), readLease(0)), want: Lost, reason: NodeUnreachable,
		},
		"most Leases fell silent together": {
			from: unanimous, edit: func(in *Input) { in.Node.LeaseKnown = false }, want: Pending, reason: NodeUnreachable,
		},
		"A's Lease was never read": {
			from: unanimous, edit: func(in *Input) { in.Node.LeaseRead = time.Time{} }, want: Pending, reason: NodeUnreachable,
		},
		"A's Lease was read when it had not been silent for long enough": {
			from: unanimous, edit: edited(theLease(ForceSilence+500*ms), readLease(501*ms)), want: Pending, reason: NodeUnreachable,
		},
		"the API server is slow for us, so that the reading of A's Lease is old": {
			from: unanimous, edit: edited(theLease(15*time.Second), readLease(ActAge+1)), want: Pending, reason: NodeUnreachable,
		},
		"the reading of A's Lease shows a renewal": {
			from: unanimous, edit: edited(theLease(0), readLease(0)), want: Pending, reason: NodeUnreachable,
		},
		"this process holds no Lease of its own": {
			from: unanimous, edit: func(in *Input) { in.Renewed = time.Time{} }, want: Pending, reason: NodeUnreachable,
		},
		"this process has not renewed its own Lease since A's renewal fell due": {
			from: unanimous, edit: edited(theLease(usualGap+3*time.Second), renewedOwn(3*time.Second)), want: Pending, reason: NodeUnreachable,
		},
		"this process has renewed its own Lease right after A's renewal fell due": {
			from: unanimous, edit: edited(theLease(usualGap+3*time.Second), renewedOwn(3*time.Second-1)), want: Lost, reason: NodeUnreachable,
		},
		"this process has renewed its own Lease, but the renewal of a slow kubelet was not due yet": {
			from: unanimous, edit: edited(theGap(2*usualGap), theLease(25*time.Second), readLease(0), renewedOwn(4201*ms)),
			want: Pending, reason: NodeUnreachable,
		},

		"the grace is as long as the confirmed one": {
			from: unanimous, edit: edited(unanimousGrace(5*time.Second), lostSince(5*time.Second-1)), want: Pending, reason: NodeUnreachable,
		},
		"the grace is longer than the confirmed one, which ends the wait then": {
			from: unanimous, edit: edited(unanimousGrace(time.Minute), lostSince(5*time.Second)), want: Lost, reason: NodeUnreachable,
		},
		"the confirmed grace has passed, and Kubernetes hears of the node": {
			from: unanimous, edit: edited(theLease(time.Second), lostSince(5*time.Second), missedSince(5*time.Second)),
			want: Lost, reason: NodeUnreachable,
		},
		"a pod that never ran waits for the known grace": {
			from: unanimous, edit: thePod(func(p *Pod) { p.HasRun, p.Runs = false, false }),
			want: Pending, reason: NodeUnreachable,
		},
		"the node answers LINSTOR as a Primary without quorum": {
			from: isolated, edit: edited(lostSince(2*time.Second), theLease(13*time.Second), readLease(0), renewedOwn(0)),
			want: Pending, reason: QuorumLost,
		},
		"the node answers LINSTOR and fails its IO": {
			from: ioErrors, edit: edited(theLease(13*time.Second), readLease(0), renewedOwn(0),
				at(nodeA, func(r *Replica) { r.Score = held(0, 2*time.Second) })),
			want: Pending, reason: ForcedIOErrors,
		},
	})
}

// How soon a decision is taken again while the networks may come to agree, and who is asked for that.
func TestWaitingForTheNetworksToAgree(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond

	for name, c := range map[string]struct {
		edit edit
		left time.Duration
		look time.Duration // how soon again
		read bool
	}{
		"DRBD will have missed the node for long enough in a moment": {edit: lostSince(700 * ms), left: 300 * ms, look: 300 * ms},
		"A's Lease will be silent for long enough in a moment": {
			edit: edited(theLease(ForceSilence-200*ms), readLease(0)), left: 200 * ms, look: 200 * ms,
		},
		"the others will be seen ONLINE in a moment": {edit: missedSince(stillThere - 400*ms), left: 400 * ms, look: 400 * ms},
		"nothing but a reading of A's Lease is missing": {
			edit: func(in *Input) { in.Node.LeaseRead = time.Time{} }, left: 3 * time.Second, look: 250 * ms, read: true,
		},
		"the reading of A's Lease has become old": {
			edit: edited(theLease(15*time.Second), readLease(ActAge+1)), left: 3 * time.Second, look: 250 * ms, read: true,
		},
		"a reading of A's Lease is no use while LINSTOR may miss the others": {
			edit: edited(missedSince(stillThere-400*ms), func(in *Input) { in.Node.LeaseRead = time.Time{} }), left: 3 * time.Second, look: time.Second,
		},
		"a reading is no use without a renewal of the own Lease": {
			edit: edited(renewedOwn(time.Minute), func(in *Input) { in.Node.LeaseRead = time.Time{} }), left: 3 * time.Second, look: 250 * ms,
		},
		"without an own Lease the confirmed grace is waited for": {
			edit: func(in *Input) { in.Renewed, in.Node.LeaseRead = time.Time{}, time.Time{} }, left: 3 * time.Second, look: time.Second,
		},
		"the confirmed grace passes before another look at the Leases": {
			edit: edited(lostSince(4900*ms), func(in *Input) { in.Node.LeaseRead = time.Time{} }), left: 100 * ms, look: 100 * ms, read: true,
		},
		"the Lease cannot be believed, and the confirmed grace is waited for": {
			edit: func(in *Input) { in.Node.LeaseKnown = false }, left: 3 * time.Second, look: time.Second,
		},
		"the unanimous grace is off": {
			edit: edited(unanimousGrace(5*time.Second), func(in *Input) { in.Node.LeaseRead = time.Time{} }), left: 3 * time.Second, look: time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := Decide(scenario{from: unanimous, edit: c.edit}.input())
			if d.Verdict != Pending || d.GraceLeft != c.left || d.ReadLease != c.read || d.After != c.look {
				t.Errorf("%s (%s) for another %s, again in %s, and reads A's Lease: %t; want %s for %s, again in %s, %t",
					d.Verdict, d.Message, d.GraceLeft, d.After, d.ReadLease, Pending, c.left, c.look, c.read)
			}
		})
	}
}

// Whoever moves before the confirmed grace has passed says on what evidence.
func TestUnanimityIsSaid(t *testing.T) {
	t.Parallel()
	plain := Decide(crashed())
	for lost, early := range map[time.Duration]bool{
		time.Second: true, 5*time.Second - 1: true, 5 * time.Second: false, 10 * time.Second: false,
	} {
		in := unanimous()
		lostSince(lost)(&in)
		d := Decide(in)
		if d.Verdict != Lost || d.Reason != plain.Reason || (d.Message != plain.Message) != early {
			t.Errorf("lost for %s: %s (%s: %q), want it in other words than %q: %t", lost, d.Verdict, d.Reason, d.Message, plain.Message, early)
		}
	}
}

// anyUnanimous is near the agreement of the three networks.
func anyUnanimous(t *rapid.T) Input {
	in := anyStory(t)
	if rapid.Bool().Draw(t, "agreed") {
		in = unanimous()
	}
	in.Settings.UnanimousGrace = rapid.SampledFrom([]time.Duration{0, time.Second, 5 * time.Second, time.Minute}).Draw(t, "unanimous grace")
	in.Node.LeaseGap = rapid.SampledFrom([]time.Duration{0, 10 * time.Second, 20 * time.Second}).Draw(t, "gap")
	for range rapid.IntRange(0, 3).Draw(t, "edits") {
		rapid.SampledFrom([]edit{
			theLease(anyAge(t)), readLease(anyAge(t)), renewedOwn(anyAge(t)), lostSince(anyAge(t)), missedSince(anyAge(t)),
			func(in *Input) { in.Node.LeaseKnown = false },
			at(nodeB, func(r *Replica) { r.Online.Confirmed = ago(anyAge(t)) }),
			at(nodeA, func(r *Replica) { r.Online = held(true, time.Hour) }),
		}).Draw(t, "edit")(&in)
	}
	return in
}

// A loss that is none by the confirmed grace has all three networks behind it.
func TestAnEarlyLossIsUnanimous(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := anyUnanimous(t)
		off := in
		off.Settings.UnanimousGrace = in.Settings.ConfirmedGrace
		early, late := Decide(in), Decide(off)
		if early.Verdict != Lost || late.Verdict == Lost {
			if early.Reason != late.Reason || (early.Verdict == Lost) != (late.Verdict == Lost) {
				t.Fatalf("%s (%s) with the unanimous grace, %s (%s) without", early.Verdict, early.Reason, late.Verdict, late.Reason)
			}
			return
		}
		a, _ := in.Resource.freshened(in.Now).Replica(nodeA)
		due := in.Now.Add(max(in.Node.LeaseGap, usualGap) - in.Node.LeaseSilence)
		silentSince := in.Now.Add(in.Node.Patience(ForceSilence) - in.Node.LeaseSilence)
		switch {
		case !a.Online.is(false):
			t.Fatal("LINSTOR does not miss the node")
		case !in.Node.LeaseSilent(ForceSilence):
			t.Fatalf("its Lease has been silent for %s only", in.Node.LeaseSilence)
		case in.Node.LeaseRead.Before(silentSince), in.Now.Sub(in.Node.LeaseRead) > ActAge:
			t.Fatalf("its Lease was not read since it has been silent for long enough: %s", in.Node.LeaseRead)
		case !in.Renewed.After(due):
			t.Fatalf("the own Lease was renewed at %s, that of the node fell due at %s", in.Renewed, due)
		}
		denials := 0
		for _, r := range in.Resource.freshened(in.Now).Replicas {
			denies := r.Connections[nodeA]
			if r.Node == nodeA || !r.Online.is(true) || !denies.Known {
				continue
			}
			if denials++; denies.Value || in.Now.Sub(denies.Since) < in.Settings.UnanimousGrace {
				t.Fatalf("%s does not deny the node: %+v", r.Node, denies)
			}
		}
		if denials == 0 {
			t.Fatal("no peer denies the node")
		}
	})
}

// What is missing of Kubernetes' agreement never shortens a wait, nor does it lengthen one beyond the confirmed grace.
func TestLessAgreementNeverMeansLess(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := anyUnanimous(t)
		before := Decide(in)
		less := rapid.SampledFrom([]edit{
			func(in *Input) { in.Node.LeaseRead = time.Time{} }, func(in *Input) { in.Renewed = time.Time{} },
			func(in *Input) { in.Settings.UnanimousGrace = in.Settings.ConfirmedGrace },
		}).Draw(t, "less")
		less(&in)
		after := Decide(in)
		if after.Verdict == Lost && before.Verdict != Lost {
			t.Fatalf("%s (%s) became %s (%s)", before.Verdict, before.Message, after.Verdict, after.Message)
		}
		if left := in.Settings.ConfirmedGrace; after.Verdict == Pending && before.Verdict == Lost && after.GraceLeft > left {
			t.Fatalf("a loss became one that has to last for another %s", after.GraceLeft)
		}
	})
}
