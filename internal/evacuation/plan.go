package evacuation

import (
	"strings"
	"time"
)

const (
	// Interval is how often a node is looked at that is evacuated.
	Interval = 10 * time.Second
	// soon is when it is looked at again after something was done.
	soon = time.Second
	// slowAge is how old a look may be on which no deletion rests.
	slowAge = 30 * time.Second
)

// State is where the evacuation of a node has got to.
type State string

// States, in the order in which a node goes through them.
const (
	Refused      State = "Refused"
	Waiting      State = "Waiting"
	CopyingState State = "Copying"
	Blocked      State = "Blocked"
	Safe         State = "Safe"
	Draining     State = "WaitingForDrain"
	LeavingState State = "Leaving"
	Evacuated    State = "Evacuated"
	Returning    State = "Returning"
	Returned     State = "Returned"
)

// Call is what LINSTOR is told.
type Call string

// Calls. There are no others: none of them removes anything by itself, and only Evacuate has LINSTOR do so.
const (
	// Nothing is told.
	Nothing Call = ""
	// Autoplace makes copies.
	Autoplace Call = "autoplace"
	// Evacuate has LINSTOR move everything off the node.
	Evacuate Call = "evacuate"
	// Restore takes that back.
	Restore Call = "restore"
	// Properties changes the properties of resource definitions.
	Properties Call = "properties"
)

// Calls returns all of them.
func Calls() []Call { return []Call{Autoplace, Evacuate, Restore, Properties} }

// MaxAge is how old the look may be that a call rests on. Evacuate has LINSTOR delete replicas; the others only add, or take back, and a LINSTOR
// that is slow to tell where everything is must not keep copies from being made.
func (c Call) MaxAge() time.Duration {
	if c == Evacuate {
		return MaxAge
	}
	return slowAge
}

// Step is what to tell LINSTOR.
type Step struct {
	Call Call
	// Node is N by its name in LINSTOR, as this look has found it, and Entry that in marks; empty where nothing is told.
	Node, Entry string
	// Copies are those to make by Autoplace.
	Copies []Copy
	// Asking is what the annotation is to say before Evacuate is sent, so that whoever leads next knows whose flag it is; nil with other calls. Where
	// the call was certainly not sent it is to say what the plan's Progress says.
	Asking *Progress
	// DoNotTarget are the nodes that Evacuate must not use; none where LINSTOR is too old to be told.
	DoNotTarget []string
	// Mark are the definitions to which Properties gives a mark for N ([Mark.With]), because LINSTOR's balancing could take their copies.
	Mark []string
	// Unmark are the definitions of which Properties takes off the mark for N ([Mark.Without]).
	Unmark []string
}

// Needs are what must be read before more can be said; the plan is then made again with it.
type Needs struct {
	// Placed is where LINSTOR's replicas are, and its nodes.
	Placed bool
	// Definitions are resource definitions with their groups.
	Definitions []string
	// Attachments are the attachments to N, past the cache.
	Attachments bool
	// Snapshots are those on N.
	Snapshots bool
	// Marked are all definitions with our mark.
	Marked bool
	// Version is LINSTOR's.
	Version bool
}

// Any tells whether anything must be read.
func (n Needs) Any() bool {
	return n.Placed || len(n.Definitions) > 0 || n.Attachments || n.Snapshots || n.Marked || n.Version
}

// String names what must be read.
func (n Needs) String() string {
	var all []string
	for _, need := range []struct {
		is   bool
		what string
	}{
		{n.Placed, "where its replicas are"},
		{len(n.Definitions) > 0, "resource definition " + few(n.Definitions) + " with its group"},
		{n.Attachments, "attachments"},
		{n.Snapshots, "snapshots"},
		{n.Marked, "marks of resource definitions"},
		{n.Version, "its version"},
	} {
		if need.is {
			all = append(all, need.what)
		}
	}
	return strings.Join(all, ", ")
}

// Plan is what is so, and what to do now.
type Plan struct {
	// State is where the evacuation has got to.
	State State
	// Conditions are those that the node is to have.
	Conditions Conditions
	// Progress is what its annotation is to say, before LINSTOR is told anything; nil for none. That LINSTOR is told to evacuate N is in Step.
	Progress *Progress
	// Volumes are the volumes with a replica on N.
	Volumes []VolumeState
	// NoTarget are the volumes for which no node may have a copy, so that LINSTOR need not be asked.
	NoTarget []string
	// QuorumOff are the volumes of which LINSTOR will switch quorum off once N has left, because there is no place for a tie-breaker.
	QuorumOff []string
	// SingleDisk are those of which it will do so because it keeps one disk only.
	SingleDisk []string
	// Unfinished are the volumes that LINSTOR may still move off N, although it was told to restore it.
	Unfinished []string
	// Needs are what must be read first; then nothing else of the plan counts.
	Needs Needs
	// Step is what to tell LINSTOR.
	Step Step
	// Again is when to look again; zero for never, unless something changes.
	Again time.Duration
}
