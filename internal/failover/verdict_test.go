package failover

import (
	"testing"
	"time"
)

func TestVerdict(t *testing.T) {
	t.Parallel()
	runScenarios(t, verdictScenarios())
}

// verdictScenarios are the rows of the table of verdicts, with every grace passed and every gate open.
func verdictScenarios() map[string]scenario {
	noSurvivor := edited(
		at(nodeB, func(r *Replica) { r.MayPromote = held(false, time.Minute) }),
		at(nodeT, func(r *Replica) { r.MayPromote = held(false, time.Minute) }),
	)
	reached := connectedTo(nodeA, true)
	primaryElsewhere := at(nodeB, func(r *Replica) { r.InUse = held(true, time.Minute) })
	notRun := thePod(func(p *Pod) { p.HasRun, p.Runs = false, false })
	detached := func(in *Input) { in.Attachment.Attached = false }
	noAttachment := func(in *Input) { in.Attachment = nil }
	block := func(in *Input) { in.Volume.Block = true }
	freshLease := theLease(3 * time.Second)

	return map[string]scenario{
		"a Primary without quorum whose peers deny it is lost": {
			from: isolated, want: Lost, reason: QuorumLost, state: PrimaryWithoutQuorum,
		},
		"a dead node is lost": {from: crashed, want: Lost, reason: NodeUnreachable, state: Unreachable},
		"a node that only LINSTOR and its peers miss is lost": {
			from: crashed, edit: freshLease, want: Lost, reason: NodeUnreachable, state: Unreachable,
		},
		"a node that LINSTOR takes for ONLINE is lost when peers and kubelet agree": {
			from: healthy, edit: edited(takeover, theLease(time.Minute)), want: Lost, reason: NodeUnreachable, state: Unreachable,
		},
		"a node that LINSTOR is blind for is lost when peers that it sees and the kubelet agree": {
			from: healthy, edit: edited(takeover, theLease(time.Minute), blindFor(nodeA)), want: Lost, reason: NodeUnreachable, state: Unreachable,
		},
		"a node that LINSTOR is blind for is not lost while its kubelet is alive": {
			from: healthy, edit: edited(takeover, blindFor(nodeA)), want: Undecided, reason: LinstorBlind, state: Unknown,
		},
		"a dead node is not lost while LINSTOR is blind for all": {
			from: healthy, edit: edited(takeover, theLease(time.Minute), blindFor(nodeA), blindFor(nodeB), blindFor(nodeT)),
			want: Undecided, reason: LinstorBlind, state: Unknown,
		},
		"a node that LINSTOR misses is not lost while it is blind for the others": {
			from: crashed, edit: edited(blindFor(nodeB), blindFor(nodeT)), want: NotLost, reason: NoSurvivor, state: Unreachable,
		},
		"a dead node with too few witnesses is lost when its kubelet is silent": {
			from: crashed, edit: silent(nodeT), want: Lost, reason: NodeUnreachable,
		},
		"a Primary without quorum and with too few witnesses is lost when its kubelet is silent": {
			from: isolated, edit: edited(silent(nodeT), theLease(time.Minute)), want: Lost, reason: NodeUnreachable,
			state: PrimaryWithoutQuorum,
		},
		"too few witnesses do not suffice while the kubelet is alive": {
			from: crashed, edit: edited(silent(nodeT), freshLease), want: Undecided, reason: TooFewWitnesses,
		},
		"too few witnesses do not suffice while nobody knows the Lease": {
			from: crashed, edit: edited(silent(nodeT), func(in *Input) { in.Node.LeaseKnown = false }),
			want: Undecided, reason: TooFewWitnesses,
		},
		"too few witnesses do not suffice for a Primary without quorum either": {
			from: isolated, edit: silent(nodeT), want: Undecided, reason: TooFewWitnesses,
		},
		"a survivor frozen by LINSTOR's view does not count while another replica is connected to the node": {
			from: crashed, edit: edited(withThirdDisk, at(nodeC, func(r *Replica) {
				r.MayPromote, r.Connections = held(false, time.Minute), map[string]Fact[bool]{nodeA: held(true, time.Minute)}
			})), want: NotLost, reason: PrimaryConnected,
		},
		"a Primary without quorum that a witness reaches is not lost": {
			from: isolated, edit: reached, want: NotLost, reason: PrimaryConnected,
		},
		"a node that LINSTOR misses and a witness reaches is not lost, silent kubelet or not": {
			from: crashed, edit: oneSeesAPrimary, want: NotLost, reason: PrimaryConnected,
		},
		"a node that LINSTOR misses, whose kubelet is up, and that a witness reaches is not lost though no node is Primary": {
			from: crashed, edit: edited(reached, theLease(0)), want: NotLost, reason: PrimaryConnected,
		},
		"a node without a kubelet is lost if every witness that reaches it may be promoted": {
			from: crashed, edit: reached, want: Lost, reason: NodeUnreachable, state: Unreachable,
		},
		"a node without a kubelet is lost if its satellite says that it is Secondary, too": {
			from: kubeletDead, want: Lost, reason: NodeUnreachable, state: Secondary,
		},
		"a node without a kubelet is not lost while a witness sees a Primary": {
			from: kubeletDead, edit: oneSeesAPrimary, want: Undecided, reason: StateUnknown,
		},
		"a node without a kubelet is not lost while a witness that reaches it may not be promoted, whatever its score": {
			from: kubeletDead, edit: edited(oneSeesAPrimary, at(nodeT, func(r *Replica) { r.Score = Fact[int]{} })),
			want: Undecided, reason: StateUnknown,
		},
		"a node without a kubelet is not lost while it is Primary": {
			from: kubeletDead, edit: at(nodeA, func(r *Replica) { r.InUse = held(true, time.Minute) }), want: NotLost, reason: PrimaryHealthy,
		},
		"a node without a kubelet is not lost with raw block, which nobody need hold open": {
			from: kubeletDead, edit: func(in *Input) { in.Volume.Block = true }, want: NotLost, reason: VolumeUnused,
		},
		"a node without a kubelet is not lost with a volume that is only read": {
			from: kubeletDead, edit: func(in *Input) { in.Volume.ReadOnly = true }, want: NotLost, reason: VolumeUnused,
		},
		"a fail-over that has begun goes on under its first reason without a second grace, once the pod has closed the device": {
			from: ioErrors, edit: edited(begunFor("web-0"), justNow), want: Lost, reason: QuorumLost,
		},
		"so it does when its pods are gone": {
			from: ioErrors, edit: edited(begunFor("web-0"), justNow, func(in *Input) { in.Pods, in.Attachment.Marked = nil, true }),
			want: Lost, reason: QuorumLost,
		},
		"one whose replicas have just changed, as when the volume is attached elsewhere, says nothing of that within the grace": {
			from: ioErrors, edit: edited(begunFor("web-0"), justNow, func(in *Input) { in.Resource.InDoubt = true }), want: Pending, reason: QuorumLost,
		},
		"another pod of the volume has a grace of its own": {
			from: ioErrors, edit: edited(begunFor("web-1"), justNow), want: Pending, reason: ForcedIOErrors,
		},
		"a fail-over that has begun does not go on if the volume works again": {
			from: healthy, edit: begunFor("web-0"), want: NotLost, reason: PrimaryHealthy,
		},
		"a node without a kubelet waits for the known grace": {
			from: kubeletDead, edit: theLease(44 * time.Second), want: Undecided, reason: StateUnknown,
		},
		"a node without a kubelet waits for it even if it is said to be off, as its peers reach it": {
			from: kubeletDead, edit: edited(theLease(44*time.Second), func(in *Input) { in.Node.Shutdown = true }), want: Undecided, reason: StateUnknown,
		},
		"so does one that LINSTOR misses": {
			from: crashed, edit: edited(reached, theLease(44*time.Second)), want: NotLost, reason: PrimaryConnected,
		},
		"nor if it is said to be switched off while its peers reach it": {
			from: crashed, edit: edited(reached, unborne, func(in *Input) { in.Node.Shutdown, in.Node.SwitchedOff = true, true }),
			want: Blocked, reason: QuorumUnconfirmed,
		},
		"a shared volume of a node that falls silent amid its fail-over has its own grace": {
			from: crashed, edit: edited(begunFor("web-0"), twoPrimaries, at(nodeT, func(r *Replica) { r.Connections[nodeA] = held(false, 30*time.Second) })), want: Pending, reason: QuorumLost,
		},
		"a node without a kubelet is not lost if it is not known what it runs": {
			from: kubeletDead, edit: unborne, want: Blocked, reason: QuorumUnconfirmed,
		},
		"a node without a kubelet is not lost if it is not known what a survivor runs": {
			from: kubeletDead, edit: at(nodeB, func(r *Replica) { r.Confirmed = false }), want: Blocked, reason: QuorumUnconfirmed,
		},
		"a dead node is not lost while another node is Primary": {
			from: crashed, edit: primaryElsewhere, want: NotLost, reason: PrimaryConnected,
		},
		"a missing replica is not lost while another node is Primary": {
			from: gone, edit: primaryElsewhere, want: NotLost, reason: PrimaryConnected, state: NoReplica,
		},
		"a replica that fails its IO after it was in use is lost": {
			from: ioErrors, want: Lost, reason: ForcedIOErrors, state: IOErrors,
		},
		"a replica that fails its IO is lost although a witness reaches it": {
			from: ioErrors, edit: reached, want: Lost, reason: ForcedIOErrors,
		},
		"a replica that fails its IO is lost although another node is Primary": {
			from: ioErrors, edit: primaryElsewhere, want: Lost, reason: ForcedIOErrors,
		},
		"a replica that fails its IO and was never in use is not lost": {
			from: ioErrors, edit: at(nodeA, func(r *Replica) { r.LastInUse = time.Time{} }), want: NotLost, reason: VolumeUnused,
		},
		"a replica that fails its IO and was in use by an earlier pod is not lost": {
			from: ioErrors, edit: at(nodeA, func(r *Replica) { r.LastInUse = ago(61 * time.Minute) }),
			want: NotLost, reason: VolumeUnused,
		},
		"a replica that fails its IO under a pod that has not run is not lost": {
			from: ioErrors, edit: notRun, want: NotLost, reason: VolumeStarting,
		},
		"a replica that fails its IO is not lost while the volume is not attached": {
			from: ioErrors, edit: detached, want: NotLost, reason: VolumeStarting,
		},
		"a replica that fails its IO is not lost without an attachment": {
			from: ioErrors, edit: noAttachment, want: NotLost, reason: VolumeStarting,
		},
		"a Secondary under the running pod that had it mounted is lost": {
			from: demoted, want: Lost, reason: Demoted, state: Secondary,
		},
		"a Secondary is lost although another node is Primary": {
			from: demoted, edit: primaryElsewhere, want: Lost, reason: Demoted,
		},
		"a Secondary under a pod that was first seen to run after the volume was in use is not lost": {
			from: demoted, edit: thePod(func(p *Pod) { p.Ran = ago(59 * time.Second) }), want: NotLost, reason: VolumeUnused,
		},
		"a Secondary that was never seen in use is not lost, however long its pod has run": {
			from: demoted, edit: edited(thePod(func(p *Pod) { p.Ran = time.Time{} }), at(nodeA, func(r *Replica) { r.LastInUse = time.Time{} })),
			want: NotLost, reason: VolumeUnused,
		},
		"a Secondary under a pod without a running container is not lost": {
			from: demoted, edit: thePod(func(p *Pod) { p.Runs = false }), want: NotLost, reason: VolumeUnused,
		},
		"a Secondary on a node whose kubelet renews every 30 s is lost after 29 s of silence": {
			from: demoted, edit: edited(theLease(29*time.Second), theGap(30*time.Second)), want: Lost, reason: Demoted,
		},
		"a Secondary that was never in use is not lost": {
			from: demoted, edit: at(nodeA, func(r *Replica) { r.LastInUse = time.Time{} }), want: NotLost, reason: VolumeUnused,
		},
		"a Secondary on a node whose Lease nobody knows is not lost": {
			from: demoted, edit: func(in *Input) { in.Node.LeaseKnown = false }, want: Undecided, reason: StateUnknown,
		},
		"a Secondary on a node that has booted since is not lost": {
			from: demoted, edit: func(in *Input) { in.Node.BootSince = ago(30 * time.Second) }, want: Undecided, reason: StateUnknown,
		},
		"a Secondary on a node with an unknown boot ID is not lost": {
			from: demoted, edit: func(in *Input) { in.Node.BootSince = time.Time{} }, want: Undecided, reason: StateUnknown,
		},
		"a Secondary is starting until the pod has run": {from: demoted, edit: notRun, want: NotLost, reason: VolumeStarting},
		"a Secondary is starting until the volume is attached": {
			from: demoted, edit: detached, want: NotLost, reason: VolumeStarting,
		},
		"a Secondary is starting until there is an attachment": {
			from: demoted, edit: noAttachment, want: NotLost, reason: VolumeStarting,
		},
		"a raw block Secondary is unused": {from: demoted, edit: block, want: NotLost, reason: VolumeUnused},
		"a raw block Secondary is starting until the pod has run": {
			from: demoted, edit: edited(block, notRun), want: NotLost, reason: VolumeStarting,
		},
		"a Secondary of a read-only volume is unused": {
			from: demoted, edit: func(in *Input) { in.Volume.ReadOnly = true }, want: NotLost, reason: VolumeUnused,
		},
		"a Secondary under a read-only claim is unused": {
			from: demoted, edit: thePod(func(p *Pod) { p.ReadOnly = true }), want: NotLost, reason: VolumeUnused,
		},
		"a Secondary is lost for its writer although another pod only reads": {
			from: demoted, edit: func(in *Input) {
				reader := runningPod("reader-0")
				reader.ReadOnly = true
				in.Pods = append(in.Pods, reader)
			}, want: Lost, reason: Demoted,
		},
		"a Secondary is unused when only the reader has run since it was in use": {
			from: demoted, edit: func(in *Input) {
				reader := runningPod("reader-0")
				reader.ReadOnly = true
				in.Pods[0].Ran = ago(time.Second)
				in.Pods = append(in.Pods, reader)
			}, want: NotLost, reason: VolumeUnused,
		},
		"a missing replica under a pod that has run is lost": {from: gone, want: Lost, reason: ReplicaGone, state: NoReplica},
		"a missing replica under a pod that has not run is not lost": {
			from: gone, edit: notRun, want: NotLost, reason: VolumeStarting,
		},
		"a missing replica is not lost while the volume is not attached": {
			from: gone, edit: detached, want: NotLost, reason: VolumeStarting,
		},
		"a missing replica is not lost without an attachment": {
			from: gone, edit: noAttachment, want: NotLost, reason: VolumeStarting,
		},
		"a missing replica is lost after the fail-over that has begun took its pods": {
			from: gone, edit: func(in *Input) { in.Pods, in.Attachment.Marked = nil, true }, want: Lost, reason: ReplicaGone,
		},
		"a missing replica without pods is not lost although a pod elsewhere awaits the volume": {
			from: gone, edit: func(in *Input) { in.Pods, in.Attachment.Awaited = nil, true }, want: NotLost, reason: VolumeStarting,
		},
		"a healthy Primary is not lost": {from: healthy, want: NotLost, reason: PrimaryHealthy, state: PrimaryUp},
		"a healthy Primary is not lost, whatever its peers say": {
			from: healthy, edit: takeover, want: NotLost, reason: PrimaryHealthy,
		},
		"a healthy Primary is not lost on a node that is being shut down": {
			from: healthy, edit: edited(takeover, func(in *Input) { in.Node.Shutdown = true }), want: NotLost, reason: PrimaryHealthy,
		},
		"an unknown state is read again": {
			from: isolated, edit: at(nodeA, func(r *Replica) { r.Score = untold[int](time.Minute) }),
			want: Undecided, reason: StateUnknown, state: Unknown,
		},
		"an unknown state without a survivor stays undecided": {
			from: isolated, edit: edited(noSurvivor, at(nodeA, func(r *Replica) { r.Score = untold[int](time.Minute) })),
			want: Undecided, reason: StateUnknown,
		},
		"a dead node without a survivor is not lost":         {from: crashed, edit: noSurvivor, want: NotLost, reason: NoSurvivor},
		"an isolated Primary without a survivor is not lost": {from: isolated, edit: noSurvivor, want: NotLost, reason: NoSurvivor},
		"a dead node is lost though not everybody who would take over has a majority": {
			from: crashed, edit: at(nodeT, hasLostDisks), want: Lost, reason: NodeUnreachable,
		},
		"that the node itself would run without a majority is no matter where nobody could take over": {
			from: demoted, want: NotLost, reason: NoSurvivor,
			edit: edited(noSurvivor, at(nodeA, func(r *Replica) {
				r.MayPromote = held(true, time.Minute)
				r.Connections = map[string]Fact[bool]{nodeB: held(false, time.Minute), nodeT: held(false, time.Minute)}
			})),
		},
		"failed IO is not lost while it is not known that another node reaches the only disk": {
			from: ioErrors, want: NotLost, reason: NoSurvivor,
			edit: edited(withoutTieBreaker, at(nodeB, func(r *Replica) { r.Diskless, r.Connections = true, nil })),
		},
		"failed IO without a survivor is not lost":             {from: ioErrors, edit: noSurvivor, want: NotLost, reason: NoSurvivor},
		"a Secondary without a survivor is not lost":           {from: demoted, edit: noSurvivor, want: NotLost, reason: NoSurvivor},
		"a missing replica without a survivor is not lost":     {from: gone, edit: noSurvivor, want: NotLost, reason: NoSurvivor},
		"a pod that never ran goes from a dead node":           {from: crashed, edit: notRun, want: Lost, reason: NodeUnreachable},
		"a pod that never ran goes by nothing but a dead node": {from: isolated, edit: notRun, want: NotLost, reason: VolumeStarting},
		"a dead node is lost for a pod whose volume was never attached": {
			from: crashed, edit: edited(notRun, noAttachment), want: Lost, reason: NodeUnreachable,
		},
		"a resource without a DRBD layer is never judged": {
			from: crashed, edit: func(in *Input) { in.Resource.DRBD = false }, want: NotLost, reason: NotDRBD,
		},
		"an NFS client is never judged": {
			from: crashed, edit: func(in *Input) { in.Volume.NFSExport = true }, want: NotLost, reason: NFSExport,
		},
	}
}

