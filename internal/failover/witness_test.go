package failover

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type survivorCase struct {
	edit edit
	want bool
}

func TestSurvivorOf(t *testing.T) {
	t.Parallel()

	noTieBreaker := at(nodeT, func(r *Replica) { r.MayPromote = held(false, time.Minute) })
	cases := map[string]survivorCase{
		"a replica on an ONLINE node that may be promoted survives": {edit: noTieBreaker, want: true},
		"a tie-breaker that may be promoted survives": {
			edit: at(nodeB, func(r *Replica) { r.MayPromote = held(false, time.Minute) }), want: true,
		},
		"A itself is never its own survivor": {
			edit: edited(noTieBreaker, at(nodeB, func(r *Replica) { r.MayPromote = held(false, time.Minute) }),
				at(nodeA, func(r *Replica) { r.MayPromote, r.Online = held(true, time.Minute), held(true, time.Minute) })),
		},
		"an unknown may promote is not a true one": {
			edit: edited(noTieBreaker, at(nodeB, func(r *Replica) { r.MayPromote = untold[bool](time.Minute) })),
		},
		"a replica on an OFFLINE node does not survive": {
			edit: edited(noTieBreaker, at(nodeB, func(r *Replica) { r.Online = held(false, time.Minute) })),
		},
		"a replica on a node whose satellite is unknown does not survive": {
			edit: edited(noTieBreaker, at(nodeB, func(r *Replica) { r.Online = untold[bool](time.Minute) })),
		},
		"a replica that is being deleted, evicted or is inactive does not survive": {
			edit: edited(noTieBreaker, at(nodeB, func(r *Replica) { r.Leaving = true })),
		},
		"a replica that LINSTOR has forgotten does not survive": {
			edit: edited(noTieBreaker, at(nodeB, func(r *Replica) { r.Gone = true })),
		},
	}
	joined := func(node, peer string, connected bool) edit {
		return at(node, func(r *Replica) {
			r.Connections = maps.Clone(r.Connections)
			r.Connections[peer] = held(connected, time.Minute)
		})
	}
	sick := at(nodeB, func(r *Replica) { r.MayPromote, r.Score = held(false, time.Minute), held(0, time.Minute) })
	cases["a replica that its peer agrees with survives"] = survivorCase{
		edit: edited(noTieBreaker, joined(nodeB, nodeT, true), joined(nodeT, nodeB, true)), want: true,
	}
	cases["a replica that its peer denies a connection to does not"] = survivorCase{
		edit: edited(noTieBreaker, joined(nodeB, nodeT, true), joined(nodeT, nodeB, false)),
	}
	cases["a replica that denies its peer's connection does not"] = survivorCase{
		edit: edited(noTieBreaker, joined(nodeB, nodeT, false), joined(nodeT, nodeB, true)),
	}
	cases["a denial does not matter where the others make a quorum"] = survivorCase{
		edit: edited(withThirdDisk, noTieBreaker, at(nodeC, func(r *Replica) { r.MayPromote = held(false, time.Minute) }),
			joined(nodeB, nodeC, true), joined(nodeC, nodeB, true), joined(nodeB, nodeT, true), joined(nodeT, nodeB, false)), want: true,
	}
	cases["the word of an OFFLINE peer contradicts nobody"] = survivorCase{
		edit: edited(noTieBreaker, joined(nodeB, nodeT, true), joined(nodeT, nodeB, false),
			at(nodeT, func(r *Replica) { r.Online = held(false, time.Minute) })), want: true,
	}
	cases["a tie-breaker whose only source has no quorum does not"] = survivorCase{edit: edited(sick, joined(nodeT, nodeB, true))}
	cases["a tie-breaker whose other source is A does not"] = survivorCase{edit: edited(sick, func(in *Input) {
		in.Resource.Replicas[0] = primary(nodeA)
		replicaOf(in, nodeT).Connections = map[string]Fact[bool]{nodeA: held(true, time.Minute), nodeB: held(true, time.Minute)}
	})}
	cases["a tie-breaker whose source is not heard survives"] = survivorCase{
		edit: edited(sick, joined(nodeT, nodeB, true), at(nodeB, func(r *Replica) { r.Online = held(false, time.Minute) })), want: true,
	}
	notPromotable := func(node string, score int) edit {
		return at(node, func(r *Replica) { r.MayPromote, r.Score = held(false, time.Minute), held(score, time.Minute) })
	}
	cases["a tie-breaker whose source has quorum survives"] = survivorCase{
		edit: edited(notPromotable(nodeB, 10102), joined(nodeT, nodeB, true)), want: true,
	}
	cases["another diskless replica is no source of a tie-breaker"] = survivorCase{
		edit: edited(sick, withThirdDisk, notPromotable(nodeC, 1), at(nodeC, func(r *Replica) { r.Diskless = true }),
			joined(nodeT, nodeB, true), joined(nodeT, nodeC, true)),
	}
	// Of three disks, B has to have one more.
	threeDisks := edited(withThirdDisk, noTieBreaker, notPromotable(nodeC, 0))
	deniedByT := edited(joined(nodeB, nodeT, true), joined(nodeT, nodeB, false))
	cases["a replica with a disk needs no source"] = survivorCase{edit: edited(threeDisks, joined(nodeB, nodeC, true)), want: true}
	cases["peers that agree not to be connected contradict nobody"] = survivorCase{
		edit: edited(threeDisks, joined(nodeB, nodeC, true), joined(nodeB, nodeT, false), joined(nodeT, nodeB, false)), want: true,
	}
	cases["a replica that has lost A and the tie-breaker has no majority with it"] = survivorCase{
		edit: edited(noTieBreaker, joined(nodeB, nodeT, false), joined(nodeT, nodeB, false)),
	}
	cases["one of two disks without a tie-breaker has no majority with it"] = survivorCase{edit: withoutTieBreaker}
	cases["one of three disks that has lost both others has no majority with it"] = survivorCase{
		edit: edited(threeDisks, withoutTieBreaker, joined(nodeB, nodeC, false), joined(nodeC, nodeB, false)),
	}
	cases["a tie-breaker that has lost both disks has no majority with it"] = survivorCase{
		edit: edited(sick, joined(nodeT, nodeB, false), joined(nodeB, nodeT, false)),
	}
	cases["a peer that is not connected makes no quorum against a denial"] = survivorCase{
		edit: edited(threeDisks, deniedByT, joined(nodeB, nodeC, false), joined(nodeC, nodeB, false)),
	}
	// By its own words B has a majority then, so that nothing but the denial speaks against it.
	withA := joined(nodeB, nodeA, true)
	cases["a replica that has its majority with A is contradicted by nobody"] = survivorCase{
		edit: edited(noTieBreaker, withA, joined(nodeB, nodeT, false)), want: true,
	}
	cases["a peer that is not connected makes no quorum against a denial, nor does A"] = survivorCase{
		edit: edited(threeDisks, withA, deniedByT, joined(nodeB, nodeC, false), joined(nodeC, nodeB, false)),
	}
	cases["A makes no quorum against a denial, though the replica says that it reaches A"] = survivorCase{
		edit: edited(threeDisks, withA, joined(nodeB, nodeC, true), joined(nodeC, nodeB, false)),
	}
	cases["a denial counts, whoever is asked after that"] = survivorCase{
		edit: edited(withThirdDisk, noTieBreaker, sick, joined(nodeC, nodeB, true), joined(nodeB, nodeC, false)),
	}
	cases["a tie-breaker needs no connection to another replica without a disk"] = survivorCase{
		edit: edited(withThirdDisk, at(nodeC, func(r *Replica) { r.Diskless = true }), notPromotable(nodeC, 2), notPromotable(nodeB, 10102),
			joined(nodeT, nodeB, true), joined(nodeT, nodeC, false)), want: true,
	}
	cases["a disk of two that reaches one of two replicas without a disk has no majority with it"] = survivorCase{
		edit: edited(withThirdDisk, noTieBreaker, at(nodeC, func(r *Replica) { r.Diskless = true }), notPromotable(nodeC, 2),
			joined(nodeB, nodeT, true), joined(nodeB, nodeC, false)),
	}
	cases["a peer whose connection is not told might make the quorum"] = survivorCase{edit: edited(threeDisks, deniedByT), want: true}
	cases["A makes no quorum for who would take over from it"] = survivorCase{
		edit: edited(threeDisks, deniedByT, joined(nodeB, nodeC, false), at(nodeB, func(r *Replica) { delete(r.Connections, nodeA) })),
	}
	onlyDiskOnA := at(nodeB, func(r *Replica) { r.Diskless, r.Connections = true, maps.Clone(r.Connections) })
	cases["a replica that has lost the only disk, A's, has no majority with it"] = survivorCase{edit: edited(noTieBreaker, onlyDiskOnA)}
	cases["a replica that does not tell whether it reaches the only disk, A's, is not taken to have a majority with it"] = survivorCase{
		edit: edited(noTieBreaker, onlyDiskOnA, at(nodeB, func(r *Replica) { delete(r.Connections, nodeA) })),
	}
	cases["a replica that does not tell whether it reaches A has a majority without it"] = survivorCase{
		edit: edited(noTieBreaker, joined(nodeB, nodeT, true), at(nodeB, func(r *Replica) { delete(r.Connections, nodeA) })), want: true,
	}
	cases["a connection that only the peer tells of denies nothing"] = survivorCase{
		edit: edited(noTieBreaker, joined(nodeT, nodeB, true)), want: true,
	}
	cases["a connection that the peer does not tell of is not denied"] = survivorCase{
		edit: edited(noTieBreaker, joined(nodeB, nodeT, true)), want: true,
	}
	rejoined := func(heard time.Duration) edit {
		return edited(noTieBreaker, at(nodeB, func(r *Replica) { r.Heard = ago(heard) }),
			at(nodeA, func(r *Replica) { r.Rejoined = map[string]time.Time{nodeB: ago(30 * time.Second)} }))
	}
	cases["a replica that A has connected to since its last news does not"] = survivorCase{edit: rejoined(31 * time.Second)}
	cases["a replica that has spoken since A connected to it survives"] = survivorCase{edit: rejoined(30 * time.Second), want: true}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := (scenario{from: crashed, edit: c.edit}).input()
			if _, got := survivorOf(in.Resource, nodeA); got != c.want {
				t.Errorf("survivorOf = %t, want %t", got, c.want)
			}
		})
	}
}

