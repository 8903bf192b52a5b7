package forecast

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// Version is that of the Report's JSON. One that does not know it cannot read it.
const Version = 1

// Path is where every replica serves its report, on its loopback interface only. Its parameters are "namespace" and "node".
const Path = "/forecast"

// Question says which pods are asked about.
type Question struct {
	// Namespace is theirs; empty for all.
	Namespace string
	// Node is the one whose loss is asked about; empty if it is each pod's own.
	Node string
}

// Process is the replica of the controller that answers.
type Process struct {
	// Pod is its "namespace/name"; empty outside of a cluster.
	Pod string `json:"pod,omitempty"`
	// Leads is set if it is the leader. A standby has a guard and clocks of its own, and does not act.
	Leads bool `json:"leads"`
	// Leader is the pod that holds the Lease, as "namespace/name"; empty if none does, or that is unknown.
	Leader string `json:"leader,omitempty"`
	// Started is when it was started.
	Started time.Time `json:"started"`
}

// Report is the answer of a replica. Lists are sorted, so two reports of the same state are the same.
type Report struct {
	// Version is that of this format.
	Version int `json:"version"`
	// Process is the replica that answers.
	Process Process `json:"process"`
	// Verdict sums up: Protected, Unprotected or Unknown.
	Verdict failover.Outlook `json:"verdict"`
	// Message is the verdict in words.
	Message string `json:"message"`
	// Selector and Driver are what pods and volumes are selected by.
	Selector string `json:"selector"`
	Driver   string `json:"driver"`
	// Node is what the loss of the node asked about would do; only with --node, and where there is that node. Volumes and Findings are
	// those of its pods then.
	Node *NodeLoss `json:"node,omitempty"`
	// Volumes has one row for each volume of each selected pod.
	Volumes []Row `json:"volumes"`
	// Evacuations are the nodes with the taint piraeus.io/evacuate.
	Evacuations []EvacuatedNode `json:"evacuations,omitempty"`
	// Findings are what should be changed, the most severe first.
	Findings []Finding `json:"findings"`
}

// Row is one volume of one selected pod.
type Row struct {
	// Namespace and Pod name the pod, Node the node it is bound to.
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Node      string `json:"node,omitempty"`
	// Claim, Volume and Resource are the PersistentVolumeClaim, the PersistentVolume and LINSTOR's resource definition.
	Claim    string `json:"claim"`
	Volume   string `json:"volume,omitempty"`
	Resource string `json:"resource,omitempty"`
	// Diskful and Diskless are the numbers of replicas with and without a disk, tie-breakers included. Offline is how many
	// of both have a satellite that is not ONLINE.
	Diskful  int `json:"diskful"`
	Diskless int `json:"diskless"`
	Offline  int `json:"offline,omitempty"`
	// Quorum is the one that LINSTOR wants.
	Quorum string `json:"quorum,omitempty"`
	// State is the state of the resource on the pod's node.
	State failover.State `json:"state,omitempty"`
	// Verdict is what would become of the pod, as far as this volume decides it.
	Verdict failover.Outlook `json:"verdict"`
	// Reason and Message say why; docs/reasons.md explains each reason.
	Reason  failover.Reason `json:"reason,omitempty"`
	Message string          `json:"message,omitempty"`
	// Lost is set where the volume does not work on the pod's node now, so that the verdict is about this loss; it is about the next
	// one otherwise.
	Lost bool `json:"lost,omitempty"`
	// Grace is how long a loss has to last before the pod is moved, such as "5s"; only where it is protected, or being moved.
	Grace string `json:"grace,omitempty"`
	// Passes is set where what keeps the pod from being moved passes by itself within half a minute.
	Passes bool `json:"passes,omitempty"`
	// Doubts say of which node it is unknown what it runs, since when, and what ends that.
	Doubts []string `json:"doubts,omitempty"`
}

// Severity says what a finding means for the selected pods.
type Severity string

const (
	// Error : some would not be moved.
	Error Severity = "Error"
	// Warning : they would be moved, but something else would go wrong.
	Warning Severity = "Warning"
	// Info : something is not as its user may expect.
	Info Severity = "Info"
)

// Code names a kind of finding: one of the codes below, or a failover.Reason.
type Code string

