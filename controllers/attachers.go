package controllers

import (
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

const (
	// ComponentLabel tells the parts of Piraeus apart.
	ComponentLabel = "app.kubernetes.io/component"
	// AttacherComponent is its value for the CSI controller.
	AttacherComponent = "linstor-csi-controller"
	// attacherImage ends the name of the image of the CSI attacher, which stands beside the driver.
	attacherImage = "csi-attacher"
)

// attaches tells whether a pod of LINSTOR itself is one of its CSI controller, which attaches volumes.
func attaches(pod *corev1.Pod) bool {
	if pod.Labels[ComponentLabel] == AttacherComponent {
		return true
	}
	for _, c := range pod.Spec.Containers {
		name, _, _ := strings.Cut(c.Image, "@")
		if base, _, _ := strings.Cut(path.Base(name), ":"); base == attacherImage {
			return true
		}
	}
	return false
}
