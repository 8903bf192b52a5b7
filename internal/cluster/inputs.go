package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// Inputs gathers the inputs of decisions.
type Inputs struct {
	// Linstor is LINSTOR's last word.
	Linstor Linstor

	volumes     Volumes
	pods        Pods
	attachments Attachments
	kubelets    *Kubelets
	sightings   *Sightings
	clock       clock.PassiveClock
	settings    failover.Settings
	renewed     func() time.Time
}

// Remembered is what the caller remembers of a volume on a node.
type Remembered struct {
	// Begun is the attachment by which a pod used the volume that the caller began to delete; empty if there is none.
	Begun types.UID
	// Healthy is the attachment whose volume was not lost since it was last annotated; empty if there is none.
	Healthy types.UID
	// Deleted is the attachment that the caller deleted, while the attach/detach controller may not have noticed; else nil.
	Deleted *failover.Attachment
}

// On returns what is known of a volume, with these attachments, on a node; false if they do not concern each other: no selected pod there uses the
// volume, and no fail-over has to finish its attachment.
func (i *Inputs) On(
	ctx context.Context, pv *corev1.PersistentVolume, attachments []storagev1.VolumeAttachment, node string, known Remembered,
) (in failover.Input, ok bool, err error) {
	claims, err := i.volumes.claims(ctx, pv)
	if err != nil {
		return failover.Input{}, false, err
	}
	pods, err := i.pods.by(ctx, claims)
	if err != nil {
		return failover.Input{}, false, err
	}
	attachment := i.attachment(attachments, pods, node, known)
	if pods = onNode(pods, node); len(pods) == 0 && known.Deleted == nil && !isUnfinished(attachment) {
		return failover.Input{}, false, nil
	}
	in, err = i.input(ctx, pv, claims, node, pods, attachment, nil, known)
	return in, err == nil && (len(in.Pods) > 0 || isUnfinished(in.Attachment)), err
}

// isUnfinished reports whether a fail-over has to finish an attachment.
func isUnfinished(attachment *failover.Attachment) bool {
	return attachment != nil && (attachment.Marked || attachment.Awaited)
}

// users returns the pods in the cache that use the volume, and its attachments.
func (i *Inputs) users(ctx context.Context, pv *corev1.PersistentVolume) ([]corev1.Pod, []storagev1.VolumeAttachment, error) {
	pods, err := i.pods.Of(ctx, pv)
	if err != nil {
		return nil, nil, err
	}
	attachments, err := i.attachments.Of(ctx, pv.Name)
	return pods, attachments, err
}

// Reading is what a look has read that is the same for all volumes of a node.
type Reading struct {
	Node string
	Pods []corev1.Pod
	Off
	// Attachments are those that were read.
	Attachments AttachmentsRead
}

// Confirmed returns an input by what was read of a volume and the pods that use it, with what the store says.
func (i *Inputs) Confirmed(
	ctx context.Context, pv *corev1.PersistentVolume, read Reading, pods []corev1.Pod, known Remembered,
) (failover.Input, error) {
	attachment, err := i.confirmedAttachment(ctx, pv, read, known)
	if err != nil {
		return failover.Input{}, err
	}
	claims, err := i.volumes.claims(ctx, pv)
	if err != nil {
		return failover.Input{}, err
	}
	in, err := i.input(ctx, pv, claims, read.Node, pods, attachment, &read, known)
	read.Off.confirm(&in.Node)
	in.Live = true
	return in, err
}

// Again returns the input with what the store and the memory of kubelets say now; off is what the Node said of being off.
func (i *Inputs) Again(in failover.Input, off Off) failover.Input {
	in.Now, in.Resource, in.LinstorConfirmed = i.clock.Now(), i.Resource(in.Resource.Name), i.Linstor.Status().LastConfirmed
	in.Node, in.Live = i.Node(in.Node.Name), true
	off.confirm(&in.Node)
	if i.renewed != nil {
		in.Renewed = i.renewed()
	}
	pods := slices.Clone(in.Pods)
	for p := range pods {
		others := slices.Clone(pods[p].Others)
		for o := range others {
			others[o].Resource = i.Resource(others[o].Resource.Name)
		}
		pods[p].Others = others
	}
	in.Pods = pods
	return in
}

