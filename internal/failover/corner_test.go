package failover

import (
	"strings"
	"testing"
	"time"
)

// The corners of the policy: conditions that the great pictures of the other tables have in common, here each
// alone against all others.

func TestCornersOfTheVerdict(t *testing.T) {
	t.Parallel()

	notRun := func(p *Pod) { p.HasRun, p.Runs = false, false }
	awaited := func(in *Input) { in.Pods, in.Attachment.Awaited = nil, true }
	noSurvivor := edited(
		at(nodeB, func(r *Replica) { r.MayPromote = held(false, time.Minute) }),
		at(nodeT, func(r *Replica) { r.MayPromote = held(false, time.Minute) }))
	secondTieBreaker := func(in *Input) {
		withThirdDisk(in)
		at(nodeC, func(r *Replica) { r.Diskless = true })(in)
		everywhereAsListed(in)
	}
	otherInPeace := func(change edit) edit {
		return otherVolume(edited(func(in *Input) { *in = healthy() }, noSurvivor,
			at(nodeB, func(r *Replica) { r.Score = held(0, time.Minute) }),
			at(nodeT, func(r *Replica) { r.Score = held(0, time.Minute) }), change))
	}
	alone := func(*Input) {}

	runScenarios(t, map[string]scenario{
		"a volume that is awaited elsewhere is not starting where nobody uses it": {
			from: isolated, edit: awaited, want: Lost, reason: QuorumLost,
		},
		"a volume that is awaited elsewhere waits the confirmed grace only": {
			from: crashed, edit: edited(awaited, at(nodeB, func(r *Replica) { r.Connections[nodeA] = held(false, 10*time.Second) })),
			want: Lost, reason: NodeUnreachable,
		},
		"a pod that has not run is starting although the attachment has a mark": {
			from: isolated, edit: edited(thePod(notRun), func(in *Input) { in.Attachment.Marked = true }),
			want: NotLost, reason: VolumeStarting,
		},
		"a missing replica that nobody uses is not lost": {
			from: gone, edit: func(in *Input) { in.Pods, in.Attachment = nil, nil }, want: NotLost, reason: VolumeStarting,
		},
		"a replica that is gone for long is lost a grace after the pod came": {
			from: gone, edit: thePod(func(p *Pod) { p.Since = ago(44 * time.Second) }), want: Pending, reason: ReplicaGone,
		},
		"two tie-breakers that deny do not outvote both disks, of which one is silent": {
			from: crashed, edit: edited(secondTieBreaker, silent(nodeB), theLease(time.Second)), want: Undecided, reason: TooFewWitnesses,
		},
		"a pod that never ran waits the confirmed grace where that is the longer one": {
			from: crashed, edit: edited(thePod(notRun), func(in *Input) { in.Settings.ConfirmedGrace = 61 * time.Second }),
			want: Pending, reason: NodeUnreachable,
		},

		"another volume that only A has stays": {
			from: isolated, edit: otherInPeace(alone), want: Blocked, reason: OtherVolumeUnavailable,
		},
		"another volume whose only other replica is OFFLINE stays, whatever its score was": {
			from: isolated, want: Blocked, reason: OtherVolumeUnavailable,
			edit: otherInPeace(at(nodeB, func(r *Replica) { r.Online, r.Score = held(false, time.Minute), held(10102, time.Minute) })),
		},
		"another volume whose only other replica has a score that is too old stays": {
			from: isolated, want: Blocked, reason: OtherVolumeUnavailable,
			edit: otherInPeace(at(nodeB, func(r *Replica) {
				r.Score = Fact[int]{Value: 10102, Known: true, Since: ago(time.Minute), Confirmed: ago(MaxAge + 1)}
			})),
		},
	})
}

