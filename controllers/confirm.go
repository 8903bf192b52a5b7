package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
)

// recent is how old a confirmation of a removal may be for the detach that follows. It leaves as much time again for the
// detach itself.
const recent = failover.MaxAge / 2

// listPods reads the pods on a node, past the cache: that holds selected pods only. The list has no resourceVersion, by
// which the API server answers with nothing older than the request.
func listPods(live client.Reader) *batches[struct{}, []corev1.Pod] {
	return newBatches(func(ctx context.Context, node string, _ []struct{}) ([]corev1.Pod, error) {
		var pods corev1.PodList
		if err := live.List(ctx, &pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
			return nil, fmt.Errorf("listing the pods on node %s: %w", node, err)
		}
		return pods.Items, nil
	})
}

// readShutdowns reads whether a taint says that a node is switched off, past the cache. Without a grace nothing else shows that the taint
// was taken off since.
func readShutdowns(live client.Reader, kubelets *Kubelets) *batches[struct{}, bool] {
	return newBatches(func(ctx context.Context, name string, _ []struct{}) (bool, error) {
		var node corev1.Node
		err := live.Get(ctx, client.ObjectKey{Name: name}, &node)
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("reading the taints of node %s: %w", name, err)
		}
		return err == nil && kubelets.isShutdown(&node), nil
	})
}

// leaseWait bounds how long a reading of a Lease may hold up the confirmation that it is part of. Without it the confirmed grace applies.
const leaseWait = failover.MaxAge / 2

// readLeases reads the Lease of a node, past the cache, and tells the memory of kubelets what it shows.
func readLeases(live client.Reader, kubelets *Kubelets) *batches[struct{}, struct{}] {
	return newBatches(func(ctx context.Context, node string, _ []struct{}) (struct{}, error) {
		asked := kubelets.clock.Now()
		var lease coordinationv1.Lease
		if err := live.Get(ctx, client.ObjectKey{Namespace: LeaseNamespace, Name: node}, &lease); err != nil {
			return struct{}{}, fmt.Errorf("reading Lease %s/%s: %w", LeaseNamespace, node, err)
		}
		kubelets.confirm(&lease, asked)
		return struct{}{}, nil
	})
}

// confirmLease reads the Lease of a node whose kubelet seems silent: the cache may be behind. Where that fails nothing is known
// of it that was not known before, and nothing but the unanimous grace rests on more.
func (g *gatherer) confirmLease(ctx context.Context, node string) {
	if g.settings.UnanimousGrace >= g.settings.ConfirmedGrace || !kubeletIsSilent(g.kubelets.Node(node)) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaseWait)
	defer cancel()
	if _, err := g.leases.do(ctx, node, struct{}{}); err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("Cannot read whether the kubelet is still silent", "node", node, "error", err.Error())
	}
}

// lastRenewed is when this process began the newest renewal of its own Lease; zero where it has none.
func (g *gatherer) lastRenewed() time.Time {
	if g.renewed == nil {
		return time.Time{}
	}
	return g.renewed()
}

// confirmation is what was read for a removal, apart from what LINSTOR said.
type confirmation struct {
	node string
	// began is when the first of it was asked for.
	began      time.Time
	attachment *failover.Attachment
	pods       []corev1.Pod
	// listed is when all pods of the node were asked for.
	listed time.Time
	// shutdown tells whether the node is said to be switched off.
	shutdown bool
}

