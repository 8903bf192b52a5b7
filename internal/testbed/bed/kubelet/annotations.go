package kubelet

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Annotations on a pod that tell the simulated kubelet how the pod's containers behave.
const (
	// AnnotationOpenBlock set to "false" makes the containers never open their raw block volumes.
	// Otherwise they open them when they start.
	AnnotationOpenBlock = "testbed.piraeus.io/open-block"

	// AnnotationMountDelay is how long it takes, once the pod's volumes are attached, until the kubelet
	// opens the first of them, as a Go duration. Without it that happens at once.
	AnnotationMountDelay = "testbed.piraeus.io/mount-delay"

	// AnnotationStuck set to "true" makes the containers impossible to stop, like processes that
	// wait for hanging IO: the pod stays Terminating and its volumes stay mounted until the
	// annotation goes or the node crashes. It may be set and removed while the pod runs.
	AnnotationStuck = "testbed.piraeus.io/stuck"

	// AnnotationStopDelay is how long the containers take to stop after SIGTERM, as a Go duration.
	// They are killed when the pod's grace period ends. The default is Timings.PodStop.
	AnnotationStopDelay = "testbed.piraeus.io/stop-delay"

	// AnnotationRunFor makes the containers exit with status 0 after this Go duration, which is what
	// a Job's pods do. Without it they run for ever.
	AnnotationRunFor = "testbed.piraeus.io/run-for"
)

// opensBlock tells whether the containers of pod open their raw block volumes.
func opensBlock(pod *corev1.Pod) bool {
	return pod.Annotations[AnnotationOpenBlock] != "false"
}

// stuck tells whether the containers of pod can not be stopped at the moment.
func stuck(pod *corev1.Pod) bool {
	return pod.Annotations[AnnotationStuck] == "true"
}

// durationAnnotation returns the duration in an annotation of pod. One that is absent or does not
// parse counts as the fallback: a typing error in a test must not stop a node.
func durationAnnotation(pod *corev1.Pod, name string, fallback time.Duration) time.Duration {
	d, err := time.ParseDuration(pod.Annotations[name])
	if err != nil {
		return fallback
	}
	return d
}
