package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// listFrom is from how many attachments on they are read by one list of all: the API has no selector for those of a driver or a node.
const listFrom = 20

const (
	// firstReads is how long a look waits for what it reads first, and lastReads how long for what that calls for in addition, where some
	// volumes wait for others. The list of pods comes in between, without which nothing can follow for any of them.
	firstReads = 600 * time.Millisecond
	lastReads  = 400 * time.Millisecond
)

// look reads everything anew that the fate of volumes on one node rests on: LINSTOR's word on them and on all other volumes of their pods,
// whether the kubelet is still silent and the node still switched off, the attachments, and then all pods of the node, selected or not,
// and the claims of those whose it may not be. A volume of which not all is known in time has an error, and waits for the next round.
// The pods come last: a detach is written by that look at them. Where LINSTOR takes so long that pods and attachments may have changed
// since, its own word is old as well, and nothing follows.
func (r *FailoverReconciler) look(ctx context.Context, node string, volumes []*volume) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	began := time.Now()
	read := reading{node: node, began: r.clock.Now()}
	words, lifetime := newWords(r.linstor), r.bell.lifetime(ctx)
	defer close(words.over)
	words.ask(ctx, lifetime, volumes)
	var shutdownErr, attachmentsErr error
	within(ctx, firstReads, func(first context.Context) {
		var reads sync.WaitGroup
		reads.Go(func() { r.confirmLease(first, node) })
		reads.Go(func() { read.shutdown, shutdownErr = r.confirmShutdown(ctx, node) })
		reads.Go(func() { read.attachments, attachmentsErr = r.readAttachments(ctx, first, node, volumes) })
		reads.Wait()
	})
	words.wait(ctx, began.Add(firstReads), volumes)

	read.listed = r.clock.Now()
	pods, podsErr := r.podsOn(ctx, node)
	if err := errors.Join(shutdownErr, attachmentsErr, podsErr); err != nil {
		for _, v := range volumes {
			v.err = errors.Join(v.err, err)
		}
		return
	}
	last := time.Now().Add(lastReads)
	own := make([][]corev1.Pod, len(volumes))
	within(ctx, lastReads, func(ctx context.Context) {
		r.each(volumes, func(i int, v *volume) (err error) {
			own[i], err = r.confirmPods(ctx, v.pv, pods)
			if err == nil {
				v.resources, err = r.resourcesOf(ctx, v.pv, own[i])
			}
			return err
		})
	})
	words.ask(ctx, lifetime, volumes)
	words.wait(ctx, last, volumes)
	r.each(volumes, func(i int, v *volume) error {
		in, err := r.confirmed(ctx, v.pv, read, own[i])
		if err == nil {
			v.in = in
		}
		return err
	})
}

// within calls do with a context that ends after a while.
func within(ctx context.Context, patience time.Duration, do func(context.Context)) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	do(ctx)
}

// each does something for all volumes at the same time of which nothing has failed yet.
func (*FailoverReconciler) each(volumes []*volume, do func(i int, v *volume) error) {
	var all sync.WaitGroup
	for i, v := range volumes {
		if v.err == nil {
			all.Go(func() { v.err = safely(func() error { return do(i, v) }) })
		}
	}
	all.Wait()
}

// reading is what a look has read that is the same for all volumes of a node.
type reading struct {
	node string
	// began is when the first of it was asked for, and listed when all pods of the node were.
	began, listed time.Time
	// shutdown tells whether the node is said to be switched off.
	shutdown bool
	// attachments are those that were read.
	attachments attachmentReads
}

// confirmed is what was read of a volume, with what LINSTOR said before.
func (g *gatherer) confirmed(
	ctx context.Context, pv *corev1.PersistentVolume, read reading, pods []corev1.Pod,
) (failover.Input, error) {
	attachment, err := g.confirmAttachment(ctx, pv, read.node, read.attachments)
	if err != nil {
		return failover.Input{}, err
	}
	in, err := g.input(ctx, pv, read.node, pods, attachment)
	in.Node.Shutdown = in.Node.Shutdown && read.shutdown
	in.Node.SwitchedOff = in.Node.SwitchedOff && read.shutdown
	in.Asked, in.Listed = read.began, read.listed
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

// podsOn reads the pods on a node, past the cache: that holds selected pods only. The list has no resourceVersion, by
// which the API server answers with nothing older than the request.
func (g *gatherer) podsOn(ctx context.Context, node string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := g.live.List(ctx, &pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, fmt.Errorf("listing the pods on node %s: %w", node, err)
	}
	return pods.Items, nil
}

// confirmPods returns which of the pods that were read on a node use the volume, selected or not.
func (g *gatherer) confirmPods(ctx context.Context, pv *corev1.PersistentVolume, all []corev1.Pod) ([]corev1.Pod, error) {
	claims, err := g.claimsTo(ctx, pv)
	if err != nil {
		return nil, err
	}
	var pods []corev1.Pod
	for i := range all {
		if uses(&all[i], claims) {
			pods = append(pods, all[i])
		}
	}
	return g.confirmClaims(ctx, pv, pods)
}

// attachmentReads are attachments as they were read, by name.
type attachmentReads struct {
	byName map[string]attachmentRead
	// all is set where all there are were read: one that is missing does not exist.
	all bool
}

// attachmentRead is an attachment, nil where there is none of that name, or why it was not read.
type attachmentRead struct {
	*storagev1.VolumeAttachment
	err error
}

// readAttachments reads the attachments of volumes to a node, past the cache: one by one, each in time or not at all, or, where they are
// many, all together.
func (g *gatherer) readAttachments(ctx, inTime context.Context, node string, volumes []*volume) (attachmentReads, error) {
	var names []string
	for _, v := range volumes {
		known, err := g.attachmentsOf(ctx, v.pv.Name)
		if err != nil {
			return attachmentReads{}, err
		}
		for _, va := range known {
			if va.Spec.NodeName == node {
				names = append(names, va.Name)
			}
		}
	}
	if len(names) >= listFrom {
		return g.listAttachments(ctx)
	}
	read := make([]attachmentRead, len(names))
	var reads sync.WaitGroup
	for i, name := range names {
		reads.Go(func() { read[i].VolumeAttachment, read[i].err = g.readAttachment(inTime, name) })
	}
	reads.Wait()
	all := attachmentReads{byName: make(map[string]attachmentRead, len(names))}
	for i, name := range names {
		all.byName[name] = read[i]
	}
	return all, nil
}

func (g *gatherer) listAttachments(ctx context.Context) (attachmentReads, error) {
	var list storagev1.VolumeAttachmentList
	if err := g.live.List(ctx, &list); err != nil {
		return attachmentReads{}, fmt.Errorf("listing VolumeAttachments: %w", err)
	}
	all := attachmentReads{byName: make(map[string]attachmentRead, len(list.Items)), all: true}
	for i := range list.Items {
		all.byName[list.Items[i].Name] = attachmentRead{VolumeAttachment: &list.Items[i]}
	}
	return all, nil
}

// +kubebuilder:rbac:groups=storage.k8s.io,resources=volumeattachments,verbs=get

// readAttachment returns an attachment as it is now; nil where there is none of that name.
func (g *gatherer) readAttachment(ctx context.Context, name string) (*storagev1.VolumeAttachment, error) {
	var va storagev1.VolumeAttachment
	err := g.live.Get(ctx, client.ObjectKey{Name: name}, &va)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading VolumeAttachment %s: %w", name, err)
	}
	return &va, nil
}

