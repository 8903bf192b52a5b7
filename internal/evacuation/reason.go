package evacuation

// Reason says why a condition is what it is. The same word appears in the log, in Events and in metrics; [Explanations] says what each means.
type Reason string

// Reasons for which a node is refused.
const (
	WrongEffect   Reason = "WrongEffect"
	UnknownMode   Reason = "UnknownMode"
	NotASatellite Reason = "NotASatellite"
)

// Reasons to wait.
const (
	FailingOver      Reason = "FailingOver"
	GuardTripped     Reason = "GuardTripped"
	Paused           Reason = "Paused"
	NodeAgentRuns    Reason = "NodeAgentRuns"
	DryRun           Reason = "DryRun"
	SatelliteOffline Reason = "SatelliteOffline"
	LinstorStale     Reason = "LinstorStale"
	LinstorRefuses   Reason = "LinstorRefuses"
	EvacuatedByOther Reason = "EvacuatedByOther"
	AnotherNodeFirst Reason = "AnotherNodeFirst"
)

// Reasons for which the data is not safe elsewhere, or is.
const (
	Copying           Reason = "Copying"
	NoTarget          Reason = "NoTarget"
	PeerOffline       Reason = "PeerOffline"
	NotDRBD           Reason = "NotDRBD"
	AffinityPinned    Reason = "AffinityPinned"
	QuorumWouldBeLost Reason = "QuorumWouldBeLost"
	CopiedElsewhere   Reason = "CopiedElsewhere"
)

// Reasons for which not everything has left, or has.
const (
	WaitingForDrain Reason = "WaitingForDrain"
	NFSExport       Reason = "NFSExport"
	Leaving         Reason = "Leaving"
	LeavingStalled  Reason = "LeavingStalled"
	NothingLeft     Reason = "NothingLeft"
)
