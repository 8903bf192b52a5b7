package evacuation

import (
	"strings"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evidence"
)

// wanted is what a row of a table expects of a plan. Empty conditions are none.
type wanted struct {
	state State
	// safe and evacuated are "status reason".
	safe, evacuated string
	call            Call
	// says are words of the first condition that the node has, of StorageEvacuated where that is another one.
	says string
}

func conditionText(c *Condition) string {
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + string(c.Reason)
}

func (w wanted) check(t *testing.T, in Input) {
	t.Helper()
	plan := PlanFor(in)
	if plan.Needs.Any() {
		t.Fatalf("the plan needs %+v, and all was read", plan.Needs)
	}
	got := wanted{
		state: plan.State, safe: conditionText(plan.Conditions.Safe), evacuated: conditionText(plan.Conditions.Evacuated),
		call: plan.Step.Call, says: w.says,
	}
	if got != w {
		t.Errorf("got  %+v\nwant %+v", got, w)
	}
	message := ""
	if plan.Conditions.Safe != nil {
		message = plan.Conditions.Safe.Message
	}
	if plan.Conditions.Evacuated != nil {
		message += " | " + plan.Conditions.Evacuated.Message
	}
	if !strings.Contains(message, w.says) {
		t.Errorf("%q is not said: %q", w.says, message)
	}
}

// row is a row of a table: what is so, and what follows.
type row struct {
	mode Mode
	edit edit
	want wanted
}

func runRows(t *testing.T, rows map[string]row) {
	t.Helper()
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			row.want.check(t, row.input())
		})
	}
}

func (r row) input() Input {
	if r.edit == nil {
		return tainted(r.mode)
	}
	return tainted(r.mode, r.edit)
}

func TestStates(t *testing.T) {
	t.Parallel()
	runRows(t, stateRows())
}

func TestFailures(t *testing.T) {
	t.Parallel()
	runRows(t, failureRows())
}

