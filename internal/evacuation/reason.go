package evacuation

// Reason says why a condition is what it is. The same word appears in the log, in Events and in metrics.
type Reason string

// Reasons for which a node is refused.
const (
	// WrongEffect : the taint has another effect than NoSchedule.
	WrongEffect Reason = "WrongEffect"
	// UnknownMode : the taint has a value that means nothing.
	UnknownMode Reason = "UnknownMode"
	// NotASatellite : LINSTOR knows no such node that could have replicas.
	NotASatellite Reason = "NotASatellite"
)

// Reasons to wait.
const (
	// FailingOver : the node is lost, or a volume is being failed over from there.
	FailingOver Reason = "FailingOver"
	// GuardTripped : the view of the cluster is suspect.
	GuardTripped Reason = "GuardTripped"
	// Paused : somebody has paused fail-over.
	Paused Reason = "Paused"
	// NodeAgentRuns : node agents of 1.x run.
	NodeAgentRuns Reason = "NodeAgentRuns"
	// DryRun : the controller only says what it would do.
	DryRun Reason = "DryRun"
	// SatelliteOffline : LINSTOR does not reach the node.
	SatelliteOffline Reason = "SatelliteOffline"
	// Evicted : LINSTOR has given the node up while it was off.
	Evicted Reason = "Evicted"
	// LinstorStale : LINSTOR, or the Kubernetes API, could not be asked, or its answer is too old.
	LinstorStale Reason = "LinstorStale"
	// LinstorRefuses : LINSTOR does not do what it was told when a node returns, or to keep a copy from its balancing.
	LinstorRefuses Reason = "LinstorRefuses"
	// EvacuatedByOther : somebody else has told LINSTOR to evacuate the node.
	EvacuatedByOther Reason = "EvacuatedByOther"
	// AnotherNodeFirst : another node goes first.
	AnotherNodeFirst Reason = "AnotherNodeFirst"
)

// Reasons for which the data is not safe elsewhere, or is.
const (
	// Copying : what exists nowhere else is being copied.
	Copying Reason = "Copying"
	// NoTarget : LINSTOR has no node for a copy.
	NoTarget Reason = "NoTarget"
	// PeerOffline : nothing is known to be UpToDate that could be copied.
	PeerOffline Reason = "PeerOffline"
	// NotDRBD : the volume has no DRBD layer, so that LINSTOR cannot copy it.
	NotDRBD Reason = "NotDRBD"
	// AffinityPinned : the PersistentVolume allows no other node that could run its pod.
	AffinityPinned Reason = "AffinityPinned"
	// AsynchronousWrites : the volume is in use, and its copies may lack what was written last.
	AsynchronousWrites Reason = "AsynchronousWrites"
	// BalancingEnabled : a person lets LINSTOR's balancing remove the copy.
	BalancingEnabled Reason = "BalancingEnabled"
	// QuorumWouldBeLost : without the node the volume would have no quorum, because another one is away already.
	QuorumWouldBeLost Reason = "QuorumWouldBeLost"
	// CopiedElsewhere : every volume has a good copy elsewhere.
	CopiedElsewhere Reason = "CopiedElsewhere"
)

// Reasons for which not everything has left, or has.
const (
	// WaitingForDrain : something on the node is still in use or attached.
	WaitingForDrain Reason = "WaitingForDrain"
	// NFSExport : the node exports a volume by NFS.
	NFSExport Reason = "NFSExport"
	// Leaving : LINSTOR moves the rest.
	Leaving Reason = "Leaving"
	// LeavingStalled : LINSTOR was told to, and nothing has changed for a while.
	LeavingStalled Reason = "LeavingStalled"
	// NothingLeft : no disk and no snapshot is left.
	NothingLeft Reason = "NothingLeft"
)

// Reasons returns all of them, in the order of the documentation.
func Reasons() []Reason {
	return []Reason{
		WrongEffect, UnknownMode, NotASatellite,
		FailingOver, GuardTripped, Paused, NodeAgentRuns, DryRun, SatelliteOffline, Evicted, LinstorStale, LinstorRefuses, EvacuatedByOther, AnotherNodeFirst,
		Copying, NoTarget, PeerOffline, NotDRBD, AffinityPinned, AsynchronousWrites, BalancingEnabled, QuorumWouldBeLost, CopiedElsewhere,
		WaitingForDrain, NFSExport, Leaving, LeavingStalled, NothingLeft,
	}
}
