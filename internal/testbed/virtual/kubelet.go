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

const (
	// renewInterval is how often a kubelet renews its Lease.
	renewInterval = 10 * time.Second
	// statusInterval is how often a kubelet posts the node's status. Kubernetes' default is 10 s.
	statusInterval = time.Second
	// driverStart is how long the CSI driver takes to register after a boot.
	driverStart = 3 * time.Second
	// leastGrace is the least time that a container gets between SIGTERM and SIGKILL.
	leastGrace = 2 * time.Second
)

// kubelet is one node's machine and kubelet.
type kubelet struct {
	*Cluster
	node string
	// host is the node's name in LINSTOR and DRBD, interval how often the Lease is renewed, and status how often the status is posted.
	host             string
	interval, status time.Duration
	client           client.Client
	waker            *waker

	mu      sync.Mutex
	up      bool // the machine runs
	heard   bool // the kubelet runs and reaches the API
	frozen  bool // nothing runs, and nothing notices
	boot    int
	renewed time.Time
	// posted is when the kubelet has posted the node's status.
	posted time.Time
	// driver is when the CSI driver registers.
	driver time.Time
	// skew is by how much the node's clock is wrong.
	skew time.Duration
	pods map[types.UID]*running
}

func newKubelet(c *Cluster, node string) *kubelet {
	return &kubelet{
		Cluster: c, node: node, host: c.Satellite(node), interval: renewInterval, status: statusInterval, client: c.API.Client("kubelet/" + node), up: true, heard: true, boot: 1,
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
		if time.Since(k.renewed) >= k.interval {
			k.renew(ctx)
		}
		next = min(wait(k.renewed.Add(k.interval)), k.observe(ctx))
		if time.Since(k.posted) >= k.status {
			k.report(ctx)
		}
		next = min(next, wait(k.posted.Add(k.status)))
	}
	// Containers stop and start without the API, too.
	for _, r := range k.sorted() {
		next = min(next, k.work(ctx, r))
		if r.state == stopped && r.gone {
			delete(k.pods, r.uid)
		}
	}
	return max(next, time.Millisecond)
}

// wait returns how long it is until something is due. What is overdue has failed, because the API did not answer.
func wait(due time.Time) time.Duration {
	if left := time.Until(due); left > 0 {
		return left
	}
	return again
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
		r.pod, r.unseen = pod, false
		if pod.DeletionTimestamp != nil {
			r.stop(k.stopTime(pod))
		}
	}
	for uid, r := range k.pods {
		if !present[uid] {
			r.gone = true
			r.unmounted = r.unmounted || r.unseen
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
	if grace := pod.DeletionGracePeriodSeconds; grace != nil {
		stop = min(stop, max(time.Duration(*grace)*time.Second, leastGrace)) // SIGKILL
	}
	return stop
}

// report posts the node's status: the boot, that it is Ready, and the volumes in use. Nothing of it is posted in between.
func (k *kubelet) report(ctx context.Context) {
	volumes := make(map[corev1.UniqueVolumeName]bool)
	for _, r := range k.pods {
		if r.state == stopped || r.unmounted {
			continue
		}
		for _, v := range k.volumesOf(r.pod) {
			volumes[v.inUse()] = true
		}
	}
	var node corev1.Node
	if k.client.Get(ctx, client.ObjectKey{Name: k.node}, &node) != nil {
		return
	}
	names := slices.Sorted(maps.Keys(volumes))
	unknown := isUnknown(&node)
	if unknown || !slices.Equal(names, node.Status.VolumesInUse) || node.Status.NodeInfo.BootID != bootID(k.node, k.boot) {
		node.Status.VolumesInUse = names
		node.Status.NodeInfo.BootID = bootID(k.node, k.boot)
		if unknown {
			setReady(&node, corev1.ConditionTrue)
		}
		if k.client.Status().Update(ctx, &node) != nil {
			return
		}
	}
	k.posted = time.Now()
	for _, r := range k.pods {
		r.reported = true
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
