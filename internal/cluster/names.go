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
	// AnnotationUnconfirmed on a VolumeAttachment names the nodes that are not known to run the quorum of its resource, for whoever has not
	// seen what has made that so.
	AnnotationUnconfirmed = "drbd.linbit.com/quorum-unconfirmed"
	// AnnotationMayRun is what version 2 wrote instead. It is read, and removed once there is evidence of each node in it.
	AnnotationMayRun = "drbd.linbit.com/may-run"
	// AnnotationKeepAway on a node describes who keeps pods away from it, why, and until when.
	AnnotationKeepAway = "drbd.linbit.com/keep-away"
	// AnnotationSeconds on an Event has the seconds that each stage of the fail-over took so far, as JSON.
	AnnotationSeconds = "drbd.linbit.com/seconds"
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