// When it is looked again: never where nothing can follow, and at the end of what is waited for.
func TestCornersOfLookingAgain(t *testing.T) {
	t.Parallel()

	noSurvivor := edited(
		at(nodeB, func(r *Replica) { r.MayPromote = held(false, time.Minute) }),
		at(nodeT, func(r *Replica) { r.MayPromote = held(false, time.Minute) }))
	halfSettled := at(nodeA, func(r *Replica) {
		r.Score = Fact[int]{Known: true, Since: ago(700 * time.Millisecond), Confirmed: ago(700 * time.Millisecond)}
	})
	// Missed long ago, forgotten just now, and one of the others was not listed since.
	forgotten := edited(func(in *Input) { in.Resource.SetSince = ago(200 * time.Millisecond) },
		at(nodeA, func(r *Replica) { r.Gone, r.Online = true, held(false, stillThere-readAgain) }),
		at(nodeB, func(r *Replica) { r.Online.Confirmed = ago(time.Second) }))
	for name, c := range map[string]struct {
		from func() Input
		edit edit
		want time.Duration
	}{
		"a replica that was forgotten just now":           {crashed, forgotten, 800 * time.Millisecond},
		"a Secondary without a survivor":                  {from: demoted, edit: noSurvivor},
		"a dead node with a silent kubelet, no survivor":  {from: crashed, edit: noSurvivor},
		"a state that settles before the grace ends":      {isolated, edited(halfSettled, youngWitness(2*time.Second)), time.Second},
		"a state that settles after the grace has passed": {isolated, halfSettled, 300 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if d := Decide((scenario{from: c.from, edit: c.edit}).input()); d.After != c.want {
				t.Errorf("%s (%s) again in %s, want %s", d.Verdict, d.Reason, d.After, c.want)
			}
		})
	}
}

func youngWitness(age time.Duration) edit {
	return at(nodeT, func(r *Replica) { r.Connections[nodeA] = held(false, age) })
}

// A's own state settles when each of its signs has been read twice.
func TestCornersOfSettling(t *testing.T) {
	t.Parallel()

	shutDown := func(in *Input) { in.Node.Shutdown = true }
	for name, change := range map[string]edit{
		"the satellite was read once": at(nodeA, func(r *Replica) {
			r.Online = Fact[bool]{Value: true, Known: true, Since: ago(1500 * time.Millisecond), Confirmed: ago(1500 * time.Millisecond)}
		}),
		"the score was read once": at(nodeA, func(r *Replica) {
			r.Score = Fact[int]{Known: true, Since: ago(1500 * time.Millisecond), Confirmed: ago(1500 * time.Millisecond)}
		}),
		"the witnesses that overrule LINSTOR have just spoken": func(in *Input) {
			*in = healthy()
			edited(takeover, theLease(time.Minute), youngWitness(time.Second-1))(in)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := isolated()
			edited(change, shutDown)(&in)
			if d := Decide(in); d.Verdict != Pending {
				t.Errorf("%s (%s), want %s", d.Verdict, d.Reason, Pending)
			}
		})
	}
}

func TestFreshFact(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		fact      Fact[bool]
		wantKnown bool
		wantSince time.Duration
	}{
		"a fact that is not too old stays":             {Fact[bool]{true, true, ago(time.Hour), ago(MaxAge)}, true, time.Hour},
		"a fact that is too old is unknown since then": {Fact[bool]{true, true, ago(time.Hour), ago(MaxAge + 3*time.Second)}, false, 3 * time.Second},
		"a fact of a slow read was never known":        {Fact[bool]{true, true, ago(time.Second), ago(MaxAge + 3*time.Second)}, false, time.Second},
		"what was unknown has been so all the time":    {Fact[bool]{false, false, ago(time.Hour), ago(MaxAge + 3*time.Second)}, false, time.Hour},
		"a fact that was never read is not fresh":      {Fact[bool]{Value: true, Known: true}, false, now.Sub(time.Time{}.Add(MaxAge))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := freshFact(c.fact, now)
			if got.Known != c.wantKnown || now.Sub(got.Since) != c.wantSince {
				t.Errorf("known: %t since %s, want %t since %s", got.Known, now.Sub(got.Since), c.wantKnown, c.wantSince)
			}
		})
	}
}

