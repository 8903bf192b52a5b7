package failover

import (
	"math"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evidence"
)

const (
	// MaxAge is the age from which on a value read from LINSTOR is unknown. It is read every second, and every eight once it has been the same
	// for long. Nothing is written by it: an act decides again by values of ActAge at most.
	MaxAge = 10 * time.Second
	// ActAge is how old may be what an act rests on, which is read for it.
	ActAge = 2 * time.Second
)

// Fact is one value LINSTOR reported, and how long it has held.
//
// The zero Fact is "never observed". An observed fact may still be unknown: LINSTOR omits what it does not know, and an omitted value
// is neither false nor 0.
type Fact[T comparable] struct {
	// Value is meaningful only while Known is true.
	Value T
	// Known is false when LINSTOR did not say.
	Known bool
	// Since is the time from which on every reading, without a gap, has said the same; an unknown counts as a value of its own.
	Since time.Time
	// Confirmed is the time of the newest reading that said so.
	Confirmed time.Time
}

// is tells whether the fact is known to have the value v.
func (f Fact[T]) is(v T) bool { return f.Known && f.Value == v }

// Settings are the operator's settings that decide.
type Settings struct {
	// ConfirmedGrace is how long a loss that enough peers confirm must hold.
	ConfirmedGrace time.Duration
	// UnanimousGrace is how long a loss must hold that the peers confirm, LINSTOR and Kubernetes; no less than ConfirmedGrace where
	// that is to make no difference.
	UnanimousGrace time.Duration
	// KnownGrace is how long a loss must hold that rests on weaker evidence.
	KnownGrace time.Duration
	// NewGrace takes the place of KnownGrace for a pod or volume younger than it.
	NewGrace time.Duration
	// KubeletSilence is how long a node's Lease must not have been renewed to count as silent.
	KubeletSilence time.Duration
	// DeletionGrace is the time a pod is given to stop on a node that still answers.
	DeletionGrace time.Duration
	// RemoveUnsafePods lets pods go although they have volumes that may not survive a move.
	RemoveUnsafePods bool
}

// Input is everything a decision rests on: one volume on one node at one time.
type Input struct {
	Now      time.Time
	Settings Settings
	// Renewed is when this process began the newest renewal of its own Lease, that of the leader election, which the API has
	// answered; zero while it holds none.
	Renewed time.Time
	Volume  Volume
	// Node is A.
	Node Node
	// Resource is R as LINSTOR shows it.
	Resource Resource
	// Attachment is the volume's attachment to A; nil when there is none.
	Attachment *Attachment
	// Pods are the pods bound to A that use the volume, those already terminating included.
	Pods []Pod
	// LinstorConfirmed is when LINSTOR last confirmed anything at all.
	LinstorConfirmed time.Time
	// Live is set for the decision of an act, which rests on live reads: what LINSTOR showed longer ago than [ActAge] is unknown.
	Live bool
	// Halt holds what forbids every removal at the moment, whatever the volume.
	Halt Halt
}

// Halt is what forbids every removal at the moment.
type Halt struct {
	// Guard says why the view of the cluster is suspect; empty while it is not.
	Guard string
	// Paused says who or what paused fail-over; empty while nobody did.
	Paused string
	// Agents says which node agents of 1.x run, or that nobody knows; empty while none does.
	Agents string
	// DryRun is set when the controller only says what it would do.
	DryRun bool
}

// Volume is what the PersistentVolume says.
type Volume struct {
	// Name is the PersistentVolume's name.
	Name string
	// Since is when this process first saw the PersistentVolume; zero if it was there when the watch began.
	Since time.Time
	// NFSExport is set for volumes that consumers mount by NFS.
	NFSExport bool
	// Block is set for raw block volumes, which nobody need hold open.
	Block bool
	// Shared is set where it may be used on several nodes at a time.
	Shared bool
	// ReadOnly is set when no consumer writes by the volume's own words.
	ReadOnly bool
}

