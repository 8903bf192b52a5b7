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
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/servertime"
)

// Inputs gathers the inputs of decisions.
type Inputs struct {
	// Linstor is LINSTOR's last word.
	Linstor Linstor
	// ServerTime turns the times of objects into those of our clock.
	ServerTime *servertime.Clock

	volumes     Volumes
	pods        Pods
	attachments Attachments
	kubelets    *Kubelets
	clock       clock.PassiveClock
	settings    failover.Settings
	renewed     func() time.Time
	begun       func(volume, node string, attachment types.UID) bool
	lingering   func(volume string) (node string, attachment *failover.Attachment)
}

// Of returns an input for each node on which the volume has a selected pod, or an attachment that a fail-over has to finish. A volume that
// no selected pod asks for has none.
func (i *Inputs) Of(ctx context.Context, pv *corev1.PersistentVolume) ([]failover.Input, error) {
	pods, attachments, err := i.users(ctx, pv)
	if err != nil {
		return nil, err
	}
	var nodes []string
	for _, va := range attachments {
		nodes = append(nodes, va.Spec.NodeName)
	}
	for _, pod := range pods {
		nodes = append(nodes, pod.Spec.NodeName)
	}
	if i.lingering != nil {
		node, _ := i.lingering(pv.Name)
		nodes = append(nodes, node)
	}
	slices.Sort(nodes)
	var inputs []failover.Input
	for _, node := range slices.Compact(nodes) {
		if node == "" {
			continue
		}
		in, err := i.input(ctx, pv, node, onNode(pods, node), i.attachment(pv.Name, attachments, pods, node), nil)
		if err != nil {
			return nil, err
		}
		if concerns(in) {
			inputs = append(inputs, in)
		}
	}
	return inputs, nil
}

// On returns the one of these for a node; false where there is none.
func (i *Inputs) On(ctx context.Context, pv *corev1.PersistentVolume, node string) (in failover.Input, ok bool, err error) {
	pods, attachments, err := i.users(ctx, pv)
	if err != nil {
		return failover.Input{}, false, err
	}
	in, err = i.input(ctx, pv, node, onNode(pods, node), i.attachment(pv.Name, attachments, pods, node), nil)
	return in, err == nil && concerns(in), err
}

// Concerns tells whether a pod in the cache uses the volume on a node, or a fail-over has to finish an attachment there, or has done so a moment ago.
func (i *Inputs) Concerns(ctx context.Context, pv *corev1.PersistentVolume, node string) (bool, error) {
	if i.lingering != nil {
		if left, _ := i.lingering(pv.Name); left == node {
			return true, nil
		}
	}
	pods, attachments, err := i.users(ctx, pv)
	if err != nil || len(onNode(pods, node)) > 0 {
		return err == nil, err
	}
	return concerns(failover.Input{Attachment: i.attachment(pv.Name, attachments, pods, node)}), nil
}

// concerns tells whether a volume and a node concern each other.
func concerns(in failover.Input) bool {
	return len(in.Pods) > 0 || in.Attachment != nil && (in.Attachment.Marked || in.Attachment.Awaited)
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
	// Began is when the first of it was asked for, and Listed when all Pods of the node were.
	Began, Listed time.Time
	Pods          []corev1.Pod
	Off
	// Attachments are those that were read.
	Attachments AttachmentsRead
}

// Confirmed returns an input by what was read of a volume and the pods that use it, with what LINSTOR said before.
func (i *Inputs) Confirmed(
	ctx context.Context, pv *corev1.PersistentVolume, read Reading, pods []corev1.Pod,
) (failover.Input, error) {
	attachment, err := i.confirmedAttachment(ctx, pv, read)
	if err != nil {
		return failover.Input{}, err
	}
	in, err := i.input(ctx, pv, read.Node, pods, attachment, &read)
	read.Off.confirm(&in.Node)
	in.Asked, in.Listed = read.Began, read.Listed
	notAfter(&in.Asked, in.Resource)
	for _, pod := range in.Pods {
		for _, other := range pod.Others {
			if other.Resource.Known { // else nothing rests on what was read of it
				notAfter(&in.Asked, other.Resource)
			}
		}
	}
	return in, err
}

// confirmedAttachment returns the attachment of the volume to the node among those that were read.
func (i *Inputs) confirmedAttachment(ctx context.Context, pv *corev1.PersistentVolume, read Reading) (*failover.Attachment, error) {
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
	return i.attachment(pv.Name, confirmed, selected, read.Node), nil
}

