package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/forecast"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
)

const (
	// protectionInterval is how often the forecast for all selected pods is made. If that takes more than a thousandth of it, because there are many, it
	// is made less often, but at least every protectionIntervalMax.
	protectionInterval    = time.Minute
	protectionIntervalMax = 10 * protectionInterval
	protectionShare       = 1000
)

// Protection keeps the metric of unprotected pods: those that would not be moved if their node were lost now. It runs on the leader only. It lists the
// helpers of KubeVirt; everything else is in memory.
type Protection struct {
	shared

	survey  *cluster.Survey
	helpers *helpers
	waiting *waiting
	halt    *haltSwitch
	due     time.Time // when they are counted again
	// unbound are the pods that ran with a claim without a volume when they were last counted, and whether that was reported.
	unbound map[types.UID]bool
}

func (p *Protection) keep(ctx context.Context) error {
	began := time.Now()
	if began.Before(p.due) {
		return nil
	}
	err := p.count(ctx)
	p.due = time.Now().Add(min(protectionShare*time.Since(began), protectionIntervalMax))
	return err
}

func (p *Protection) count(ctx context.Context) error {
	halt, guard := p.halt.now(ctx, haltAge), p.halt.imagined(p.clock.Now())
	counts, protections := make(map[failover.Reason]int), make(map[metrics.Protection]int)
	unbound := make(map[types.UID]bool)
	err := p.survey.Each(ctx, "", func(pod *corev1.Pod, uses []cluster.Use) {
		for i := range uses {
			if uses[i].Input.Node.Name == "" {
				continue
			}
			uses[i].Input.Halt = halt
			uses[i].Input.Halt.Guard = guard(uses[i].Input.Node.Satellite)
		}
		if claim := unboundClaim(uses); claim != "" && cluster.HasRun(pod) && pod.DeletionTimestamp == nil {
			told, seen := p.unbound[pod.UID]
			if unbound[pod.UID] = seen; seen && !told {
				p.event(podRef(pod.Namespace, pod.Name, pod.UID), nil, string(failover.OtherVolumeUnavailable), actionRefuse, fmt.Sprintf(
					"the pod runs, and no PersistentVolume is bound to its claim %s: nobody knows what it writes, and it is not moved if its node is lost; "+
						"it ends when the claim has its volume again, or the pod is deleted", claim))
			}
		}
		p.waiting.see(pod, uses)
		protection, reason := protectionOf(uses)
		if reason != "" {
			counts[reason]++
		}
		if p.helpers.selector.Matches(labels.Set(pod.Labels)) {
			protections[protection]++
		}
	})
	if err != nil {
		return err
	}
	p.unbound = unbound
	missed, err := p.helpers.look(ctx)
	counts[failover.HelperNotSelected] += missed
	p.metrics.Unprotected(counts)
	p.metrics.Protected(protections)
	return errors.Join(err, p.waiting.tell(ctx)) // the others are counted all the same
}

// unboundClaim returns the first claim that no PersistentVolume is bound to; empty if there is none.
func unboundClaim(uses []cluster.Use) string {
	for _, use := range uses {
		if use.Volume == "" {
			return use.Claim
		}
	}
	return ""
}

// protectionOf returns what the loss of its node would mean for a pod: the worst that it means for one of its volumes. There is a reason if the pod
// would stay, or if that is unknown.
func protectionOf(uses []cluster.Use) (worst metrics.Protection, reason failover.Reason) {
	if len(uses) == 0 {
		return metrics.NoVolume, ""
	}
	found := make(map[failover.Outlook]bool)
	for i, f := range forecast.Foresee(uses) {
		if uses[i].Input.Node.Name == "" {
			found[failover.Starting] = true
			continue
		}
		if f.Outlook == failover.Unprotected || f.Outlook == failover.Untold {
			return metrics.Protection(f.Outlook), f.Reason
		}
		found[f.Outlook] = true
	}
	for _, outlook := range []failover.Outlook{failover.Failing, failover.Starting} {
		if found[outlook] {
			return metrics.Protection(outlook), ""
		}
	}
	return metrics.Protection(failover.Protected), ""
}

// hotPlugged are the labels that KubeVirt gives the helpers which hold the volumes that were plugged into a running virtual machine. The
// pod of the virtual machine controls them and does not name their claims. KubeVirt copies none of its labels to them.
var hotPlugged = client.MatchingLabels{"kubevirt.io": "hotplug-disk"}

// helpers reports the helpers of selected pods that are not selected themselves. The cache has selected pods only, and those of KubeVirt are read live.
// It changes nothing.
type helpers struct {
	shared

	selector labels.Selector
	// told are the helpers that were reported.
	told map[types.UID]bool
}

// look reports each helper once, and returns how many helpers are not selected; with an error, how many there were when they could last be read.
func (h *helpers) look(ctx context.Context) (int, error) {
	var pods corev1.PodList
	if err := h.api.List(ctx, &pods, hotPlugged); err != nil {
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
	note := fmt.Sprintf("pod %s holds volume %s for pod %s and is not selected itself: without it pod %s is moved, and the "+
		"volume stays attached to the lost node; %s (selected is: %s)", cluster.Key(helper.Namespace, helper.Name), strings.Join(volumes, ", "),
		owner.Name, owner.Name, failover.RemedyOf(failover.HelperNotSelected), h.selector)
	for _, pod := range []*corev1.Pod{owner, helper} {
		h.event(podRef(pod.Namespace, pod.Name, pod.UID), nil, string(failover.HelperNotSelected), actionRefuse, note)
	}
}