// A contradiction that has ended restarts the clock.
func TestSurvivorSinceItsPeersAgree(t *testing.T) {
	t.Parallel()

	in := crashed()
	at(nodeT, func(r *Replica) {
		r.MayPromote = held(false, time.Minute)
		r.Connections = map[string]Fact[bool]{nodeA: held(false, time.Minute), nodeB: held(true, 3*time.Second)}
	})(&in)
	at(nodeB, func(r *Replica) {
		r.Connections = map[string]Fact[bool]{nodeA: held(false, time.Minute), nodeT: held(true, time.Hour)}
	})(&in)
	want := func(d time.Duration) {
		t.Helper()
		if since, ok := survivorOf(in.Resource, nodeA); !ok || !since.Equal(ago(d)) {
			t.Errorf("the survivor has held for %s (%t), want %s", now.Sub(since), ok, d)
		}
	}
	want(3 * time.Second)

	// One peer has agreed for long, the other not.
	withThirdDisk(&in)
	replicaOf(&in, nodeB).Connections[nodeC] = held(true, time.Hour)
	at(nodeC, func(r *Replica) {
		r.MayPromote, r.Connections = held(false, time.Minute), map[string]Fact[bool]{nodeB: held(true, time.Minute)}
	})(&in)
	want(3 * time.Second)
}