// stateRows are the rows of the table of the states.
func stateRows() map[string]row {
	taint := func(value, effect string) edit {
		return the(nodeA, func(n *Node) { n.Evacuate = []Taint{{value, effect}} })
	}
	attached := with(func() Volume {
		v := volume("pvc-1", disk(nodeA, inUse), disk(nodeB))
		v.Claims[0].Attached, v.Claims[0].Holders = true, []string{"default/db-0"}
		return v
	}())
	refusedCopy := func(in *Input) {
		in.Memory.Refused = map[string]Refusal{"pvc-1": {Until: now.Add(9 * time.Minute), Words: "Not enough available nodes", Nodes: in.Eligible()}}
	}
	return map[string]row{
		"a taint with the effect NoExecute is refused": {
			edit: taint("", "NoExecute"), want: wanted{Refused, "False WrongEffect", "False WrongEffect", Nothing, "NoExecute"},
		},
		"a taint with the effect PreferNoSchedule is refused": {
			edit: taint("last-copies", "PreferNoSchedule"), want: wanted{Refused, "False WrongEffect", "False WrongEffect", Nothing, ""},
		},
		"a taint with another value is refused": {
			edit: taint("all", "NoSchedule"), want: wanted{Refused, "False UnknownMode", "False UnknownMode", Nothing, `"all"`},
		},
		"a node that is no satellite is refused": {
			edit: the(nodeA, func(n *Node) { n.Listed, n.Online = false, Unknown }),
			want: wanted{Refused, "False NotASatellite", "False NotASatellite", Nothing, nodeA},
		},
		"a node whose turn has not come waits": {
			edit: alsoLeaving(nodeB, 2*time.Hour, Conditions{Safe: &Condition{Reason: Copying}}),
			want: wanted{Waiting, "False AnotherNodeFirst", "False AnotherNodeFirst", Nothing, nodeB},
		},
		"a node that is lost waits": {
			edit: func(in *Input) { in.FailOver = "it is lost" }, want: wanted{Waiting, "Unknown FailingOver", "Unknown FailingOver", Nothing, "it is lost"},
		},
		"while the guard is closed a node waits": {
			edit: func(in *Input) { in.Halt.Guard = "much is lost" },
			want: wanted{Waiting, "False GuardTripped", "False GuardTripped", Nothing, "much is lost"},
		},
		"while fail-over is paused a node waits": {
			edit: func(in *Input) { in.Halt.Paused = "by a person" }, want: wanted{Waiting, "False Paused", "False Paused", Nothing, "by a person"},
		},
		"while node agents of 1.x run a node waits": {
			edit: func(in *Input) { in.Halt.Agents = "they run" }, want: wanted{Waiting, "False NodeAgentRuns", "False NodeAgentRuns", Nothing, ""},
		},
		"in a dry run a node waits": {
			edit: func(in *Input) { in.Halt.DryRun = true }, want: wanted{Waiting, "False DryRun", "False DryRun", Nothing, ""},
		},
		"a node that LINSTOR does not reach waits": {
			edit: the(nodeA, func(n *Node) { n.Online = No }),
			want: wanted{Waiting, "Unknown SatelliteOffline", "Unknown SatelliteOffline", Nothing, ""},
		},
		"a node that LINSTOR is blind for waits": {
			edit: the(nodeA, func(n *Node) { n.Online = Unknown }),
			want: wanted{Waiting, "Unknown SatelliteOffline", "Unknown SatelliteOffline", Nothing, ""},
		},
		"while LINSTOR does not answer a node waits": {
			edit: edited(func(in *Input) { in.Linstor.Problem = "no answer" }, the(nodeA, func(n *Node) { n.Listed = false })),
			want: wanted{Waiting, "Unknown LinstorStale", "Unknown LinstorStale", Nothing, "no answer"},
		},
		"while LINSTOR does not list everything a node waits": {
			edit: edited(safely, func(in *Input) { in.Linstor.Missing = "pvc-9" }),
			want: wanted{Waiting, "Unknown LinstorStale", "Unknown LinstorStale", Nothing, "pvc-9"},
		},
		"while LINSTOR does not list everything a node returns": {
			edit: edited(safely, asked(time.Hour, 1), untainted, func(in *Input) { in.Linstor.Missing = "pvc-9" }),
			want: wanted{Returning, "", "", Restore, ""},
		},
		"a node of which only last copies are made that waits gets no second condition": {
			mode: LastCopies, edit: func(in *Input) { in.Halt.Paused = "by a person" }, want: wanted{Waiting, "False Paused", "", Nothing, ""},
		},
		"the only copy is copied": {
			want: wanted{CopyingState, "False Copying", "False Copying", Autoplace, "0 of 1"},
		},
		"the only copy is copied before a reboot, too": {
			mode: LastCopies, want: wanted{CopyingState, "False Copying", "", Autoplace, "0 of 1"},
		},
		"a copy on its way is waited for": {
			edit: with(volume("pvc-0", disk(nodeA), disk(nodeB)), volume("pvc-1", disk(nodeA), disk(nodeB, syncing(41)))),
			want: wanted{CopyingState, "False Copying", "False Copying", Nothing, "1 of 2 volumes have a copy elsewhere, pvc-1 41 %"},
		},
		"a copy that has just been placed is waited for": {
			edit: with(volume("pvc-1", disk(nodeA), disk(nodeB, state("")))),
			want: wanted{CopyingState, "False Copying", "False Copying", Nothing, "0 of 1"},
		},
		"a tie-breaker that gets a disk is waited for": {
			edit: with(volume("pvc-1", disk(nodeA), func() Replica { r := diskless(nodeB); r.Flags = []string{"DISK_ADDING"}; return r }())),
			want: wanted{CopyingState, "False Copying", "False Copying", Nothing, "0 of 1"},
		},
		"a copy that LINSTOR has refused blocks in its own words": {
			edit: refusedCopy, want: wanted{Blocked, "False NoTarget", "False NoTarget", Nothing, "pvc-1: Not enough available nodes"},
		},
		"a copy that LINSTOR refused ten minutes ago is tried again": {
			edit: edited(refusedCopy, func(in *Input) { in.Now = in.Now.Add(9 * time.Minute); in.Linstor.Asked = in.Now }),
			want: wanted{CopyingState, "False Copying", "False Copying", Autoplace, ""},
		},
		"a copy that LINSTOR has refused is tried again once there is another node": {
			edit: edited(the(nodeD, func(n *Node) { n.Cordoned = true }), refusedCopy, the(nodeD, func(n *Node) { n.Cordoned = false })),
			want: wanted{CopyingState, "False Copying", "False Copying", Autoplace, ""},
		},
		"without any node for a copy LINSTOR is not asked": {
			edit: edited(the(nodeB, func(n *Node) { n.Cordoned = true }), the(nodeC, func(n *Node) { n.Ready = No }), the(nodeD, func(n *Node) { n.Online = No })),
			want: wanted{Blocked, "False NoTarget", "False NoTarget", Nothing, NoNodeFree},
		},
		"a disk that is not UpToDate and whose peer is offline is not copied": {
			edit: edited(with(volume("pvc-1", disk(nodeA, state(diskInconsistent)), disk(nodeB, state("")))), the(nodeB, func(n *Node) { n.Online = No })),
			want: wanted{Blocked, "False PeerOffline", "False PeerOffline", Nothing, "pvc-1: its replica here is not UpToDate, and node-b is not ONLINE"},
		},
		"a disk whose state is unknown is not copied": {
			edit: with(volume("pvc-1", disk(nodeA, state("")))),
			want: wanted{Blocked, "False PeerOffline", "False PeerOffline", Nothing, "none of its replicas"},
		},
		"a disk whose UpToDate peer is offline is copied": {
			edit: edited(with(volume("pvc-1", disk(nodeA), disk(nodeB))), the(nodeB, func(n *Node) { n.Online = No })),
			want: wanted{CopyingState, "False Copying", "False Copying", Autoplace, ""},
		},
		"what has no DRBD layer is named before a reboot": {
			mode: LastCopies, edit: func(in *Input) { in.Volumes[0].DRBD = false },
			want: wanted{Blocked, "False NotDRBD", "", Nothing, "pvc-1"},
		},
		"a volume that may be used nowhere else is named": {
			mode: LastCopies, edit: edited(attached, func(in *Input) { in.Volumes[0].Claims[0].Elsewhere = false }),
			want: wanted{Blocked, "False AffinityPinned", "", Nothing, "PersistentVolume pvc-1"},
		},
		"a node that LINSTOR has evicted is to be restored": {
			mode: LastCopies, edit: the(nodeA, func(n *Node) { n.Evicted, n.Online = true, No }),
			want: wanted{Waiting, "Unknown Evicted", "", Nothing, "linstor node restore node-a"},
		},
		"a volume that writes asynchronously is named": {
			mode: LastCopies, edit: with(func() Volume { v := volume("pvc-1", disk(nodeA, inUse), disk(nodeB)); v.Asynchronous = true; return v }()),
			want: wanted{Blocked, "False AsynchronousWrites", "", Nothing, "drain the node first"},
		},
		"a copy that a person lets balancing remove is named": {
			mode: LastCopies,
			edit: edited(with(volume("pvc-1", disk(nodeA), disk(nodeB))), func(in *Input) {
				in.Volumes[0].PlaceCount, in.Volumes[0].Mark.Balance = 1, "true"
			}),
			want: wanted{Blocked, "False BalancingEnabled", "", Nothing, "BalanceResourcesEnabled=true"},
		},
		"a volume that would have no quorum without the node is named": {
			mode: LastCopies,
			edit: edited(func(in *Input) {
				in.Volumes = []Volume{volume("pvc-1", disk(nodeA), disk(nodeB), disk(nodeC))}
				in.Volumes[0].Quorum = evidence.Majority
			}, the(nodeC, func(n *Node) { n.Online = No })),
			want: wanted{Blocked, "False QuorumWouldBeLost", "", Nothing, "because node-c is not ONLINE"},
		},
		"a volume whose disks are nowhere UpToDate is named also where the node has none of them": {
			mode: LastCopies,
			edit: func(in *Input) {
				in.Volumes = []Volume{volume("pvc-1", diskless(nodeA), disk(nodeB, state("Inconsistent")), diskless(nodeC))}
			},
			want: wanted{Blocked, "False PeerOffline", "", Nothing, "none of its disks"},
		},
		"a volume whose only disk is on a node that leaves, too, can be used there": {
			mode: LastCopies,
			edit: edited(func(in *Input) {
				in.Volumes = []Volume{volume("pvc-1", diskless(nodeA), disk(nodeB))}
			}, the(nodeB, func(n *Node) { n.Evacuate, n.Since = []Taint{{Effect: "NoSchedule"}}, now })),
			want: wanted{Safe, "True CopiedElsewhere", "", Nothing, ""},
		},
		"a tie-breaker that decides is named": {
			mode: LastCopies,
			edit: edited(func(in *Input) {
				in.Volumes = []Volume{volume("pvc-1", diskless(nodeA), disk(nodeB), disk(nodeC))}
				in.Volumes[0].Quorum = evidence.Majority
			}, the(nodeC, func(n *Node) { n.Online = No })),
			want: wanted{Blocked, "False QuorumWouldBeLost", "", Nothing, "no quorum"},
		},
		"a volume whose other replicas are not connected to each other is named": {
			mode: LastCopies,
			edit: func(in *Input) {
				in.Volumes = []Volume{volume("pvc-1", disk(nodeA), disk(nodeB, connected(nodeA)), disk(nodeC, connected(nodeA)))}
				in.Volumes[0].Quorum = evidence.Majority
			},
			want: wanted{Blocked, "False QuorumWouldBeLost", "", Nothing, "no quorum"},
		},
		"a tie-breaker that decides beside a disk that has failed is named": {
			mode: LastCopies,
			edit: func(in *Input) {
				in.Volumes = []Volume{volume("pvc-1", diskless(nodeA), disk(nodeB), disk(nodeC, state("Failed")))}
				in.Volumes[0].Quorum = evidence.Majority
			},
			want: wanted{Blocked, "False QuorumWouldBeLost", "", Nothing, "no quorum"},
		},
		"a volume that needs all of its disks is named": {
			mode: LastCopies,
			edit: func(in *Input) {
				in.Volumes = []Volume{volume("pvc-1", disk(nodeA), disk(nodeB), disk(nodeC))}
				in.Volumes[0].Quorum = evidence.All
			},
			want: wanted{Blocked, "False QuorumWouldBeLost", "", Nothing, "no quorum"},
		},
		"a volume that needs more disks than remain is named": {
			mode: LastCopies,
			edit: func(in *Input) {
				in.Volumes = []Volume{volume("pvc-1", disk(nodeA), disk(nodeB))}
				in.Volumes[0].Quorum = "2"
			},
			want: wanted{Blocked, "False QuorumWouldBeLost", "", Nothing, "no quorum"},
		},
		"a volume that needs as many disks as remain is safe": {
			mode: LastCopies,
			edit: func(in *Input) {
				in.Volumes = []Volume{volume("pvc-1", disk(nodeA), disk(nodeB), disk(nodeC))}
				in.Volumes[0].Quorum = "2"
			},
			want: wanted{Safe, "True CopiedElsewhere", "", Nothing, ""},
		},
		"a copy that is not connected to the disk here is none": {
			mode: LastCopies, edit: with(volume("pvc-1", disk(nodeA, connected()), disk(nodeB, connected()))),
			want: wanted{CopyingState, "False Copying", "", Autoplace, ""},
		},
		"a node with a copy of everything elsewhere may be switched off": {
			mode: LastCopies, edit: safely, want: wanted{Safe, "True CopiedElsewhere", "", Nothing, "may be drained or switched off"},
		},
		"a node without volumes may be switched off": {
			mode: LastCopies, edit: with(), want: wanted{Safe, "True CopiedElsewhere", "", Nothing, "no volume"},
		},
		"a volume in use is waited for": {
			edit: attached, want: wanted{Draining, "True CopiedElsewhere", "False WaitingForDrain", Nothing, "default/db-0 holds pvc-1"},
		},
		"an NFS export is waited for": {
			edit: edited(with(volume("pvc-1", disk(nodeA, inUse), disk(nodeB))), func(in *Input) { in.Volumes[0].Claims[0].NFSExport = true }),
			want: wanted{Draining, "True CopiedElsewhere", "False NFSExport", Nothing, "exports pvc-1 by NFS"},
		},
		"once it is drained LINSTOR is told": {
			edit: safely, want: wanted{LeavingState, "True CopiedElsewhere", "False Leaving", Evacuate, "1 replica left"},
		},
		"what LINSTOR moves is counted": {
			edit: edited(safely, asked(30*time.Second, 1), func(in *Input) { in.Snapshots.N = 3 }),
			want: wanted{LeavingState, "True CopiedElsewhere", "False Leaving", Nothing, "1 replica, 3 snapshots left"},
		},
		"snapshots alone have to leave, too": {
			edit: edited(with(), func(in *Input) { in.Snapshots.N = 3 }),
			want: wanted{LeavingState, "True CopiedElsewhere", "False Leaving", Evacuate, "3 snapshots left"},
		},
		"LINSTOR's words are told when nothing moves": {
			edit: edited(safely, asked(90*time.Second, 2), unchangedFrom(time.Minute), func(in *Input) { in.Memory.NotMoved = "no storage pool" }),
			want: wanted{LeavingState, "True CopiedElsewhere", "False NoTarget", Nothing, "LINSTOR said: no storage pool"},
		},
		"tie-breakers may remain": {
			edit: edited(with(volume("pvc-1", diskless(nodeA), disk(nodeB))), asked(time.Hour, 1)),
			want: wanted{Evacuated, "True CopiedElsewhere", "True NothingLeft", Nothing, "1 replica without a disk remain"},
		},
		"what has no DRBD layer stays when everything else has left": {
			edit: func(in *Input) { in.Volumes[0].DRBD = false },
			want: wanted{Evacuated, "False NotDRBD", "False NotDRBD", Nothing, "pvc-1 has no DRBD layer"},
		},
		"a node that the taint was taken off has its flag taken off": {
			edit: edited(safely, asked(time.Hour, 1), untainted), want: wanted{Returning, "", "", Restore, ""},
		},
		"then the marks go": {
			edit: edited(safely, untainted, func(in *Input) { in.Marked.All = []Mark{{Resource: "pvc-1", Nodes: []string{markA}, Balance: "false"}} }),
			want: wanted{Returning, "", "", Properties, ""},
		},
		"then it is as it was": {edit: edited(safely, untainted), want: wanted{Returned, "", "", Nothing, ""}},
		"a node that never was evacuated is left alone": {
			edit: edited(untainted, func(in *Input) { in.Progress = nil }, the(nodeA, func(n *Node) { n.Evacuating = true })),
			want: wanted{Returned, "", "", Nothing, ""},
		},
	}
}

