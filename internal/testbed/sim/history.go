package sim

import (
	"slices"
	"strings"
	"time"
)

// History is a small cluster and what happens to it.
type History struct {
	// Seed is what it was generated from; 0 for one written by hand.
	Seed uint64
	// World is the cluster before anything happens.
	World World
	// Steps happen in the order of their times.
	Steps []Step
	// Length is how long the steps take altogether, before all is mended.
	Length time.Duration
	// Ordinary is set where nothing is done but what is done every day, beside crashes.
	Ordinary bool
	// Kinds are the untidy kinds that it was drawn with.
	Kinds []Kind
}

// World is a cluster: nodes, volumes, workloads, and the settings of all parts.
type World struct {
	Nodes     []string
	Volumes   []Volume
	Workloads []Workload
	// Processes is the number of replicas of the controller; the first leads.
	Processes int
	// DryRun lets the controller only say what it would do.
	DryRun bool
	// Reckless lets pods be moved that have volumes of which nobody knows whether they survive that.
	Reckless bool
	// Patient lets the unanimous grace be as long as the confirmed one, which switches it off.
	Patient bool
	// Lag is how old the controller's cache is.
	Lag time.Duration
	// Detect is how long each node's DRBD takes to notice that a peer is gone.
	Detect map[string]time.Duration
	// PingTimeout is how long LINSTOR takes to notice that a satellite is gone.
	PingTimeout time.Duration
	// Pings and Links are the same for each satellite and, as "observer peer", for each end of a link, where they say so.
	Pings, Links map[string]time.Duration
	// Flap and HealFlap are how long survivors and healed replicas say what is not so yet.
	Flap, HealFlap time.Duration
	// TieBreakers lets LINSTOR add and remove tie-breakers by itself.
	TieBreakers bool
	// Clients lets those be without a vote that the CSI driver places without a disk.
	Clients bool
	// GroupQuorum is set where a person has set majority on the resource group, long ago.
	GroupQuorum bool
	// Replay is how old the state is that LINSTOR replays to new subscribers.
	Replay time.Duration
	// IOError lets DRBD fail requests without quorum instead of holding them.
	IOError bool
	// Disconnect leaves a suspended Primary with old data alone, instead of demoting it by force.
	Disconnect bool
	// Qualified gives the nodes qualified names in Kubernetes; those of LINSTOR are Nodes.
	Qualified bool
	// Foreign are nodes of Kubernetes that LINSTOR does not know.
	Foreign []string
	// Renew is how often each node's kubelet renews its Lease; 10 s where it does not say.
	Renew map[string]time.Duration
	// Clock is how far the API server's clock is ahead of the controllers'.
	Clock time.Duration
	// Late is how long the caches of a controller that starts again take to list everything.
	Late time.Duration
	// Ended are pods that have run to an end and are still listed.
	Ended []Ended
	// Planned is what a cluster has beside all that in which nodes leave on purpose.
	Planned Planned
}

// Ended is a pod that has run to an end and is still listed.
type Ended struct {
	// Of is the workload whose labels and volumes it has. It is bound to the node that the workload prefers.
	Of string
	// Phase is Failed, Succeeded, or Evicted for one that the kubelet has made Failed.
	Phase string
}

// detect is how long a node's DRBD takes to notice that a peer is gone.
func (world World) detect(observer, peer string) time.Duration {
	if d, ok := world.Links[observer+" "+peer]; ok {
		return d
	}
	return world.Detect[observer]
}

// domain ends the names of nodes in Kubernetes where they are qualified.
const domain = ".example.com"

// groupQuorum is the quorum of the resource group in the beginning, empty where nobody has set one.
func (world World) groupQuorum() string {
	if world.GroupQuorum {
		return "majority"
	}
	return ""
}

// kubeName is the name of a node in Kubernetes.
func (world World) kubeName(node string) string {
	if world.Qualified {
		return node + domain
	}
	return node
}

// Kinds of volumes.
const (
	Filesystem  = "filesystem"
	Block       = "raw block, held open"
	BlockUnused = "raw block, not opened"
	ReadOnly    = "read-only"
	NFSExport   = "NFS export"
)