// confirmedAttachment returns the attachment of the volume to the node among those that were read.
func (i *Inputs) confirmedAttachment(
	ctx context.Context, pv *corev1.PersistentVolume, read Reading, known Remembered,
) (*failover.Attachment, error) {
	selected, attachments, err := i.users(ctx, pv)
	if err != nil {
		return nil, err
	}
	var confirmed []storagev1.VolumeAttachment
	for _, va := range attachments {
		if va.Spec.NodeName != read.Node {
			continue
		}
		fresh, asked := read.Attachments.byName[va.Name]
		switch {
		case fresh.err != nil:
			return nil, fresh.err
		case !asked && !read.Attachments.all:
			return nil, fmt.Errorf("VolumeAttachment %s has come since", va.Name)
		case fresh.VolumeAttachment != nil:
			confirmed = append(confirmed, *fresh.VolumeAttachment)
		}
	}
	return i.attachment(confirmed, selected, read.Node, known), nil
}

// input joins what is known of a volume, which pods use by the claims, on a node; read is what a look has read there, nil without one.
func (i *Inputs) input(
	ctx context.Context, pv *corev1.PersistentVolume, claims []string, node string, pods []corev1.Pod, attachment *failover.Attachment,
	read *Reading, known Remembered,
) (failover.Input, error) {
	in := failover.Input{
		Now:              i.clock.Now(),
		Settings:         i.settings,
		Volume:           volumeFacts(pv),
		Resource:         i.Resource(i.volumes.Resource(pv)),
		Node:             i.Node(node),
		Attachment:       attachment,
		LinstorConfirmed: i.Linstor.Status().LastConfirmed,
	}
	in.Volume.Since = i.sightings.since(pv.UID)
	if i.renewed != nil {
		in.Renewed = i.renewed()
	}
	if attachment == nil && len(pods) == 0 {
		var err error
		if in.Attachment, err = i.lingering(ctx, pv, in, known.Deleted); err != nil {
			return failover.Input{}, err
		}
	}
	for at := range pods {
		facts, others, err := i.pod(ctx, &pods[at], pv, claims, read)
		if err != nil {
			return failover.Input{}, err
		}
		if facts.Others, err = i.others(ctx, &pods[at], others, read); err != nil {
			return failover.Input{}, err
		}
		if facts.Terminating && attachment != nil && slices.Contains(attachment.Pods, facts.UID) {
			facts.Begun = i.sightings.failsOver(facts.UID)
		}
		in.Pods = append(in.Pods, facts)
	}
	return in, nil
}

// pod returns what is known of a pod that uses the volume by the claims, and its other volumes.
func (i *Inputs) pod(
	ctx context.Context, pod *corev1.Pod, pv *corev1.PersistentVolume, claims []string, read *Reading,
) (failover.Pod, []podVolume, error) {
	facts := podFacts(pod, i.pods.selector, claims)
	seen := i.sightings.pod(pod, facts.Selected)
	facts.Since, facts.Ran, facts.Deleting = seen.since, seen.ran, seen.deleting
	helped, err := i.pods.helped(ctx, pod)
	if err != nil {
		return failover.Pod{}, nil, err
	}
	facts.Exempt = facts.Exempt || helped != nil && isExempt(helped) || read != nil && helpsExempt(pod, read.Pods) // of which the cache may not know
	others, err := i.pods.others(ctx, pod, pv)
	if err != nil {
		return failover.Pod{}, nil, err
	}
	facts.UnsafeVolume, facts.UnboundClaim = others.unsafe, others.unbound
	if pod.Annotations[AnnotationUnsafe] == "true" {
		facts.UnsafeVolume = ""
	}
	return facts, others.ours, nil
}

// others returns what is known of other volumes of a pod.
func (i *Inputs) others(ctx context.Context, pod *corev1.Pod, volumes []podVolume, read *Reading) (others []failover.OtherVolume, err error) {
	for _, v := range volumes {
		other := i.other(v)
		if other.Users, err = i.alsoUsing(ctx, v.PersistentVolume, pod, read); err != nil {
			return nil, err
		}
		others = append(others, other)
	}
	return others, nil
}