func TestCornersOfTheWitnesses(t *testing.T) {
	t.Parallel()

	t.Run("the oldest survivor need not be the first one", func(t *testing.T) {
		t.Parallel()
		in := crashed()
		at(nodeB, func(r *Replica) { r.MayPromote = held(true, 10*time.Second) })(&in)
		at(nodeT, func(r *Replica) { r.MayPromote = held(true, 30*time.Second) })(&in)
		if since, _ := survivorOf(in.Resource, nodeA); !since.Equal(ago(30 * time.Second)) {
			t.Errorf("the survivor has held for %s, want 30s", now.Sub(since))
		}
	})
	t.Run("without any disk nobody proves that quorum is lost", func(t *testing.T) {
		t.Parallel()
		in := gone()
		for i := range in.Resource.Replicas {
			in.Resource.Replicas[i].Diskless = true
		}
		if testimonyOn(in.Resource, nodeA).full {
			t.Error("the witnesses are enough")
		}
	})
}

func TestCornersOfRemoval(t *testing.T) {
	t.Parallel()

	over := thePod(terminates(-time.Second))
	noSurvivor := edited(
		at(nodeB, func(r *Replica) { r.MayPromote = held(false, time.Minute) }),
		at(nodeT, func(r *Replica) { r.MayPromote = held(false, time.Minute) }))
	for name, c := range map[string]struct {
		from func() Input
		edit edit
		want Removal
	}{
		"another volume of which too few witnesses speak, and none against it, goes by force": {
			crashed, otherVolume(edited(unreachable, silent(nodeT))), RemoveForce,
		},
		"another volume without a survivor and without a replica on the node needs no fence": {
			crashed, otherVolume(edited(noSurvivor, func(in *Input) { in.Resource.Replicas, in.Resource.Left = in.Resource.Replicas[1:], []string{nodeA} })),
			RemoveForce,
		},
		"a pod whose time is over goes where the node has no replica any more, and no peer a connection to it": {
			gone, edited(over, at(nodeB, forgetPeers), at(nodeT, forgetPeers)), RemoveForce,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := (scenario{from: c.from, edit: c.edit}).input()
			if got := RemovalOf(in, in.Pods[0]); got != c.want {
				t.Errorf("RemovalOf = %s, want %s", got, c.want)
			}
		})
	}
}

func forgetPeers(r *Replica) { r.Connections = nil }

func TestADryRunNamesEveryDeed(t *testing.T) {
	t.Parallel()

	in := crashed()
	in.Halt.DryRun = true
	d := Decide(in)
	if want := "would remove pod default/web-0 (Force), then delete VolumeAttachment csi-1"; d.Reason != DryRun || d.Message != want {
		t.Errorf("%s: %q, want %q", d.Reason, d.Message, want)
	}
	in.Attachment = nil
	if d := Decide(in); strings.Contains(d.Message, "VolumeAttachment") {
		t.Errorf("without an attachment: %q", d.Message)
	}
}

func TestCornersOfKeepAway(t *testing.T) {
	t.Parallel()

	if got := KeepAwayEffect(Unreachable, []State{PrimaryUp}); got != "NoSchedule" {
		t.Errorf("a node out of reach gets %s, whatever was last heard of its volumes", got)
	}
	in := healthy()
	at(nodeA, func(r *Replica) { r.Score = Fact[int]{Value: 10102, Since: ago(time.Minute), Confirmed: now} })(&in)
	if got := TaintCauseOf(now, in.Node, in.Settings, held(true, time.Minute), &in.Resource); got != TaintCauseLasts {
		t.Errorf("with a score that is not known the cause is %s", got)
	}
}
