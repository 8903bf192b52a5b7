package controllers

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/servertime"
)

// nfsExport is the volume attribute that linstor-csi sets where consumers mount the volume by NFS.
const nfsExport = "linstor.csi.linbit.com/nfs-export"

// mountedReadOnly is the mount option that mounts a volume read-only.
const mountedReadOnly = "ro"

// shared lets the cache hand out its own objects, which must not be changed: each event of LINSTOR leads to several lists, of
// which copies would cost more than all the rest.
const shared = client.UnsafeDisableDeepCopy

// gatherer collects the input of a decision. It reads, and changes nothing.
type gatherer struct {
	cache    client.Reader // selected pods only
	live     client.Reader
	linstor  Linstor
	kubelets *Kubelets
	clock    clock.PassiveClock
	// serverTime turns the times of objects into those of our clock.
	serverTime *servertime.Clock
	driver     string
	selector   labels.Selector
	settings   failover.Settings
	metrics    *metrics.Metrics
	// lookAfter is how long after LINSTOR's word has changed a controller looks at what that concerns, and lookAfterPods how long after
	// a pod or an attachment has.
	lookAfter, lookAfterPods time.Duration
	// renewed tells when this process began the newest renewal of its own Lease, that of the leader election; nil where it has none.
	renewed func() time.Time
	// begun tells whether this process has begun a fail-over for the attachment; nil where it never does.
	begun func(volume, node string, attachment types.UID) bool
	// lingering returns the attachment of a volume that this process has deleted, and its node, while Kubernetes may not have noticed
	// that; nil where nothing is to be done about it.
	lingering func(volume string) (node string, attachment *failover.Attachment)
}

// decided counts how long the events of a resource have waited that came before a decision on it began. Time is the machine's
// here, as the events' is: nothing is decided by it.
func (g *gatherer) decided(resource string, began time.Time) {
	for _, arrival := range g.linstor.Undecided(resource, began) {
		g.metrics.EventDecided(time.Since(arrival))
	}
}

func (g *gatherer) isOurs(pv *corev1.PersistentVolume) bool {
	_, ok := resourceOf(pv, g.driver)
	return ok
}

// candidates returns from the cache an input for each node on which the volume has a selected pod, or an attachment that
// a fail-over has to finish. A volume that no selected pod asks for has none.
func (g *gatherer) candidates(ctx context.Context, pv *corev1.PersistentVolume) ([]failover.Input, error) {
	pods, err := g.podsOf(ctx, pv)
	if err != nil {
		return nil, err
	}
	attachments, err := g.attachmentsOf(ctx, pv.Name)
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
	if g.lingering != nil {
		node, _ := g.lingering(pv.Name)
		nodes = append(nodes, node)
	}
	slices.Sort(nodes)
	var inputs []failover.Input
	for _, node := range slices.Compact(nodes) {
		if node == "" {
			continue
		}
		in, ok, err := g.candidate(ctx, pv, node, pods, attachments)
		if err != nil {
			return nil, err
		}
		if ok {
			inputs = append(inputs, in)
		}
	}
	return inputs, nil
}

// candidate is one of candidates; it is false where the volume has none on the node.
func (g *gatherer) candidate(
	ctx context.Context, pv *corev1.PersistentVolume, node string, pods []corev1.Pod, attachments []storagev1.VolumeAttachment,
) (in failover.Input, ok bool, err error) {
	in, err = g.input(ctx, pv, node, onNode(pods, node), g.attachmentFacts(pv.Name, attachments, pods, node))
	if err != nil {
		return failover.Input{}, false, err
	}
	return in, len(in.Pods) > 0 || in.Attachment != nil && (in.Attachment.Marked || in.Attachment.Awaited), nil
}

