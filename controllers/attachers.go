package controllers

import (
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
)

// attacherImage ends the name of the image of the CSI attacher, which stands beside the driver.
const attacherImage = "csi-attacher"

// attaches reports whether a pod of LINSTOR itself is one of its CSI controller, which attaches volumes.
func attaches(pod *corev1.Pod) bool {
	if pod.Labels[cluster.ComponentLabel] == cluster.AttacherComponent {
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