// failureRows are the rows of the table of the failures.
func failureRows() map[string]row {
	offline := the(nodeA, func(n *Node) { n.Online = No })
	return map[string]row{
		"a flag that LINSTOR does not take off is told": {
			edit: edited(safely, asked(time.Hour, 1), untainted, failed(Restore, 1, Interval-1)),
			want: wanted{Returning, "Unknown LinstorRefuses", "", Nothing, "returning: the database is locked"},
		},
		"a flag that LINSTOR has not taken off is tried again by the next look": {
			edit: edited(safely, asked(time.Hour, 1), untainted, failed(Restore, 1, Interval)),
			want: wanted{Returning, "Unknown LinstorRefuses", "", Restore, ""},
		},
		"a mark that LINSTOR does not take off is told": {
			edit: edited(safely, untainted, markedForA, failed(Properties, 2, time.Minute-1)),
			want: wanted{Returning, "Unknown LinstorRefuses", "", Nothing, "the database is locked"},
		},
		"a flag that LINSTOR does not take off keeps no mark where the node is restored by others": {
			edit: edited(safely, asked(time.Hour, 1), untainted, markedForA, failed(Restore, 6, time.Second), the(nodeA, func(n *Node) { n.Evacuating = false })),
			want: wanted{Returning, "", "", Properties, ""},
		},
		"a node that is to stay after all, and whose flag LINSTOR does not take off, is not safe": {
			mode: LastCopies, edit: edited(safely, asked(time.Hour, 1), failed(Restore, 9, 10*time.Minute-1)),
			want: wanted{Returning, "False LinstorRefuses", "", Nothing, "the database is locked"},
		},
		"a mark goes, too, with a disk that a person has removed": {
			edit: edited(with(), markedForA), want: wanted{Evacuated, "True CopiedElsewhere", "True NothingLeft", Properties, ""},
		},
		"a mark that LINSTOR does not take off holds up nothing that leaves": {
			edit: edited(safely, asked(2*time.Minute, 1), unchangedFrom(time.Hour), failed(Properties, 3, time.Minute), func(in *Input) {
				in.Marked.All = []Mark{{"pvc-2", []string{markA}, "false"}}
			}),
			want: wanted{LeavingState, "True CopiedElsewhere", "False Leaving", Evacuate, ""},
		},
		"a mark that LINSTOR does not take off holds up nothing that has left": {
			edit: edited(with(), asked(time.Hour, 1), markedForA, failed(Properties, 3, time.Minute)),
			want: wanted{Evacuated, "True CopiedElsewhere", "True NothingLeft", Nothing, ""},
		},
		"a move of which nothing is seen for a minute is told as that": {
			edit: edited(safely, asked(90*time.Second, 2), unchangedFrom(time.Minute)),
			want: wanted{LeavingState, "True CopiedElsewhere", "False LeavingStalled", Nothing, "will be told again"},
		},
		"a node that crashes while it is copied is left alone": {
			edit: offline, want: wanted{Waiting, "Unknown SatelliteOffline", "Unknown SatelliteOffline", Nothing, ""},
		},
		"a node that crashes while it leaves is left alone": {
			edit: edited(safely, asked(time.Hour, 1), unchangedFrom(time.Hour), offline),
			want: wanted{Waiting, "Unknown SatelliteOffline", "Unknown SatelliteOffline", Nothing, ""},
		},
		"a node that crashes while it returns is left alone": {
			edit: edited(safely, asked(time.Hour, 1), untainted, offline),
			want: wanted{Returning, "Unknown SatelliteOffline", "", Nothing, "returning"},
		},
		"another copy is made where the node of the first one has died": {
			mode: LastCopies, edit: edited(safely, the(nodeB, func(n *Node) { n.Online = No })),
			want: wanted{CopyingState, "False Copying", "", Autoplace, ""},
		},
		"another copy is made where the disk of the first one has failed": {
			mode: LastCopies, edit: with(volume("pvc-1", disk(nodeA), disk(nodeB, state("Failed")))),
			want: wanted{CopyingState, "False Copying", "", Autoplace, ""},
		},
		"a move that LINSTOR has forgotten is asked for again once nothing syncs": {
			edit: edited(safely, asked(2*time.Minute, 1), unchangedFrom(time.Minute)),
			want: wanted{LeavingState, "True CopiedElsewhere", "False Leaving", Evacuate, ""},
		},
		"a move is not asked for again while something syncs": {
			edit: edited(with(volume("pvc-1", disk(nodeA), disk(nodeB), disk(nodeC, syncing(10)))), asked(2*time.Minute, 1), unchangedFrom(time.Hour)),
			want: wanted{LeavingState, "True CopiedElsewhere", "False Leaving", Nothing, "pvc-1 syncs on node-c"},
		},
		"that somebody has restored the node is noted, and nothing else": {
			edit: edited(safely, asked(30*time.Second, 1), the(nodeA, func(n *Node) { n.Evacuating = false })),
			want: wanted{LeavingState, "True CopiedElsewhere", "False Leaving", Nothing, "FlagRemoved"},
		},
		"a flag that somebody else has set is only observed": {
			edit: edited(safely, the(nodeA, func(n *Node) { n.Evacuating = true })),
			want: wanted{Waiting, "False EvacuatedByOther", "False EvacuatedByOther", Nothing, ""},
		},
		"a replica that somebody else moves is only observed": {
			edit: with(volume("pvc-1", disk(nodeA, flagged("EVACUATE")), disk(nodeB))),
			want: wanted{Waiting, "False EvacuatedByOther", "False EvacuatedByOther", Nothing, ""},
		},
		"the flag of somebody else stays when the node returns": {
			edit: edited(untainted, the(nodeA, func(n *Node) { n.Evacuating = true })), want: wanted{Returned, "", "", Nothing, ""},
		},
		"a node that LINSTOR has forgotten returns without it": {
			edit: edited(asked(time.Hour, 1), untainted, the(nodeA, func(n *Node) { n.Listed, n.Online, n.Evacuating = false, Unknown, false })),
			want: wanted{Returned, "", "", Nothing, ""},
		},
		"a node that is to stay after all is restored": {
			mode: LastCopies, edit: edited(safely, asked(time.Minute, 1)), want: wanted{Returning, "False Copying", "", Restore, ""},
		},
	}
}

