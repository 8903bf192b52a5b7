package failover

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// A node goes on by the setting that it applied last, whatever LINSTOR shows.
func TestWhatANodeIsKnownToRun(t *testing.T) {
	t.Parallel()

	blocked := func(reason Reason, edits ...edit) scenario {
		return scenario{from: crashed, edit: edited(edits...), want: Blocked, reason: reason}
	}
	open := func(edits ...edit) scenario {
		return scenario{from: crashed, edit: edited(edits...), want: Lost, reason: NodeUnreachable}
	}
	answers := func(from func() Input, want Verdict, reason Reason, edits ...edit) scenario {
		return scenario{from: from, edit: edited(edits...), want: want, reason: reason}
	}
	off, majority := usual("off"), usual("majority")
	twoVolumes := func(in *Input) { in.Resource.Volumes = 2 }
	left := func(nodes ...string) edit { return func(in *Input) { in.Resource.Left = nodes } }
	// On C there was a disk once.
	three := with("majority", []string{nodeA, nodeB, nodeC})
	isGone := at(nodeA, func(r *Replica) { r.Gone = true })
	tooFew := edited(silent(nodeT), theLease(time.Minute))
	leaves := func(node string) edit { return at(node, func(r *Replica) { r.Leaving = true }) }
	alive := theLease(3 * time.Second)

	runScenarios(t, map[string]scenario{
		"a node that may still run off moves nothing":                     blocked(QuorumUnconfirmed, mayRun(nodeA, off, majority)),
		"however long its kubelet has been silent":                        blocked(QuorumUnconfirmed, mayRun(nodeA, off, majority), theLease(time.Hour)),
		"a node of which nobody knows what it runs moves nothing":         blocked(QuorumUnconfirmed, unborne),
		"however long the kubelet of that has been silent":                blocked(QuorumUnconfirmed, unborne, theLease(time.Hour)),
		"a node that was never seen with a setting moves nothing":         blocked(QuorumUnconfirmed, mayRun(nodeA)),
		"replicas that have just changed move nothing":                    blocked(QuorumUnconfirmed, func(in *Input) { in.Resource.InDoubt = true }),
		"a node that may run one of several settings that fence is moved": open(mayRun(nodeA, usual("all"), usual("2"), majority)),
		"a number that was too small for the disks of then moves nothing": blocked(QuorumUnconfirmed, mayRun(nodeA, usual("1"), majority)),
		"the survivors may run off where every witness has spoken":        open(mayRun(nodeB, off), mayRun(nodeT, off)),
		"what LINSTOR wants now must fence too":                           blocked(NoQuorum, func(in *Input) { in.Resource.Quorum = "off" }),

		"a disk that the node may count on, and of which nobody knows, moves nothing":   blocked(QuorumUnconfirmed, mayRun(nodeA, three, majority)),
		"a disk that went while its node was ONLINE gives no vote":                      open(mayRun(nodeA, three, majority), left(nodeC)),
		"a tie-breaker that the node may count on, and of which nobody knows, may vote": blocked(QuorumUnconfirmed, mayRun(nodeA, with("majority", []string{nodeA, nodeB}, nodeC), majority)),
		"a tie-breaker that has become a disk denies as well as before":                 open(withThirdDisk, mayRun(nodeA, with("majority", []string{nodeA, nodeB, nodeT}, nodeC), with("majority", []string{nodeA, nodeB, nodeC}, nodeT))),
		"one that has become a disk and is silent may be a vote for the node": blocked(QuorumUnconfirmed,
			withThirdDisk, silent(nodeC), mayRun(nodeA, with("majority", []string{nodeA, nodeB}, nodeC), with("majority", []string{nodeA, nodeB, nodeC}, nodeT))),

		"with too few witnesses the node must run the replicas of now":                 open(tooFew),
		"with too few witnesses other replicas move nothing":                           blocked(QuorumUnconfirmed, tooFew, mayRun(nodeA, three, majority), left(nodeC)),
		"with too few witnesses another disk than now moves nothing":                   blocked(QuorumUnconfirmed, tooFew, mayRun(nodeA, with("majority", []string{nodeA, nodeC}, nodeT), majority)),
		"with too few witnesses another tie-breaker than now moves nothing":            blocked(QuorumUnconfirmed, tooFew, mayRun(nodeA, with("majority", []string{nodeA, nodeB}, nodeC), majority)),
		"with too few witnesses a silent replica may run off":                          open(tooFew, mayRun(nodeT, off, majority)),
		"with too few witnesses a survivor that may run off moves nothing":             blocked(QuorumUnconfirmed, tooFew, mayRun(nodeB, off, majority)),
		"with too few witnesses a survivor that may run other replicas moves nothing":  blocked(QuorumUnconfirmed, tooFew, mayRun(nodeB, three, majority)),
		"with too few witnesses a survivor of which nobody knows what it runs neither": blocked(QuorumUnconfirmed, tooFew, at(nodeB, func(r *Replica) { r.Confirmed = false })),
		"with too few witnesses a replica on its way out moves nothing":                blocked(QuorumUnconfirmed, tooFew, leaves(nodeT)),
		"nor does that of the node":                                                    blocked(QuorumUnconfirmed, tooFew, leaves(nodeA)),
		"where every witness has spoken the node's may be on its way out":              open(leaves(nodeA)),

		"a Primary that says that it has no quorum has one that works": answers(isolated, Lost, QuorumLost, unborne),
		"also where it may run off for all that is known":              answers(isolated, Lost, QuorumLost, mayRun(nodeA, off, majority)),
		"not where one of two volumes may be the one without data":     answers(isolated, Blocked, QuorumUnconfirmed, twoVolumes, mayRun(nodeA, off, majority)),
		"not where it said so before LINSTOR missed it":                answers(isolated, Blocked, QuorumUnconfirmed, mayRun(nodeA, off, majority), at(nodeA, func(r *Replica) { r.Online = held(false, time.Minute) })),
		"not where it said so before LINSTOR forgot it":                answers(isolated, Blocked, QuorumUnconfirmed, mayRun(nodeA, off, majority), isGone),
		"not where it says that it can write":                          answers(healthy, Blocked, QuorumUnconfirmed, mayRun(nodeA, off, majority), takeover, theLease(time.Minute)),
		"not where LINSTOR wants no quorum":                            answers(isolated, Blocked, NoQuorum, func(in *Input) { in.Resource.Quorum = "off" }),
		"a replica that fails its IO must run quorum":                  answers(ioErrors, Blocked, QuorumUnconfirmed, mayRun(nodeA, off, majority)),
		"a replica that left once and is back must run quorum":         answers(ioErrors, Blocked, QuorumUnconfirmed, mayRun(nodeA, off, majority), left(nodeA)),
		"a replica that fails its IO need not run the disks of now":    answers(ioErrors, Lost, ForcedIOErrors, mayRun(nodeA, three, majority)),
		"a Primary that cannot write all of its volumes must":          answers(isolated, Undecided, TooFewWitnesses, mayRun(nodeA, three, majority), twoVolumes),
		"and is lost where it does":                                    answers(isolated, Lost, QuorumLost, twoVolumes),
		"a demoted replica must run quorum":                            answers(demoted, Blocked, QuorumUnconfirmed, mayRun(nodeA, off, majority)),

		"who has switched the node off knows what it runs": open(mayRun(nodeA, off, majority), func(in *Input) { in.Node.SwitchedOff = true }),
		"but not of a node that answers":                   answers(ioErrors, Blocked, QuorumUnconfirmed, mayRun(nodeA, off, majority), func(in *Input) { in.Node.SwitchedOff = true }),
		"but not that LINSTOR wants a quorum":              blocked(NoQuorum, wants("off"), func(in *Input) { in.Node.SwitchedOff = true }),
		"a taint that was there before says nothing":       blocked(QuorumUnconfirmed, mayRun(nodeA, off, majority), func(in *Input) { in.Node.Shutdown = true }),
		"who has declared the node out of service lets the rest be finished": open(mayRun(nodeA, off, majority), func(in *Input) {
			in.Node.OutOfService, in.Node.TakenOut, in.Pods, in.Attachment.Marked = true, true, nil, true
		}),
		"unless that was before the node was last heard of": blocked(QuorumUnconfirmed, mayRun(nodeA, off, majority), func(in *Input) {
			in.Node.OutOfService, in.Pods, in.Attachment.Marked = true, nil, true
		}),

		"a replica that LINSTOR has forgotten is one that does not answer": {
			from: crashed, edit: isGone, want: Lost, reason: NodeUnreachable, state: Unreachable,
		},
		"what it may run counts on": blocked(QuorumUnconfirmed, isGone, mayRun(nodeA, off, majority)),
		"also that it ran off last": blocked(QuorumUnconfirmed, isGone, mayRun(nodeA, off)),
		"what a forgotten replica may run moves nothing where nobody knows it": blocked(QuorumUnconfirmed, isGone, mayRun(nodeA)),
		"a replica that was never listed is one that does not answer, and of which nothing is known": {
			from: gone, edit: left(), want: Blocked, reason: QuorumUnconfirmed, state: Unreachable,
		},
		"a survivor that has no majority with it runs without quorum, whatever LINSTOR shows": {
			from: crashed, want: NotLost, reason: NoQuorum,
			edit: edited(withoutTieBreaker, at(nodeB, func(r *Replica) { r.Connections = map[string]Fact[bool]{nodeA: held(false, time.Minute)} })),
		},
		"a living node is told to be restarted": answers(ioErrors, Blocked, QuorumUnconfirmed, mayRun(nodeA, off, majority), alive),
	})
}

