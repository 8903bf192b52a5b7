package failover

import "strings"

// Group is a section of docs/reasons.md.
type Group string

// Groups of reasons, in the order of docs/reasons.md.
const (
	GroupLost    Group = "Lost"
	GroupNotLost Group = "Not lost, or not known"
	GroupBlocked Group = "Not moved"
	// GroupRecovery is of pods of LINSTOR itself. Where one of the other reasons fits, that one is given.
	GroupRecovery Group = "LINSTOR's own pods"
)

// Explanation is what docs/reasons.md and check say of a reason.
type Explanation struct {
	Reason Reason
	Group  Group
	// Foreseen is set if the reason can be known before the node is lost: check and the metric of unprotected pods count it.
	Foreseen bool
	// Meaning is Markdown, and "the node" in it is the one that uses the volume.
	Meaning string
	// Remedy says what to do, without a full stop. Code is between backquotes; a word in capitals such as NODE stands for a name.
	Remedy string
}

// explanations has every reason, in the order of its declaration.
var explanations = []Explanation{
	{
		QuorumLost, GroupLost, false,
		"The node is Primary without quorum, and no peer is connected to it. The workload hangs or gets I/O errors there, and starts elsewhere.",
		"see to the node's network for DRBD",
	},
	{
		NodeUnreachable, GroupLost, false,
		"The node is off or cut off: neither LINSTOR nor its peers reach it. Or LINSTOR no longer lists its replica, or still calls it ONLINE, while " +
			"nothing else is heard of it. Or its kubelet is silent, and each connected peer may be promoted: no node has the volume open.",
		"see to the node",
	},
	{
		ForcedIOErrors, GroupLost, false,
		"DRBD has demoted the node by force and fails its I/O, because another node went on meanwhile.",
		"nothing: it passes when the old pod is gone",
	},
	{
		Demoted, GroupLost, false,
		"The volume is Secondary on the node, under a running pod that had it mounted. The pod gets I/O errors.",
		"look at the node's kernel log for what demoted it",
	},
	{
		ReplicaGone, GroupLost, false,
		"LINSTOR deleted the node's replica while the node was ONLINE and did not use it, under a pod that has run.",
		"find out who deleted the resource on the node in LINSTOR",
	},
	{
		PrimaryHealthy, GroupNotLost, false,
		"The node is Primary and has quorum.",
		"nothing; if its kubelet is silent, see to the kubelet",
	},
	{
		PrimaryConnected, GroupNotLost, true,
		"A peer is still connected to the node, or another node is Primary. The workload may be slow or hang.",
		"nothing, if two nodes may use the volume at once; else stop the workload on the other node; or, if only the node's kernel is alive, as after " +
			"the failure of its system disk, switch the node off",
	},
	{
		NoSurvivor, GroupNotLost, true,
		"No other node may promote the resource, so moving the workload would not help. LINSTOR does not report that a node that is up has lost its " +
			"quorum if nobody can take over: the Event comes up to ten minutes later.",
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
		"The node and the replicas that cannot be asked might have quorum together. One that LINSTOR no longer lists cannot be asked. Once the node's " +
			"kubelet is silent too, the pod is moved after `--known-resource-grace-period`.",
		"bring back the other nodes with replicas",
	},
	{
		StateUnknown, GroupNotLost, true,
		"What LINSTOR reports of the node is incomplete or too old, or LINSTOR has no node of the name that the CSI driver there gives. It is read " +
			"again.",
		"look at `linstor resource list`; the resource must exist, and LINSTOR must answer",
	},
	{
		LinstorBlind, GroupNotLost, true,
		"LINSTOR calls the node ONLINE, but has had no connection to it in two answers ten seconds apart, so what it reports is old. It is asked once " +
			"the node's kubelet has been silent for `--kubelet-silence`.",
		"restart the LINSTOR controller, as by `kubectl rollout restart deployment linstor-controller`; `--recover-pod-selector` lets this controller " +
			"do that",
	},
	{
		NotDRBD, GroupBlocked, true,
		"The resource has no DRBD layer, so nothing stops the node from writing.",
		"use a StorageClass whose `layerList` has `drbd`",
	},
	{
		NFSExport, GroupBlocked, true,
		"The pod uses the volume by NFS, and its node has no replica to judge by. The pod waits for the export.",
		"nothing: LINSTOR's own means move the export, and the pods stay",
	},
	{
		NoQuorum, GroupBlocked, true,
		"The node may go on writing, because the quorum that it runs is off or too low. Or the only survivor runs without quorum.",
		"for good, while all its nodes are ONLINE: `linstor resource-definition set-property RESOURCE DrbdOptions/Resource/quorum majority`, with three " +
			"replicas or a tie-breaker; then restart linstor-satellite on each of them, which interrupts no I/O; not by `linstor controller set-property`",
	},
	{
		QuorumUnconfirmed, GroupBlocked, true,
		"It is unknown whether a node runs the quorum that LINSTOR shows: there is no [evidence](architecture.md#what-a-node-runs). Normal for 25 " +
			"seconds after an installation, and briefly after replicas change.",
		"restart linstor-satellite on the node, which leaves DRBD alone, or bring it back; if off, set a shutdown taint; if a replica is being " +
			"deleted, bring back its node; leave quorum alone",
	},
	{
		NotSelected, GroupBlocked, true,
		"The pod does not have the label. It gets no Event.",
		"set the label `linstor.csi.linbit.com/on-storage-lost: remove` in the template of the pod",
	},
	{
		HelperNotSelected, GroupBlocked, true,
		"A [KubeVirt helper](#kubevirts-hot-plugged-volumes) of a selected pod holds a volume and is not selected. The virtual machine is moved " +
			"without the volume, which stays attached to the lost node.",
		"select the helper too: `kubectl label -n NAMESPACE pod HELPER LABEL`, which helps after a loss as well; have those to come labelled by a " +
			"mutating admission policy",
	},
	{
		Exempt, GroupBlocked, true,
		"The pod has the annotation `drbd.linbit.com/ignore-fail-over`, or is the [KubeVirt helper](#kubevirts-hot-plugged-volumes) of one that has.",
		"remove the annotation: `kubectl -n NAMESPACE annotate pod POD drbd.linbit.com/ignore-fail-over-`, and from the template of the pod if it is " +
			"there",
	},
	{
		NoOwner, GroupBlocked, true,
		"Nothing would create the pod again.",
		"after a loss: switch the node off, delete the pod by `kubectl delete pod POD --force --grace-period=0`, and create it again; for good: let a " +
			"StatefulSet, Deployment or another controller own it",
	},
	{
		NodeBound, GroupBlocked, true,
		"The pod's owner, such as a DaemonSet, would create it again on the same node.",
		"after a loss: bring the node back; for good: let a StatefulSet or Deployment own the pod, not a DaemonSet or, as a static pod, the node",
	},
	{
		UnsafeVolume, GroupBlocked, true,
		"The pod has another volume that may not exist elsewhere: a `hostPath` that a container can write, or one of another driver for one node. " +
			"Read-only `hostPath`, NFS and ReadWriteMany are safe.",
		"if the pod can start without it, `kubectl annotate pod POD drbd.linbit.com/fail-over-unsafe-volumes=true`, and its template for good; or set " +
			"`--fail-over-unsafe-pods` for all; or use no such volume",
	},
	{
		OtherVolumeUnavailable, GroupBlocked, true,
		"Another LINSTOR volume of the pod could not be used elsewhere, or one of its claims is not bound. The pod could not start there.",
		"see to the other volume first: it needs a replica elsewhere, quorum, and its nodes ONLINE; `linstor resource list` shows them",
	},
	{
		SharedVolume, GroupBlocked, true,
		"Another pod on the node uses the volume, another volume of its resource, or another LINSTOR volume of the pod, and may not be removed.",
		"select the other pod too, by its label, which helps after a loss as well; or delete it, with `--force --grace-period=0` if its node is " +
			"switched off; or give it a volume of its own",
	},
	{
		NoReadyNode, GroupBlocked, true,
		"No other node could run the pod, because of taints, readiness, selectors, affinity, or where LINSTOR places replicas. After a loss, the pod " +
			"is removed all the same, and its replacement is Pending.",
		"uncordon nodes or bring them back, or let the pod and its volumes go to more of them: by selectors, affinity, tolerations and LINSTOR's " +
			"`AutoplaceTarget`",
	},
	{
		OutOfService, GroupBlocked, true,
		"The node has the taint `node.kubernetes.io/out-of-service`: Kubernetes itself removes the pods and detaches their volumes. See " +
			"[shutdown.md](shutdown.md#out-of-service).",
		"remove the taint from the node when it is back: `kubectl taint node NODE node.kubernetes.io/out-of-service-`",
	},
	{
		LinstorStale, GroupBlocked, true,
		"LINSTOR has confirmed nothing for more than ten seconds. Nothing is moved in the whole cluster. If LINSTOR refuses the controller, its " +
			"Deployment has the Event `LinstorRefuses`.",
		"look at the LINSTOR controller, and whether `LS_CONTROLLERS` leads to it; if it refuses the controller, at LINSTOR's token or user",
	},
	{
		GuardTripped, GroupBlocked, true,
		"More nodes are newly lost than `--max-lost-nodes` allows, or LINSTOR has just come back and does not know most replicas yet. Nothing is " +
			"moved in the whole cluster until the Deployment has the Event `GuardOpened`.",
		"look at `linstor node list`; it ends by itself when enough nodes are back, or two minutes after the last one was lost",
	},
	{
		Paused, GroupBlocked, true,
		"The annotation `drbd.linbit.com/pause-fail-over` on the controller's Deployment pauses all fail-over, or the Deployment could not be read.",
		"end the pause: `kubectl -n NAMESPACE annotate deployment/NAME drbd.linbit.com/pause-fail-over-`; if the Deployment cannot be read, apply the " +
			"roles of `deploy/all.yaml` again",
	},
	{
		NodeAgentRuns, GroupBlocked, true,
		"A node agent of [1.x](migrating.md#from-the-agents-of-1x) runs, or it is not known whether one does. The controller only observes.",
		"delete the agents' DaemonSet, or set `spec.highAvailabilityController.enabled: false` in the Piraeus Operator's LinstorCluster; if it is not " +
			"known whether one runs, apply the roles of `deploy/all.yaml` again",
	},
	{
		DryRun, GroupBlocked, true,
		"`--dry-run` only says what would be done. Nothing is moved in the whole cluster.",
		"remove `--dry-run` from the controller's arguments",
	},
	{
		KeepAwayFailed, GroupBlocked, false,
		"The node could not be tainted, and the replacement might come back to it: it is neither cordoned nor tainted as unreachable by Kubernetes.",
		"let the controller patch nodes: apply the roles of `deploy/all.yaml` again, or look at what rejects the taint",
	},
	{
		StepFailed, GroupBlocked, false,
		"A request that the fail-over needs was rejected, by a webhook or for a missing permission, or not answered in time. It is repeated every few " +
			"seconds.",
		"look at what the Event names: the webhook, the role, LINSTOR, the API server",
	},
	{
		StuckOnNode, GroupBlocked, false,
		"The pod was deleted and does not end, and its node is up and could still write.",
		"set `DrbdOptions/Resource/on-suspended-primary-outdated=force-secondary` and `DrbdOptions/Net/rr-conflict=retry-connect`, by which DRBD " +
			"frees such a node; restart the node to free it now",
	},
	{
		HeldByFinalizer, GroupBlocked, false,
		"The pod was deleted without grace a minute ago, and a finalizer keeps its object. The volume is not detached before it is gone.",
		"see to who set it: `kubectl -n NAMESPACE get pod POD -o jsonpath={.metadata.finalizers}`",
	},
	{
		LinstorGone, GroupRecovery, false,
		"The kubelet of the pod's node has been silent for `--kubelet-silence`, most others are heard of, and LINSTOR does not answer, or does not " +
			"reach the node either. The pod is deleted. Its node has the taint `drbd.linbit.com/node-silent` until Kubernetes has tainted it or it is " +
			"back.",
		"see to the node",
	},
	{
		NodeAlive, GroupRecovery, false,
		"The kubelet of the pod's node is not known to be silent. No Event says so.",
		"nothing",
	},
	{
		LinstorAnswers, GroupRecovery, false,
		"LINSTOR answers, and does not report that the pod's node is gone. No Event says so.",
		"nothing",
	},
	{
		PodLeaving, GroupRecovery, false,
		"The pod is being deleted already, or another of its owner was a moment ago. No Event says so.",
		"nothing",
	},
	{
		LinstorFirst, GroupRecovery, false,
		"The pod is one of the CSI controller, and LINSTOR does not answer, or most of its nodes are not ONLINE. A CSI driver that starts then " +
			"remembers that for a minute, and attaches nothing meanwhile.",
		"nothing, or bring LINSTOR back; `--node-cache-timeout=5s` of the CSI driver makes it forget sooner",
	},
	{
		NeedsStorage, GroupRecovery, false,
		"The pod has a LINSTOR volume or an unbound claim, and could not start elsewhere before LINSTOR runs. It stays until Kubernetes moves it.",
		"give LINSTOR and its CSI controller no volume of their own",
	},
}

// Explanations returns every reason with its explanation, in the order of docs/reasons.md.
func Explanations() []Explanation { return explanations }

// RemedyOf returns what to do about a reason, as plain text; empty if the reason is unknown.
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

// Reasons returns the reasons for decisions on volumes.
func Reasons() []Reason {
	return reasonsWhere(func(e Explanation) bool { return e.Group != GroupRecovery })
}

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
