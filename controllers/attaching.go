package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
)

const (
	// attachPatience is how long an attach or detach may take before it is asked what it waits for: with all well it takes a second.
	attachPatience = 10 * time.Second
	// satellitesInterval is how far apart the questions to satellites are while something waits. While none of them is late and nothing else
	// comes to wait it grows to satellitesIntervalMax: what waits then may wait for days, for another reason, and each question makes each
	// satellite look at its pools.
	satellitesInterval    = 15 * time.Second
	satellitesIntervalMax = 20 * satellitesInterval
)

// Attaching tells why volumes of selected pods are not attached or detached where nobody else says it: a satellite that keeps
// LINSTOR, and with it the CSI driver, waiting, and a detach that fails. It runs on the leader only, asks LINSTOR only while something waits, and
// changes nothing.
type Attaching struct {
	shared

	// The following is of one goroutine only.

	asked time.Time
	// pause is how long after that they are asked again, and about the attachments that waited then.
	pause time.Duration
	about map[types.UID]bool
	// late are the nodes that kept LINSTOR waiting when it was asked last.
	late []string
	// told are those that were told, by object and reason.
	told map[telling]bool
}

type telling struct {
	object types.UID
	what   string
}

// waiting is an attachment that waits, with the selected pods that wait for it.
type waiting struct {
	attachment *storagev1.VolumeAttachment
	pv         *corev1.PersistentVolume
	pods       []corev1.Pod
}

func (a *Attaching) look(ctx context.Context) error {
	all, err := a.waiting(ctx)
	if err != nil {
		return err
	}
	a.metrics.AttachmentsWaiting(len(all))
	a.forget(all)
	if len(all) == 0 {
		a.late = nil
		a.metrics.SatellitesNotAnswering(0)
		return nil
	}
	for _, w := range all {
		if err := a.tellFailure(ctx, w); err != nil {
			return err
		}
	}
	if a.due(all) {
		a.late, err = a.linstor.Unanswering(ctx)
		a.metrics.SatellitesNotAnswering(len(a.late)) // none while LINSTOR itself does not answer
		if err != nil {
			return err
		}
		if len(a.late) > 0 {
			a.pause = satellitesInterval
		}
	}
	if len(a.late) == 0 {
		return nil
	}
	nodes := strings.Join(a.late, ", ")
	note := fmt.Sprintf("attaching waits: node %s does not answer LINSTOR, which calls it ONLINE; linstor node reconnect %s ends that",
		nodes, strings.Join(a.late, " "))
	for _, w := range all {
		for i := range w.pods {
			a.tell(ctx, &w.pods[i], w.pv, EventAttachWaits, nodes, note)
		}
	}
	return nil
}

// due reports whether the satellites are to be asked now, and takes it that they are and that none will be late.
func (a *Attaching) due(all []waiting) bool {
	if slices.ContainsFunc(all, func(w waiting) bool { return !a.about[w.attachment.UID] }) {
		a.pause = satellitesInterval
	}
	now := a.clock.Now()
	if now.Sub(a.asked) < a.pause {
		return false
	}
	a.asked, a.pause = now, min(2*a.pause, satellitesIntervalMax)
	a.about = make(map[types.UID]bool, len(all))
	for _, w := range all {
		a.about[w.attachment.UID] = true
	}
	return true
}

// waiting lists the attachments that are not attached, or not detached, for longer than is usual.
func (a *Attaching) waiting(ctx context.Context) ([]waiting, error) {
	list, err := a.attachments.Changing(ctx)
	if err != nil {
		return nil, err
	}
	var all []waiting
	for i := range list {
		va := &list[i]
		if !a.overdue(va) {
			continue
		}
		pv, err := a.volumes.Get(ctx, *va.Spec.Source.PersistentVolumeName)
		if err != nil {
			return nil, err
		}
		if pv == nil {
			continue
		}
		pods, err := a.waitingPods(ctx, va, pv)
		if err != nil {
			return nil, err
		}
		if len(pods) > 0 {
			all = append(all, waiting{va, pv, pods})
		}
	}
	return all, nil
}

// overdue reports whether an attachment should have been attached, or be gone, by now.
func (a *Attaching) overdue(va *storagev1.VolumeAttachment) bool {
	since := va.CreationTimestamp.Time
	if va.DeletionTimestamp != nil {
		since = va.DeletionTimestamp.Time
	} else if va.Status.Attached {
		return false
	}
	return a.clock.Now().Sub(a.serverTime.Local(since)) >= attachPatience
}

// waitingPods returns the selected pods that wait for an attachment: there, or elsewhere for its end.
func (a *Attaching) waitingPods(ctx context.Context, va *storagev1.VolumeAttachment, pv *corev1.PersistentVolume) ([]corev1.Pod, error) {
	pods, err := a.pods.Of(ctx, pv)
	if err != nil {
		return nil, fmt.Errorf("looking up the pods of volume %s: %w", pv.Name, err)
	}
	return slices.DeleteFunc(pods, func(p corev1.Pod) bool {
		return p.DeletionTimestamp != nil || p.Spec.NodeName == "" || cluster.HasRun(&p) ||
			(p.Spec.NodeName == va.Spec.NodeName) != (va.DeletionTimestamp == nil)
	}), nil
}

// tellFailure tells of a detach that fails. Kubernetes tells the pod only that the volume is still attached.
func (a *Attaching) tellFailure(ctx context.Context, w waiting) error {
	if w.attachment.DeletionTimestamp == nil {
		return nil // Kubernetes tells the pod of an attach that fails
	}
	va, err := a.live.Attachment(ctx, w.attachment.Name) // the cache does not have it
	if err != nil {
		return err
	}
	if va == nil || va.UID != w.attachment.UID || va.Status.DetachError == nil {
		return nil
	}
	note := fmt.Sprintf("volume %s cannot be detached from node %s: %s", w.pv.Name, va.Spec.NodeName, va.Status.DetachError.Message)
	for i := range w.pods {
		a.tell(ctx, &w.pods[i], w.pv, EventDetachFailed, string(va.UID), note)
	}
	if at := (telling{va.UID, EventDetachFailed}); !a.told[at] {
		a.told[at] = true
		a.event(attachmentRef(va.Name, va.UID), pvRef(w.pv), EventDetachFailed, actionDetach, note)
	}
	return nil
}

func (a *Attaching) tell(ctx context.Context, pod *corev1.Pod, pv *corev1.PersistentVolume, reason, of, note string) {
	at := telling{pod.UID, reason + " " + of}
	if a.told[at] {
		return
	}
	a.told[at] = true
	ctrl.LoggerFrom(ctx).Info("Told a pod", "pod", cluster.Key(pod.Namespace, pod.Name), "volume", pv.Name, "reason", reason, "message", note)
	a.event(podRef(pod.Namespace, pod.Name, pod.UID), pvRef(pv), reason, actionAttach, note)
}

// forget forgets what was told of attachments that do not wait any more.
func (a *Attaching) forget(all []waiting) {
	present := make(map[types.UID]bool)
	for _, w := range all {
		present[w.attachment.UID] = true
		for _, pod := range w.pods {
			present[pod.UID] = true
		}
	}
	for at := range a.told {
		if !present[at.object] {
			delete(a.told, at)
		}
	}
}