// The clock of the survivors is that of the one that has survived longest, and of it the later of its two conditions.
func TestSurvivorSince(t *testing.T) {
	t.Parallel()

	in := crashed()
	at(nodeB, func(r *Replica) { r.MayPromote, r.Online = held(true, 30*time.Second), held(true, 20*time.Second) })(&in)
	at(nodeT, func(r *Replica) { r.MayPromote, r.Online = held(true, 10*time.Second), held(true, time.Hour) })(&in)
	if since, _ := survivorOf(in.Resource, nodeA); !since.Equal(ago(20 * time.Second)) {
		t.Errorf("the survivor has held for %s, want 20s", now.Sub(since))
	}
}

func TestTestimonyOn(t *testing.T) {
	t.Parallel()

	disklessA := at(nodeA, func(r *Replica) { r.Diskless = true })
	forget := func(node string) edit { return at(node, func(r *Replica) { r.Connections = nil }) }
	reaches := func(node string, connection Fact[bool]) edit {
		return at(node, func(r *Replica) { r.Connections = map[string]Fact[bool]{nodeA: connection} })
	}
	cases := map[string]struct {
		edit      edit
		full      bool
		connected bool
	}{
		"every witness denies": {full: true},
		"one witness is connected": {
			edit: reaches(nodeB, held(true, time.Minute)), connected: true,
		},
		"the tie-breaker alone is connected": {
			edit: reaches(nodeT, held(true, time.Minute)), connected: true,
		},
		"a witness need not be a survivor": {
			edit: at(nodeB, func(r *Replica) {
				r.MayPromote, r.Score = held(false, time.Minute), held(0, time.Minute)
			}), full: true,
		},
		"a disk on its way out may be one that A counts no longer": {
			edit: at(nodeB, func(r *Replica) {
				r.Leaving, r.MayPromote, r.Score = true, held(false, time.Minute), held(0, time.Minute)
			}),
		},
		"a witness that may not be promoted although it has quorum sees a Primary": {
			edit: at(nodeT, func(r *Replica) { r.MayPromote, r.Score = held(false, time.Minute), held(1, time.Minute) }), connected: true,
		},
		"what sees a Primary does so only while its satellite is ONLINE": {
			edit: at(nodeT, func(r *Replica) { r.MayPromote, r.Online = held(false, time.Minute), held(false, time.Minute) }),
		},
		"a witness whose score is not told sees nothing": {
			edit: at(nodeT, func(r *Replica) { r.MayPromote, r.Score = held(false, time.Minute), untold[int](time.Minute) }), full: true,
		},
		"a witness whose score is too old sees nothing": {
			edit: at(nodeT, func(r *Replica) {
				r.MayPromote, r.Score = held(false, time.Minute), Fact[int]{Value: 1, Since: ago(time.Minute)}
			}), full: true,
		},
		"another ONLINE node is Primary": {
			edit: at(nodeB, func(r *Replica) { r.InUse = held(true, time.Minute) }), full: false, connected: true,
		},
		"the last role of an OFFLINE node proves nothing": {
			edit: edited(at(nodeB, func(r *Replica) { r.InUse, r.Online = held(true, time.Minute), held(false, time.Minute) })),
			full: false,
		},
		"of two disks, one without an entry could hold quorum with A": {edit: forget(nodeB)},
		"an entry that LINSTOR left out is no denial":                 {edit: reaches(nodeB, untold[bool](time.Minute))},
		"the word of an OFFLINE node is no denial": {
			edit: at(nodeB, func(r *Replica) { r.Online = held(false, time.Minute) }),
		},
		"the word of a node with an unknown satellite is no denial": {
			edit: at(nodeB, func(r *Replica) { r.Online = untold[bool](time.Minute) }),
		},
		"a connection known from an OFFLINE node is no connection": {
			edit: edited(reaches(nodeB, held(true, time.Minute)), at(nodeB, func(r *Replica) { r.Online = held(false, time.Minute) })),
		},
		"half of the disks and a silent tie-breaker could hold quorum": {edit: silent(nodeT)},
		"half of the disks without any tie-breaker could not":          {edit: withoutTieBreaker, full: true},
		"one of three disks could not hold quorum": {
			edit: edited(withThirdDisk, withoutTieBreaker), full: true,
		},
		"one of three disks could not, not even with a silent tie-breaker": {
			edit: edited(withThirdDisk, silent(nodeT)), full: true,
		},
		"two of three disks could hold quorum": {
			edit: edited(withThirdDisk, withoutTieBreaker, silent(nodeC)),
		},
		"a diskless A could hold quorum only with disks that are silent": {
			edit: edited(withThirdDisk, withoutTieBreaker, disklessA), full: true,
		},
		"a diskless A could hold quorum with one of two disks": {
			edit: edited(withThirdDisk, withoutTieBreaker, disklessA, silent(nodeB)),
		},
		"two diskless replicas are no witnesses of each other": {
			// T, which could not have a connection to A, would outvote A's side if its word counted.
			edit: edited(withThirdDisk, disklessA, silent(nodeC)),
		},
		"A has no replica and nobody can have a connection to it": {
			edit: func(in *Input) { in.Resource.Replicas = in.Resource.Replicas[1:]; forget(nodeB)(in); forget(nodeT)(in) },
		},
		"a denial older than A's own connection is none": {
			edit: edited(at(nodeB, func(r *Replica) { r.Heard = ago(time.Minute) }),
				at(nodeA, func(r *Replica) { r.Rejoined = map[string]time.Time{nodeB: ago(30 * time.Second)} })),
		},
		"a connection that A has made since does not outdate who says Connected": {
			edit: edited(reaches(nodeB, held(true, time.Hour)),
				at(nodeA, func(r *Replica) { r.Rejoined = map[string]time.Time{nodeB: ago(30 * time.Second)} })),
			connected: true,
		},
		"a replica that LINSTOR has forgotten could vote for A": {
			edit: edited(withThirdDisk, withoutTieBreaker, at(nodeC, func(r *Replica) { r.Gone, r.Connections = true, nil })),
		},
		"there is no disk": {
			edit: edited(disklessA, at(nodeB, func(r *Replica) { r.Diskless = true })),
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := (scenario{from: crashed, edit: c.edit}).input()
			got := testimonyOn(in.Resource, nodeA)
			if got.full != c.full || got.connected != c.connected {
				t.Errorf("full, connected = %t, %t, want %t, %t", got.full, got.connected, c.full, c.connected)
			}
		})
	}
}

