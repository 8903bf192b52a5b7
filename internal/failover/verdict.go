package failover

import (
	"slices"
	"time"
)

// finding is what a rule says about the storage, before gates and grace.
type finding struct {
	reason Reason
	lost   bool
	unsure bool          // the same question, asked again in a second, may have another answer
	grace  time.Duration // how long the loss must hold
	// unanimous is set where the unanimous grace may end the wait before.
	unanimous bool
	since     time.Time // the start of the clock
	message   string
}

// situation is an input together with what was derived from it once.
type situation struct {
	Input
	cond     condition
	witness  testimony
	survivor bool
	survives time.Time
}

func assess(in Input) situation {
	s := situation{Input: in, witness: testimonyOn(in.Resource, in.Node.satellite())}
	s.survives, s.survivor = survivorOf(in.Resource, in.Node.satellite())
	s.cond = stateOf(in, s.witness)
	return s
}

// rule answers the question "is the storage lost?", or passes.
type rule struct {
	name  string
	apply func(situation) (finding, bool)
}

// rules is the table of the decision. The first rule that answers decides.
var rules = []rule{
	{"a volume without a DRBD layer is never judged", ruleNotDRBD},
	{"an NFS client is never judged by the export's state", ruleNFSExport},
	{"the words of a blind LINSTOR are void", ruleBlind},
	{"an unknown state is read again", ruleUnknown},
	{"a healthy Primary is never lost", rulePrimaryHealthy},
	{"nothing is lost while nobody could take over", ruleNoSurvivor},
	{"a volume is lost with its kubelet if no node has it open", ruleNobodyPrimary},
	{"nothing is lost while a peer reaches it or another node is Primary", rulePrimaryConnected},
	{"a silent node or a Primary without quorum is lost once its peers agree", ruleIsolated},
	{"a replica that fails its IO is lost if it was in use", ruleForcedIOErrors},
	{"a missing replica is lost under a pod that has run", ruleReplicaGone},
	{"a Secondary is lost under a running pod that had it mounted", ruleSecondary},
}

func find(s situation) finding {
	for _, r := range rules {
		if f, ok := r.apply(s); ok {
			return f
		}
	}
	return finding{reason: StateUnknown, unsure: true, message: "LINSTOR's word on the node fits no rule"}
}

func ruleNotDRBD(s situation) (finding, bool) {
	return finding{reason: NotDRBD, message: "the resource has no DRBD layer: nothing fences the node"},
		s.Resource.Known && !s.Resource.DRBD
}

func ruleNFSExport(s situation) (finding, bool) {
	return finding{reason: NFSExport, message: "the pod mounts the volume by NFS: its node has no DRBD relation to it"},
		s.Volume.NFSExport
}

func ruleBlind(s situation) (finding, bool) {
	replica, _ := s.Resource.Replica(s.Node.satellite())
	return finding{
		reason: LinstorBlind, unsure: true,
		message: "LINSTOR calls the node ONLINE and has no connection to it: what it shows is old, and nothing follows from it",
	}, replica.Blind && s.cond.state == Unknown
}

func ruleUnknown(s situation) (finding, bool) {
	if s.Resource.Missing {
		return finding{
			reason: StateUnknown, unsure: true,
			message: "LINSTOR does not know resource " + s.Resource.Name + ": restore it, or delete the PersistentVolume",
		}, true
	}
	return finding{
		reason: StateUnknown, unsure: true,
		message: "LINSTOR's word on the node is incomplete or too old",
	}, s.cond.state == Unknown
}

func rulePrimaryHealthy(s situation) (finding, bool) {
	return finding{reason: PrimaryHealthy, message: "the node is Primary and has quorum"}, s.cond.state == PrimaryUp
}

func ruleNoSurvivor(s situation) (finding, bool) {
	if node := runsWithoutQuorum(s.Resource, s.Node.satellite()); node != "" && !s.survivor {
		return finding{
			reason:  NoQuorum,
			message: "node " + node + " runs without quorum, whatever LINSTOR shows: it would promote the resource although another node may write",
		}, true
	}
	return finding{reason: NoSurvivor, message: "no other node could take over the volume"}, !s.survivor
}

