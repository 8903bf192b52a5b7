package virtual

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// renewInterval is how often a kubelet renews its Lease and corrects its node's status.
const renewInterval = 10 * time.Second

// kubelet is one node's machine and kubelet.
type kubelet struct {
	*Cluster
	node string
	// host is the node's name in LINSTOR and DRBD, and interval how often the Lease is renewed.
	host     string
	interval time.Duration
	client   client.Client
	waker    *waker

	mu      sync.Mutex
	up      bool // the machine runs
	heard   bool // the kubelet runs and reaches the API
	frozen  bool // nothing runs, and nothing notices
	boot    int
	renewed time.Time
	// skew is by how much the node's clock is wrong.
	skew time.Duration
	pods map[types.UID]*running
}

func newKubelet(c *Cluster, node string) *kubelet {
	return &kubelet{
		Cluster: c, node: node, host: c.Satellite(node), interval: renewInterval, client: c.API.Client("kubelet/" + node), up: true, heard: true, boot: 1,
		pods: make(map[types.UID]*running),
	}
}

func (k *kubelet) sync(ctx context.Context) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.up || k.frozen {
		return idle
	}
	next := k.interval
	if k.heard {
		due := time.Since(k.renewed) >= k.interval
		if due {
			k.renew(ctx)
		}
		if next = k.interval - time.Since(k.renewed); next <= 0 {
			next = again // the API did not answer
		}
		next = min(next, k.observe(ctx))
		k.report(ctx, due)
	}
	// Containers stop and start without the API, too.
	for _, r := range k.sorted() {
		next = min(next, k.work(ctx, r))
	}
	if k.heard {
		k.report(ctx, false)
	}
	return max(next, time.Millisecond)
}

// renew renews the Lease.
func (k *kubelet) renew(ctx context.Context) {
	var lease coordinationv1.Lease
	if k.client.Get(ctx, client.ObjectKey{Namespace: LeaseNamespace, Name: k.node}, &lease) != nil {
		return
	}
	lease.Spec.LeaseDurationSeconds = new(int32(leaseFactor * k.interval / time.Second))
	lease.Spec.RenewTime = new(metav1.NewMicroTime(time.Now().Add(k.skew)))
	if k.client.Update(ctx, &lease) == nil {
		k.renewed = time.Now()
	}
}

// observe takes over which pods the API wants here.
func (k *kubelet) observe(ctx context.Context) time.Duration {
	var pods corev1.PodList
	if k.view.List(ctx, &pods, client.MatchingFields{nodeField: k.node}) != nil {
		return again
	}
	present := make(map[types.UID]bool)
	for i := range pods.Items {
		pod := &pods.Items[i]
		present[pod.UID] = true
		r := k.pods[pod.UID]
		if r == nil && ended(pod) {
			continue // its containers have stopped, and nobody starts them again
		}
		if r == nil {
			r = &running{uid: pod.UID, started: hasStarted(pod)}
			k.pods[pod.UID] = r
		}
		r.pod = pod
		if pod.DeletionTimestamp != nil {
			r.stop(k.stopTime(pod))
		}
	}
	for uid, r := range k.pods {
		if !present[uid] {
			r.gone = true
			r.stop(k.stopTime(r.pod))
		}
	}
	return idle
}

func (k *kubelet) stopTime(pod *corev1.Pod) time.Duration {
	stop := time.Second
	if w := k.workload(client.ObjectKeyFromObject(pod)); w != nil {
		stop = w.StopTime
	}
	if grace := pod.DeletionGracePeriodSeconds; grace != nil && *grace > 0 {
		stop = min(stop, time.Duration(*grace)*time.Second) // SIGKILL
	}
	return stop
}

// report brings the node's status in line: the boot and the volumes in use. Everything is written on a
// change here, and what others have changed is corrected with the next renewal.
func (k *kubelet) report(ctx context.Context, correct bool) {
	volumes := make(map[corev1.UniqueVolumeName]bool)
	changed := correct
	for _, r := range k.sorted() {
		inUse := r.state != stopped
		changed = changed || inUse != r.reported
		r.reported = inUse
		for _, v := range k.volumesOf(r.pod) {
			if inUse {
				volumes[v.inUse()] = true
			}
		}
		if r.state == stopped && r.gone {
			delete(k.pods, r.uid)
		}
	}
	if !changed {
		return
	}
	var node corev1.Node
	if k.client.Get(ctx, client.ObjectKey{Name: k.node}, &node) != nil {
		return
	}
	names := slices.Sorted(maps.Keys(volumes))
	if slices.Equal(names, node.Status.VolumesInUse) && node.Status.NodeInfo.BootID == bootID(k.node, k.boot) {
		return
	}
	node.Status.VolumesInUse = names
	node.Status.NodeInfo.BootID = bootID(k.node, k.boot)
	if k.client.Status().Update(ctx, &node) != nil {
		k.renewed = time.Time{} // try again with the next renewal, which is now
		k.waker.ring()
	}
}

func (k *kubelet) sorted() []*running {
	return slices.SortedFunc(maps.Values(k.pods), func(a, b *running) int {
		if a.uid < b.uid {
			return -1
		}
		return 1
	})
}

func hasStarted(pod *corev1.Pod) bool {
	return len(pod.Status.ContainerStatuses) > 0
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}
