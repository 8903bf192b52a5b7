package check

import (
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/permissions"
)

// Facts are everything a report is made of.
type Facts struct {
	// Selector and Driver are by what pods and volumes were looked for.
	Selector, Driver string
	// Namespace is the one the question is about; empty for all.
	Namespace string
	// Deserted is set where it has no pod, and it cannot be read whether it exists.
	Deserted bool
	// KubernetesError says why the Kubernetes API could not be read; empty when it could.
	KubernetesError string
	// LinstorError says why LINSTOR could not be read; empty when it could.
	LinstorError string
	// Outside is set where the check does not run in a pod of the controller.
	Outside bool
	// Blind are the nodes, by their names in LINSTOR, that it calls ONLINE without a connection to them.
	Blind []string
	// Node is the one whose loss is asked about; nil where it is each pod's own.
	Node *Node
	// Strangers are the volumes of pods on that node that nobody has selected.
	Strangers []cluster.Use
	// Uses are the volumes of the selected pods, with what holds back every removal at the moment in their inputs.
	Uses []cluster.Use
	// Idle are the selected pods, as "namespace/name", without a volume of the driver.
	Idle []string
	// Bystanders are the pods with a volume of the driver that are not selected and could be moved.
	Bystanders []Bystander
	// Settings are the DRBD options in force.
	Settings []linstor.Setting
	// ControllerQuorum is the quorum that a person has set on LINSTOR's controller; empty where nobody has.
	ControllerQuorum string
	// Controller is what is known of the controller's Deployment.
	Controller Controller
	// LeadingSince is when the process of the controller that leads has started; zero where that cannot be told.
	LeadingSince time.Time
	// Denied are the permissions that the controller lacks.
	Denied []permissions.Permission
	// ForeignTaints are the nodes with the controller's taint that somebody else has set.
	ForeignTaints []string
	// Attaching is what is known of how volumes are attached.
	Attaching Attaching
	// Evacuations is what is known of nodes that are evacuated.
	Evacuations Evacuations
	// PermissionsError says why the permissions could not be found out; empty when they could.
	PermissionsError string
	// Agents are the DaemonSets, as "namespace/name", that have pods of the controller of 1.x, and RunningAgents those of which one runs.
	Agents, RunningAgents []string
}

// Node is what is known of the node whose loss is asked about.
type Node struct {
	// Name is its name as it was asked for, and Satellite its name in LINSTOR.
	Name, Satellite string
	// Missing is set where Kubernetes has no node of that name, and Others are those that it has then.
	Missing bool
	Others  []string
	// Namesake is the node that LINSTOR knows by the name asked for, where Kubernetes does not; empty where there is none.
	Namesake string
	// Unlisted is set where LINSTOR was read and has no satellite of that name.
	Unlisted bool
	// Leader is the pod of the controller that leads, where it is on the node, and Takeover how long the others wait for it.
	Leader   string
	Takeover time.Duration
	// Linstor is the pod of the LINSTOR controller, where it is on the node.
	Linstor string
}

// Controller is the Deployment of the controller.
type Controller struct {
	// Name is its "namespace/name".
	Name string
	// Error says why it could not be read; empty when it could.
	Error string
	// Arguments says which of its arguments is not understood; empty when all are.
	Arguments string
	// Missing is set when there is no such Deployment.
	Missing bool
	// Linstor is the LINSTOR that it uses, as LS_CONTROLLERS says it; empty where that is not known.
	Linstor string
	// Ready is the number of its replicas that are ready.
	Ready int32
}