// What ends a doubt about quorum is said, and it is never to change quorum while the node is away, or on the controller.
func TestADoubtAboutQuorumSaysWhatEndsIt(t *testing.T) {
	t.Parallel()

	doubt := mayRun(nodeA, usual("off"), usual("majority"))
	for name, c := range map[string]struct {
		from  func() Input
		edit  edit
		words []string
		never []string
	}{
		"a node that answers": {ioErrors, doubt, []string{nodeA, "pvc-1", "not known", "restart linstor-satellite"}, nil},
		"a node that is away": {crashed, doubt, []string{nodeA, "pvc-1", "not known", "is back", "out-of-service"}, []string{"set Drbd", "restart"}},
		"no quorum at a node that is away": {
			crashed, wants("off"), []string{"is back", "quorum to majority"}, []string{"controller"},
		},
		"no quorum at a node that answers": {ioErrors, wants("off"), []string{"quorum to majority", "resource group"}, []string{"controller"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := Decide((scenario{from: c.from, edit: c.edit}).input())
			for _, word := range c.words {
				if !strings.Contains(d.Message, word) {
					t.Errorf("%q does not say %q", d.Message, word)
				}
			}
			if slices.ContainsFunc(c.never, func(word string) bool { return strings.Contains(d.Message, word) }) {
				t.Errorf("%q says one of %q", d.Message, c.never)
			}
		})
	}
}
