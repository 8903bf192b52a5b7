package forecast

import (
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
)

// Facts are what a report is made of, beside the volumes of the pods.
type Facts struct {
	Question
	Process Process
	// Selector and Driver are what pods and volumes are selected by.
	Selector, Driver string
	// Deployment is the controller's, as "namespace/name"; empty if it is unknown.
	Deployment string
	// Deserted is set if the namespace has no pod: the controller may not read whether it exists.
	Deserted bool
	// KubernetesError and LinstorError say why something could not be read; empty if everything could.
	KubernetesError, LinstorError string
	// Blind are the nodes, by their names in LINSTOR, that it calls ONLINE without a connection to them.
	Blind []string
	// Lost is the node whose loss is asked about; nil if it is each pod's own.
	Lost *Node
	// Bystanders are the pods with a volume of the driver that are not selected and could be moved.
	Bystanders []Bystander
	// Options are LINSTOR's properties that bear on a fail-over.
	Options linstor.DRBDOptions
	// Denied are the permissions that the controller lacks, and PermissionsError says why that is unknown.
	Denied           []string
	PermissionsError string
	// Replicas are the nodes on which the ready replicas of the controller run.
	Replicas []string
	// Together are the zones with more nodes than MaxLostNodes allows to be lost at once, as "zone: node, node".
	Together     []string
	MaxLostNodes string
	// Unclaimed are volumes in use on a node where Kubernetes knows no pod that uses them, as "volume NAME on node NODE".
	Unclaimed []string
	// ForeignTaints are the nodes with the controller's taint that somebody else has set.
	ForeignTaints []string
	// Attaching is what is known of how volumes are attached, Evacuations of nodes that are evacuated.
	Attaching   Attaching
	Evacuations Evacuations
	// Agents are the DaemonSets, as "namespace/name", that have pods of the controller of 1.x, and RunningAgents those of which one runs.
	Agents, RunningAgents []string
}

// Node is what is known of the node whose loss is asked about.
type Node struct {
	// Name is its name as it was asked for, and Satellite its name in LINSTOR.
	Name, Satellite string
	// Missing is set if Kubernetes has no node of that name, and Others are those that it has then.
	Missing bool
	Others  []string
	// Namesake is the node that LINSTOR knows by the name asked for, if Kubernetes does not; empty if there is none.
	Namesake string
	// Unlisted is set if LINSTOR has no satellite of that name.
	Unlisted bool
	// Leader is the pod of the controller that leads, if it is on the node, and Takeover how long the others wait for it.
	Leader   string
	Takeover time.Duration
	// Linstor is the pod of the LINSTOR controller, if it is on the node.
	Linstor string
}
