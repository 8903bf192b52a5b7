package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// listFrom is from how many attachments on they are read by one list of all: the API has no selector for those of a driver or a node.
const listFrom = 20

// Live reads past the cache what a write is to rest on.
type Live struct {
	// Reader asks the API server.
	Reader client.Reader
	// Clock tells how old a pod is.
	Clock clock.PassiveClock

	volumes   Volumes
	kubelets  *Kubelets
	sightings *Sightings
}

// PodsOn returns all pods on a node, selected or not. The list has no resourceVersion, by which the API server answers with nothing older
// than the request.
func (l Live) PodsOn(ctx context.Context, node string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := l.Reader.List(ctx, &pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, fmt.Errorf("listing the pods on node %s: %w", node, err)
	}
	return pods.Items, nil
}

// UsersOf returns which of the pods that were read on a node use the volume. It fails for a PersistentVolume that was created again a moment ago,
// such as with another node affinity: it is Pending until the controller manager has seen that it is bound.
func (l Live) UsersOf(ctx context.Context, pv *corev1.PersistentVolume, all []corev1.Pod) ([]corev1.Pod, error) {
	if IsToBeBound(pv) {
		return nil, fmt.Errorf("PersistentVolume %s is Pending: whether it is bound to claim %s is not known yet", pv.Name,
			Key(pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name))
	}
	claims, err := l.volumes.claims(ctx, pv)
	if err != nil {
		return nil, err
	}
	var users []corev1.Pod
	for i := range all {
		if uses(&all[i], claims) {
			users = append(users, all[i])
		}
	}
	return l.confirmClaims(ctx, pv, users)
}

// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get

// confirmClaims leaves the pods that use the volume indeed: if several PersistentVolumes name a pod's claim, it may use another one.
func (l Live) confirmClaims(ctx context.Context, pv *corev1.PersistentVolume, pods []corev1.Pod) ([]corev1.Pod, error) {
	if len(pods) == 0 {
		return nil, nil
	}
	bound, err := l.volumes.sharing(ctx, pv)
	if err != nil {
		return nil, err
	}
	var confirmed []corev1.Pod
	for i := range pods {
		for _, volume := range bound {
			if !slices.Contains(ClaimsOf(&pods[i]), claimOf(volume)) {
				continue
			}
			its, err := l.confirmClaim(ctx, volume)
			if err != nil {
				return nil, err
			}
			if its {
				confirmed = append(confirmed, pods[i])
				break
			}
		}
	}
	return confirmed, nil
}

// confirmClaim reports whether the volume is that of the claim by which the pod would use it. The claim is read only if several
// PersistentVolumes name it.
func (l Live) confirmClaim(ctx context.Context, pv *corev1.PersistentVolume) (bool, error) {
	naming, err := l.volumes.naming(ctx, claimOf(pv))
	if err != nil || len(naming) == 1 {
		return err == nil, err
	}
	ref := pv.Spec.ClaimRef
	var claim corev1.PersistentVolumeClaim
	err = l.Reader.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, &claim)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading claim %s: %w", claimOf(pv), err)
	}
	return claim.UID == ref.UID && claim.Spec.VolumeName == pv.Name, nil
}

// +kubebuilder:rbac:groups="",resources=persistentvolumes,verbs=get

// ConfirmClaims reads the claims of a pod and their PersistentVolumes, and returns an error unless they are bound as the cache says: a claim may
// have been deleted and created again under its name, with another volume. A claim for which the cache has no volume is not read.
func (l Live) ConfirmClaims(ctx context.Context, pod *corev1.Pod) error {
	var claims errgroup.Group
	for _, claim := range ClaimsOf(pod) {
		bound, err := l.volumes.OfClaim(ctx, claim)
		if err != nil {
			return err
		}
		if len(bound) > 0 {
			claims.Go(func() error { return l.confirmBinding(ctx, bound) })
		}
	}
	return claims.Wait()
}

// confirmBinding returns an error unless one of the PersistentVolumes that the cache says are bound to a claim is.
func (l Live) confirmBinding(ctx context.Context, bound []*corev1.PersistentVolume) error {
	name := claimOf(bound[0])
	var claim corev1.PersistentVolumeClaim
	volumes := make([]corev1.PersistentVolume, len(bound))
	var reads errgroup.Group
	ref := bound[0].Spec.ClaimRef
	reads.Go(func() error {
		return l.Reader.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, &claim)
	})
	for i, pv := range bound {
		reads.Go(func() error {
			return client.IgnoreNotFound(l.Reader.Get(ctx, client.ObjectKey{Name: pv.Name}, &volumes[i]))
		})
	}
	if err := reads.Wait(); err != nil {
		return fmt.Errorf("reading claim %s and its PersistentVolume: %w", name, err)
	}
	for i, pv := range bound {
		to := volumes[i].Spec.ClaimRef
		if claim.Spec.VolumeName == pv.Name && volumes[i].UID == pv.UID && to != nil && to.UID == claim.UID {
			return nil
		}
	}
	return fmt.Errorf("claim %s has PersistentVolume %q by now, and the cache does not show that yet: the pod stays until it does", name,
		claim.Spec.VolumeName)
}

// bindingResync is for how long at most a claim may be Lost whose PersistentVolume was replaced: the controller manager looks again every
// 15 s by default (--pvclaimbinder-sync-period), with time to spare.
const bindingResync = time.Minute

