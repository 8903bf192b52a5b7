package sim

import "slices"

// Kind is one way in which a real cluster is less tidy than a model of it. Each is drawn often enough to be met: the count is the
// number of histories in which it was.
type Kind string

// Untidy claims and volumes.
const (
	ClaimAgainAlive  Kind = "volumes: claim re-created beside a Released volume, its resource alive"
	ClaimAgainGone   Kind = "volumes: claim re-created beside a Released volume, its resource gone"
	ClaimAgainDead   Kind = "volumes: claim re-created beside a Released volume, its connections dead"
	OneHandle        Kind = "volumes: two PersistentVolumes of one handle"
	GroupOfPods      Kind = "volumes: consistency group, a pod on each volume"
	StaticallyBound  Kind = "volumes: statically bound, handle and name unrelated"
	EphemeralVolume  Kind = "volumes: generic ephemeral volume beside"
	NFSJudged        Kind = "volumes: NFS export"
	NFSBeside        Kind = "volumes: NFS export beside"
	OpenOnTwo        Kind = "volumes: RWX raw block open on two nodes"
	TwoVolumes       Kind = "volumes: pod with two volumes"
	ThreeVolumes     Kind = "volumes: pod with three volumes"
	OneWithoutQuorum Kind = "volumes: pod with several volumes, one with quorum off"
	CreatedAgain     Kind = "volumes: pod with several volumes, one PersistentVolume created again, and unsafe pods may go"
)

// Untidy pods.
const (
	LongInit      Kind = "pods: long init containers"
	EndedEvicted  Kind = "pods: evicted and still listed"
	EndedFailed   Kind = "pods: Failed and still listed"
	EndedDone     Kind = "pods: Succeeded and still listed"
	ToleratesAll  Kind = "pods: tolerates everything"
	ArrivesLate   Kind = "pods: arrives between a look and its write"
	HotPlugHelper Kind = "pods: helper of a KubeVirt hot-plug"
	SparedAmid    Kind = "pods: a person exempts one, or takes its label off"
)

// Untidy times.
const (
	BlipBeforeCut    Kind = "time: DRBD blips just before a cut"
	AllCutTogether   Kind = "time: all nodes cut together"
	SlowRequests     Kind = "time: API requests that take up to 15 s"
	RejectedRequests Kind = "time: API requests rejected, by verb"
	HangingWebhooks  Kind = "time: webhooks that hang, by verb"
	FrozenProcess    Kind = "time: controller frozen"
	TwoLeaders       Kind = "time: two leaders overlap"
	LateInformers    Kind = "time: informers start late"
	ClockOff         Kind = "time: controller's clock off"
	RareRenewals     Kind = "time: kubelets renew rarely"
	FrozenMachine    Kind = "time: machine frozen for 1 to 15 s"
	HangingPools     Kind = "time: thin pools hang, and LINSTOR waits for them"
	OwnPings         Kind = "time: each satellite missed at its own time"
	Flaps            Kind = "time: survivors flap"
	BlindLinstor     Kind = "time: LINSTOR loses its connector"
	OutOfService     Kind = "time: node taken out of service by a person, and back"
	HangingResource  Kind = "time: LINSTOR answers on all resources but one"
	SlowResource     Kind = "time: LINSTOR is slower on one of two volumes of a lost node"
	DeadKubelet      Kind = "time: a kubelet dies with its containers, and the kernel lives"
	ProxyCuts        Kind = "time: a proxy cuts the event streams once a minute"
	StopsSlowly      Kind = "time: a pod has been stopping for long when its node is lost"
	DeafForLong      Kind = "time: the watches of the controller are dead for minutes"
	Interrupted      Kind = "time: a node without quorum fails writes, and regains it within the grace"
	OwnNotices       Kind = "time: DRBD notices after 6 to 11.5 s, each end of a link at its own time"
)

// Untidy settings.
const (
	SetOnDefinition     Kind = "settings: quorum set on the definition, and sent"
	SetOnGroup          Kind = "settings: quorum set on the group, and sent"
	SetOnController     Kind = "settings: quorum set on the controller, and not sent"
	AdjustFailed        Kind = "settings: adjust failed"
	AdjustHung          Kind = "settings: adjust hung"
	SentByReconnect     Kind = "settings: sent again by a reconnect"
	ChangedAroundLoss   Kind = "settings: changed within 12 s of a loss"
	AgainHeardNone      Kind = "settings: majority, off, majority, of which the node heard none"
	AgainHeardOne       Kind = "settings: majority, off, majority, of which the node heard one"
	AgainHeardTwo       Kind = "settings: majority, off, majority, of which the node heard both"
	AgainUnread         Kind = "settings: majority, off, majority, while LINSTOR does not answer"
	EvictedByLinstor    Kind = "settings: LINSTOR evicts a node, and another one is lost after that"
	LeftInOrder         Kind = "settings: a node is shut down in order, and another one is lost after that"
	TieBreakerByLinstor Kind = "settings: LINSTOR adds or removes tie-breakers"
	TieBreakerSet       Kind = "settings: tie-breakers switched off and on"
	ReplicaAddedAway    Kind = "settings: replica added while a node is away"
	ReplicaRemovedAway  Kind = "settings: replica removed while a node is away"
	ReplicaToggledAway  Kind = "settings: disk toggled while a node is away"
	NodeLost            Kind = "settings: node lost"
	DatabaseRestored    Kind = "settings: database restored"
	ClientsOfCSI        Kind = "settings: the CSI driver's replicas without a disk have no vote"
	Story               Kind = "settings: one belief without evidence, and nothing else"
)

