package evacuation

import (
	"slices"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// MaxAge is the age from which on what was read is too old to tell LINSTOR to do something.
const MaxAge = failover.ActAge

// Answer is yes or no, or unknown, which is the zero value and neither.
type Answer uint8

// Answers.
const (
	Unknown Answer = iota
	No
	Yes
)

// AnswerOf returns the answer that a pointer stands for, of which nil is unknown.
func AnswerOf(value *bool) Answer {
	switch {
	case value == nil:
		return Unknown
	case *value:
		return Yes
	}
	return No
}

// Input is everything a plan rests on: one node at one time.
type Input struct {
	Now      time.Time
	Settings Settings
	// Cluster tells this cluster from others that use the same LINSTOR, Installation this controller from others in the cluster.
	Cluster, Installation string
	// Node is N's name in Kubernetes, by which Nodes has it.
	Node string
	// Nodes are all nodes of Kubernetes and all satellites of LINSTOR.
	Nodes []Node
	// Progress is N's annotation; nil where it has none.
	Progress *Progress
	// Conditions are those of N that this controller sets.
	Conditions Conditions
	// Halt holds what forbids the controller to act.
	Halt failover.Halt
	// FailOver says why N counts as lost, or what is being failed over from there; empty where nothing is.
	FailOver string
	// Linstor says when LINSTOR was asked.
	Linstor Linstor
	// Volumes are the resource definitions with a replica on N or on another node with the taint, of the same reads.
	Volumes []Volume
	// Attachments are those of N.
	Attachments Attachments
	// Snapshots is how many snapshots have data on N.
	Snapshots Count
	// Marked are all resource definitions with our mark.
	Marked Marks
	// Version tells whether LINSTOR can be told not to use some nodes, which it can since 1.33.
	Version Version
	// Memory is what this process remembers of N.
	Memory Memory
}

// Settings are the operator's settings that decide.
type Settings struct {
	// MaxNodes is how many nodes are copied from or leave at a time; at least 1.
	MaxNodes int
	// MaxCopies is how many copies may be in progress in the cluster at a time; at least 1.
	MaxCopies int
}

// Node is a node as Kubernetes and LINSTOR show it.
type Node struct {
	// Name is its name in Kubernetes; empty for a satellite that is no node there.
	Name string
	// Satellite is its name in LINSTOR, in lower case; empty if another node claims the same, so that nobody knows which it is.
	Satellite string
	// Named is set where that is what the CSI driver there has said, and not only the same name.
	Named bool
	// Listed is set where LINSTOR lists it as one that can have replicas.
	Listed bool
	// Online tells whether its satellite is ONLINE; unknown also while LINSTOR is blind for it.
	Online Answer
	// Ready is the node's condition of that name.
	Ready Answer
	// Cordoned is set while it takes no new pods.
	Cordoned bool
	// Evacuate are the taints with the key piraeus.io/evacuate.
	Evacuate []Taint
	// Repelling is set while a taint that the controller does not know keeps new pods away, or an autoscaler may soon delete the node.
	Repelling bool
	// Going is set while a taint says that it is shut down, out of service, or about to be deleted by an autoscaler.
	Going bool
	// Evacuating is set while LINSTOR has it flagged EVACUATE, Evicted for EVICTED or DELETE.
	Evacuating, Evicted bool
	// Evacuator is the cluster that has, or had, LINSTOR evacuate it, as LINSTOR says; empty if none has.
	Evacuator string
	// Since is since when it is being evacuated, by its annotation; zero where it has none yet.
	Since time.Time
	// Conditions are those of it that this controller sets.
	Conditions Conditions
}

// Taint is a taint of the key piraeus.io/evacuate.
type Taint struct {
	// Value is its value, Effect its effect.
	Value, Effect string
}

// leaving reports whether nothing may be put on the node that is to stay: it is tainted, switched off or about to be, evacuated or evicted.
func (n Node) leaving() bool {
	return len(n.Evacuate) > 0 || n.Going || n.Evacuating || n.Evicted
}

// steady tells whether what is on the node may be relied upon: it is ONLINE, Ready and not leaving.
func (n Node) steady() bool { return n.Online == Yes && n.Ready == Yes && !n.leaving() }

// Linstor says when and how LINSTOR answered.
type Linstor struct {
	// Asked is when the first of the reads began that the input rests on; zero where LINSTOR was not asked.
	Asked time.Time
	// Problem says why LINSTOR could not be read; empty where it could.
	Problem string
	// Missing names volumes that Kubernetes has and LINSTOR lists no replica of, or none on N where they are attached, and those that are attached there and
	// Kubernetes does not have; empty where there are none. What else is not listed nobody knows.
	Missing string
}

// Volume is a resource definition with all its replicas.
type Volume struct {
	// Resource is the name of the resource definition.
	Resource string
	// DRBD tells whether the top layer of any replica is DRBD.
	DRBD bool
	// Quorum is how many of the disks LINSTOR wants DRBD to need: "majority", "all" or a number; "off" for none, and empty where that is not known.
	Quorum string
	// OtherQuorums are other quorums that nodes may run: LINSTOR shows what it wants, and a node goes on by what it applied last.
	OtherQuorums []string
	// UserQuorum is set where a person has set that, so that LINSTOR does not change it.
	UserQuorum bool
	// Asynchronous is set if a write is done before all copies have it: DRBD's protocol is A or B.
	Asynchronous bool
	// Replicas are all replicas.
	Replicas []Replica
	// Claims are the PersistentVolumes on it.
	Claims []PersistentVolume
	// PlaceCount is how many disks its group wants, and Mark what its definition says of balancing and of us, as both were read last: they
	// may be a minute old. The count is 0 where it is not known.
	PlaceCount int
	Mark       Mark
	// Definition is what must be known before it is copied; nil where it was not read.
	Definition *Definition
}

// PersistentVolume is a volume of Kubernetes on a resource definition.
type PersistentVolume struct {
	// Name is its name.
	Name string
	// Attached is set where it is attached to N.
	Attached bool
	// Elsewhere is set where its node affinity allows a Ready and schedulable node that is not leaving.
	Elsewhere bool
	// Lost is set while its claim is Lost: the PersistentVolume was replaced, and Kubernetes has not bound the claim to the new one yet.
	Lost bool
	// NFSExport is set where pods mount it by NFS.
	NFSExport bool
	// Holders are the pods on N that use it, as "namespace/name".
	Holders []string
}

// Definition is what LINSTOR says of a resource definition beside its replicas.
type Definition struct {
	// Nodes is the node list of its group, in lower case; empty for all.
	Nodes []string
	// PlaceCount is how many disks its group wants; 0 where it does not say.
	PlaceCount int
	// Mark is what it says of balancing and of us.
	Mark Mark
}

// Replica is one resource of a definition.
type Replica struct {
	// Node is the LINSTOR node name in lower case.
	Node string
	// Diskless is set for replicas without a disk of their own, tie-breakers included.
	Diskless bool
	// Client is set for replicas without a disk that have no vote in DRBD's quorum, as LINSTOR 1.34 and newer place them for users without a disk.
	Client bool
	// Flags are LINSTOR's flags of it.
	Flags []string
	// InUse tells whether DRBD's role is Primary.
	InUse Answer
	// Disks are LINSTOR's words on its disks by volume number, without a percentage; an empty word is unknown.
	Disks map[int]string
	// Peers are the nodes to whose replicas its DRBD is known to be connected.
	Peers []string
	// Apart are those of which it is known that it is not.
	Apart []string
	// Syncing is set while DRBD says that it copies to or from it.
	Syncing bool
	// Done is how much of a sync is done, in percent, 0 to 100; negative where that is not known.
	Done float64
	// Moves is set while LINSTOR says that it is the source of a move, by MigrateFrom on it or on the target. LINSTOR leaves that there also when it has
	// forgotten the move, or never had one to make.
	Moves bool
}

// Flags of a replica that matter here.
const (
	flagDelete     = "DELETE"
	flagDRBDDelete = "DRBD_DELETE"
	flagEvicted    = "EVICTED"
	flagEvacuate   = "EVACUATE"
	flagInactive   = "INACTIVE"
)

// toggling are the flags of a replica whose disk is being added or removed.
var toggling = []string{"DISK_ADD_REQUESTED", "DISK_ADDING", "DISK_REMOVE_REQUESTED", "DISK_REMOVING"}

func (r Replica) has(flags ...string) bool {
	return slices.ContainsFunc(flags, func(flag string) bool { return slices.Contains(r.Flags, flag) })
}

// Attachments are the attachments of volumes of ours to N.
type Attachments struct {
	// Read is when they were asked for past the cache; zero where they are the cache's.
	Read time.Time
	// Volumes are the PersistentVolumes.
	Volumes []string
}

// Count is a number that may not have been asked for.
type Count struct {
	// Known is set where it was.
	Known bool
	// N is meaningful only while Known is true.
	N int
}

// Version says what LINSTOR can do.
type Version struct {
	// Known is set where it was asked.
	Known bool
	// Spares is set where evacuate can be told which nodes not to use.
	Spares bool
}

// Memory is what a process remembers of a node. The zero value is that of a process that has just begun to lead.
type Memory struct {
	// Unchanged is since when nothing has changed on N; zero where that is not known.
	Unchanged time.Time
	// Asked is since when this process knows that LINSTOR was told as often as the annotation says; what the annotation says of the time is another clock's.
	Asked time.Time
	// Refused are LINSTOR's refusals to place a copy, by resource definition.
	Refused map[string]Refusal
	// Failed are the calls of [Restore] and [Properties] that have failed since LINSTOR last did what it was told by one.
	Failed map[Call]Failure
	// NotMoved are LINSTOR's words on what it does not move, as it answered last when it was asked to.
	NotMoved string
}

// Refusal is LINSTOR's refusal to place a copy.
type Refusal struct {
	// Until is until when it is not asked again.
	Until time.Time
	// Words are LINSTOR's own.
	Words string
	// Nodes are those that could have had a copy then ([Input.Eligible]): with others it is another question.
	Nodes []string
}
