package cluster

// The names by which users, other processes and other versions of the controller know what it reads and writes.
const (
	// AnnotationIgnore on a pod exempts it from fail-over, whatever its value.
	AnnotationIgnore = "drbd.linbit.com/ignore-fail-over"
	// AnnotationUnsafe with the value "true" on a pod lets it be moved although it has volumes that may not survive that.
	AnnotationUnsafe = "drbd.linbit.com/fail-over-unsafe-volumes"
	// AnnotationPause on the controller's own Deployment pauses fail-over for all, unless its value is "false".
	AnnotationPause = "drbd.linbit.com/pause-fail-over"
	// AnnotationFailOver on a VolumeAttachment marks a fail-over that has begun, for whoever leads next.
	AnnotationFailOver = "drbd.linbit.com/fail-over"
	// AnnotationMayRun on a VolumeAttachment keeps which settings nodes may run of the resource beside the one that LINSTOR shows, for
	// whoever has not seen LINSTOR show them.
	AnnotationMayRun = "drbd.linbit.com/may-run"
	// AnnotationKeepAway on a node describes who keeps pods away from it, why, and until when.
	AnnotationKeepAway = "drbd.linbit.com/keep-away"
	// TaintLostQuorum is the key of the taint on a node that has lost its storage.
	TaintLostQuorum = "drbd.linbit.com/lost-quorum"
	// TaintNodeSilent is the key of the taint on a node whose kubelet is silent and that ran a pod of LINSTOR itself. It is
	// not TaintLostQuorum, because the pods of LINSTOR tolerate that one: they need no storage.
	TaintNodeSilent = "drbd.linbit.com/node-silent"
	// DisruptedBy begins the message of the condition DisruptionTarget that a fail-over sets. Others set that condition too, the kubelet
	// when it evicts a pod.
	DisruptedBy = "PiraeusHAController: "

	// ComponentLabel tells the parts of Piraeus apart.
	ComponentLabel = "app.kubernetes.io/component"
	// AttacherComponent is its value for the CSI controller.
	AttacherComponent = "linstor-csi-controller"
)
