package virtual

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// evictAgain is how long kubectl waits before it tries an eviction again that a budget refused, goneAgain how often it looks whether
	// a pod has gone.
	evictAgain = 5 * time.Second
	goneAgain  = time.Second
)

// Drain is "kubectl drain" of a node: the node is cordoned, its pods are evicted at once, and it waits until they have gone.
type Drain struct {
	*Cluster
	client client.Client

	mu   sync.Mutex
	done bool
	err  error
}

// Drain begins to drain a node. Pods of DaemonSets stay. Only an eviction that is refused with "too many requests" is tried again; any
// other failure ends the drain.
func (c *Cluster) Drain(ctx context.Context, node string) *Drain {
	d := &Drain{Cluster: c, client: c.API.Client(ActorDrain)}
	c.tasks.Go(func() {
		err := d.run(ctx, node)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.done, d.err = true, err
	})
	return d
}

// Done tells whether the drain is over, and what has ended it before all pods had gone.
func (d *Drain) Done() (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.done, d.err
}

func (d *Drain) run(ctx context.Context, node string) error {
	if err := d.Cordon(ctx, node, true); err != nil {
		return err
	}
	var pods corev1.PodList
	if err := d.client.List(ctx, &pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return fmt.Errorf("draining node %s: %w", node, err)
	}
	var waits sync.WaitGroup
	failures := make(chan error, len(pods.Items))
	for i := range pods.Items {
		pod := &pods.Items[i]
		if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "DaemonSet" {
			continue
		}
		waits.Go(func() { failures <- d.evict(ctx, pod) })
	}
	waits.Wait()
	close(failures)
	for err := range failures {
		if err != nil {
			return err
		}
	}
	return nil
}

// evict evicts a pod and waits until it has gone.
func (d *Drain) evict(ctx context.Context, pod *corev1.Pod) error {
	uid := pod.UID
	eviction := &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}}
	for {
		err := d.client.SubResource("eviction").Create(ctx, pod.DeepCopy(), eviction)
		switch {
		case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
			return d.await(ctx, pod)
		case !apierrors.IsTooManyRequests(err):
			return fmt.Errorf("evicting pod %s/%s: %w", pod.Namespace, pod.Name, err)
		case !pause(ctx, evictAgain):
			return ctx.Err()
		}
	}
}

// await waits until a pod has gone, or is another one of its name.
func (d *Drain) await(ctx context.Context, pod *corev1.Pod) error {
	for {
		var now corev1.Pod
		err := d.client.Get(ctx, client.ObjectKeyFromObject(pod), &now)
		if apierrors.IsNotFound(err) || err == nil && now.UID != pod.UID {
			return nil
		}
		if !pause(ctx, goneAgain) {
			return ctx.Err()
		}
	}
}

// Cordon makes a node take no new pods, or lets it take them again.
func (c *Cluster) Cordon(ctx context.Context, node string, cordoned bool) error {
	var object corev1.Node
	if err := c.user.Get(ctx, client.ObjectKey{Name: node}, &object); err != nil {
		return fmt.Errorf("cordoning node %s: %w", node, err)
	}
	before := object.DeepCopy()
	object.Spec.Unschedulable = cordoned
	if err := c.user.Patch(ctx, &object, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("cordoning node %s: %w", node, err)
	}
	return nil
}

// pause waits, and tells whether the context has not ended meanwhile.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