// The order of the rules is part of the policy: here each rule but the last could answer, and the
// earliest does. Removing what the answer rests on lets the next one speak.
func TestOrderOfRules(t *testing.T) {
	t.Parallel()

	in := isolated()
	in.Resource.DRBD = false
	in.Volume.NFSExport = true
	at(nodeA, func(r *Replica) { r.Score = untold[int](time.Minute) })(&in)
	at(nodeB, func(r *Replica) { r.MayPromote, r.InUse = held(false, time.Minute), held(true, time.Minute) })(&in)
	at(nodeT, func(r *Replica) { r.MayPromote = held(false, time.Minute) })(&in)
	score := func(v int) edit { return at(nodeA, func(r *Replica) { r.Score = held(v, time.Minute) }) }

	steps := []struct {
		change edit
		want   Reason
	}{
		{func(*Input) {}, NotDRBD},
		{func(in *Input) { in.Resource.DRBD = true }, NFSExport},
		{func(in *Input) { in.Volume.NFSExport = false }, StateUnknown},
		{score(10102), PrimaryHealthy},
		{score(0), NoSurvivor},
		{at(nodeT, func(r *Replica) { r.MayPromote = held(true, time.Minute) }), PrimaryConnected},
		{at(nodeB, func(r *Replica) { r.InUse, r.Score = held(false, time.Minute), held(0, time.Minute) }), QuorumLost},
		{at(nodeA, func(r *Replica) { r.InUse, r.LastInUse = held(false, time.Minute), ago(time.Minute) }), ForcedIOErrors},
		{score(10102), Demoted},
	}
	for _, step := range steps {
		step.change(&in)
		if got := find(assess(in)); got.reason != step.want {
			t.Fatalf("the chain answers %s, want %s", got.reason, step.want)
		}
	}
}

// Every rule has a name that says what it answers, for who reads the table.
func TestRulesAndGatesAreNamed(t *testing.T) {
	t.Parallel()

	for i, r := range rules {
		if r.name == "" || r.apply == nil {
			t.Errorf("rule %d is incomplete: %q", i, r.name)
		}
	}
	for i, g := range gates {
		if g.name == "" || g.check == nil {
			t.Errorf("gate %d is incomplete: %q", i, g.name)
		}
	}
}
