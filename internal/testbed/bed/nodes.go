package bed

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// nodeNetwork is what the processes on a node reach the API and LINSTOR through.
type nodeNetwork struct{ api, linstor *relay }

// AddNodes adds n nodes, named <prefix>-1 and so on, each a Kubernetes node, a LINSTOR satellite and a
// member of the DRBD network, and waits until Kubernetes calls them Ready and they are no strangers any more, see renewals.
func (b *Bed) AddNodes(ctx context.Context, prefix string, n int) ([]string, error) {
	for i := range n {
		b.LINSTOR.AddNode(nodeName(prefix, i))
	}
	return b.addNodes(ctx, prefix, n)
}

// nodeName returns the name of the i-th node that AddNodes adds.
func nodeName(prefix string, i int) string { return fmt.Sprintf("%s-%d", prefix, i+1) }

// addNodes adds Kubernetes nodes, which LINSTOR need not know, with flags for their kubelets.
func (b *Bed) addNodes(ctx context.Context, prefix string, n int, flags ...string) ([]string, error) {
	names := make([]string, n)
	var group errgroup.Group
	for i := range names {
		names[i] = nodeName(prefix, i)
		group.Go(func() error { return b.addNode(names[i], flags) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for _, wait := range []struct {
		what string
		done func(ctx context.Context, node string) (bool, error)
	}{
		{"be Ready", b.nodeReady},
		{"register their CSI drivers", b.nodeAttaches},
		{"renew their Leases", b.nodeKnown},
	} {
		if err := b.WaitFor(ctx, fmt.Sprintf("nodes %v to %s", names, wait.what), func() (bool, error) {
			for _, name := range names {
				if done, err := wait.done(ctx, name); !done {
					return false, err
				}
			}
			return true, nil
		}); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// renewals is how often a kubelet renews its Lease until the controller knows how often it does so. Until then it allows the kubelet
// more time, which is not what a node of a cluster that runs for days is given.
const renewals = 2

// nodeKnown tells whether the kubelet of a node has renewed its Lease that often.
func (b *Bed) nodeKnown(ctx context.Context, name string) (bool, error) {
	var lease coordinationv1.Lease
	if err := b.Client.Get(ctx, client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: name}, &lease); err != nil {
		return false, err
	}
	if lease.Spec.RenewTime == nil || lease.Spec.LeaseDurationSeconds == nil {
		return false, fmt.Errorf("the Lease of node %s has no time of renewal or no duration", name)
	}
	every := time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second / 4
	// The kubelet puts up to 4 % on top of the interval, and the API server cuts creationTimestamp to the second.
	return lease.Spec.RenewTime.Sub(lease.CreationTimestamp.Time) >= renewals*every-time.Second, nil
}

// nodeReady tells whether Kubernetes calls a node Ready and would place pods on it.
func (b *Bed) nodeReady(ctx context.Context, name string) (bool, error) {
	var node corev1.Node
	if err := b.Client.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
		return false, err
	}
	for _, taint := range node.Spec.Taints {
		if taint.Key == corev1.TaintNodeNotReady {
			return false, fmt.Errorf("node %s has the taint %s", name, taint.Key)
		}
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue, nil
		}
	}
	return false, fmt.Errorf("node %s has no Ready condition", name)
}

// nodeAttaches reports whether the kubelet of a node has registered the CSI driver.
func (b *Bed) nodeAttaches(ctx context.Context, name string) (bool, error) {
	var node storagev1.CSINode
	err := b.Client.Get(ctx, client.ObjectKey{Name: name}, &node)
	return len(node.Spec.Drivers) > 0, err
}

// Crash takes the power from nodes: kubelet, containers, satellite, DRBD and processes are gone at once.
func (b *Bed) Crash(nodes ...string) {
	b.each(nodes, func(node string) {
		b.LINSTOR.Crash(node)
		if n := b.Node(node); n != nil {
			n.crash()
		}
	})
}

// ShutDown announces to the kubelets of nodes that the machines will be switched off. It returns when all their pods have ended
// and all volumes are unmounted, when Options.ShutdownGrace has passed, or with ctx. The power goes with Crash.
func (b *Bed) ShutDown(ctx context.Context, nodes ...string) {
	ctx, cancel := context.WithTimeout(ctx, b.options.ShutdownGrace)
	defer cancel()
	b.each(nodes, func(node string) {
		if n := b.Node(node); n != nil {
			n.shutDown(ctx)
		}
	})
}

// Return boots nodes that crashed or were shut down, and starts kubelets that were killed. A node that runs stays as it is.
func (b *Bed) Return(nodes ...string) {
	b.each(nodes, func(node string) {
		b.LINSTOR.Return(node)
		if n := b.Node(node); n != nil {
			b.note(n.boot(driverStart))
		}
	})
}

// Retire takes nodes out of Kubernetes, and ends their kubelets. LINSTOR and DRBD keep them.
func (b *Bed) Retire(ctx context.Context, nodes ...string) error {
	for _, name := range nodes {
		b.mu.Lock()
		n := b.nodes[name]
		delete(b.nodes, name)
		b.mu.Unlock()
		if n == nil {
			continue
		}
		n.crash()
		lease := &coordinationv1.Lease{}
		lease.Namespace, lease.Name = corev1.NamespaceNodeLease, name
		node := &corev1.Node{}
		node.Name = name
		for _, o := range []client.Object{lease, node} {
			if err := client.IgnoreNotFound(b.Client.Delete(ctx, o)); err != nil {
				return fmt.Errorf("retire node %s: %w", name, err)
			}
		}
	}
	return nil
}

// PartitionAPI cuts nodes off from the Kubernetes API. Their containers run on.
func (b *Bed) PartitionAPI(nodes ...string) { b.setAPI(nodes, true) }

// HealAPI undoes PartitionAPI.
func (b *Bed) HealAPI(nodes ...string) { b.setAPI(nodes, false) }

// setAPI cuts or mends the way from nodes to the API.
func (b *Bed) setAPI(nodes []string, cut bool) {
	b.each(nodes, func(node string) {
		if n, err := b.networkOf(node); err == nil {
			n.api.setCut(cut)
		}
	})
}

// StrandAPI leaves the connections of now between processes on nodes and the API without a far end, as when the API server that they lead
// to has lost its power: nobody is told, and new ones lead to another server.
func (b *Bed) StrandAPI(nodes ...string) {
	b.each(nodes, func(node string) {
		if n, err := b.networkOf(node); err == nil {
			n.api.strand()
		}
	})
}

// IsolateDRBD takes nodes off the DRBD network. The rest of them goes on.
func (b *Bed) IsolateDRBD(nodes ...string) { b.each(nodes, b.DRBD.Isolate) }

// RejoinDRBD undoes IsolateDRBD.
func (b *Bed) RejoinDRBD(nodes ...string) { b.each(nodes, b.DRBD.Rejoin) }

// CutLINSTOR cuts nodes off from LINSTOR: their satellites, and the processes on them.
func (b *Bed) CutLINSTOR(nodes ...string) { b.setLINSTOR(nodes, true) }

// HealLINSTOR undoes CutLINSTOR.
func (b *Bed) HealLINSTOR(nodes ...string) { b.setLINSTOR(nodes, false) }

// setLINSTOR cuts or mends the way from nodes to LINSTOR.
func (b *Bed) setLINSTOR(nodes []string, cut bool) {
	b.each(nodes, func(node string) {
		if n, err := b.networkOf(node); err == nil {
			n.linstor.setCut(cut)
		}
		if cut {
			b.LINSTOR.CutSatellite(node)
		} else {
			b.LINSTOR.RestoreSatellite(node)
		}
	})
}

// Isolate takes the network from running nodes: the API, LINSTOR and DRBD are out of reach.
func (b *Bed) Isolate(nodes ...string) {
	b.IsolateDRBD(nodes...)
	b.CutLINSTOR(nodes...)
	b.PartitionAPI(nodes...)
}

// Rejoin undoes Isolate.
func (b *Bed) Rejoin(nodes ...string) {
	b.RejoinDRBD(nodes...)
	b.HealLINSTOR(nodes...)
	b.HealAPI(nodes...)
}

// each calls f for all nodes at the same time, since that is how things break.
func (b *Bed) each(nodes []string, f func(node string)) {
	var wg sync.WaitGroup
	for _, node := range nodes {
		wg.Go(func() { f(node) })
	}
	wg.Wait()
}

// addressesOf returns the addresses at which processes on a node reach the API and LINSTOR.
func (b *Bed) addressesOf(node string) (api, linstor string, err error) {
	if b.options.Direct {
		return b.control.address(), b.linstorAddr, nil
	}
	n, err := b.networkOf(node)
	if err != nil {
		return "", "", err
	}
	return n.api.addr(), n.linstor.addr(), nil
}

// networkOf returns the relays of a node, new ones if it has none yet.
func (b *Bed) networkOf(node string) (nodeNetwork, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n, ok := b.networks[node]; ok {
		return n, nil
	}
	api, apiErr := newRelay(anyPort, b.control.address())
	linstor, linstorErr := newRelay(anyPort, b.linstorAddr)
	if err := errors.Join(apiErr, linstorErr); err != nil {
		return nodeNetwork{}, fmt.Errorf("network of node %s: %w", node, err)
	}
	n := nodeNetwork{api: api, linstor: linstor}
	b.networks[node] = n
	b.cleanups = append(b.cleanups, api.close, linstor.close)
	return n, nil
}