// Whoever may run R without quorum is named, be it A or not.
func TestWithoutQuorum(t *testing.T) {
	t.Parallel()

	alone := func(r *Replica) {
		r.Online, r.MayPromote = held(true, time.Minute), held(true, time.Minute)
		r.Connections = map[string]Fact[bool]{}
		for _, peer := range []string{nodeA, nodeB, nodeT} {
			if peer != r.Node {
				r.Connections[peer] = held(false, time.Minute)
			}
		}
	}
	cases := map[string]struct {
		edit edit
		want []string
	}{
		"who would take over with a majority": {edit: func(*Input) {}},
		"one that has lost all others":        {edit: at(nodeB, alone), want: []string{nodeB}},
		"all that have lost all others":       {edit: edited(at(nodeA, alone), at(nodeB, alone), at(nodeT, alone)), want: []string{nodeA, nodeB, nodeT}},
		"one that has lost all others, and may not be promoted": {
			edit: edited(at(nodeB, alone), at(nodeB, func(r *Replica) { r.MayPromote = held(false, time.Minute) })),
		},
		"one that had lost all others when LINSTOR heard it last": {
			edit: edited(at(nodeB, alone), at(nodeB, func(r *Replica) { r.Online = held(false, time.Minute) })),
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := (scenario{from: crashed, edit: c.edit}).input()
			if diff := cmp.Diff(c.want, WithoutQuorum(in.Resource)); diff != "" {
				t.Errorf("WithoutQuorum (-want +got):\n%s", diff)
			}
		})
	}
}

