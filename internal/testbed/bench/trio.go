package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

// trio is a pod with a volume that has two replicas and a tie-breaker on three nodes of its own. The pod
// may run where a disk is, without preference.
type trio struct {
	*cluster
	workload bed.Workload
	volume   string
	nodes    []string
	spread   time.Duration // losses begin at any time in this
}

// loss is what was seen when the node of a trio's pod was lost.
type loss struct {
	began time.Time
	// silent is for how long the node's Lease had not been renewed when the node was lost.
	silent time.Duration
	// promotable is when the survivor might be promoted.
	promotable time.Time
	// marked is when the controller marked the attachment of the lost pod, gone when its object was gone, placed when
	// the replacement was given a node, attached when the volume was attached there, and running when it was Ready.
	marked, gone, placed, attached, running time.Time
	// back is how many replacements were placed on the lost node.
	back int
	// unfinished is set if no replacement ran within lossTimeout; all times that were not reached are that of giving up.
	unfinished bool
}

const (
	// lossTimeout bounds a single loss; the slowest baseline takes a minute and a half.
	lossTimeout = 5 * time.Minute
	// healTimeout bounds the return of a node.
	healTimeout = 3 * time.Minute
	// leaseRenewal is how often kubelets renew their Lease: losses begin at any time in between.
	leaseRenewal = 10 * time.Second
)

// newTrios brings up n trios.
func newTrios(ctx context.Context, c *cluster, n int) ([]*trio, error) {
	trios := make([]*trio, n)
	nodes, err := c.AddNodes(ctx, "node", 3*n)
	if err != nil {
		return nil, err
	}
	var spare []string
	for i := range trios {
		own := nodes[3*i : 3*i+3]
		spare = append(spare, own[1])
		name := fmt.Sprintf("db%02d", i)
		volume := bed.Volume{Name: name + "-data", Nodes: own}
		trios[i] = &trio{cluster: c, nodes: own, volume: volume.Name, spread: leaseRenewal, workload: bed.Workload{
			Namespace: namespace, Name: name, Nodes: own[:2], Volumes: []bed.Volume{volume},
		}}
	}
	// All start on the first node, so that no preference for it need be in the pods.
	if err := c.cordon(ctx, true, spare...); err != nil {
		return nil, err
	}
	for _, t := range trios {
		if err := c.Deploy(ctx, t.workload); err != nil {
			return nil, err
		}
	}
	for _, t := range trios {
		if _, err := c.WaitRunning(ctx, t.workload, t.nodes[0]); err != nil {
			return nil, err
		}
	}
	return trios, c.cordon(ctx, false, spare...)
}

// pod returns the name of the trio's pod.
func (t *trio) pod() string { return t.workload.Name + "-0" }

// lose breaks the node of the trio's pod at some moment between two renewals of the node's Lease (or whatever
// else its spread is), and waits until the replacement runs elsewhere.
func (t *trio) lose(waiting context.Context, what string, fault func(node string)) (loss, error) {
	lost, ok := t.seen.current(t.pod())
	if !ok {
		return loss{}, fmt.Errorf("pod %s does not run", t.pod())
	}
	if err := t.single.Acquire(waiting, 1); err != nil {
		return loss{}, fmt.Errorf("waiting for other losses: %w", err)
	}
	defer t.single.Release(1)
	if err := pause(waiting, rand.N(t.spread)); err != nil {
		return loss{}, err
	}
	ctx, cancel := context.WithTimeout(waiting, lossTimeout)
	defer cancel()
	renewed, err := t.renewedAt(ctx, lost.node)
	if err != nil {
		return loss{}, err
	}
	l := loss{began: time.Now(), silent: time.Since(renewed)}
	fault(lost.node)
	var next podLife
	err = t.WaitFor(ctx, "a replacement of "+t.pod()+" on another node than "+lost.node, func() (bool, error) {
		next, ok = t.seen.replacement(lost, l.began)
		return ok, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		l.back = t.seen.placedBack(lost.node, l.began, t.isPod)
		for _, node := range t.workload.Nodes {
			if node != lost.node {
				l.promotable = t.seen.promotableAt(t.volume, node, l.began)
			}
		}
		t.say("%s on %s: no replacement runs after %s", what, lost.node, lossTimeout)
		return l.giveUp(time.Now()), nil
	}
	if err != nil {
		return loss{}, err
	}
	l.promotable = t.seen.promotableAt(t.volume, next.node, l.began)
	l.placed, l.running = next.placed, next.ready
	l.marked, l.gone = t.seen.markedAt(t.volume, lost.node, l.began), t.seen.life(lost.uid).end
	l.attached = t.seen.attachedAt(t.volume, next.node, l.began)
	l.back = t.seen.placedBack(lost.node, l.began, t.isPod)
	if l.marked.IsZero() || l.gone.IsZero() || l.attached.IsZero() || l.promotable.IsZero() {
		return l, fmt.Errorf("pod %s: the replacement runs, but not all was seen that has to happen before: %+v", t.pod(), l)
	}
	t.say("%s on %s: Running on %s after %.1f s", what, lost.node, next.node, l.running.Sub(l.began).Seconds())
	return l, nil
}

// isPod tells whether a name is that of the trio's pod.
func (t *trio) isPod(name string) bool { return name == t.pod() }

// giveUp returns a loss that was not over by a time.
func (l loss) giveUp(now time.Time) loss {
	l.unfinished = true
	for _, at := range []*time.Time{&l.promotable, &l.marked, &l.gone, &l.placed, &l.attached, &l.running} {
		if at.IsZero() {
			*at = now
		}
	}
	return l
}

// renewedAt returns when a node's Lease was renewed last.
func (c *cluster) renewedAt(ctx context.Context, node string) (time.Time, error) {
	var lease coordinationv1.Lease
	if err := c.Client.Get(ctx, client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: node}, &lease); err != nil {
		return time.Time{}, fmt.Errorf("lease of node %s: %w", node, err)
	}
	return lease.Spec.RenewTime.Time, nil
}

// crash takes the power from the pod's node.
func (t *trio) crash(ctx context.Context) (loss, error) {
	return t.lose(ctx, "crash", func(node string) { t.Crash(node) })
}

// heal brings the trio's nodes back, and waits until all is as it was before the loss.
func (t *trio) heal(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	t.RejoinDRBD(t.nodes...)
	t.Return(t.nodes...)
	return t.WaitFor(ctx, fmt.Sprintf("nodes %v to be as before", t.nodes), func() (bool, error) {
		for i, node := range t.nodes {
			if status := t.LINSTOR.ConnectionStatus(node); status != linstorsim.Online {
				return false, fmt.Errorf("LINSTOR calls node %s %s", node, status)
			}
			if state, ok := t.DRBD.Replica(t.volume, node); i < 2 && (!ok || state.DiskState != drbd.UpToDate) {
				return false, fmt.Errorf("node %s has no current data", node)
			}
			if err := t.schedulable(ctx, node); err != nil {
				return false, err
			}
		}
		return true, nil
	})
}

// schedulable returns an error unless a node is Ready and has no taint.
func (c *cluster) schedulable(ctx context.Context, name string) error {
	var node corev1.Node
	if err := c.Client.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
		return err
	}
	ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	if !ready || len(node.Spec.Taints) > 0 {
		return fmt.Errorf("node %s has taints %v, Ready is %t", name, node.Spec.Taints, ready)
	}
	return nil
}