// notAfter makes a time no later than LINSTOR was asked for what it said of a resource and of the nodes of its replicas.
func notAfter(at *time.Time, resource failover.Resource) {
	earliest := func(confirmed time.Time) {
		if confirmed.Before(*at) {
			*at = confirmed
		}
	}
	earliest(resource.Confirmed)
	for _, replica := range resource.Replicas {
		if replica.Online.Known {
			earliest(replica.Online.Confirmed)
		}
	}
}

// input joins what is known of a volume on a node; read is what a look has read there, nil without one.
func (i *Inputs) input(
	ctx context.Context, pv *corev1.PersistentVolume, node string, pods []corev1.Pod, attachment *failover.Attachment, read *Reading,
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
	in.Volume.Created = i.ServerTime.Local(in.Volume.Created)
	if i.renewed != nil {
		in.Renewed = i.renewed()
	}
	if attachment == nil && len(pods) == 0 {
		var err error
		if in.Attachment, err = i.lingeringOn(ctx, pv, in); err != nil {
			return failover.Input{}, err
		}
	}
	claims, err := i.volumes.claims(ctx, pv)
	if err != nil {
		return failover.Input{}, err
	}
	for at := range pods {
		facts, others, err := i.pod(ctx, &pods[at], pv, claims, read)
		if err != nil {
			return failover.Input{}, err
		}
		if facts.Others, err = i.others(ctx, &pods[at], others, read); err != nil {
			return failover.Input{}, err
		}
		in.Pods = append(in.Pods, facts)
	}
	return in, nil
}

// pod returns what is known of a pod that uses the volume by the claims, and its other volumes. Its times are the API server's, and those of its
// containers the kubelet's. They are turned into those of our clock.
func (i *Inputs) pod(
	ctx context.Context, pod *corev1.Pod, pv *corev1.PersistentVolume, claims []string, read *Reading,
) (failover.Pod, []podVolume, error) {
	facts := podFacts(pod, i.pods.selector, claims)
	for _, at := range []*time.Time{&facts.Created, &facts.Bound, &facts.DeleteBy, &facts.Deleted} {
		*at = i.ServerTime.Local(*at)
	}
	for _, at := range []*time.Time{&facts.Started, &facts.RunningSince} {
		if local, known := i.kubelets.Local(pod.Spec.NodeName, *at); known {
			*at = local
		} else {
			*at = i.ServerTime.Local(*at)
		}
	}
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
		Name: v.Name, Resource: i.Resource(i.volumes.Resource(v.PersistentVolume)), NFSExport: isNFSExport(v.PersistentVolume),
		Shared: slices.Contains(v.Spec.AccessModes, corev1.ReadWriteMany), Ephemeral: v.ephemeral,
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

// attachment returns the attachment to the node, as marked also where this process knows by itself that a fail-over has begun for it.
func (i *Inputs) attachment(
	volume string, attachments []storagev1.VolumeAttachment, selected []corev1.Pod, node string,
) *failover.Attachment {
	facts := attachmentFacts(attachments, selected, node)
	if facts == nil {
		return nil
	}
	facts.Created = i.ServerTime.Local(facts.Created)
	facts.Marked = facts.Marked || i.begun != nil && i.begun(volume, node, facts.UID)
	return facts
}

// lingeringOn returns the attachment to the node that this process has deleted, as one that is being deleted, while a kubelet that lives
// may claim the volume again before the attach/detach controller has looked: it would hold the volume there until it verifies
// attachments, once a minute. Once the volume has an attachment elsewhere it has noticed, and where the node's replica is deleted it has
// detached.
func (i *Inputs) lingeringOn(ctx context.Context, pv *corev1.PersistentVolume, in failover.Input) (*failover.Attachment, error) {
	if i.lingering == nil || in.Node.LeaseSilent(failover.ForceSilence) {
		return nil, nil
	}
	from, facts := i.lingering(pv.Name)
	there := func(r failover.Replica) bool { return r.Node == in.Node.Satellite }
	if from != in.Node.Name || in.Resource.Known && !slices.ContainsFunc(in.Resource.Replicas, there) {
		return nil, nil
	}
	attachments, err := i.attachments.Of(ctx, pv.Name)
	elsewhere := func(va storagev1.VolumeAttachment) bool { return va.Spec.NodeName != from }
	if err != nil || slices.ContainsFunc(attachments, elsewhere) {
		return nil, err
	}
	return facts, nil
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
		return failover.Resource{Name: name}
	}
	return known
}
