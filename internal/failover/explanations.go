package failover

import "strings"

// Group is a section of docs/reasons.md.
type Group string

// Groups of reasons, in the order of docs/reasons.md.
const (
	GroupLost    Group = "Lost"
	GroupNotLost Group = "Not lost, or not known"
	GroupBlocked Group = "Not moved"
)

// Explanation is what docs/reasons.md and check say of a reason. A is the node that uses the volume.
type Explanation struct {
	Reason Reason
	Group  Group
	// Foreseen is set if the reason can be known before A is lost: check and the metric of unprotected pods count it.
	Foreseen bool
	// Meaning is one or more sentences, and Remedy is what to do, without a full stop. `…` marks what is typed as it stands; NAMESPACE, POD, NAME,
	// RESOURCE and NODE stand for names.
	Meaning, Remedy string
}

// explanations has every reason, in the order of its declaration.
var explanations = []Explanation{
	{
		QuorumLost, GroupLost, false,
		"A is Primary without quorum, and no peer is connected to it. The workload hangs or gets I/O errors on A, and starts elsewhere.",
		"see to A's network for DRBD",
	},
	{
		NodeUnreachable, GroupLost, false,
		"A is off or cut off: neither LINSTOR nor its peers reach it. Or LINSTOR no longer lists A's replica, or still calls A ONLINE, while nothing else " +
			"is heard of A. Or A's kubelet is silent, and each connected peer may be promoted: no node has the volume open.",
		"see to A",
	},
	{
		ForcedIOErrors, GroupLost, false,
		"DRBD has demoted A by force and fails its I/O, because another node went on meanwhile.",
		"nothing: it passes when the old pod is gone",
	},
	{
		Demoted, GroupLost, false,
		"The volume is Secondary on A under a running pod that had it mounted. The pod gets I/O errors.",
		"look at A's kernel log for what demoted it",
	},
	{
		ReplicaGone, GroupLost, false,
		"LINSTOR deleted A's replica while A was ONLINE and did not use it, under a pod that has run.",
		"find out who deleted the resource on A in LINSTOR",
	},
	{
		PrimaryHealthy, GroupNotLost, false,
		"A is Primary and has quorum.",
		"nothing",
	},
	{
		PrimaryConnected, GroupNotLost, true,
		"A peer is still connected to A, or another node is Primary. The workload may be slow or hang.",
		"nothing, if two nodes may use the volume at once; else stop the workload on the other node, or, " +
			"if only A's kernel is alive, as after the failure of its system disk, switch A off",
	},
	{
		NoSurvivor, GroupNotLost, true,
		"No other node may promote the resource, so moving the workload would not help. If a node that is up has lost its quorum and nobody can " +
			"take over, LINSTOR does not say so: the Event comes up to ten minutes later.",
		"look at `linstor node list` and `linstor resource list`: bring nodes back, let synchronizations end, or place another replica",
	},
	{
		VolumeStarting, GroupNotLost, false,
		"The pod has not run with the volume yet.",
		"nothing; if it lasts, look at the pod's Events",
	},
	{
		VolumeUnused, GroupNotLost, false,
		"Nobody is known to hold the volume open for writing: raw block, read-only, or not in use.",
		"nothing",
	},
	{
		TooFewWitnesses, GroupNotLost, false,
		"A and the replicas that cannot be asked might have quorum together. One that LINSTOR has forgotten cannot be asked. Once A's kubelet is silent " +
			"too, the pod is moved after `--known-resource-grace-period`.",
		"bring back the other nodes with replicas",
	},
	{
		StateUnknown, GroupNotLost, true,
		"What LINSTOR says of A is incomplete or too old, or LINSTOR has no node of the name that the CSI driver on A gives. It is read again.",
		"look at `linstor resource list`; the resource must exist, and LINSTOR must answer",
	},
	{
		LinstorBlind, GroupNotLost, true,
		"LINSTOR calls A ONLINE, but has had no connection to it in two answers ten seconds apart, so what it says of A is old. It is asked once A's " +
			"kubelet has been silent for `--kubelet-silence`.",
		"restart the LINSTOR controller, as by `kubectl rollout restart deployment linstor-controller`; --recover-pod-selector lets this controller do that",
	},
	{
		NotDRBD, GroupBlocked, true,
		"The resource has no DRBD layer, so nothing stops A from writing.",
		"use a StorageClass whose `layerList` has `drbd`",
	},
	{
		NFSExport, GroupBlocked, true,
		"The pod uses the volume by NFS, and A has no replica to judge by. The pod waits for the export.",
		"nothing: LINSTOR's own means move the export, and the pods stay",
	},
	{
		NoQuorum, GroupBlocked, true,
		"Quorum is off or too low, or was when A last heard of it, so nothing stops A from writing; or the only survivor runs without quorum.",
		"while all its nodes are ONLINE: `linstor resource-definition set-property RESOURCE DrbdOptions/Resource/quorum majority`, with three " +
			"replicas or a tie-breaker; then restart linstor-satellite on each of them",
	},
	{
		QuorumUnconfirmed, GroupBlocked, true,
		"It is not known that a node has applied the quorum that LINSTOR shows. Time proves nothing. It also comes for 25 seconds after an installation, " +
			"and for a moment after replicas have changed.",
		"restart linstor-satellite on the node, which leaves DRBD alone, or bring it back; if it is switched off, set a shutdown taint; do not change quorum meanwhile",
	},
	{
		NotSelected, GroupBlocked, true,
		"The pod does not have the label. It gets no Event.",
		"set the label `linstor.csi.linbit.com/on-storage-lost: remove` in the template of the pod",
	},
	{
		HelperNotSelected, GroupBlocked, true,
		"A KubeVirt helper of a selected pod holds a volume and is not selected itself. The virtual machine is moved without the volume, which stays attached to A.",
		"select the helper too: `kubectl label -n NAMESPACE pod HELPER LABEL`, which helps after a loss as well; have those to come labelled by a mutating admission policy",
	},
	{
		Exempt, GroupBlocked, true,
		"The pod has the annotation `drbd.linbit.com/ignore-fail-over`, or is the KubeVirt helper of one that has.",
		"remove the annotation: `kubectl -n NAMESPACE annotate pod POD drbd.linbit.com/ignore-fail-over-`, and from the template of the pod if it is there",
	},
	{
		NoOwner, GroupBlocked, true,
		"Nothing would create the pod again.",
		"let a StatefulSet, Deployment or another controller own the pod",
	},
	{
		NodeBound, GroupBlocked, true,
		"The pod's owner, such as a DaemonSet, would create it again on A.",
		"let a StatefulSet or Deployment own the pod, not a DaemonSet or the node itself",
	},
	{
		UnsafeVolume, GroupBlocked, true,
		"The pod has another volume that may not exist elsewhere: a `hostPath` that a container can write, or one of another driver for one node.",
		"use no such volume; or, if the pod can start without it, annotate its template with `drbd.linbit.com/fail-over-unsafe-volumes: \"true\"`, or set " +
			"`--fail-over-unsafe-pods` for all",
	},
	{
		OtherVolumeUnavailable, GroupBlocked, true,
		"Another LINSTOR volume of the pod could not be used elsewhere, or one of its claims is not bound. The pod could not start there.",
		"see to the other volume first: it needs a replica elsewhere, quorum, and its nodes ONLINE; `linstor resource list` shows them",
	},
	{
		SharedVolume, GroupBlocked, true,
		"Another pod on A uses the volume, another volume of its resource, or another LINSTOR volume of the pod, and may not be removed.",
		"delete the other pod, by `--force --grace-period=0` on a node that is switched off; or select it too, or give it a volume of its own",
	},
	{
		NoReadyNode, GroupBlocked, true,
		"No other node could run the pod, by taints, readiness, selectors, affinity, or where replicas may be placed. If A is lost, the pod is removed all the " +
			"same, and its replacement is Pending.",
		"uncordon nodes or bring them back, or let the pod and its volumes go to more of them: by selectors, affinity, tolerations and LINSTOR's `AutoplaceTarget`",
	},
	{
		OutOfService, GroupBlocked, true,
		"A has Kubernetes' taint `node.kubernetes.io/out-of-service`: Kubernetes itself removes the pods and detaches their volumes. See " +
			"[shutdown.md](shutdown.md#out-of-service).",
		"remove the taint `node.kubernetes.io/out-of-service` from the node when it is back",
	},
	{
		LinstorStale, GroupBlocked, true,
		"LINSTOR has confirmed nothing for more than ten seconds. Nothing is moved in the whole cluster. If LINSTOR refuses the controller, its " +
			"Deployment has the Event `LinstorRefuses`.",
		"look at the LINSTOR controller, and whether `LS_CONTROLLERS` leads to it; if it refuses the controller, at LINSTOR's token or user",
	},
	{
		GuardTripped, GroupBlocked, true,
		"More nodes are newly lost than `--max-lost-nodes` allows, or LINSTOR has just come back and does not know most replicas yet. Nothing is moved in the " +
			"whole cluster.",
		"look at `linstor node list`; it ends by itself when enough nodes are back, or two minutes after the last one was lost",
	},
	{
		Paused, GroupBlocked, true,
		"The annotation `drbd.linbit.com/pause-fail-over` on the controller's Deployment pauses all fail-over, or the Deployment could not be read.",
		"end the pause: `kubectl -n NAMESPACE annotate deployment/NAME drbd.linbit.com/pause-fail-over-`; if the Deployment cannot be read, " +
			"apply the roles of `deploy/all.yaml` again",
	},
	{
		NodeAgentRuns, GroupBlocked, true,
		"A node agent of [1.x](migrating.md#from-the-agents-of-1x) runs, or it is not known whether one does. The controller only observes.",
		"delete the agents' DaemonSet, or set `spec.highAvailabilityController.enabled: false` in the Piraeus Operator's LinstorCluster; if it is not known whether one " +
			"runs, apply the roles of `deploy/all.yaml` again",
	},
	{
		DryRun, GroupBlocked, true,
		"`--dry-run` only says what would be done. Nothing is moved in the whole cluster.",
		"remove `--dry-run` from the controller's arguments",
	},
	{
		KeepAwayFailed, GroupBlocked, false,
		"A could not be tainted, and the replacement might come back to it: A is neither cordoned nor tainted as unreachable by Kubernetes.",
		"let the controller patch nodes: apply the roles of `deploy/all.yaml` again, or look at what rejects the taint",
	},
	{
		StepFailed, GroupBlocked, false,
		"A request that the fail-over needs was rejected, by a webhook or for a missing permission, or not answered in time. It is repeated every few seconds.",
		"look at what the Event names: the webhook, the role, LINSTOR, the API server",
	},
	{
		StuckOnNode, GroupBlocked, false,
		"The pod was deleted and does not end, and A is up and could still write.",
		"set `DrbdOptions/Resource/on-suspended-primary-outdated=force-secondary` and `DrbdOptions/Net/rr-conflict=retry-connect`, by which DRBD frees such a node; " +
			"restart A to free it now",
	},
	{
		HeldByFinalizer, GroupBlocked, false,
		"The pod was deleted without grace a minute ago, and a finalizer keeps its object. The volume is not detached before it is gone.",
		"see to who set it: `kubectl get pod POD -o jsonpath={.metadata.finalizers}`",
	},
}

// Explanations returns what docs/reasons.md says of every reason, in the order of their declaration.
func Explanations() []Explanation { return explanations }

// RemedyOf returns what to do about a reason, as plain text without a full stop; empty if it is unknown.
func RemedyOf(reason Reason) string {
	for _, e := range explanations {
		if e.Reason == reason {
			return strings.ReplaceAll(e.Remedy, "`", "")
		}
	}
	return ""
}

// Losses returns the reasons for a loss.
func Losses() []Reason { return reasonsWhere(func(e Explanation) bool { return e.Group == GroupLost }) }

// Reasons returns every reason.
func Reasons() []Reason { return reasonsWhere(func(Explanation) bool { return true }) }

// Hindrances returns the reasons that can be foreseen, for which a pod would not be moved.
func Hindrances() []Reason { return reasonsWhere(func(e Explanation) bool { return e.Foreseen }) }

func reasonsWhere(match func(Explanation) bool) (some []Reason) {
	for _, e := range explanations {
		if match(e) {
			some = append(some, e.Reason)
		}
	}
	return some
}