// confirm reads everything that a removal rests on again: LINSTOR's word on all volumes concerned, whether the node was switched off, the
// attachment, and all pods of the node, selected or not. The pods come last, and the claims of those whose it may not be: a detach is
// written by that look at them. Where LINSTOR takes so long that
// pods and attachment may have changed since, its own word is old as well, and nothing follows.
func (g *gatherer) confirm(ctx context.Context, pv *corev1.PersistentVolume, node string) (failover.Input, error) {
	expected, err := g.podsOf(ctx, pv)
	if err != nil {
		return failover.Input{}, err
	}
	known, err := g.resourcesOf(ctx, pv, onNode(expected, node))
	if err != nil {
		return failover.Input{}, err
	}
	c := confirmation{node: node, began: g.clock.Now()}
	reads, readsCtx := errgroup.WithContext(ctx)
	reads.Go(func() error { return g.refresh(readsCtx, known[0], known) })
	reads.Go(func() error { g.confirmLease(readsCtx, node); return nil })
	reads.Go(func() error { return g.confirmShutdown(readsCtx, &c) })
	reads.Go(func() (err error) {
		c.attachment, err = g.confirmAttachment(readsCtx, pv, node, g.attachments.read)
		return err
	})
	if err := reads.Wait(); err != nil {
		return failover.Input{}, err
	}
	c.listed = g.clock.Now()
	if c.pods, err = g.confirmPods(ctx, pv, node); err != nil {
		return failover.Input{}, err
	}
	if c.pods, err = g.confirmClaims(ctx, pv, c.pods); err != nil {
		return failover.Input{}, err
	}
	concerned, err := g.resourcesOf(ctx, pv, c.pods)
	if err != nil {
		return failover.Input{}, err
	}
	others := slices.DeleteFunc(concerned, func(name string) bool { return slices.Contains(known, name) })
	if err := g.refresh(ctx, known[0], others); err != nil {
		return failover.Input{}, err
	}
	return g.confirmed(ctx, pv, c)
}

// confirmAgain is confirm for who has confirmed in before, in the same reconciliation: attachment and pods are read one by one, and
// of the pods those of in. The API server answers lists from a cache, for which it waits; in a crowd that takes seconds. A single
// object comes from etcd.
func (g *gatherer) confirmAgain(ctx context.Context, pv *corev1.PersistentVolume, in failover.Input) (failover.Input, error) {
	c := confirmation{node: in.Node.Name, began: g.clock.Now(), listed: in.Listed}
	resources := []string{in.Resource.Name}
	for _, pod := range in.Pods {
		for _, other := range pod.Others {
			resources = append(resources, other.Resource.Name)
		}
	}
	slices.Sort(resources)
	pods := make([]*corev1.Pod, len(in.Pods))
	reads, readsCtx := errgroup.WithContext(ctx)
	reads.Go(func() error { return g.refresh(readsCtx, in.Resource.Name, slices.Compact(resources)) })
	reads.Go(func() error { g.confirmLease(readsCtx, in.Node.Name); return nil })
	reads.Go(func() error { return g.confirmShutdown(readsCtx, &c) })
	reads.Go(func() (err error) {
		c.attachment, err = g.confirmAttachment(readsCtx, pv, in.Node.Name, g.attachments.get)
		return err
	})
	for i, pod := range in.Pods {
		reads.Go(func() (err error) {
			pods[i], err = g.confirmPod(readsCtx, pod)
			return err
		})
	}
	if err := reads.Wait(); err != nil {
		return failover.Input{}, err
	}
	claims, err := g.claimsTo(ctx, pv)
	if err != nil {
		return failover.Input{}, err
	}
	for _, pod := range pods {
		if pod != nil && uses(pod, claims) {
			c.pods = append(c.pods, *pod)
		}
	}
	return g.confirmed(ctx, pv, c)
}

// errMayNotGetPods is why a pod was not read where the controller may list pods only.
var errMayNotGetPods = errors.New("permission missing")

// confirmPod reads a pod; nil where it is gone.
func (g *gatherer) confirmPod(ctx context.Context, known failover.Pod) (*corev1.Pod, error) {
	var pod corev1.Pod
	err := g.live.Get(ctx, client.ObjectKey{Namespace: known.Namespace, Name: known.Name}, &pod)
	if apierrors.IsNotFound(err) || err == nil && pod.UID != known.UID {
		return nil, nil
	}
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("%w: %w", errMayNotGetPods, err)
	}
	if err != nil {
		return nil, fmt.Errorf("reading pod %s: %w", key(known.Namespace, known.Name), err)
	}
	return &pod, nil
}

// confirmShutdown reads whether the node is switched off, where that is believed.
func (g *gatherer) confirmShutdown(ctx context.Context, c *confirmation) (err error) {
	if g.kubelets.Node(c.node).Shutdown {
		c.shutdown, err = g.shutdowns.do(ctx, c.node, struct{}{})
	}
	return err
}

