package failover

import (
	"testing"
	"time"
)

// A's own state must have been read twice, a second apart, whatever the grace.
func TestOwnStateSettles(t *testing.T) {
	t.Parallel()

	// once is a value that was read d ago and, although others were read since, not again.
	once := func(d time.Duration) Fact[bool] {
		return Fact[bool]{Value: false, Known: true, Since: ago(d), Confirmed: ago(d)}
	}
	cases := map[string]struct {
		from func() Input
		edit edit
		want Verdict
	}{
		"a score that fell less than a second ago has not settled": {
			from: isolated, edit: at(nodeA, func(r *Replica) { r.Score = held(0, time.Second-1) }), want: Pending,
		},
		"a score that fell a second ago has settled": {
			from: isolated, edit: at(nodeA, func(r *Replica) { r.Score = held(0, time.Second) }), want: Lost,
		},
		"a node that went OFFLINE less than a second ago has not settled": {
			from: crashed, edit: at(nodeA, func(r *Replica) { r.Online = held(false, time.Second-1) }), want: Pending,
		},
		"a node that went OFFLINE long enough ago for the others to be missed as well has settled": {
			from: crashed, edit: at(nodeA, func(r *Replica) { r.Online = held(false, stillThere) }), want: Lost,
		},
		"an OFFLINE that was read once has not settled however often the resource was read": {
			from: crashed, edit: at(nodeA, func(r *Replica) { r.Online = once(1500 * time.Millisecond) }), want: Pending,
		},
		"an absent state that was read once has not settled": {
			from: crashed, edit: at(nodeA, func(r *Replica) {
				r.Online, r.Reports = held(true, time.Hour), once(1500*time.Millisecond)
			}), want: Pending,
		},
		"a role that was read once has not settled": {
			from: ioErrors, edit: edited(func(in *Input) { in.Node.Shutdown = true },
				at(nodeA, func(r *Replica) { r.InUse = once(1500 * time.Millisecond) })), want: Pending,
		},
		"a node that LINSTOR takes for ONLINE has not settled when its kubelet has just become silent": {
			from: healthy, edit: edited(takeover, theLease(21*time.Second-1)), want: Pending,
		},
		"a node that LINSTOR takes for ONLINE has settled a second after its kubelet became silent": {
			from: healthy, edit: edited(takeover, theLease(21*time.Second)), want: Lost,
		},
		"a shutdown does not shorten it": {
			from: isolated, edit: edited(func(in *Input) { in.Node.Shutdown = true },
				at(nodeA, func(r *Replica) { r.Score = held(0, time.Second-1) })), want: Pending,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := Decide((scenario{from: c.from, edit: c.edit}).input())
			if d.Verdict != c.want {
				t.Errorf("%s (%s: %s), want %s", d.Verdict, d.Reason, d.Message, c.want)
			}
			if d.After <= 0 || d.After > time.Second {
				t.Errorf("asks again in %s, want within a second", d.After)
			}
		})
	}
}

// What was read longer ago than two seconds is unknown: each value a loss rests on, aged alone, undoes it.
func TestFreshness(t *testing.T) {
	t.Parallel()

	denied := func(age time.Duration) Fact[bool] {
		return Fact[bool]{Known: true, Since: ago(time.Minute), Confirmed: ago(age)}
	}
	allowed := func(age time.Duration) Fact[bool] {
		f := denied(age)
		f.Value = true
		return f
	}
	peers := func(change func(*Replica)) edit { return edited(at(nodeB, change), at(nodeT, change)) }

	cases := map[string]struct {
		from  func() Input
		value func(age time.Duration) edit
		stale Reason
	}{
		"the list of replicas": {gone, func(age time.Duration) edit {
			return func(in *Input) { in.Resource.Confirmed = ago(age) }
		}, StateUnknown},
		"the survivors' may promote": {isolated, func(age time.Duration) edit {
			return peers(func(r *Replica) { r.MayPromote = allowed(age) })
		}, NoSurvivor},
		"the survivors' satellites": {isolated, func(age time.Duration) edit {
			return peers(func(r *Replica) { r.Online = allowed(age) })
		}, NoSurvivor},
		"a witness's word": {isolated, func(age time.Duration) edit {
			return at(nodeB, func(r *Replica) { r.Connections[nodeA] = denied(age) })
		}, TooFewWitnesses},
		"A's satellite": {isolated, func(age time.Duration) edit {
			return at(nodeA, func(r *Replica) { r.Online = allowed(age) })
		}, StateUnknown},
		"A's role": {isolated, func(age time.Duration) edit {
			return at(nodeA, func(r *Replica) { r.InUse = allowed(age) })
		}, StateUnknown},
		"A's score": {isolated, func(age time.Duration) edit {
			return at(nodeA, func(r *Replica) {
				r.Score = Fact[int]{Known: true, Since: ago(time.Minute), Confirmed: ago(age)}
			})
		}, StateUnknown},
		"A's OFFLINE": {crashed, func(age time.Duration) edit {
			return at(nodeA, func(r *Replica) { r.Online, r.Reports = denied(age), untold[bool](time.Minute) })
		}, StateUnknown},
		"A's absent state": {crashed, func(age time.Duration) edit {
			return at(nodeA, func(r *Replica) { r.Online, r.Reports = held(true, time.Hour), denied(age) })
		}, StateUnknown},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kubeletAlive := theLease(3 * time.Second)
			in := (scenario{from: c.from, edit: edited(kubeletAlive, c.value(MaxAge))}).input()
			if d := Decide(in); d.Verdict != Lost {
				t.Errorf("at the age of %s: %s (%s: %s), want %s", MaxAge, d.Verdict, d.Reason, d.Message, Lost)
			}
			in = (scenario{from: c.from, edit: edited(kubeletAlive, c.value(MaxAge+1))}).input()
			if d := Decide(in); d.Verdict == Lost || d.Reason != c.stale || d.After != time.Second {
				t.Errorf("older than %s: %s (%s: %s) again in %s, want %s in 1s", MaxAge, d.Verdict, d.Reason, d.Message, d.After, c.stale)
			}
		})
	}
}

// A value that has become too old is unknown from then on, and that restarts the clock: nobody saw what it did.
func TestFreshnessRestartsTheClock(t *testing.T) {
	t.Parallel()

	in := crashed()
	withThirdDisk(&in)
	reached := Fact[bool]{Value: true, Known: true, Since: ago(time.Hour), Confirmed: ago(MaxAge + time.Second)}
	at(nodeC, func(r *Replica) { r.Diskless, r.Connections = true, map[string]Fact[bool]{nodeA: reached} })(&in)
	everywhereAsListed(&in)
	if got := testimonyOn(in.freshened().Resource, nodeA); !got.full || !got.since.Equal(ago(time.Second)) {
		t.Errorf("the others agree: %t, for %s, want it for 1s", got.full, now.Sub(got.since))
	}
	if d := Decide(in); d.Verdict != Pending {
		t.Errorf("%s (%s: %s), want %s", d.Verdict, d.Reason, d.Message, Pending)
	}
}

// A never-read value has no time; it is as unknown as an old one.
func TestFreshnessOfNothing(t *testing.T) {
	t.Parallel()

	if f := freshFact(Fact[bool]{Value: true, Known: true}, now); f.Known {
		t.Error("a value that was never read counts as fresh")
	}
	if (Resource{Known: true}).freshened(now).Known {
		t.Error("a list that was never read counts as fresh")
	}
}