func (g *gatherer) input(
	ctx context.Context, pv *corev1.PersistentVolume, node string, pods []corev1.Pod, attachment *failover.Attachment,
) (failover.Input, error) {
	in := failover.Input{
		Now:              g.clock.Now(),
		Settings:         g.settings,
		Volume:           volumeFacts(pv),
		Resource:         g.resource(pv),
		Node:             g.node(node),
		Attachment:       attachment,
		LinstorConfirmed: g.linstor.Status().LastConfirmed,
	}
	in.Volume.Created = g.serverTime.Local(in.Volume.Created)
	in.Renewed = g.lastRenewed()
	if attachment == nil && len(pods) == 0 {
		var err error
		if in.Attachment, err = g.lingeringOn(ctx, pv, in); err != nil {
			return failover.Input{}, err
		}
	}
	claims, err := g.claimsTo(ctx, pv)
	if err != nil {
		return failover.Input{}, err
	}
	for i := range pods {
		facts := g.local(podFacts(&pods[i], g.selector, claims))
		others, unsafe, err := g.podVolumes(ctx, &pods[i], pv)
		if err != nil {
			return failover.Input{}, err
		}
		facts.UnsafeVolume = unsafe
		for _, other := range others {
			facts.Others = append(facts.Others, g.otherFacts(other))
		}
		in.Pods = append(in.Pods, facts)
	}
	return in, nil
}

func volumeFacts(pv *corev1.PersistentVolume) failover.Volume {
	modes := pv.Spec.AccessModes
	readOnly := pv.Spec.CSI.ReadOnly || slices.Contains(pv.Spec.MountOptions, mountedReadOnly) || len(modes) > 0 && !slices.ContainsFunc(modes,
		func(m corev1.PersistentVolumeAccessMode) bool { return m != corev1.ReadOnlyMany })
	return failover.Volume{
		Name:      pv.Name,
		Created:   pv.CreationTimestamp.Time,
		NFSExport: isNFSExport(pv),
		Block:     pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == corev1.PersistentVolumeBlock,
		ReadOnly:  readOnly,
	}
}

// isNFSExport tells whether consumers mount the volume by NFS.
func isNFSExport(pv *corev1.PersistentVolume) bool {
	_, nfs := pv.Spec.CSI.VolumeAttributes[nfsExport]
	return nfs
}

// otherFacts is what the policy wants to know of another volume of a pod.
func (g *gatherer) otherFacts(other podVolume) failover.OtherVolume {
	return failover.OtherVolume{
		Name: other.Name, Resource: g.resource(other.PersistentVolume), NFSExport: isNFSExport(other.PersistentVolume),
		Shared: slices.Contains(other.Spec.AccessModes, corev1.ReadWriteMany), Ephemeral: other.ephemeral,
	}
}

// attachmentFacts returns the attachment to the node, as marked also where this process knows by itself that a fail-over has
// begun for it.
func (g *gatherer) attachmentFacts(
	volume string, attachments []storagev1.VolumeAttachment, selected []corev1.Pod, node string,
) *failover.Attachment {
	facts := attachmentFacts(attachments, selected, node)
	if facts != nil {
		facts.Created = g.serverTime.Local(facts.Created)
	}
	if facts != nil && g.begun != nil && g.begun(volume, node, facts.UID) {
		facts.Marked = true
	}
	return facts
}

// lingeringOn returns the attachment to the node that this process has deleted, as one that is being deleted, while a kubelet that lives
// may claim the volume again before the attach/detach controller has looked: it would hold the volume there until it verifies
// attachments, once a minute. Once the volume has an attachment elsewhere it has noticed, and where the node's replica is deleted it has
// detached.
func (g *gatherer) lingeringOn(ctx context.Context, pv *corev1.PersistentVolume, in failover.Input) (*failover.Attachment, error) {
	if g.lingering == nil || kubeletIsSilent(in.Node) {
		return nil, nil
	}
	from, facts := g.lingering(pv.Name)
	there := func(r failover.Replica) bool { return r.Node == in.Node.Satellite }
	if from != in.Node.Name || in.Resource.Known && !slices.ContainsFunc(in.Resource.Replicas, there) {
		return nil, nil
	}
	attachments, err := g.attachmentsOf(ctx, pv.Name)
	elsewhere := func(va storagev1.VolumeAttachment) bool { return va.Spec.NodeName != from }
	if err != nil || slices.ContainsFunc(attachments, elsewhere) {
		return nil, err
	}
	return facts, nil
}