// isClaimLost reports whether the claim of a volume is Lost. Only that of a young one can be: a volume whose node affinity changes is replaced by
// another of its name, and the claim is Lost until the controller manager has looked again. A pod that is evicted meanwhile cannot be placed,
// and its volume stays attached for up to a minute more.
func (l Live) isClaimLost(ctx context.Context, pv *corev1.PersistentVolume) (bool, error) {
	if pv.Spec.ClaimRef == nil || l.Clock.Now().Sub(l.sightings.since(pv.UID)) >= bindingResync {
		return false, nil
	}
	var claim corev1.PersistentVolumeClaim
	err := l.Reader.Get(ctx, client.ObjectKey{Namespace: pv.Spec.ClaimRef.Namespace, Name: pv.Spec.ClaimRef.Name}, &claim)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading claim %s: %w", claimOf(pv), err)
	}
	return claim.Status.Phase == corev1.ClaimLost, nil
}

// AttachmentsRead are attachments as they were read, by name.
type AttachmentsRead struct {
	byName map[string]attachmentRead
	// all is set where all there are were read: one that is missing does not exist.
	all bool
}

// attachmentRead is an attachment, nil where there is none of that name, or why it was not read.
type attachmentRead struct {
	*storagev1.VolumeAttachment
	err error
}

// Attachments reads the attachments of those names: one by one or, if they are many, all together.
func (l Live) Attachments(ctx context.Context, names []string) (AttachmentsRead, error) {
	if len(names) >= listFrom {
		return l.listAttachments(ctx)
	}
	read := make([]attachmentRead, len(names))
	var reads sync.WaitGroup
	for i, name := range names {
		reads.Go(func() { read[i].VolumeAttachment, read[i].err = l.attachment(ctx, name) })
	}
	reads.Wait()
	all := AttachmentsRead{byName: make(map[string]attachmentRead, len(names))}
	for i, name := range names {
		all.byName[name] = read[i]
	}
	return all, nil
}

func (l Live) listAttachments(ctx context.Context) (AttachmentsRead, error) {
	var list storagev1.VolumeAttachmentList
	if err := l.Reader.List(ctx, &list); err != nil {
		return AttachmentsRead{}, fmt.Errorf("listing VolumeAttachments: %w", err)
	}
	all := AttachmentsRead{byName: make(map[string]attachmentRead, len(list.Items)), all: true}
	for i := range list.Items {
		all.byName[list.Items[i].Name] = attachmentRead{VolumeAttachment: &list.Items[i]}
	}
	return all, nil
}

// +kubebuilder:rbac:groups=storage.k8s.io,resources=volumeattachments,verbs=get

// attachment returns an attachment as it is now; nil if there is none of that name.
func (l Live) attachment(ctx context.Context, name string) (*storagev1.VolumeAttachment, error) {
	var va storagev1.VolumeAttachment
	err := l.Reader.Get(ctx, client.ObjectKey{Name: name}, &va)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading VolumeAttachment %s: %w", name, err)
	}
	return &va, nil
}

// Off is what a Node says of being off.
type Off struct {
	// Shutdown and OutOfService tell whether the node has a taint that says so.
	Shutdown, OutOfService bool
	// Evicts is set where Kubernetes deletes its pods because it is out of service.
	Evicts bool
	// NotReady is set where it has such a taint and Kubernetes does not call it Ready.
	NotReady bool
}

// Node reads a node; nil if there is none of that name.
func (l Live) Node(ctx context.Context, name string) (*corev1.Node, error) {
	var node corev1.Node
	err := l.Reader.Get(ctx, client.ObjectKey{Name: name}, &node)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading node %s: %w", name, err)
	}
	return &node, nil
}

// Off returns whether taints say that a node, nil if there is none, is switched off or out of service. By such a taint a person vouches for a node
// that does not answer.
func (l Live) Off(node *corev1.Node) Off {
	if node == nil {
		return Off{}
	}
	off := Off{
		Shutdown:     l.kubelets.isShutdown(node),
		OutOfService: HasTaint(node, corev1.TaintNodeOutOfService, ""),
		Evicts:       HasTaint(node, corev1.TaintNodeOutOfService, corev1.TaintEffectNoExecute),
	}
	off.NotReady = (off.Shutdown || off.OutOfService) && IsNotReady(node)
	return off
}

// confirm corrects what the cache says of a node by what was read of it. By what moves pods sooner, both have to agree.
func (o Off) confirm(node *failover.Node) {
	node.OutOfService, node.Evicts, node.NotReady = o.OutOfService, o.Evicts, o.NotReady
	node.Shutdown = node.Shutdown && o.Shutdown
	node.SwitchedOff = node.SwitchedOff && o.Shutdown
	node.TakenOut = node.TakenOut && o.OutOfService
}

// Lease reads the Lease of a node, and has the memory of kubelets note what it shows.
func (l Live) Lease(ctx context.Context, node string) error {
	asked := l.Clock.Now()
	var lease coordinationv1.Lease
	err := l.Reader.Get(ctx, client.ObjectKey{Namespace: LeaseNamespace, Name: node}, &lease)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading Lease %s/%s: %w", LeaseNamespace, node, err)
	}
	if err == nil {
		l.kubelets.confirm(&lease, asked)
	}
	return nil
}
