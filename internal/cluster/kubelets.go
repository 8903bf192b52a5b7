package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

const (
	// LeaseNamespace is where kubelets keep their Leases.
	LeaseNamespace = "kube-node-lease"
	// forgotten is after how long a silent Lease says nothing about the API any more: its node is long gone.
	forgotten = 5 * time.Minute
)

// Kubelets remembers when each kubelet was last seen alive, by what this process saw change: the clocks of
// other machines prove nothing; and under which name LINSTOR knows its node. It is safe for concurrent use.
type Kubelets struct {
	*Satellites

	clock         clock.PassiveClock
	shutdownTaint []string

	mu      sync.Mutex
	renewed func(node string, at time.Time)
	leases  map[string]leaseSeen
	// blind is when most Leases were last late.
	blind time.Time
	boots map[string]bootSeen
}

// bootSeen is a node's present boot.
type bootSeen struct {
	id   string
	seen time.Time
	// shutdown and outOfService are the taints that say that it is off.
	shutdown, outOfService taintSeen
	// evicts is set while Kubernetes deletes its pods because it is out of service.
	evicts   bool
	notReady bool
	// spared is set while the node is evacuated and all of its data was safe elsewhere when LINSTOR last reached it.
	spared bool
}

// taintSeen is a taint of a node.
type taintSeen struct {
	set bool
	// came is when it was seen to come; zero where it was there at first sight.
	came time.Time
}

// see returns what is known of the taint once the node was seen at a time, with it if set is true. known reports whether the node was seen before.
func (t taintSeen) see(set, known bool, at time.Time) taintSeen {
	switch {
	case !set:
		return taintSeen{}
	case known && !t.set:
		return taintSeen{set: true, came: at}
	}
	t.set = true
	return t
}

// NewKubelets returns an empty memory. driver is the CSI driver by whose words LINSTOR's names are known, and shutdownTaints are the keys of taints that say that a node was switched off.
func NewKubelets(clock clock.PassiveClock, driver string, shutdownTaints []string) *Kubelets {
	return &Kubelets{
		Satellites:    &Satellites{driver: driver, names: make(map[string]string)},
		clock:         clock,
		shutdownTaint: shutdownTaints,
		leases:        make(map[string]leaseSeen),
		boots:         make(map[string]bootSeen),
	}
}

// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;list;watch,namespace=kube-node-lease,roleName=piraeus-ha-controller-manager
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch

// Follow keeps the memory up to date from the cache, on every replica.
func (k *Kubelets) Follow(ctx context.Context, informers cache.Informers) error {
	leases, err := informers.GetInformer(ctx, &coordinationv1.Lease{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching Leases in namespace %s: %w", LeaseNamespace, err)
	}
	nodes, err := informers.GetInformer(ctx, &corev1.Node{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	if _, err := leases.AddEventHandler(onChange(k.ObserveLease, k.forgetLease)); err != nil {
		return fmt.Errorf("watching Leases in namespace %s: %w", LeaseNamespace, err)
	}
	if _, err := nodes.AddEventHandler(onChange(k.ObserveNode, k.forgetNode)); err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	return k.follow(ctx, informers)
}

func onChange[T any](observe, forget func(*T)) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { apply(o, observe) },
		UpdateFunc: func(_, o any) { apply(o, observe) },
		DeleteFunc: func(o any) { apply(lastOf(o), forget) },
	}
}

// lastOf returns the last known state of an object that was deleted.
func lastOf(o any) any {
	if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		return last.Obj
	}
	return o
}

func apply[T any](o any, f func(T)) {
	if object, ok := o.(T); ok {
		f(object)
	}
}

// OnRenewal has each renewal of a Lease told from now on. The first sight of a Lease is none: its node may be dead.
func (k *Kubelets) OnRenewal(renewed func(node string, at time.Time)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.renewed = renewed
}

// ObserveNode records a node's boot and whether it is said to be switched off.
func (k *Kubelets) ObserveNode(node *corev1.Node) {
	k.mu.Lock()
	defer k.mu.Unlock()
	boot, known := k.boots[node.Name]
	if id := node.Status.NodeInfo.BootID; boot.id != id {
		if boot.id != "" {
			k.unlearn(node.Name)
		}
		boot.id, boot.seen = id, k.clock.Now()
	}
	boot.shutdown = boot.shutdown.see(k.isShutdown(node), known, k.clock.Now())
	boot.outOfService = boot.outOfService.see(HasTaint(node, corev1.TaintNodeOutOfService, ""), known, k.clock.Now())
	boot.evicts = HasTaint(node, corev1.TaintNodeOutOfService, corev1.TaintEffectNoExecute)
	boot.notReady = IsNotReady(node)
	boot.spared = isSpared(node)
	k.boots[node.Name] = boot
}

// isSpared reports whether a node is evacuated, and all of its data is safe elsewhere, or was when it was last seen.
func isSpared(node *corev1.Node) bool {
	progress, ok := EvacuationProgress(node)
	return ok && progress.Safe != nil && HasTaint(node, evacuation.TaintKey, corev1.TaintEffectNoSchedule)
}

// Spared are the nodes, by their names in LINSTOR, that may be switched off: their loss is no sign that the view of the cluster is suspect.
func (k *Kubelets) Spared() map[string]bool {
	k.mu.Lock()
	var nodes []string
	for name, boot := range k.boots {
		if boot.spared {
			nodes = append(nodes, name)
		}
	}
	k.mu.Unlock()
	spared := make(map[string]bool, len(nodes))
	for _, name := range nodes {
		spared[k.Satellite(name)] = true
	}
	return spared
}

// isShutdown reports whether a taint says that the node was switched off.
func (k *Kubelets) isShutdown(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return slices.Contains(k.shutdownTaint, t.Key) })
}

func (k *Kubelets) forgetLease(lease *coordinationv1.Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.leases, lease.Name)
}

func (k *Kubelets) forgetNode(node *corev1.Node) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.boots, node.Name)
}

// Node returns what is known of a node now.
func (k *Kubelets) Node(name string) failover.Node {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock.Now()
	lease, known := k.leases[name]
	boot := k.boots[name]
	node := failover.Node{
		Name: name, Shutdown: boot.shutdown.set, OutOfService: boot.outOfService.set, Evicts: boot.evicts, NotReady: boot.notReady,
	}
	if boot.id != "" {
		node.BootSince = boot.seen
	}
	if known && k.watchAlive(now) {
		node.LeaseKnown = true
		node.LeaseSilence = now.Sub(lease.seen)
		node.LeaseGap = lease.gap()
		node.LeaseRead = lease.read
		newer := func(t taintSeen) bool { return t.came.After(lease.seen) && t.came.After(boot.seen) }
		node.SwitchedOff, node.TakenOut = newer(boot.shutdown), newer(boot.outOfService)
	}
	return node
}

// HasTaint reports whether a node has a taint of that key, with that effect or, where it is empty, with any.
func HasTaint(node *corev1.Node, key string, effect corev1.TaintEffect) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == key && (effect == "" || t.Effect == effect)
	})
}

// Forget takes it that an object of a kind that the Kubelets observe was deleted.
func (k *Kubelets) Forget(o client.Object) {
	switch o := o.(type) {
	case *coordinationv1.Lease:
		k.forgetLease(o)
	case *corev1.Node:
		k.forgetNode(o)
	}
}