// attachmentFacts returns the attachment to the node; selected are all selected pods that use the volume.
func attachmentFacts(attachments []storagev1.VolumeAttachment, selected []corev1.Pod, node string) *failover.Attachment {
	for _, va := range attachments {
		if va.Spec.NodeName != node {
			continue
		}
		_, marked := va.Annotations[AnnotationFailOver]
		return &failover.Attachment{
			Name:     va.Name,
			UID:      va.UID,
			Attached: va.Status.Attached,
			Created:  va.CreationTimestamp.Time,
			Deleting: va.DeletionTimestamp != nil,
			Marked:   marked,
			Noted:    marked,
			Awaited: slices.ContainsFunc(selected, func(pod corev1.Pod) bool {
				return pod.Spec.NodeName != "" && pod.Spec.NodeName != node && pod.DeletionTimestamp == nil && !hasRun(&pod)
			}),
		}
	}
	return nil
}

// podsOf returns the pods in the cache that use the volume.
func (g *gatherer) podsOf(ctx context.Context, pv *corev1.PersistentVolume) ([]corev1.Pod, error) {
	claims, err := g.claimsTo(ctx, pv)
	if err != nil {
		return nil, err
	}
	var all []corev1.Pod
	for i, claim := range claims {
		var pods corev1.PodList
		if err := g.cache.List(ctx, &pods, client.MatchingFields{indexPodClaims: claim}, shared); err != nil {
			return nil, err
		}
		for _, pod := range pods.Items {
			if uses(&pod, claims[i:i+1]) && !uses(&pod, claims[:i]) {
				all = append(all, pod)
			}
		}
	}
	return all, nil
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

// attachmentsOf returns the attachments of a volume by our driver.
func (g *gatherer) attachmentsOf(ctx context.Context, volume string) ([]storagev1.VolumeAttachment, error) {
	var attachments storagev1.VolumeAttachmentList
	if err := g.cache.List(ctx, &attachments, client.MatchingFields{indexAttachmentVolume: volume}, shared); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(attachments.Items, func(va storagev1.VolumeAttachment) bool { return va.Spec.Attacher != g.driver }), nil
}

// attachmentsOn returns the attachments of our driver to a node.
func (g *gatherer) attachmentsOn(ctx context.Context, node string) ([]storagev1.VolumeAttachment, error) {
	var attachments storagev1.VolumeAttachmentList
	if err := g.cache.List(ctx, &attachments, client.MatchingFields{indexAttachmentNode: node}, shared); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(attachments.Items, func(va storagev1.VolumeAttachment) bool {
		return va.Spec.Attacher != g.driver || va.Spec.Source.PersistentVolumeName == nil
	}), nil
}

// resource returns LINSTOR's last word on the resource of a volume, in the policy's terms.
func (g *gatherer) resource(pv *corev1.PersistentVolume) failover.Resource {
	name, _ := resourceOf(pv, g.driver)
	return g.resourceNamed(name)
}

func (g *gatherer) resourceNamed(name string) failover.Resource {
	known, ok := g.linstor.Resource(name)
	if !ok {
		return failover.Resource{Name: name}
	}
	return resourceFacts(known)
}

func resourceFacts(r linstor.Resource) failover.Resource {
	facts := failover.Resource{
		Name:      r.Name,
		Known:     !r.Confirmed.IsZero(),
		DRBD:      r.DRBD,
		Volumes:   r.Volumes,
		Confirmed: r.Confirmed,
		SetSince:  r.SetSince,
		Quorum:    r.Quorum,
		InDoubt:   r.InDoubt,
		Left:      r.Left,
		Replicas:  make([]failover.Replica, 0, len(r.Replicas)),
	}
	for _, replica := range r.Replicas {
		connections := make(map[string]failover.Fact[bool], len(replica.Connections))
		for _, c := range replica.Connections {
			connections[c.Peer] = failover.Fact[bool](c.Connected)
		}
		facts.Replicas = append(facts.Replicas, failover.Replica{
			Node:        replica.Node,
			Diskless:    replica.Diskless,
			Leaving:     replica.Leaving,
			Online:      failover.Fact[bool](replica.Online),
			Blind:       replica.Blind,
			Reports:     failover.Fact[bool](replica.Reports),
			MayPromote:  failover.Fact[bool](replica.MayPromote),
			InUse:       failover.Fact[bool](replica.InUse),
			Score:       failover.Fact[int](replica.Score),
			Connections: connections,
			Heard:       replica.Heard,
			Rejoined:    replica.Rejoined,
			LastInUse:   replica.LastInUse,
			Gone:        replica.Gone,
			MayRun:      replica.MayRun,
			Begun:       replica.Begun,
		})
	}
	return facts
}