// Nodes that leave on purpose.
const (
	LeavesAmid      Kind = "leaving: a node leaves amid all that happens"
	LeavesAfter     Kind = "leaving: a node leaves after all was mended"
	LastCopiesOnly  Kind = "leaving: last copies only"
	Everything      Kind = "leaving: everything"
	SecondLeaves    Kind = "leaving: a second node leaves"
	Drained         Kind = "leaving: drained"
	Cordoned        Kind = "leaving: another node is cordoned"
	Tolerating      Kind = "leaving: a pod tolerates the taint"
	Untainted       Kind = "leaving: the taint is removed"
	SafePowerOff    Kind = "leaving: switched off when StorageSafe"
	DiskFails       Kind = "leaving: a disk fails"
	PoolFull        Kind = "leaving: a storage pool is full"
	Autoscaled      Kind = "leaving: an autoscaler is about to delete another node"
	LinstorRestarts Kind = "leaving: LINSTOR is restarted"
	NodeFails       Kind = "leaving: a node fails meanwhile"
	OperatorRuns    Kind = "leaving: an operator restores nodes"
	AffinityRuns    Kind = "leaving: volumes are pinned, and an affinity controller runs"
	PinnedForGood   Kind = "leaving: volumes are pinned for good"
	Balances        Kind = "leaving: LINSTOR balances"
	Snapshots       Kind = "leaving: there are snapshots"
	ByAnother       Kind = "leaving: a person evacuates in LINSTOR by hand"
	MeansNothing    Kind = "leaving: the taint means nothing"
	GroupLists      Kind = "leaving: the resource group lists nodes"
	ReplicaGoes     Kind = "leaving: a person deletes or deactivates a replica, which takes its time"
	KubeletSilent   Kind = "leaving: another kubelet is silent"
	PausedMeanwhile Kind = "leaving: fail-over is paused meanwhile"
	MostLost        Kind = "leaving: most of the other nodes are lost at once"
	CopyUnsure      Kind = "leaving: a volume with quorum off, whose copy goes or is cut off"
	AmidMove        Kind = "leaving: a node comes back while LINSTOR moves its volumes, and another one leaves"
	ValueChanges    Kind = "leaving: the taint's value changes, and back"
)

// Untidy names.
const (
	QualifiedNames Kind = "names: qualified in Kubernetes, short in LINSTOR"
	UnknownNode    Kind = "names: node that LINSTOR does not know"
)

// Kinds are all kinds.
var Kinds = []Kind{
	ClaimAgainAlive, ClaimAgainGone, ClaimAgainDead, OneHandle, GroupOfPods, StaticallyBound, EphemeralVolume, NFSJudged, NFSBeside, OpenOnTwo,
	TwoVolumes, ThreeVolumes, OneWithoutQuorum, CreatedAgain,
	LongInit, EndedEvicted, EndedFailed, EndedDone, ToleratesAll, ArrivesLate, HotPlugHelper, SparedAmid,
	BlipBeforeCut, AllCutTogether, SlowRequests, RejectedRequests, HangingWebhooks, FrozenProcess, TwoLeaders, LateInformers, ClockOff,
	RareRenewals, FrozenMachine, HangingPools, BlindLinstor, OutOfService, HangingResource, SlowResource, OwnPings, OwnNotices, Flaps,
	DeadKubelet, ProxyCuts, StopsSlowly, DeafForLong, Interrupted,
	SetOnDefinition, SetOnGroup, SetOnController, AdjustFailed, AdjustHung, SentByReconnect, ChangedAroundLoss,
	AgainHeardNone, AgainHeardOne, AgainHeardTwo, AgainUnread, EvictedByLinstor, LeftInOrder, TieBreakerByLinstor, TieBreakerSet,
	ReplicaAddedAway, ReplicaRemovedAway, ReplicaToggledAway, NodeLost, DatabaseRestored, ClientsOfCSI, Story,
	Stalls, StallsRecovered, ChangesAtWrite, OneHangs, EvenlySlow, TenLost, QualifiedNames, UnknownNode,
	LeavesAmid, LeavesAfter, LastCopiesOnly, Everything, SecondLeaves, Drained, Cordoned, Tolerating, Untainted, SafePowerOff, DiskFails,
	PoolFull, Autoscaled, LinstorRestarts, NodeFails, OperatorRuns, AffinityRuns, PinnedForGood, Balances, Snapshots, ByAnother, MeansNothing,
	GroupLists, ReplicaGoes, KubeletSilent, PausedMeanwhile, MostLost, CopyUnsure, AmidMove, ValueChanges,
}

// rare is in how many histories of a hundred a kind is drawn: all of them make two or three of a history.
const rare = 6

// drew notes that a kind was drawn.
func (g *generator) drew(k Kind) {
	if !slices.Contains(g.history.Kinds, k) {
		g.history.Kinds = append(g.history.Kinds, k)
	}
}

// untidy draws kinds by a table of what draws each; one that finds nothing to be drawn on returns false.
func (g *generator) untidy(table []untidiness) {
	for _, u := range table {
		if g.chance(rare) && u.draw(g) {
			g.drew(u.kind)
		}
	}
}

type untidiness struct {
	kind Kind
	draw func(*generator) bool
}