// ruleNobodyPrimary is for a node whose kubelet and containers are dead while its kernel lives, so that DRBD there is connected. It answers once
// that has been so for the known grace: until then the node may be starting, and its DRBD is there before its satellite and its kubelet.
func ruleNobodyPrimary(s situation) (finding, bool) {
	since, closed := s.nobodyPrimary(s.Resource)
	since = latest(since, s.survives, s.workloadSince(), s.Now.Add(-s.Node.LeaseSilence))
	return finding{
		reason: NodeUnreachable, lost: true, grace: s.Settings.KnownGrace, since: since,
		message: "the node's kubelet is silent, and no node has the volume open",
	}, closed && s.Now.Sub(since) >= s.Settings.KnownGrace && (s.cond.state == Unreachable || s.cond.state == Secondary) && !s.Volume.Block && !s.readOnly()
}

// shared reports whether DRBD may accept a second Primary of the volume, or of another one of its pods: raw block that several nodes may use, for which
// the CSI driver sets allow-two-primaries when it publishes the volume on a second node, or whatever has that set.
func (s situation) shared() bool {
	if s.Volume.Block && s.Volume.Shared || s.Resource.TwoPrimaries {
		return true
	}
	for _, pod := range s.Pods {
		if slices.ContainsFunc(pod.Others, func(o OtherVolume) bool { return o.Block && o.Shared || o.Resource.TwoPrimaries }) {
			return true
		}
	}
	return false
}

// nobodyPrimary reports whether A's kubelet is silent and DRBD shows that no node is Primary, and since when it does: every witness that is connected
// to A may be promoted. It is false if none is connected.
func (s situation) nobodyPrimary(r Resource) (since time.Time, is bool) {
	if !s.Node.LeaseSilent(s.Settings.KubeletSilence) || r.TwoPrimaries {
		return time.Time{}, false
	}
	for _, replica := range r.Replicas {
		to := replica.Connections[s.Node.satellite()]
		switch {
		case replica.Node == s.Node.satellite():
			if replica.Online.is(true) && !replica.InUse.is(false) && !replica.Reports.is(false) {
				return time.Time{}, false
			}
		case !replica.Online.is(true):
		case knowsOfPrimary(replica), to.is(true) && !replica.MayPromote.is(true):
			return time.Time{}, false
		case to.is(true):
			is, since = true, latest(since, to.Since, replica.MayPromote.Since, replica.Online.Since)
		}
	}
	return since, is
}

func rulePrimaryConnected(s situation) (finding, bool) {
	if s.cond.state == IOErrors || s.cond.state == Secondary {
		return finding{}, false
	}
	return finding{
		reason:  PrimaryConnected,
		message: "a replica is still connected to the node, or another node is Primary",
	}, s.witness.connected
}

func ruleIsolated(s situation) (finding, bool) {
	reason, what := NodeUnreachable, "neither LINSTOR nor any peer reaches the node"
	switch s.cond.state {
	case Unreachable:
	case PrimaryWithoutQuorum:
		reason, what = QuorumLost, "the node is Primary without quorum, and no peer reaches it"
	default:
		return finding{}, false
	}
	clock := latest(s.survives, s.witness.since, s.workloadSince())
	switch {
	case s.witness.full:
		return finding{
			reason: reason, lost: true, grace: s.Settings.ConfirmedGrace, unanimous: s.mayBeUnanimous(), since: clock, message: what,
		}, true
	case s.Node.LeaseSilent(s.Settings.KubeletSilence):
		return finding{
			reason: NodeUnreachable, lost: true, grace: s.Settings.KnownGrace,
			since:   latest(clock, s.Now.Add(-s.Node.LeaseSilence)), // the silence takes the missing witnesses' place
			message: "no peer that could be asked reaches the node, and its kubelet is silent",
		}, true
	default:
		return finding{
			reason: TooFewWitnesses, unsure: true,
			message: "the node and the replicas that could not be asked might still hold quorum together",
		}, true
	}
}

func ruleForcedIOErrors(s situation) (finding, bool) {
	if s.cond.state != IOErrors {
		return finding{}, false
	}
	replica, _ := s.Resource.Replica(s.Node.satellite())
	if !s.started() || replica.LastInUse.IsZero() || replica.LastInUse.Before(s.workloadSince()) {
		return s.notInUse(), true
	}
	return finding{
		reason: ForcedIOErrors, lost: true, grace: s.Settings.ConfirmedGrace,
		since:   latest(s.survives, s.workloadSince(), s.cond.since),
		message: "DRBD demoted the node by force and fails its IO",
	}, true
}

