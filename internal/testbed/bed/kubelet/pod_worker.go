package kubelet

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// podWorker takes one pod through its life on a node: volumes, containers, termination.
type podWorker struct {
	l       *life
	name    types.NamespacedName
	uid     types.UID
	changed chan struct{} // holds one token while something changed that run has not looked at
	stop    context.CancelFunc
	begin   func()
	// unmounted is closed when the node has nothing of the pod's volumes mounted any more.
	unmounted chan struct{}

	mu        sync.Mutex
	pod       *corev1.Pod // as last seen
	gone      bool        // the API has no such pod any more
	state     podState
	mostGrace time.Duration // for its containers to stop; 0 is what the pod says

	volumes []volume // of the pod; only touched by run
	opened  []volume // those that were opened and not closed yet; only touched by run
}

// newPodWorker returns the worker of a pod that the node has not known so far.
func newPodWorker(l *life, pod *corev1.Pod) *podWorker {
	w := &podWorker{
		l:         l,
		name:      types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name},
		uid:       pod.UID,
		changed:   make(chan struct{}, 1),
		unmounted: make(chan struct{}),
		pod:       pod,
		state:     firstState(pod),
	}
	alive := make(chan struct{})
	w.stop = sync.OnceFunc(func() { close(alive) })
	w.begin = func() {
		l.start(func(ctx context.Context) { w.run(ctx, alive) })
	}
	if mustStop(pod) {
		w.stop()
	}
	return w
}

// mustStop tells whether the API wants a pod's containers to end: it is being deleted, or somebody
// gave it a terminal phase.
func mustStop(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || terminal(pod.Status.Phase)
}

// terminal tells whether a pod of this phase never runs again.
func terminal(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

// update takes in the pod's current state in the API.
func (w *podWorker) update(pod *corev1.Pod, gone bool) {
	w.mu.Lock()
	if pod != nil {
		w.pod = pod
	}
	w.gone = w.gone || gone
	end := w.gone || mustStop(w.pod)
	w.mu.Unlock()
	if end {
		w.stop()
	}
	w.poke()
}

// poke makes run look at what changed.
func (w *podWorker) poke() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// current returns the pod as last seen, and whether it is gone.
func (w *podWorker) current() (pod *corev1.Pod, gone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pod, w.gone
}

// run takes the pod through its life. It returns when the pod is gone from node and API, or when ctx
// ends because the node crashed: then it leaves everything as it is.
func (w *podWorker) run(ctx context.Context, stopped <-chan struct{}) {
	alive, cancel := context.WithCancel(ctx)
	defer cancel()
	select {
	case <-stopped: // it is too late for this pod: not even a volume may be opened
		cancel()
	default:
		w.l.start(func(context.Context) {
			select {
			case <-stopped:
				cancel()
			case <-alive.Done():
			}
		})
	}
	if w.prepare(alive) {
		w.runContainers(ctx, alive)
	}
	w.finish(ctx)
	if ctx.Err() == nil {
		w.l.forget(w)
	}
}

// prepare brings the pod's volumes to the node, and tells whether its containers can start.
func (w *podWorker) prepare(alive context.Context) bool {
	if alive.Err() != nil {
		return false
	}
	// Only for show, except after a reboot: then the API must learn that the containers it believes
	// to be running are not. What fails is made up for by the next report.
	_ = w.tryPostStatus(alive)
	if !w.resolveVolumes(alive) {
		return false
	}
	w.l.volumes.claim(w.uid, w.volumes)
	w.l.volumesChanged()
	for _, v := range w.volumes {
		if !w.l.waitAttached(alive, v) {
			return false
		}
	}
	if pod, _ := w.current(); !sleep(alive, durationAnnotation(pod, AnnotationMountDelay, 0)) {
		return false
	}
	for _, v := range w.volumes {
		if !v.block && !w.open(alive, v) {
			return false
		}
	}
	return sleep(alive, w.l.cfg.Timings.podStart())
}

// resolveVolumes finds the pod's volumes, and tells whether that came before ctx ended.
func (w *podWorker) resolveVolumes(ctx context.Context) bool {
	pod, _ := w.current()
	for {
		volumes, err := w.l.resolve(pod)
		if err == nil {
			w.volumes = volumes
			return true
		}
		if !sleep(ctx, w.l.cfg.Timings.VolumeLoop) {
			w.l.log.Info("the pod's volumes were never found", "pod", w.name, "error", err.Error())
			return false
		}
	}
}

// open opens a volume if the pod ever does, and tells whether it succeeded before ctx ended.
func (w *podWorker) open(ctx context.Context, v volume) bool {
	pod, _ := w.current()
	if !v.opened(pod) {
		return true
	}
	t := w.l.cfg.Timings
	ok := retry(ctx, t.RetryMin, t.RetryMax, func(context.Context) error {
		err := w.l.cfg.Storage.Open(v.resource, w.l.node, v.readOnly)
		if err != nil {
			w.l.log.Info("can not open the volume, will retry", "pod", w.name, "volume", v.pv, "error", err.Error())
		}
		return err
	})
	if ok {
		w.opened = append(w.opened, v)
	}
	return ok
}

// runContainers runs the pod's containers until they have ended by themselves, or alive or ctx ends.
func (w *podWorker) runContainers(ctx, alive context.Context) {
	for _, v := range w.volumes {
		if v.block && !w.open(alive, v) {
			return
		}
	}
	pod, _ := w.current()
	if runner := w.l.cfg.Runner; runner != nil && runner.Runs(pod) {
		w.runProcesses(ctx, alive)
		return
	}
	w.setState(func(s *podState) { s.started(time.Now()) })
	var completed <-chan time.Time
	if d := durationAnnotation(pod, AnnotationRunFor, 0); d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		completed = timer.C
	}
	if w.serve(alive, completed) {
		return // completed by itself: no process has to be stopped
	}
	w.stopContainers(ctx)
}

// serve keeps the pod's status up to date until alive ends or completed fires, and tells whether the
// latter came first.
func (w *podWorker) serve(alive context.Context, completed <-chan time.Time) bool {
	for {
		w.postStatus(alive)
		select {
		case <-alive.Done():
			return false
		case <-completed:
			return true
		case <-w.changed:
		}
	}
}