// other returns what is known of another volume of a pod, but for its users.
func (i *Inputs) other(v podVolume) failover.OtherVolume {
	return failover.OtherVolume{
		Name: v.Name, Resource: i.Resource(i.volumes.Resource(v.PersistentVolume)), NFSExport: IsNFSExport(v.PersistentVolume),
		Shared: slices.Contains(v.Spec.AccessModes, corev1.ReadWriteMany), Ephemeral: v.ephemeral, Block: isBlock(v.PersistentVolume),
	}
}

// alsoUsing returns the other pods on a pod's node that use one of its volumes: of those that a look has read there, and without one of those
// in the cache.
func (i *Inputs) alsoUsing(ctx context.Context, pv *corev1.PersistentVolume, pod *corev1.Pod, read *Reading) (users []failover.Pod, err error) {
	claims, err := i.volumes.claims(ctx, pv)
	if err != nil {
		return nil, err
	}
	var all []corev1.Pod
	if read != nil {
		all = read.Pods
	} else if all, err = i.pods.Of(ctx, pv); err != nil {
		return nil, err
	}
	for at := range all {
		if user := &all[at]; user.UID != pod.UID && user.Spec.NodeName == pod.Spec.NodeName && uses(user, claims) {
			facts, _, err := i.pod(ctx, user, pv, claims, read)
			if err != nil {
				return nil, err
			}
			users = append(users, facts)
		}
	}
	return users, nil
}

// Waiting returns the selected pods that wait for the volume on other nodes.
func (i *Inputs) Waiting(ctx context.Context, pv *corev1.PersistentVolume, node string) ([]failover.Pod, error) {
	pods, err := i.pods.Of(ctx, pv)
	if err != nil {
		return nil, err
	}
	var waiting []failover.Pod
	for at := range pods {
		if waits(&pods[at], node) {
			waiting = append(waiting, podFacts(&pods[at], i.pods.selector, nil))
		}
	}
	return waiting, nil
}

// Node returns what is known of a node now.
func (i *Inputs) Node(name string) failover.Node {
	node := i.kubelets.Node(name)
	node.Satellite = i.kubelets.Satellite(name)
	_, listed := i.Linstor.Node(node.Satellite)
	node.Unlisted = !listed
	return node
}

// attachment returns the attachment to the node, as marked also if the caller knows by itself that a fail-over has begun for it.
func (i *Inputs) attachment(
	attachments []storagev1.VolumeAttachment, selected []corev1.Pod, node string, known Remembered,
) *failover.Attachment {
	facts := attachmentFacts(attachments, selected, node)
	if facts == nil {
		return nil
	}
	facts.Since = i.sightings.since(facts.UID)
	facts.Marked = facts.Marked || known.Begun == facts.UID
	if known.Healthy == facts.UID {
		facts.Reason, facts.Pods = "", nil
	}
	return facts
}

// lingering returns the attachment to the node that the caller has deleted, as one that is being deleted, while a kubelet that is up
// may claim the volume again before the attach/detach controller has looked: it would hold the volume there until it verifies
// attachments, once a minute. Once the volume has an attachment elsewhere it has noticed, and where the node's replica is deleted it has
// detached.
func (i *Inputs) lingering(
	ctx context.Context, pv *corev1.PersistentVolume, in failover.Input, deleted *failover.Attachment,
) (*failover.Attachment, error) {
	if deleted == nil || in.Node.LeaseSilent(failover.ForceSilence) {
		return nil, nil
	}
	there := func(r failover.Replica) bool { return r.Node == in.Node.Satellite }
	if in.Resource.Known && !slices.ContainsFunc(in.Resource.Replicas, there) {
		return nil, nil
	}
	attachments, err := i.attachments.Of(ctx, pv.Name)
	elsewhere := func(va storagev1.VolumeAttachment) bool { return va.Spec.NodeName != in.Node.Name }
	if err != nil || slices.ContainsFunc(attachments, elsewhere) {
		return nil, err
	}
	return deleted, nil
}

func onNode(pods []corev1.Pod, node string) []corev1.Pod {
	var result []corev1.Pod
	for _, pod := range pods {
		if pod.Spec.NodeName == node {
			result = append(result, pod)
		}
	}
	return result
}

// Resource returns LINSTOR's last word on a resource.
func (i *Inputs) Resource(name string) failover.Resource {
	known, ok := i.Linstor.Resource(name)
	if !ok {
		return failover.Resource{Name: name, Missing: i.Linstor.Status().Synced}
	}
	return known
}
