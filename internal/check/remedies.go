package check

import (
	"strings"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// remedies are what to do about each reason for which a pod would not be moved. docs/reasons.md says the same.
var remedies = map[failover.Reason]string{
	failover.PrimaryConnected: "nothing, if two nodes may use the volume at once; else stop the workload on the other node, or, " +
		"if only the kernel of the node lives, as after the failure of its system disk, switch it off",
	failover.NoSurvivor: "look at linstor node list and linstor resource list: bring nodes back, let synchronizations end, " +
		"or place another replica",
	failover.StateUnknown: "look at linstor resource list; the resource must exist, and LINSTOR must be able to be asked",
	failover.LinstorBlind: "restart the LINSTOR controller, as by kubectl rollout restart deployment linstor-controller; " +
		"--recover-pod-selector lets this controller do that once a node is lost",
	failover.NotDRBD:   "use a StorageClass whose layerList has drbd",
	failover.NFSExport: "nothing: the export is moved by LINSTOR's own means, and the pods stay",
	failover.NoQuorum: "while all its nodes are ONLINE: linstor resource-definition set-property RESOURCE " +
		"DrbdOptions/Resource/quorum majority, with three replicas or a tie-breaker; then restart linstor-satellite on each of them, " +
		"which leaves DRBD alone; do not set it on the controller",
	failover.QuorumUnconfirmed: "restart linstor-satellite on the node, which leaves DRBD alone, or bring the node back; it passes a minute " +
		"later; where the node is switched off, say so by a shutdown taint; where another node's replica is on its way out, bring that node back, or " +
		"remove it by linstor node lost and restart linstor-satellite on the others; do not change quorum while it is away",
	failover.NotSelected:       "set the label linstor.csi.linbit.com/on-storage-lost: remove in the template of the pod",
	failover.HelperNotSelected: cluster.HelperRemedy,
	failover.Exempt: "take the annotation off: kubectl -n NAMESPACE annotate pod POD drbd.linbit.com/ignore-fail-over-, and off the template of " +
		"the pod where it is there",
	failover.NoOwner:   "let a StatefulSet, Deployment or another controller own the pod",
	failover.NodeBound: "let a StatefulSet or Deployment own the pod, not a DaemonSet or the node itself",
	failover.UnsafeVolume: "use no such volume; or, if the pod can start without what is in it, annotate its template with " +
		cluster.AnnotationUnsafe + ": \"true\", or set --fail-over-unsafe-pods for all",
	failover.OtherVolumeUnavailable: "see to the other volume first: it needs a replica elsewhere, quorum, and its nodes ONLINE; " +
		"linstor resource list shows them",
	failover.SharedVolume: "delete the other pod, on a node that is switched off by --force --grace-period=0; or select it too, where a controller " +
		"owns it, or give it a volume of its own",
	failover.NoReadyNode: "uncordon nodes or bring them back, or let the pod and its volumes go to more of them: by its node selector, " +
		"affinity and tolerations, by the node affinity of the volumes, and by LINSTOR's property AutoplaceTarget",
	failover.LinstorStale: "look at the LINSTOR controller, and whether LS_CONTROLLERS leads to it; if it refuses the controller, at LINSTOR's token or user",
	failover.GuardTripped: "look at linstor node list; it opens by itself when enough nodes are back, or two minutes after the last one was lost; " +
		"--max-lost-nodes is the limit",
	failover.OutOfService: "take the taint node.kubernetes.io/out-of-service off the node when it is back",
	failover.Paused: "end the pause: kubectl -n NAMESPACE annotate deployment/NAME drbd.linbit.com/pause-fail-over-; where the Deployment cannot be read, " +
		"apply the roles of deploy/all.yaml again",
	failover.NodeAgentRuns: "remove the agents: delete the DaemonSet, or disable the HA controller in the Piraeus Operator's LinstorCluster, " +
		"spec.highAvailabilityController.enabled: false; where it cannot be told whether any runs, apply the roles of deploy/all.yaml again",
	failover.DryRun: "remove --dry-run from the controller's arguments",
}

// Remedy returns what to do about a reason for which a pod would not be moved, empty for any other reason.
func Remedy(reason failover.Reason) string { return remedies[reason] }

const (
	// remedyOfOthers is for a reason that has no remedy of its own.
	remedyOfOthers = "look at linstor node list and linstor resource list; kubectl describe pod -n NAMESPACE POD shows what the controller says"
	// remedyOfMoving is for pods that are being moved, whatever the reason of the loss.
	remedyOfMoving = "nothing for the pod; see to its node. Where the pod is still there a minute later, kubectl describe pod -n NAMESPACE POD " +
		"says what holds it back"
	// remedyOfWaiting is for what passes by itself.
	remedyOfWaiting = "wait, and check again; a pod whose node is lost before that stays until the node is back"
)

// filled puts a name into a remedy where it stands for nothing else.
func filled(remedy, placeholder string, names []string) string {
	if len(names) != 1 || names[0] == "" {
		return remedy
	}
	return strings.ReplaceAll(remedy, placeholder, names[0])
}

// named puts "namespace/name" into the one command of a remedy that asks for both. A remedy that asks for another name is left as it is.
func named(remedy, object, placeholder string) string {
	namespace, name, ok := strings.Cut(object, "/")
	rest := strings.ReplaceAll(remedy, "NAMESPACE", namespace)
	if !ok || !strings.Contains(rest, placeholder) {
		return remedy
	}
	return strings.ReplaceAll(rest, placeholder, name)
}