// Node is A as Kubernetes shows it.
type Node struct {
	// Name is the node's name.
	Name string
	// Satellite is its name in LINSTOR, in lower case; empty where that is the same.
	Satellite string
	// Unlisted is set while LINSTOR lists no node of that name.
	Unlisted bool
	// LeaseGap is how long its kubelet may well take from one renewal of its Lease to the next; zero where that is no longer than usual.
	LeaseGap time.Duration
	// LeaseSilence is how long no renewal of the node's Lease was seen, counted from what this process
	// saw change; meaningful only while LeaseKnown is true.
	LeaseSilence time.Duration
	// LeaseKnown is false when the Lease was never seen, or so many Leases fell silent together that
	// the API was away rather than the nodes.
	LeaseKnown bool
	// LeaseRead is when the Lease was last asked for, past every cache, and still showed the renewal from which LeaseSilence
	// counts; zero where that has not been done.
	LeaseRead time.Time
	// BootSince is since when the node has been seen with its present boot ID; zero when unknown.
	BootSince time.Time
	// Shutdown is set when a taint says that the node was switched off.
	Shutdown bool
	// SwitchedOff is set while Shutdown is, if the taint came after the last sign of life from the node: who set it knew.
	SwitchedOff bool
	// OutOfService is set while the node has Kubernetes' taint node.kubernetes.io/out-of-service, of any effect, upon which Kubernetes
	// ends its pods that are being deleted and detaches their volumes.
	OutOfService bool
	// TakenOut is set while OutOfService is, if the taint came after the last sign of life from the node: one that somebody forgot to take
	// off says nothing of a node that was back.
	TakenOut bool
	// Evicts is set while that taint has the effect NoExecute, upon which Kubernetes deletes the pods that do not tolerate it.
	Evicts bool
	// NotReady is set while Kubernetes does not call the node Ready. It deletes the pods of a node that is out of service at once, and ends
	// those that a dead kubelet does not end only then.
	NotReady bool
}

// usualGap is how long a kubelet by its defaults takes from one renewal of its Lease to the next: 10 s and up to 4 % more.
const usualGap = 10400 * time.Millisecond

// Patience is how long the node's Lease must not have been renewed to count as silent, where that is d for a kubelet that renews as
// often as is usual.
func (n Node) Patience(d time.Duration) time.Duration {
	if n.LeaseGap <= usualGap {
		return d
	}
	scaled := float64(d) * n.LeaseGap.Seconds() / usualGap.Seconds()
	return time.Duration(min(scaled, math.MaxInt64/2))
}

// LeaseSilent tells whether no renewal was seen for at least d, or for longer where the kubelet renews more rarely than is usual.
func (n Node) LeaseSilent(d time.Duration) bool {
	return n.LeaseKnown && n.LeaseSilence >= n.Patience(d)
}

// LeaseFresh tells whether the kubelet is known to be alive.
func (n Node) LeaseFresh(d time.Duration) bool { return n.LeaseKnown && n.LeaseSilence < n.Patience(d) }

// satellite is the node's name in LINSTOR, by which its replicas are found.
func (n Node) satellite() string {
	if n.Satellite != "" {
		return n.Satellite
	}
	return n.Name
}

// Attachment is the VolumeAttachment of the volume to A.
type Attachment struct {
	// Name is the VolumeAttachment's name.
	Name string
	// UID is its UID.
	UID types.UID
	// Attached is its status.
	Attached bool
	// Since is when this process first saw it; zero if it was there when the watch began.
	Since time.Time
	// Deleting is set once it has been deleted and waits for the attacher.
	Deleting bool
	// Marked is set when a fail-over has begun for it.
	Marked bool
	// Noted is set when the attachment says so itself, for whoever leads next.
	Noted bool
	// Reason and Pods are why that fail-over has begun, and of which pods; empty if that is not known, or the volume was healthy since.
	Reason Reason
	Pods   []types.UID
	// Awaited is set when a selected pod with the same claim waits on another node.
	Awaited bool
}

