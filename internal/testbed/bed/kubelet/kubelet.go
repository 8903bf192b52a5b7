package kubelet

import (
	"context"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
)

// Kubelet is one simulated node with its kubelet and containers. Its methods may be called from any
// goroutine.
type Kubelet struct {
	node    string
	options NodeOptions
	fleet   *Fleet
	cfg     *Config
	log     logr.Logger
	client  kubernetes.Interface
	gate    gate

	mu   sync.Mutex
	life *life // nil while the node is off
}

// newKubelet returns a kubelet that is off.
func (f *Fleet) newKubelet(name string, options NodeOptions) (*Kubelet, error) {
	if options.MaxVolumes == 0 {
		options.MaxVolumes = 1000
	}
	k := &Kubelet{
		node:    name,
		options: options,
		fleet:   f,
		cfg:     &f.cfg,
		log:     f.cfg.Logger.WithValues("node", name),
	}
	client, err := f.newClient(&k.gate)
	if err != nil {
		return nil, fmt.Errorf("kubelet of node %s: client: %w", name, err)
	}
	k.client = client
	return k, nil
}

// Node returns the node's name.
func (k *Kubelet) Node() string { return k.node }

// Boot switches the node on under a new boot ID. Pods that are bound to it get new containers; those
// that were deleted meanwhile are forgotten. A node that is on stays as it is.
func (k *Kubelet) Boot() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.life != nil {
		return
	}
	k.life = newLife(k)
	k.life.begin()
}

// Crash switches the node off: all containers and processes end at once, nothing is closed or
// unmounted, and when Crash returns no request to the API is under way any more. What becomes of
// the node's DRBD devices is the caller's to say.
func (k *Kubelet) Crash() {
	k.mu.Lock()
	l := k.life
	k.life = nil
	k.mu.Unlock()
	if l != nil {
		l.end()
	}
}

// On tells whether the node is switched on.
func (k *Kubelet) On() bool { return k.current() != nil }

// BootID returns the boot ID that the node runs under, "" while it is off.
func (k *Kubelet) BootID() string {
	if l := k.current(); l != nil {
		return l.bootID
	}
	return ""
}

// PartitionAPI cuts the node off from the API: its requests hang and fail, it sees no change any more,
// and its containers run on.
func (k *Kubelet) PartitionAPI() { k.gate.shut() }

// HealAPI ends PartitionAPI. The node catches up with what it missed.
func (k *Kubelet) HealAPI() {
	k.gate.open()
	if l := k.current(); l != nil {
		l.resync()
	}
}

// current returns the node's life, nil while it is off.
func (k *Kubelet) current() *life {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.life
}

// podEvent takes in what the watch says about a pod of this node. A partitioned node misses it.
func (k *Kubelet) podEvent(pod *corev1.Pod, gone bool) {
	if l := k.current(); l != nil && k.gate.reachable() {
		l.podEvent(pod, gone)
	}
}

// waitRegistered waits until the API knows the node.
func (k *Kubelet) waitRegistered(ctx context.Context) error {
	l := k.current()
	if l == nil {
		return fmt.Errorf("node %s is off", k.node)
	}
	select {
	case <-l.registered:
		return nil
	case <-l.ended:
		return fmt.Errorf("node %s was switched off before it was registered", k.node)
	case <-ctx.Done():
		return fmt.Errorf("register node %s: %w", k.node, context.Cause(ctx))
	}
}
