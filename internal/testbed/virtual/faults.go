package virtual

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Crash takes the power from a node: machine, kubelet, satellite and DRBD are gone without a word.
func (c *Cluster) Crash(node string) {
	c.Linstor.Crash(c.Satellite(node))
	c.onKubelet(node, func(k *kubelet) {
		k.up = false
		k.pods = make(map[types.UID]*running)
	})
}

// Return boots a node that has crashed. Pods that are still bound to it are started again.
func (c *Cluster) Return(node string) {
	c.Linstor.Return(c.Satellite(node))
	c.onKubelet(node, func(k *kubelet) {
		if !k.up {
			k.up, k.frozen = true, false
			k.boot++
			k.posted, k.driver = time.Time{}, time.Now().Add(driverStart)
		}
	})
}

// SilenceKubelet stops a kubelet, or cuts it off from the API. Containers go on.
func (c *Cluster) SilenceKubelet(node string) {
	c.onKubelet(node, func(k *kubelet) { k.heard = false })
}

// RestoreKubelet undoes SilenceKubelet.
func (c *Cluster) RestoreKubelet(node string) {
	c.onKubelet(node, func(k *kubelet) { k.heard = true })
}

// RestartKubelet ends a kubelet and starts it again, without a boot. Containers go on. If pods were deleted meanwhile, the kubelet unmounts
// their volumes before it stops their containers.
func (c *Cluster) RestartKubelet(node string) {
	c.onKubelet(node, func(k *kubelet) {
		k.heard, k.posted = true, time.Time{}
		for _, r := range k.pods {
			r.unseen = true
		}
	})
}

// Freeze stops everything on a node, as a hypervisor does that moves its machine: no packet comes or goes. Nothing there knows
// of it afterwards.
func (c *Cluster) Freeze(node string) {
	c.Linstor.Isolate(c.Satellite(node))
	c.onKubelet(node, func(k *kubelet) { k.frozen = true })
}

// Thaw undoes Freeze. A machine that has crashed meanwhile runs nothing, and stays off until it returns.
func (c *Cluster) Thaw(node string) {
	if satellite := c.Satellite(node); c.DRBD.Up(satellite) {
		c.Linstor.Rejoin(satellite)
	} else {
		c.DRBD.Rejoin(satellite)
	}
	c.onKubelet(node, func(k *kubelet) { k.frozen = false })
}

// SetLease changes the duration of a node's Lease, which its kubelet renews four times in that time.
func (c *Cluster) SetLease(node string, duration time.Duration) {
	c.onKubelet(node, func(k *kubelet) { k.interval = duration / leaseFactor })
}

// SetStatus changes how often the kubelet of a node posts the node's status.
func (c *Cluster) SetStatus(node string, every time.Duration) {
	c.onKubelet(node, func(k *kubelet) { k.status = every })
}

// SetClock lets the clock of a node be wrong by so much. Its kubelet writes it into its Lease.
func (c *Cluster) SetClock(node string, skew time.Duration) {
	c.onKubelet(node, func(k *kubelet) { k.skew = skew })
}

func (c *Cluster) onKubelet(node string, f func(*kubelet)) {
	c.mu.Lock()
	k := c.kubelets[node]
	c.mu.Unlock()
	if k == nil {
		return
	}
	k.mu.Lock()
	f(k)
	k.mu.Unlock()
	k.waker.ring()
}