func ruleReplicaGone(s situation) (finding, bool) {
	if s.cond.state != NoReplica {
		return finding{}, false
	}
	if !s.started() {
		return s.notInUse(), true
	}
	return finding{
		reason: ReplicaGone, lost: true, grace: s.Settings.KnownGrace,
		since:   latest(s.survives, s.witness.since, s.workloadSince(), s.Resource.SetSince),
		message: "the node no longer has a replica of the resource",
	}, true
}

func ruleSecondary(s situation) (finding, bool) {
	if s.cond.state != Secondary {
		return finding{}, false
	}
	replica, _ := s.Resource.Replica(s.Node.satellite())
	switch {
	case !s.started():
		return s.notInUse(), true
	case s.Volume.Block, s.readOnly(), !s.mountedSince(replica.LastInUse):
		return finding{reason: VolumeUnused, message: "no pod is known to hold the volume open for writing"}, true
	case !s.Node.LeaseFresh(s.Settings.KubeletSilence), s.Node.BootSince.IsZero(), s.Node.BootSince.After(replica.LastInUse):
		return finding{
			reason: StateUnknown, unsure: true,
			message: "the node's kubelet is silent or has restarted since the volume was in use",
		}, true
	}
	return finding{
		reason: Demoted, lost: true, grace: s.demotedGrace(),
		since:   latest(s.survives, s.workloadSince(), s.cond.since),
		message: "the volume is Secondary under a running pod that had it mounted",
	}, true
}

// notInUse is the answer where A is not Primary and there is no sign that a pod ever needed it to be.
func (s situation) notInUse() finding {
	if s.started() {
		return finding{reason: VolumeUnused, message: "the volume was not seen in use on the node by this workload"}
	}
	return finding{reason: VolumeStarting, message: "the pod has not run with the volume yet"}
}

// workloadSince is the earliest time a clock may start: it never inherits time from before the
// attachment or the pods it would remove.
func (s situation) workloadSince() time.Time {
	var since time.Time
	if s.Attachment != nil {
		since = s.Attachment.Since
	}
	for _, pod := range s.Pods {
		since = latest(since, pod.Since)
	}
	return since
}

// workloadHasRun tells whether a pod has run on A with the volume, or did before a fail-over that has
// begun took it away.
func (s situation) workloadHasRun() bool {
	for _, pod := range s.Pods {
		if pod.HasRun {
			return true
		}
	}
	return len(s.Pods) == 0 && s.Attachment != nil && s.Attachment.Marked
}

// started tells whether a pod has run on A and the volume is attached there. Before that, a replica that is not
// Primary is the normal picture.
func (s situation) started() bool {
	return s.workloadHasRun() && s.Attachment != nil && s.Attachment.Attached
}

func (s situation) readOnly() bool {
	if s.Volume.ReadOnly {
		return true
	}
	for _, pod := range s.Pods {
		if !pod.ReadOnly {
			return false
		}
	}
	return len(s.Pods) > 0
}

// mountedSince tells whether a pod of which a container runs now had run already when the volume was last in use.
func (in Input) mountedSince(lastInUse time.Time) bool {
	return !lastInUse.IsZero() && slices.ContainsFunc(in.Pods, func(pod Pod) bool { return !pod.ReadOnly && pod.Runs && !pod.Ran.After(lastInUse) })
}

// AwaitsUse reports whether a pod runs that may write to the volume, and the volume was not seen in use since the pod started. LINSTOR
// announces no use: it must be asked.
func (in Input) AwaitsUse() bool {
	replica, ok := in.Resource.Replica(in.Node.satellite())
	return ok && !in.mountedSince(replica.LastInUse) &&
		slices.ContainsFunc(in.Pods, func(pod Pod) bool { return !pod.ReadOnly && pod.Runs })
}

func (s situation) demotedGrace() time.Duration {
	youngest := s.Volume.Since
	for _, pod := range s.Pods {
		youngest = latest(youngest, pod.Since)
	}
	if s.Now.Sub(youngest) < s.Settings.NewGrace {
		return s.Settings.NewGrace
	}
	return s.Settings.KnownGrace
}