// Where another node may be Primary at the same time, nothing but connections speaks of A.
func TestTestimonyOfConnections(t *testing.T) {
	t.Parallel()

	primaryOnB := at(nodeB, func(r *Replica) { r.InUse = held(true, time.Minute) })
	reaches := func(node string) edit {
		return at(node, func(r *Replica) { r.Connections[nodeA] = held(true, time.Minute) })
	}
	cases := map[string]struct {
		edit      edit
		full      bool
		connected bool
	}{
		"every witness denies, one of them Primary":   {edit: primaryOnB, full: true},
		"the first witness is connected":              {edit: edited(primaryOnB, reaches(nodeB)), connected: true},
		"the last witness is connected":               {edit: edited(primaryOnB, reaches(nodeT)), connected: true},
		"one witness denies, and the other is silent": {edit: edited(primaryOnB, silent(nodeT))},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := (scenario{from: crashed, edit: c.edit}).input()
			got := testimonyOn(in.Resource, nodeA).ofConnections()
			if got.full != c.full || got.connected != c.connected {
				t.Errorf("full, connected = %t, %t, want %t, %t", got.full, got.connected, c.full, c.connected)
			}
		})
	}
}

// The witnesses agree since the last change of what any replica says or does not say: one that was connected
// until a moment ago and has fallen silent since must not leave an old agreement of the others behind.
func TestTestimonySince(t *testing.T) {
	t.Parallel()

	const young = 9 * time.Second
	cases := map[string]edit{
		"a witness denies":              at(nodeT, func(r *Replica) { r.Connections[nodeA] = held(false, young) }),
		"a witness is ONLINE":           at(nodeT, func(r *Replica) { r.Online = held(true, young) }),
		"a replica is no longer in use": at(nodeT, func(r *Replica) { r.InUse = held(false, young) }),
		"a replica may be promoted":     at(nodeT, func(r *Replica) { r.MayPromote = held(true, young) }),
		"a replica that may not be promoted has lost its quorum": at(nodeT, func(r *Replica) {
			r.MayPromote, r.Score = held(false, time.Minute), held(0, young)
		}),
		"a replica's score is unknown": at(nodeT, func(r *Replica) {
			r.MayPromote, r.Score = held(false, time.Minute), untold[int](young)
		}),
		"a replica's may promote is unknown": at(nodeT, func(r *Replica) { r.MayPromote = untold[bool](young) }),
		"a replica's role is unknown":        at(nodeT, func(r *Replica) { r.InUse = untold[bool](young) }),
		"a replica's connection is unknown":  at(nodeC, func(r *Replica) { r.Connections[nodeA] = untold[bool](young) }),
		"a replica's satellite is OFFLINE":   at(nodeC, func(r *Replica) { r.Online, r.Connections = held(false, young), nil }),
		"a replica's state is absent":        at(nodeC, func(r *Replica) { r.Reports, r.Connections = held(false, young), nil }),
		"a replica's satellite is unknown":   at(nodeC, func(r *Replica) { r.Online, r.Connections = untold[bool](young), nil }),
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := (scenario{from: crashed, edit: edited(withThirdDisk, change)}).input()
			if got := testimonyOn(in.Resource, nodeA); !got.since.Equal(ago(young)) {
				t.Errorf("the witnesses agree for %s, want %s", now.Sub(got.since), young)
			}
		})
	}
}
