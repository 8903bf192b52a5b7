package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// Attachments looks up the VolumeAttachments of our driver in the cache. They are the cache's own, and must not be changed.
type Attachments struct {
	cache  client.Reader
	driver string
}

// Ours reports whether an attachment is of our driver, and of a PersistentVolume.
func (a Attachments) Ours(va *storagev1.VolumeAttachment) bool {
	return va.Spec.Attacher == a.driver && va.Spec.Source.PersistentVolumeName != nil
}

// Of returns the attachments of a volume.
func (a Attachments) Of(ctx context.Context, volume string) ([]storagev1.VolumeAttachment, error) {
	return a.list(ctx, client.MatchingFields{indexAttachmentVolume: volume})
}

// On returns the attachments to a node.
func (a Attachments) On(ctx context.Context, node string) ([]storagev1.VolumeAttachment, error) {
	return a.list(ctx, client.MatchingFields{indexAttachmentNode: node})
}

func (a Attachments) list(ctx context.Context, options ...client.ListOption) ([]storagev1.VolumeAttachment, error) {
	var list storagev1.VolumeAttachmentList
	if err := a.cache.List(ctx, &list, append(options, shared)...); err != nil {
		return nil, fmt.Errorf("looking up VolumeAttachments: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(va storagev1.VolumeAttachment) bool { return !a.Ours(&va) }), nil
}

// FailOverNote is the value of AnnotationFailOver.
type FailOverNote struct {
	// Pods are the UIDs of the pods that used the volume on the node.
	Pods []types.UID `json:"pods"`
	// Reason is why the fail-over has begun.
	Reason failover.Reason `json:"reason"`
	// Time is when that was, by the clock of the process that has begun it.
	Time time.Time `json:"time"`
}

// attachmentFacts returns the attachment to the node; selected are all selected pods that use the volume.
func attachmentFacts(attachments []storagev1.VolumeAttachment, selected []corev1.Pod, node string) *failover.Attachment {
	for _, va := range attachments {
		if va.Spec.NodeName != node {
			continue
		}
		text, marked := va.Annotations[AnnotationFailOver]
		var note FailOverNote
		_ = json.Unmarshal([]byte(text), &note) // what cannot be read says only that it has begun
		return &failover.Attachment{
			Name:     va.Name,
			UID:      va.UID,
			Attached: va.Status.Attached,
			Deleting: va.DeletionTimestamp != nil,
			Marked:   marked,
			Noted:    marked,
			Reason:   note.Reason,
			Pods:     note.Pods,
			Awaited:  slices.ContainsFunc(selected, func(pod corev1.Pod) bool { return pod.Spec.NodeName != "" && waits(&pod, node) }),
		}
	}
	return nil
}

// waits reports whether a pod, elsewhere than on the node, has not run yet.
func waits(pod *corev1.Pod, node string) bool {
	return pod.Spec.NodeName != node && pod.DeletionTimestamp == nil && !HasRun(pod)
}