// Volume is a PersistentVolume with its LINSTOR resource.
type Volume struct {
	Name string
	// Handle is the CSI volume handle; of a consistency group it is "<resource>/<number>".
	Handle     string
	Kind       string
	Diskful    []string
	TieBreaker string
	// Quorum is the definition's own setting; empty leaves it to LINSTOR.
	Quorum string
	// Shared lets pods on several nodes use it at once, and TwoPrimaries lets them do so open for writing.
	Shared, TwoPrimaries bool
	// Later lets it come by a step only.
	Later bool
	// Claim is its claim's name; the default is "data-" with its own.
	Claim string
	// Released is set for a retained volume whose claim was deleted, and created anew for another one: its resource is Alive, Gone,
	// or Dead, which is without connections.
	Released string
	// Pinned lets its PersistentVolume allow only the nodes with a disk, as far as Planned allows it.
	Pinned bool
	// Unmarked lets Kubernetes still show a Released volume as bound to the claim that was deleted.
	Unmarked bool
	// ephemeral is set for a volume that comes and goes with its pod.
	ephemeral bool
}

// What became of the resource of a Released volume.
const (
	Alive = "alive"
	Gone  = "gone"
	Dead  = "without connections"
)

// claim is the name of its claim.
func (v Volume) claim() string {
	if v.Claim != "" {
		return v.Claim
	}
	return "data-" + v.Name
}

// Resource is the name of the LINSTOR resource.
func (v Volume) Resource() string {
	resource, _, _ := strings.Cut(v.Handle, "/")
	return resource
}

// Workload is a pod with its owner.
type Workload struct {
	Name    string
	Volumes []string
	// Nodes are the nodes it may run on, the preferred one first.
	Nodes []string
	// Selected, Exempt, Owner, Unsafe and Finalizer are what the gates ask for.
	Selected, Exempt  bool
	Owner             string
	Unsafe, Finalizer bool
	// Stop is how long its containers take to stop, and Init how long its init containers run.
	Stop, Init time.Duration
	// Later lets it come by a step only.
	Later bool
	// Tolerant lets it run on nodes whatever taints they have.
	Tolerant bool
	// Ephemeral gives it a generic ephemeral volume, and Helper a helper pod, selected or not.
	Ephemeral, Helper, HelperSelected bool
	// HotPlugged is the volume that the helper alone holds; where there is none, it holds the first one of the pod.
	HotPlugged string
}

// removable tells whether every gate of the pod is open.
func (w Workload) removable() bool {
	return w.Selected && !w.Exempt && w.Owner == "" && !w.Unsafe && !w.Finalizer
}

// Deed is what happens in a step.
type Deed string

