package controllers

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// hotPlugged are the labels that KubeVirt gives the helpers which hold the volumes that were plugged into a running virtual machine. The
// pod of the virtual machine controls them and does not name their claims. KubeVirt copies none of its labels to them.
var hotPlugged = client.MatchingLabels{"kubevirt.io": "hotplug-disk"}

// helpers reports the helpers of selected pods that are not selected themselves. The cache has selected pods only, and those of KubeVirt are read live.
// It changes nothing.
type helpers struct {
	live     client.Reader
	volumes  cluster.Volumes
	pods     cluster.Pods
	selector labels.Selector
	recorder events.EventRecorder
	// told are the helpers that were reported.
	told map[types.UID]bool
}

// look reports each helper once, and returns how many helpers are not selected; with an error, how many there were when they could last be read.
func (h *helpers) look(ctx context.Context) (int, error) {
	var pods corev1.PodList
	if err := h.live.List(ctx, &pods, hotPlugged); err != nil {
		return len(h.told), fmt.Errorf("listing the helpers of KubeVirt: %w", err)
	}
	missed := make(map[types.UID]bool)
	for i := range pods.Items {
		helper := &pods.Items[i]
		owner, err := h.pods.MissedBy(ctx, helper)
		if err != nil {
			return len(h.told), err
		}
		if owner == nil {
			continue
		}
		volumes, err := h.volumes.OfPod(ctx, helper)
		if err != nil {
			return len(h.told), err
		}
		if len(volumes) == 0 {
			continue
		}
		missed[helper.UID] = true
		if !h.told[helper.UID] {
			h.tell(helper, owner, volumes)
		}
	}
	h.told = missed
	return len(missed), nil
}

// tell records an Event on the helper and on the pod that it helps.
func (h *helpers) tell(helper, owner *corev1.Pod, volumes []string) {
	note := truncated(fmt.Sprintf("pod %s holds volume %s for pod %s and is not selected itself: without it pod %s is moved, and the "+
		"volume stays attached to the lost node; %s (selected is: %s)", cluster.Key(helper.Namespace, helper.Name), strings.Join(volumes, ", "),
		owner.Name, owner.Name, cluster.HelperRemedy, h.selector))
	for _, pod := range []*corev1.Pod{owner, helper} {
		h.recorder.Eventf(podRef(pod.Namespace, pod.Name, pod.UID), nil, corev1.EventTypeWarning, string(failover.HelperNotSelected), actionRefuse, "%s", note)
	}
}