// Pod is a pod on A that uses the volume.
type Pod struct {
	// Namespace and Name name the pod.
	Namespace, Name string
	// UID is the pod's UID.
	UID types.UID
	// Since is when this process first saw the pod on A; zero if it was there when the watch began.
	Since time.Time
	// HasRun is set once a container of the pod has run on A, an init container too: its volumes were mounted before. Ran is when this
	// process first saw that, and Runs is set while a container runs.
	HasRun bool
	Ran    time.Time
	Runs   bool
	// ReadOnly is set when the pod mounts the claim read-only.
	ReadOnly bool
	// Terminating is set while it is being deleted, with a grace period of Grace in whole seconds. Deleting is since when this process has seen that.
	Terminating bool
	Grace       time.Duration
	Deleting    time.Time
	// Begun is since when this process has seen that the pod is being deleted and a fail-over of it has begun; zero if that is not so.
	Begun time.Time
	// Forced is set once it has been deleted without grace: its object stays for its finalizers only, or because that deletion
	// was cut off.
	Forced bool

	// Selected is set when the pod's labels select it for fail-over.
	Selected bool
	// HelperOf names the pod that controls it, for which it holds volumes; empty where another kind of controller does, or none.
	HelperOf string
	// Exempt is set when its annotation exempts it, or that of the pod for which it holds volumes.
	Exempt bool
	// Finalizers is set when others must let its object go before it ends. The cache does not have it; a pod that was read for a
	// removal does.
	Finalizers bool
	// Unended is set when it has been deleted by force, finalizers keep its object, and its phase does not say yet that it has ended.
	Unended bool
	// Owned is set when a controller would re-create it.
	Owned bool
	// NodeBound is set when that controller would re-create it on the same node.
	NodeBound bool
	// UnsafeVolume names its first volume that may not survive a move; empty when all do, or its annotation says that this does not matter.
	UnsafeVolume string
	// UnboundClaim names its first claim of which no PersistentVolume is known to be bound, so that nobody knows what it writes there; empty
	// where there is none.
	UnboundClaim string
	// Others are the pod's other LINSTOR volumes.
	Others []OtherVolume
	// StaysOutOfService is set when it tolerates Kubernetes' taint node.kubernetes.io/out-of-service for good, whatever its value: nobody
	// else deletes it.
	StaysOutOfService bool
	// Places are the nodes other than A as they would receive the pod. A forecast asks for them; an act does not: where no node is
	// ready the workload does not run, and one may become ready any moment.
	Places Places
}

// GraceEnds returns when the deletion grace of a terminating pod ends, by what this process saw: never before the kubelet's time is over.
func (p Pod) GraceEnds() time.Time { return p.Deleting.Add(p.Grace) }

// forceAt returns when a terminating pod may be removed by force: when it has had the deletion grace since our own deletion. An earlier deletion
// may have had a longer one. The API server counts ours from that, but a kubelet does not shorten a stop that is under way.
func (p Pod) forceAt(grace time.Duration) time.Time {
	if p.Begun.IsZero() {
		return p.GraceEnds()
	}
	return latest(p.GraceEnds(), p.Begun.Add(grace))
}

// OtherVolume is another LINSTOR volume of a pod.
type OtherVolume struct {
	// Name is the PersistentVolume's name.
	Name string
	// Resource is its LINSTOR resource.
	Resource Resource
	// NFSExport is set where the pod mounts it by NFS: its node has no DRBD relation to it.
	NFSExport bool
	// Shared is set where it may be used on several nodes at a time.
	Shared bool
	// Ephemeral is set for a generic ephemeral volume, which is re-created with its pod.
	Ephemeral bool
	// Block is set for raw block volumes, which nobody need hold open.
	Block bool
	// Users are the other pods on A that use it, or another volume of its resource. What is known of them leaves out their other volumes.
	Users []Pod
}