// What can happen. The word that undoes a fault follows it.
const (
	Crash             Deed = "crash"
	ShutDown          Deed = "shut down in order"
	Return            Deed = "return"
	Isolate           Deed = "isolate from all networks"
	Rejoin            Deed = "rejoin all networks"
	IsolateDRBD       Deed = "isolate from the DRBD network"
	RejoinDRBD        Deed = "rejoin the DRBD network"
	CutLink           Deed = "cut the DRBD link"
	HealLink          Deed = "heal the DRBD link"
	CutResource       Deed = "cut the resource's link"
	HealResource      Deed = "heal the resource's link"
	CutSatellite      Deed = "cut off from LINSTOR"
	RestoreSatellite  Deed = "restore to LINSTOR"
	StopSatellite     Deed = "stop the satellite"
	FreezeSatellite   Deed = "freeze as ONLINE"
	UnfreezeSatellite Deed = "unfreeze"
	SilenceKubelet    Deed = "cut the kubelet off from the API"
	RestoreKubelet    Deed = "restore the kubelet"
	RestartKubelet    Deed = "start the kubelet again, without a boot"
	RestartEvents     Deed = "restart events2"
	ShutdownTaint     Deed = "taint as switched off"
	ShutdownUntaint   Deed = "remove the taint"
	TakeOutOfService  Deed = "taint as out of service"
	TakeOutForNew     Deed = "taint as out of service for new pods"
	PutIntoService    Deed = "remove the taint of out of service"

	StopLinstor    Deed = "stop LINSTOR"
	StartLinstor   Deed = "start LINSTOR"
	RestartLinstor Deed = "restart LINSTOR"
	LoseConnector  Deed = "let LINSTOR lose its connector"
	SlowLinstor    Deed = "slow LINSTOR's answers"
	FastLinstor    Deed = "let LINSTOR answer at once"
	DropStreams    Deed = "end the event streams"
	ResetStreams   Deed = "reset the event streams"
	SilenceStreams Deed = "leave the event streams half-open"
	Replay         Deed = "subscribe, so that LINSTOR replays old values"
	SetQuorum      Deed = "set quorum"
	RemoveReplica  Deed = "remove the replica"
	FailDisk       Deed = "fail the disk"
	ReplaceDisk    Deed = "replace the disk"
	CloseVolume    Deed = "close the volume under its pod"
	OpenVolume     Deed = "open the volume again"

	CutLinstor      Deed = "cut the controller off from LINSTOR"
	RestoreLinstor  Deed = "restore the controller to LINSTOR"
	CutAPI          Deed = "cut the controller off from the API"
	RestoreAPI      Deed = "restore the controller to the API"
	FailAPI         Deed = "stop the API server"
	RecoverAPI      Deed = "start the API server"
	PauseCache      Deed = "let the controller's cache grow old"
	ResumeCache     Deed = "let the controller's cache catch up"
	ChangeLeader    Deed = "change the leader"
	RestartProcess  Deed = "restart the controller"
	DeletePod       Deed = "delete the pod"
	ForceDeletePod  Deed = "delete the pod by force"
	StopSlowly      Deed = "let the pod stop slowly"
	MigrateTo       Deed = "begin a live migration"
	EndMigration    Deed = "end the live migration"
	RemoveFinalizer Deed = "remove the pod's finalizer"
	ForbidTaints    Deed = "forbid the controller to taint"
	AllowTaints     Deed = "allow it to taint"
	ForbidRelease   Deed = "forbid the controller to release volumes"
	AllowRelease    Deed = "allow it to release volumes"
	JumpClock       Deed = "let the API server's clock jump"
	DisturbAPI      Deed = "let every third request of the controller to the API fail"
	CalmAPI         Deed = "let the controller's requests succeed"
	Pause           Deed = "pause fail-over"
	Unpause         Deed = "end the pause"
	Evict           Deed = "evict the node from LINSTOR"
	RestoreNode     Deed = "restore the node in LINSTOR"
	GiveUp          Deed = "let LINSTOR give the node up"
	TakeBack        Deed = "let LINSTOR take the node back"

	HangPools     Deed = "let the thin pools hang"
	FreePools     Deed = "let the thin pools answer"
	FreezeMachine Deed = "freeze the machine"
	ThawMachine   Deed = "let the machine go on"
	FreezeProcess Deed = "freeze the controller"
	ThawProcess   Deed = "let the controller go on"
	SlowAPI       Deed = "slow the controller's requests to the API"
	FastAPI       Deed = "let the controller's requests through"
	RejectAPI     Deed = "reject the controller's requests"
	AcceptAPI     Deed = "accept the controller's requests"
	HangAPI       Deed = "let a webhook hang on the controller's requests"
	UnhangAPI     Deed = "let the webhook answer"
	Overlap       Deed = "let the next leader begin before the last one ends"
	EndOverlap    Deed = "end the leader that was replaced"
	ArriveAtWrite Deed = "let a pod arrive right before the controller writes"
	HangResource  Deed = "let LINSTOR's answers on the resource hang"
	FreeResource  Deed = "let LINSTOR answer on the resource"
	CreateAgain   Deed = "create the PersistentVolume again"
	BindAgain     Deed = "bind the PersistentVolume again"
	LeaveEnded    Deed = "leave a pod listed that has ended"
	Spare         Deed = "have fail-over leave a pod alone, by its"
	SpareNoMore   Deed = "leave the pod to fail-over again"
)

// Step is one thing that happens.
type Step struct {
	// At is when, after the workloads have settled.
	At   time.Duration
	What Deed
	// Node is where; Peer is the other end of a link.
	Node, Peer string
	// On is the volume, the pod or the number of the process that it happens to.
	On string
	// Value is a setting; For is a duration that belongs to the deed.
	Value string
	For   time.Duration
}

// Only returns the history with no other steps than those of the given numbers, counted from 0.
func (h History) Only(steps []int) History {
	all := h.Steps
	h.Steps = nil
	for i, s := range all {
		if slices.Contains(steps, i) {
			h.Steps = append(h.Steps, s)
		}
	}
	return h
}