// confirmAttachment returns the attachment of the volume to the node among those that were read.
func (g *gatherer) confirmAttachment(
	ctx context.Context, pv *corev1.PersistentVolume, node string, read attachmentReads,
) (*failover.Attachment, error) {
	attachments, err := g.attachmentsOf(ctx, pv.Name)
	if err != nil {
		return nil, err
	}
	selected, err := g.podsOf(ctx, pv)
	if err != nil {
		return nil, err
	}
	var confirmed []storagev1.VolumeAttachment
	for _, va := range attachments {
		if va.Spec.NodeName != node {
			continue
		}
		fresh, asked := read.byName[va.Name]
		switch {
		case fresh.err != nil:
			return nil, fresh.err
		case !asked && !read.all:
			return nil, fmt.Errorf("VolumeAttachment %s has come since", va.Name)
		case fresh.VolumeAttachment != nil:
			confirmed = append(confirmed, *fresh.VolumeAttachment)
		}
	}
	return g.attachmentFacts(pv.Name, confirmed, selected, node), nil
}

// confirmShutdown reads whether a taint says that the node is switched off, past the cache, where that is believed. Without a grace
// nothing else shows that the taint was taken off since.
func (g *gatherer) confirmShutdown(ctx context.Context, name string) (bool, error) {
	if !g.kubelets.Node(name).Shutdown {
		return false, nil
	}
	var node corev1.Node
	err := g.live.Get(ctx, client.ObjectKey{Name: name}, &node)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading the taints of node %s: %w", name, err)
	}
	return err == nil && g.kubelets.isShutdown(&node), nil
}

// leaseWait bounds how long a reading of a Lease may hold up the look that it is part of. Without it the confirmed grace applies.
const leaseWait = failover.MaxAge / 2

// confirmLease reads the Lease of a node whose kubelet seems silent: the cache may be behind. Where that fails nothing is known
// of it that was not known before, and nothing but the unanimous grace rests on more.
func (g *gatherer) confirmLease(ctx context.Context, node string) {
	if g.settings.UnanimousGrace >= g.settings.ConfirmedGrace || !kubeletIsSilent(g.kubelets.Node(node)) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaseWait)
	defer cancel()
	if err := g.readLease(ctx, node); err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("Cannot read whether the kubelet is still silent", "node", node, "error", err.Error())
	}
}

// readLease reads the Lease of a node, past the cache, and tells the memory of kubelets what it shows.
func (g *gatherer) readLease(ctx context.Context, node string) error {
	asked := g.kubelets.clock.Now()
	var lease coordinationv1.Lease
	if err := g.live.Get(ctx, client.ObjectKey{Namespace: LeaseNamespace, Name: node}, &lease); err != nil {
		return fmt.Errorf("reading Lease %s/%s: %w", LeaseNamespace, node, err)
	}
	g.kubelets.confirm(&lease, asked)
	return nil
}

// lastRenewed is when this process began the newest renewal of its own Lease; zero where it has none.
func (g *gatherer) lastRenewed() time.Time {
	if g.renewed == nil {
		return time.Time{}
	}
	return g.renewed()
}

// resourcesOf returns the LINSTOR resources of the volume and of all volumes of the pods.
func (g *gatherer) resourcesOf(ctx context.Context, pv *corev1.PersistentVolume, pods []corev1.Pod) ([]string, error) {
	resource, _ := resourceOf(pv, g.driver)
	resources := []string{resource}
	for i := range pods {
		others, _, err := g.podVolumes(ctx, &pods[i], pv)
		if err != nil {
			return nil, err
		}
		for _, other := range others {
			name, _ := resourceOf(other.PersistentVolume, g.driver)
			if !slices.Contains(resources, name) {
				resources = append(resources, name)
			}
		}
	}
	return resources, nil
}