// Codes of findings that are no reason of a decision.
const (
	// KubernetesUnreadable : the Kubernetes API cannot be reached or read, so that nothing can be told.
	KubernetesUnreadable Code = "KubernetesUnreadable"
	// LinstorUnreachable : LINSTOR cannot be reached or read.
	LinstorUnreachable Code = "LinstorUnreachable"
	// ControllerNotRunning : no replica of the controller is available.
	ControllerNotRunning Code = "ControllerNotRunning"
	// MissingPermission : the controller may not do what it has to.
	MissingPermission Code = "MissingPermission"
	// PermissionsUnknown : what the controller may do could not be found out.
	PermissionsUnknown Code = "PermissionsUnknown"
	// TooFewReplicas : only one node has a disk of the resource.
	TooFewReplicas Code = "TooFewReplicas"
	// NoTieBreaker : two nodes have a disk and no diskless replica breaks the tie, so that the loss of one takes quorum
	// from both.
	NoTieBreaker Code = "NoTieBreaker"
	// TieBreakerGone : the only tie-breaker is on a node that is not ONLINE.
	TieBreakerGone Code = "TieBreakerGone"
	// AttachWaits : a node that is ONLINE does not answer LINSTOR, so that nothing can be attached.
	AttachWaits Code = "AttachWaits"
	// DetachWaits : a volume that Kubernetes has let go waits for the CSI attacher.
	DetachWaits Code = "DetachWaits"
	// InUseWithoutPod : a volume is in use on a node where Kubernetes knows no pod that uses it.
	InUseWithoutPod Code = "InUseWithoutPod"
	// RuntimeStuck : a container runtime does not end a pod.
	RuntimeStuck Code = "RuntimeStuck"
	// OldDriver : the CSI driver is older than 1.12.
	OldDriver Code = "OldDriver"
	// NoAutoplaceTarget : a pod may land where no replica is and LINSTOR places none.
	NoAutoplaceTarget Code = "NoAutoplaceTarget"
	// NodeCacheTimeout : the CSI driver keeps for long what it has read of nodes.
	NodeCacheTimeout Code = "NodeCacheTimeout"
	// RemoteAccess : a pod may land where no replica is, which takes long while another node hangs.
	RemoteAccess Code = "RemoteAccess"
	// QuorumOnController : a person has set quorum on LINSTOR's controller, of which the satellites are not told.
	QuorumOnController Code = "QuorumOnController"
	// WithoutQuorum : a node says that it could write without a majority.
	WithoutQuorum Code = "WithoutQuorum"
	// DRBDOption : a DRBD option leaves a node that lost its quorum or its data in need of help by hand.
	DRBDOption Code = "DRBDOption"
	// AutoEvict : LINSTOR replaces the replicas of a node that stays away.
	AutoEvict Code = "AutoEvict"
	// ReplicasOnOneNode : all replicas of the controller run on one node.
	ReplicasOnOneNode Code = "ReplicasOnOneNode"
	// LostTogether : the nodes of a zone are more than may be lost at once.
	LostTogether Code = "LostTogether"
	// NodeAgent : there are pods of the high availability controller of 1.x, an agent on every node.
	NodeAgent Code = "NodeAgent"
	// ForeignTaint : a node has the taint of lost storage that this controller has not set.
	ForeignTaint Code = "ForeignTaint"
	// UnfinishedMove : LINSTOR may still move a volume off a node that is not evacuated any more.
	UnfinishedMove Code = "UnfinishedMove"
	// FlaggedWithoutTaint : LINSTOR was told to evacuate a node that does not have the taint.
	FlaggedWithoutTaint Code = "FlaggedWithoutTaint"
	// LeftoverMark : a resource definition has the mark of an evacuation for a node that is not evacuated.
	LeftoverMark Code = "LeftoverMark"
	// TaintNotTolerated : a pod of Piraeus on a node that is evacuated does not tolerate its taint.
	TaintNotTolerated Code = "TaintNotTolerated"
	// StorageInterrupted : writes of a pod have failed for a while, and its file system may be read-only.
	StorageInterrupted Code = "StorageInterrupted"
	// NothingSelected : no pod is selected, and pods use volumes of the driver.
	NothingSelected Code = "NothingSelected"
	// NoVolume : a selected pod uses no volume of the driver, so that it is never moved.
	NoVolume Code = "NoVolume"
	// NotSelectedPods : pods use a volume of the driver and are not selected, so that they are never moved.
	NotSelectedPods Code = "NotSelectedPods"
)

// Codes returns all codes that are no reason of a decision.
func Codes() []Code {
	return []Code{
		KubernetesUnreadable, LinstorUnreachable, ControllerNotRunning, MissingPermission, PermissionsUnknown,
		TooFewReplicas, NoTieBreaker, TieBreakerGone, AttachWaits, DetachWaits, InUseWithoutPod, RuntimeStuck, OldDriver, NoAutoplaceTarget, NodeCacheTimeout, RemoteAccess,
		QuorumOnController, WithoutQuorum, DRBDOption, AutoEvict, ReplicasOnOneNode, LostTogether, NodeAgent, ForeignTaint, UnfinishedMove, FlaggedWithoutTaint,
		LeftoverMark, TaintNotTolerated, StorageInterrupted, NothingSelected, NoVolume, NotSelectedPods,
	}
}

// Finding is something that should be changed, or known.
type Finding struct {
	Severity Severity `json:"severity"`
	Code     Code     `json:"code"`
	// Message says what was found.
	Message string `json:"message"`
	// Objects are what it was found of: pods, resources, permissions.
	Objects []string `json:"objects,omitempty"`
	// Remedy says what to do.
	Remedy string `json:"remedy"`
}

// Decode reads a report.
func Decode(r io.Reader) (Report, error) {
	var report Report
	if err := json.NewDecoder(r).Decode(&report); err != nil {
		return Report{}, fmt.Errorf("reading the report: %w", err)
	}
	if report.Version != Version {
		return Report{}, fmt.Errorf("the controller answers in version %d of the report, and this program reads %d: use the one of the controller's release",
			report.Version, Version)
	}
	return report, nil
}
