package evacuation

import (
	"fmt"
	"slices"
)

// gate forbids to do something; an empty reason lets it pass.
type gate struct {
	name  string
	check func(situation) (Reason, string)
}

// halts are what the controller waits for whatever LINSTOR says: while they last nobody need ask it.
var halts = []gate{
	{"the node is not lost, and nothing is failed over from there", haltFailOver},
	{"the view of the cluster is not suspect", haltGuard},
	{"nobody has paused fail-over", haltPause},
	{"no node agent of 1.x runs", haltAgents},
	{"the controller may act", haltDryRun},
}

// hindrances are what it waits for beside that, before it tells LINSTOR to do anything for N, whatever that is.
var hindrances = []gate{
	{"LINSTOR has answered", hindranceStale},
	{"LINSTOR has not evicted the node", hindranceEvicted},
	{"LINSTOR reaches the node", hindranceOffline},
}

// doubts are what nothing may be made of that LINSTOR has listed, beside the return of a node, which takes back and rests on no copy.
var doubts = []gate{
	{"LINSTOR lists all that there is", doubtMissing},
}

// gates are asked in this order before LINSTOR is told to move everything off N. It deletes what is not UpToDate, and deletes the source
// of a move long after it was told to: each gate holds off one way to lose the last copy by that.
var gates = []gate{
	{"the node is well, and nothing holds the controller up", gateWell},
	{"every DRBD volume with a disk there has a good copy elsewhere", gateCopies},
	{"nothing there is in use, and none of our volumes is attached", gateDrained},
	{"none of its volumes syncs, is being created or toggles", gateSettled},
	{"nobody else has told LINSTOR to", gateOwn},
}

// first returns what the first gate says that does not let it pass.
func first(all []gate, s situation) (Reason, string) {
	for _, g := range all {
		if reason, message := g.check(s); reason != "" {
			return reason, message
		}
	}
	return "", ""
}

func when(is bool, reason Reason, message string) (Reason, string) {
	if is {
		return reason, message
	}
	return "", ""
}

func haltFailOver(s situation) (Reason, string) {
	return when(s.FailOver != "", FailingOver, s.FailOver)
}

func hindranceStale(s situation) (Reason, string) {
	return when(s.Linstor.Problem != "", LinstorStale, s.Linstor.Problem)
}

func hindranceEvicted(s situation) (Reason, string) {
	return when(s.self.Evicted, Evicted, "LINSTOR has evicted the node while it was off, or is told to delete it, and does not reach it any more: once it runs again, linstor node restore "+
		s.self.Satellite)
}

func hindranceOffline(s situation) (Reason, string) {
	return when(s.self.Online != Yes, SatelliteOffline, "LINSTOR does not reach the node: what becomes of its data is not known until it is back")
}

func doubtMissing(s situation) (Reason, string) {
	return when(s.Linstor.Missing != "", LinstorStale, "LINSTOR lists no replica where there must be one, or Kubernetes no volume, of "+s.Linstor.Missing)
}

func haltGuard(s situation) (Reason, string) {
	return when(s.Halt.Guard != "", GuardTripped, s.Halt.Guard)
}

func haltPause(s situation) (Reason, string) {
	return when(s.Halt.Paused != "", Paused, s.Halt.Paused)
}

func haltAgents(s situation) (Reason, string) {
	return when(s.Halt.Agents != "", NodeAgentRuns, s.Halt.Agents)
}

func haltDryRun(s situation) (Reason, string) {
	return when(s.Halt.DryRun, DryRun, "the controller runs with --dry-run and tells LINSTOR nothing")
}

func gateWell(s situation) (Reason, string) {
	if reason, message := first(halts, s); reason != "" {
		return reason, message
	}
	if reason, message := first(slices.Concat(hindrances, doubts), s); reason != "" {
		return reason, message
	}
	return when(!s.fresh(), LinstorStale, "LINSTOR takes so long to answer that its answer is too old")
}

// fresh tells whether what LINSTOR has said is new enough to have it delete something.
func (s situation) fresh() bool { return s.Now.Sub(s.Linstor.Asked) <= MaxAge }

func gateCopies(s situation) (Reason, string) {
	for _, v := range s.disks() {
		if v.DRBD && !s.goodElsewhere(v) {
			return Copying, v.Resource + " has no good copy elsewhere"
		}
	}
	return "", ""
}

func gateDrained(s situation) (Reason, string) {
	for _, v := range s.mine {
		if r, _ := v.on(s.self.Satellite); v.DRBD && r.InUse != No {
			return s.heldBy(v, r.InUse)
		}
		for _, pv := range v.Claims {
			if pv.Attached {
				return s.heldBy(v, No)
			}
		}
	}
	if len(s.Attachments.Volumes) > 0 {
		return WaitingForDrain, few(s.Attachments.Volumes) + " is attached"
	}
	return "", ""
}

// heldBy says who has a volume in use on N, or attached.
func (s situation) heldBy(v Volume, inUse Answer) (Reason, string) {
	for _, pv := range v.Claims {
		switch {
		case len(pv.Holders) > 0:
			return WaitingForDrain, fmt.Sprintf("%s holds %s", few(pv.Holders), pv.Name)
		case pv.NFSExport && inUse != No:
			return NFSExport, fmt.Sprintf("the node exports %s by NFS", pv.Name)
		case pv.Attached:
			return WaitingForDrain, pv.Name + " is attached"
		}
	}
	if inUse == Unknown {
		return WaitingForDrain, "it is not known whether " + v.Resource + " is in use"
	}
	return WaitingForDrain, v.Resource + " is in use"
}

func gateSettled(s situation) (Reason, string) {
	for _, v := range s.mine {
		if why := s.unsettled(v); v.DRBD && why != "" {
			return Leaving, "waiting until LINSTOR has settled: " + why
		}
	}
	return "", ""
}

func gateOwn(s situation) (Reason, string) {
	return when(s.byOther(), EvacuatedByOther, "somebody else has told LINSTOR to evacuate the node")
}

// byOther reports whether N has the flag EVACUATE, or one of its replicas, although this cluster has never asked for it.
func (s situation) byOther() bool {
	if s.ours(s.self) {
		return false
	}
	return s.self.Evacuating || slices.ContainsFunc(s.mine, func(v Volume) bool {
		r, _ := v.on(s.self.Satellite)
		return r.has(flagEvacuate)
	})
}
