package failover

// Verdict is what follows from the state of a volume on one node.
type Verdict string

const (
	// NotLost means that there is nothing to do.
	NotLost Verdict = "NotLost"
	// Undecided means that what is known does not suffice; it must be read again.
	Undecided Verdict = "Undecided"
	// Pending means that the storage is lost and a grace period is running.
	Pending Verdict = "Pending"
	// Blocked means that the storage is lost and a gate forbids to move the workload.
	Blocked Verdict = "Blocked"
	// Lost means that the storage is lost, the grace has passed and every gate is open.
	Lost Verdict = "Lost"
)

// Reason says why a verdict was reached. The same word appears in the log, in Events and in metrics.
type Reason string

// Reasons for a loss.
const (
	// QuorumLost : A is Primary without quorum, and its peers have no connection to it.
	QuorumLost Reason = "QuorumLost"
	// NodeUnreachable : neither LINSTOR nor the peers of R reach A.
	NodeUnreachable Reason = "NodeUnreachable"
	// ForcedIOErrors : DRBD demoted A by force and fails its IO.
	ForcedIOErrors Reason = "ForcedIOErrors"
	// Demoted : R is Secondary on A under a running pod that had it mounted.
	Demoted Reason = "Demoted"
	// ReplicaGone : A's replica was not in use and went while its satellite was ONLINE, under a running pod.
	ReplicaGone Reason = "ReplicaGone"
)

// Reasons for no loss, or for not knowing.
const (
	// PrimaryHealthy : A is Primary and has quorum.
	PrimaryHealthy Reason = "PrimaryHealthy"
	// PrimaryConnected : a peer is connected to A, or another node is Primary.
	PrimaryConnected Reason = "PrimaryConnected"
	// NoSurvivor : no other node may promote R.
	NoSurvivor Reason = "NoSurvivor"
	// VolumeStarting : the pod has not run with the volume yet.
	VolumeStarting Reason = "VolumeStarting"
	// VolumeUnused : R need not be Primary on A (raw block, read-only, or never seen in use there).
	VolumeUnused Reason = "VolumeUnused"
	// TooFewWitnesses : A and the replicas that could not be asked might still hold quorum together.
	TooFewWitnesses Reason = "TooFewWitnesses"
	// StateUnknown : LINSTOR's word on A is incomplete or too old.
	StateUnknown Reason = "StateUnknown"
	// LinstorBlind : LINSTOR calls A ONLINE, and has no connection to it: its words on A are old.
	LinstorBlind Reason = "LinstorBlind"
)

// Reasons of gates: the storage is lost, and yet nothing is removed.
const (
	// NotDRBD : R has no DRBD layer, so nothing fences A.
	NotDRBD Reason = "NotDRBD"
	// NFSExport : the pod is an NFS client; A has no DRBD relation to R.
	NFSExport Reason = "NFSExport"
	// NoQuorum : R's quorum setting does not fence A.
	NoQuorum Reason = "NoQuorum"
	// QuorumUnconfirmed : A, or who would take over, is not known to run the quorum that LINSTOR shows, or to count the same disks.
	QuorumUnconfirmed Reason = "QuorumUnconfirmed"
	// NotSelected : no selected pod asks for the volume.
	NotSelected Reason = "NotSelected"
	// HelperNotSelected : another pod controls the pod, as KubeVirt's helpers of hot-plugged volumes, and it is not selected itself.
	HelperNotSelected Reason = "HelperNotSelected"
	// Exempt : the pod carries the annotation that exempts it.
	Exempt Reason = "Exempt"
	// NoOwner : nothing would re-create the pod.
	NoOwner Reason = "NoOwner"
	// NodeBound : the pod's owner would re-create it on A.
	NodeBound Reason = "NodeBound"
	// UnsafeVolume : the pod has another volume that may not survive a move.
	UnsafeVolume Reason = "UnsafeVolume"
	// OtherVolumeUnavailable : another LINSTOR volume of the pod could not be used elsewhere.
	OtherVolumeUnavailable Reason = "OtherVolumeUnavailable"
	// SharedVolume : another pod on A uses the volume, or another one of the pod, and may not be removed.
	SharedVolume Reason = "SharedVolume"
	// NoReadyNode : no other node could run the pod. It holds back only pods of LINSTOR's own; of all others it is foreseen.
	NoReadyNode Reason = "NoReadyNode"
	// OutOfService : Kubernetes itself moves the pods of A, which somebody has declared out of service.
	OutOfService Reason = "OutOfService"
	// LinstorStale : LINSTOR has not confirmed anything for too long.
	LinstorStale Reason = "LinstorStale"
	// GuardTripped : so much is lost at once that the view is suspect, not the cluster.
	GuardTripped Reason = "GuardTripped"
	// Paused : fail-over is paused for all workloads, or it cannot be read whether it is.
	Paused Reason = "Paused"
	// NodeAgentRuns : node agents of 1.x do the same work by other rules, or it is not known whether they do.
	NodeAgentRuns Reason = "NodeAgentRuns"
	// DryRun : the controller only says what it would do.
	DryRun Reason = "DryRun"
	// KeepAwayFailed : A could not be tainted, so the replacement might be placed there again.
	KeepAwayFailed Reason = "KeepAwayFailed"
	// StepFailed : a step of the fail-over was rejected or not answered, and is tried again.
	StepFailed Reason = "StepFailed"
	// StuckOnNode : the pod does not terminate, and its node could still write.
	StuckOnNode Reason = "StuckOnNode"
	// HeldByFinalizer : the pod was deleted without grace, and its finalizers keep its object.
	HeldByFinalizer Reason = "HeldByFinalizer"
)