// confirmed is what was read for a removal, with what LINSTOR said before.
func (g *gatherer) confirmed(ctx context.Context, pv *corev1.PersistentVolume, c confirmation) (failover.Input, error) {
	in, err := g.input(ctx, pv, c.node, c.pods, c.attachment)
	in.Node.Shutdown = in.Node.Shutdown && c.shutdown
	in.Node.SwitchedOff = in.Node.SwitchedOff && c.shutdown
	in.Asked, in.Listed = c.began, c.listed
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

// confirmEmptied is confirm for who has just removed the last pod by the confirmation in. Where that is recent, only the pods
// are read again: LINSTOR and the attachment were asked a moment ago for the same volume on the same node. Not even these where none
// can be left, since the pod of the UID ended is known to be gone. It is false where there are pods, or the confirmation was longer ago.
func (g *gatherer) confirmEmptied(
	ctx context.Context, pv *corev1.PersistentVolume, in failover.Input, ended types.UID,
) (failover.Input, bool, error) {
	if g.clock.Now().Sub(in.Asked) > recent {
		return in, false, nil
	}
	asked := in.Asked
	empty, err := g.knownEmpty(ctx, pv, in, ended)
	if err != nil {
		return in, false, err
	}
	if !empty {
		if pods, err := g.confirmPods(ctx, pv, in.Node.Name); err != nil || len(pods) > 0 {
			return in, false, err
		}
	} else if in.Listed.Before(asked) {
		asked = in.Listed // the release counts for as long as that list
	}
	now, err := g.input(ctx, pv, in.Node.Name, nil, in.Attachment)
	now.Node, now.Asked = g.nodeSince(in), asked
	return now, err == nil, err
}

// knownEmpty tells whether no pod on the node uses the volume by what is known already: the pod of the UID was the only one in a list
// of a moment ago, its object is gone, and the cache, which has those that are selected, has no other one by now.
func (g *gatherer) knownEmpty(ctx context.Context, pv *corev1.PersistentVolume, in failover.Input, ended types.UID) (bool, error) {
	if ended == "" || g.clock.Now().Sub(in.Listed) > recent {
		return false, nil
	}
	selected, err := g.podsOf(ctx, pv)
	other := func(pod corev1.Pod) bool { return pod.UID != ended }
	return !slices.ContainsFunc(onNode(selected, in.Node.Name), other), err
}

// refresh reads LINSTOR's word on the resources, all at once. That LINSTOR has none of them but the lost one is an answer, too.
func (g *gatherer) refresh(ctx context.Context, lost string, resources []string) error {
	reads, readsCtx := errgroup.WithContext(ctx)
	for _, resource := range resources {
		reads.Go(func() error {
			_, err := g.linstor.Refresh(readsCtx, resource)
			if err != nil && (resource == lost || !errors.Is(err, linstor.ErrNotFound)) {
				return fmt.Errorf("reading resource %s from LINSTOR: %w", resource, err)
			}
			return nil
		})
	}
	return reads.Wait()
}

// confirmPods reads which pods on the node use the volume, selected or not.
func (g *gatherer) confirmPods(ctx context.Context, pv *corev1.PersistentVolume, node string) ([]corev1.Pod, error) {
	claims, err := g.claimsTo(ctx, pv)
	if err != nil {
		return nil, err
	}
	all, err := g.podLists.do(ctx, node, struct{}{})
	if err != nil {
		return nil, err
	}
	var pods []corev1.Pod // a list of its own: others read the same answer
	for i := range all {
		if uses(&all[i], claims) {
			pods = append(pods, all[i])
		}
	}
	return pods, nil
}

// confirmAttachment reads the attachment of the volume to the node by read.
func (g *gatherer) confirmAttachment(
	ctx context.Context, pv *corev1.PersistentVolume, node string, read func(context.Context, string) (*storagev1.VolumeAttachment, error),
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
		fresh, err := read(ctx, va.Name)
		if err != nil {
			return nil, err
		}
		if fresh != nil {
			confirmed = append(confirmed, *fresh)
		}
	}
	return g.attachmentFacts(pv.Name, confirmed, selected, node), nil
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