// Resource is a LINSTOR resource definition with all its replicas: a snapshot, which nobody changes.
type Resource struct {
	// Name is the resource definition's display name.
	Name string
	// Known is false when LINSTOR's list of the resource has not been read. Missing is set if LINSTOR has been read and does not know the resource.
	Known, Missing bool
	// Confirmed is when the list of replicas was last read as a whole.
	Confirmed time.Time
	// SetSince is since when the set of nodes with a replica has been the same without a gap. It is the clock of "there is no replica
	// on that node".
	SetSince time.Time
	// DRBD tells whether the top layer is DRBD.
	DRBD bool
	// Volumes is the number of volumes, as the replicas show it; 0 when not known. DRBD reports one score for all of them.
	Volumes int
	// Quorum is the value of DrbdOptions/Resource/quorum that LINSTOR wants, merged over resource definition, resource group and
	// controller; "off" when it is set nowhere, and empty while not all of these levels have been read.
	Quorum string
	// FailsIO is set if writes fail on a node without quorum, by on-no-quorum=io-error. TwoPrimaries is set if DRBD accepts two Primaries. Both are merged
	// like Quorum, and false while they are not known.
	FailsIO, TwoPrimaries bool
	// InDoubt is set while the quorum may be another than that: LINSTOR adapts it when replicas come and go, and it was not read since.
	InDoubt bool
	// Left are the nodes, in lower case, whose replica went while the node's satellite was ONLINE, and so has really gone.
	Left []string
	// Replicas are all replicas, A's included, sorted by node.
	Replicas []Replica
}

// Replica is one resource of a resource definition: what one node has of it.
type Replica struct {
	// Node is the LINSTOR node name in lower case. LINSTOR compares names without regard to case; Kubernetes' are lower case.
	Node string
	// Diskless is set for replicas without a disk of their own, tie-breakers included.
	Diskless bool
	// Client is set for replicas without a disk that have no vote in DRBD's quorum, as LINSTOR 1.34 and newer place them for users without a disk.
	Client bool
	// Leaving is set when the replica (DELETE, DRBD_DELETE, EVICTED, INACTIVE) or its node (DELETE, EVICTED) is on its way out: it can
	// not take a volume over.
	Leaving bool
	// Online tells whether the node's satellite is ONLINE, the only connection status under which its values reach LINSTOR.
	Online Fact[bool]
	// OtherVersion is set while the satellite is not ONLINE because it is of another version than LINSTOR's controller.
	OtherVersion bool
	// Blind is set while LINSTOR is known to have no connection to the node, which it calls ONLINE: all that it says is unknown.
	Blind bool
	// Reports tells whether LINSTOR has any dynamic state of the replica at all.
	Reports Fact[bool]
	// MayPromote is DRBD's word that this replica could become Primary now.
	MayPromote Fact[bool]
	// InUse is true while DRBD's role is Primary. It says nothing of whether a file system is mounted.
	InUse Fact[bool]
	// Score is DRBD's promotion score; 0 on a Primary means that it lost quorum or its data.
	Score Fact[int]
	// Connections tells, per peer in lower case, whether the connection to it is Connected. A peer without an entry is unknown.
	Connections map[string]Fact[bool]
	// Heard is when a list last brought news of this replica's state, or was read after events that did: its satellite was alive
	// shortly before.
	Heard time.Time
	// Rejoined tells, per peer, when the replica was last seen to turn Connected to it. It stays until the replica says that the
	// connection is gone, also while LINSTOR has no state of the replica.
	Rejoined map[string]time.Time
	// LastInUse is when this process last saw the replica in use; zero when never.
	LastInUse time.Time
	// Gone is set where LINSTOR no longer lists the replica, and it is not known that its node has let it go: LINSTOR forgets replicas
	// (node lost, a database restored) that may still be written to. The rest is what was known of it.
	Gone bool
	// Confirmed is set where the node is known to have applied what LINSTOR wanted at some time since the quorum has fenced at every reading.
	Confirmed bool
	// Unconfirmed is since when that is not known; zero where it is, or nothing is known of the node.
	Unconfirmed time.Time
	// Proven is set where that was seen, and not only what LINSTOR wanted at first trusted.
	Proven bool
	// Votes are whom it counts in its quorum, itself included; nil where nothing was seen of that. Snapshots share it.
	Votes []evidence.Vote
}

// Replica returns the replica on the named node.
func (r Resource) Replica(node string) (Replica, bool) {
	for _, replica := range r.Replicas {
		if replica.Node == node {
			return replica, true
		}
	}
	return Replica{}, false
}
