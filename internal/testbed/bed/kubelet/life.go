package kubelet

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// life is a node from power-on to power-off: everything that a crash takes away.
type life struct {
	*Kubelet
	bootID     string
	volumes    volumesInUse
	statusWake chan struct{} // holds one token while the node's status has to be posted
	registered chan struct{} // closed when the API knows the node
	ended      <-chan struct{}
	cancel     context.CancelFunc
	wg         sync.WaitGroup
	start      func(run func(ctx context.Context))

	mu      sync.Mutex
	over    bool // set by end: no worker may start any more
	synced  bool // set when the pods have been read once
	workers map[types.UID]*podWorker
	// shuttingDown is set by shutDown: no pod may start any more.
	shuttingDown bool
}

// newLife returns a node that begin switches on.
func newLife(k *Kubelet) *life {
	ctx, cancel := k.fleet.newLife()
	l := &life{
		Kubelet:    k,
		bootID:     string(uuid.NewUUID()),
		statusWake: make(chan struct{}, 1),
		registered: make(chan struct{}),
		ended:      ctx.Done(),
		cancel:     cancel,
		workers:    map[types.UID]*podWorker{},
	}
	l.start = func(run func(context.Context)) { l.wg.Go(func() { run(ctx) }) }
	return l
}

// begin switches the node on and returns at once.
func (l *life) begin() {
	l.start(func(ctx context.Context) {
		t := l.cfg.Timings
		if !retry(ctx, t.RetryMin, t.RetryMax, l.register) {
			return
		}
		close(l.registered)
		l.resync()
		l.wg.Go(func() { l.leaseLoop(ctx) })
		l.statusLoop(ctx)
	})
}

// end switches the node off and waits until nothing of it runs any more.
func (l *life) end() {
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
	l.cancel()
	l.wg.Wait()
}

// resync compares the pods that the node knows with those that are bound to it.
func (l *life) resync() {
	bound := map[types.UID]bool{}
	for _, pod := range l.fleet.podsOf(l.node) {
		bound[pod.UID] = true
		l.podEvent(pod, false)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for uid, w := range l.workers {
		if !bound[uid] {
			w.update(nil, true)
		}
	}
	l.synced = true
}

// isSynced tells whether the node has read its pods, without which it knows nothing of its volumes.
func (l *life) isSynced() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.synced
}

// podEvent takes in the current state of a pod, or that it is gone from the API.
func (l *life) podEvent(pod *corev1.Pod, gone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w, known := l.workers[pod.UID]
	switch {
	case known:
		w.update(pod, gone)
	case !gone && !l.over:
		l.replaceSameName(pod)
		w = newPodWorker(l, pod)
		l.workers[pod.UID] = w
		if l.shuttingDown && !mustStop(pod) {
			w.reject()
		}
		w.begin()
	}
}

// replaceSameName tells the worker of an earlier pod of the same name that its pod is gone: a watch
// that broke off may have missed the deletion.
func (l *life) replaceSameName(pod *corev1.Pod) {
	for _, w := range l.workers {
		if w.name.Name == pod.Name && w.name.Namespace == pod.Namespace {
			w.update(nil, true)
		}
	}
}

// forget drops the worker of a pod that is gone.
func (l *life) forget(w *podWorker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.workers, w.uid)
}

// volumesChanged asks for the node's status to be posted ahead of time, because its volumesInUse have changed.
func (l *life) volumesChanged() {
	if l.cfg.Timings.StatusOnChange >= 0 && !l.isShuttingDown() {
		l.postStatusSoon()
	}
}

// postStatusSoon asks for the node's status to be posted ahead of time.
func (l *life) postStatusSoon() {
	select {
	case l.statusWake <- struct{}{}:
	default:
	}
}
