package cluster

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Movable reports whether a pod could be moved as far as its phase, its owner and its annotations go. A pod that another pod controls, as
// a helper of KubeVirt, follows that one.
func Movable(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return !Ended(pod) && !isExempt(pod) && owner != nil && !slices.Contains([]string{daemonSet, "Node", "Pod"}, owner.Kind)
}

// agentNames are the images of the agent design, and the DaemonSets that its installers create.
var agentNames = []string{"piraeus-ha-controller", "linstor-ha-controller", "ha-controller"}

// IsNodeAgent reports whether a pod is a node agent of 1.x.
func IsNodeAgent(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && owner.Kind == daemonSet && (slices.Contains(agentNames, owner.Name) ||
		slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return slices.Contains(agentNames, ImageName(c.Image)) }))
}

// Runs reports whether a pod is ready on a node. One on a node that Kubernetes does not hear of is not.
func Runs(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && !Ended(pod) && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// AgentsRun says that node agents run, and what follows, by the "namespace/name" of their DaemonSets.
func AgentsRun(daemonSets []string) string {
	return fmt.Sprintf("node agents of 1.x run (DaemonSet %s), which remove pods and attachments by rules of their own; until they are removed "+
		"this controller only observes", strings.Join(daemonSets, ", "))
}

// ImageName returns the last part of an image's repository.
func ImageName(image string) string {
	image, _, _ = strings.Cut(image, "@")
	image = image[strings.LastIndex(image, "/")+1:]
	name, _, _ := strings.Cut(image, ":")
	return name
}