// TestAskAgain has the times after which LINSTOR is told once more.
func TestAskAgain(t *testing.T) {
	t.Parallel()
	for i, wait := range []time.Duration{time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 10 * time.Minute} {
		before := PlanFor(tainted(Everything, safely, asked(wait-time.Second, i+1), unchangedFrom(time.Hour)))
		after := PlanFor(tainted(Everything, safely, asked(wait, i+1), unchangedFrom(time.Hour)))
		if before.Step.Call != Nothing || after.Step.Call != Evacuate {
			t.Errorf("after %d calls: %q a second before %s, then %q", i+1, before.Step.Call, wait, after.Step.Call)
		}
		if after.Step.Asking.Asks != i+2 || !after.Step.Asking.Asked.Equal(now) {
			t.Errorf("the call is not noted: %s", after.Step.Asking)
		}
	}
	for name, edit := range map[string]edit{
		"something has changed":    unchangedFrom(time.Minute - time.Second),
		"nothing is known of that": func(*Input) {},
	} {
		if plan := PlanFor(tainted(Everything, safely, asked(time.Hour, 1), edit)); plan.Step.Call != Nothing {
			t.Errorf("LINSTOR is told again although %s", name)
		}
	}
}

// TestReasonsAreReached fails for a reason that no row of the tables reaches.
func TestReasonsAreReached(t *testing.T) {
	t.Parallel()
	reached := make(map[Reason]bool)
	for _, rows := range []map[string]row{stateRows(), failureRows()} {
		for _, row := range rows {
			plan := PlanFor(row.input())
			for _, c := range []*Condition{plan.Conditions.Safe, plan.Conditions.Evacuated} {
				if c != nil {
					reached[c.Reason] = true
				}
			}
		}
	}
	for _, reason := range Reasons() {
		if !reached[reason] {
			t.Errorf("no row reaches %s", reason)
		}
	}
}
