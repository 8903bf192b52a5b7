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

// Reason says why a verdict was reached. The same word appears in the log, in Events and in metrics; [Explanations] says what each means.
type Reason string

// Reasons for a loss.
const (
	QuorumLost      Reason = "QuorumLost"
	NodeUnreachable Reason = "NodeUnreachable"
	ForcedIOErrors  Reason = "ForcedIOErrors"
	Demoted         Reason = "Demoted"
	ReplicaGone     Reason = "ReplicaGone"
)

// Reasons for no loss, or for not knowing.
const (
	PrimaryHealthy   Reason = "PrimaryHealthy"
	PrimaryConnected Reason = "PrimaryConnected"
	NoSurvivor       Reason = "NoSurvivor"
	VolumeStarting   Reason = "VolumeStarting"
	VolumeUnused     Reason = "VolumeUnused"
	TooFewWitnesses  Reason = "TooFewWitnesses"
	StateUnknown     Reason = "StateUnknown"
	LinstorBlind     Reason = "LinstorBlind"
)

// Reasons of gates: the storage is lost, and yet nothing is removed.
const (
	NotDRBD                Reason = "NotDRBD"
	NFSExport              Reason = "NFSExport"
	NoQuorum               Reason = "NoQuorum"
	QuorumUnconfirmed      Reason = "QuorumUnconfirmed"
	NotSelected            Reason = "NotSelected"
	HelperNotSelected      Reason = "HelperNotSelected"
	Exempt                 Reason = "Exempt"
	NoOwner                Reason = "NoOwner"
	NodeBound              Reason = "NodeBound"
	UnsafeVolume           Reason = "UnsafeVolume"
	OtherVolumeUnavailable Reason = "OtherVolumeUnavailable"
	SharedVolume           Reason = "SharedVolume"
	NoReadyNode            Reason = "NoReadyNode"
	OutOfService           Reason = "OutOfService"
	LinstorStale           Reason = "LinstorStale"
	GuardTripped           Reason = "GuardTripped"
	Paused                 Reason = "Paused"
	NodeAgentRuns          Reason = "NodeAgentRuns"
	DryRun                 Reason = "DryRun"
	KeepAwayFailed         Reason = "KeepAwayFailed"
	StepFailed             Reason = "StepFailed"
	StuckOnNode            Reason = "StuckOnNode"
	HeldByFinalizer        Reason = "HeldByFinalizer"
)

// Reasons of decisions on pods of LINSTOR itself.
const (
	LinstorGone    Reason = "LinstorGone"
	NodeAlive      Reason = "NodeAlive"
	LinstorAnswers Reason = "LinstorAnswers"
	PodLeaving     Reason = "PodLeaving"
	LinstorFirst   Reason = "LinstorFirst"
	NeedsStorage   Reason = "NeedsStorage"
)
