package controllers

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
)

const (
	// agentsInterval is how often node agents of 1.x are looked for while none runs: nobody brings them often.
	agentsInterval = 5 * time.Minute
	// agentsSoon is how often while one runs, so that fail-over goes on soon after the last one has gone.
	agentsSoon = 15 * time.Second
	// agentsRetry is how soon they are looked for again after a look has failed.
	agentsRetry = 5 * time.Second
	// agentsMemory is for how long it is believed that none runs.
	agentsMemory = 3 * agentsInterval
	// listedAtOnce is how many pods one answer of the API server has when many are listed.
	listedAtOnce = 500
)

// failureOfAgents says in the log what cannot be done.
const failureOfAgents = "Cannot tell whether node agents of 1.x run"

// ofDaemonSets selects the pods that may be of a DaemonSet. The controllers of DaemonSets and of StatefulSets set the first label on each of
// their pods, that of StatefulSets the second one as well.
const ofDaemonSets = appsv1.ControllerRevisionHashLabelKey + ",!" + appsv1.StatefulSetPodNameLabel

// nodeAgents knows whether node agents of 1.x run. They remove pods and attachments by rules of their own, so that this controller only
// observes as long as one does. Every replica looks for them, so that a new leader need not begin with a list of pods. It changes nothing.
type nodeAgents struct {
	live  client.Reader
	clock clock.PassiveClock

	mu sync.Mutex
	// running is how many run, by the DaemonSet that they are of. looked is when they were looked for with success the last time, and tried
	// when they were looked for at all.
	running       map[string]int
	looked, tried time.Time
	// failure is why the last look has failed; nil where it has not.
	failure error
}

// keep looks for them when it is time to.
func (a *nodeAgents) keep(ctx context.Context) error {
	if !a.due() {
		return nil
	}
	return a.look(ctx)
}

func (a *nodeAgents) due() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	every := agentsInterval
	if a.failure != nil || a.looked.IsZero() {
		every = agentsRetry
	} else if len(a.running) > 0 {
		every = agentsSoon
	}
	return a.tried.IsZero() || a.clock.Now().Sub(a.tried) >= every
}

// look looks for them now.
func (a *nodeAgents) look(ctx context.Context) error {
	now := a.clock.Now()
	running, err := a.list(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tried, a.failure = now, err
	if err != nil {
		return err
	}
	if news := !maps.Equal(running, a.running); news && len(running) > 0 {
		ctrl.LoggerFrom(ctx).Info("Node agents of 1.x run, so that nothing is moved", "agents", running)
	} else if news {
		ctrl.LoggerFrom(ctx).Info("Node agents of 1.x run no more, so that fail-over goes on")
	}
	a.running, a.looked = running, now
	return nil
}

// list counts those that run, by their DaemonSets. The cache has selected pods only: they are read past it, a part at a time.
func (a *nodeAgents) list(ctx context.Context) (map[string]int, error) {
	selector, err := labels.Parse(ofDaemonSets)
	if err != nil {
		return nil, err
	}
	running := make(map[string]int)
	return running, eachPod(ctx, a.live, 0, func(pod *corev1.Pod) error {
		if cluster.IsNodeAgent(pod) && cluster.Runs(pod) {
			running[cluster.Key(pod.Namespace, metav1.GetControllerOfNoCopy(pod).Name)]++
		}
		return nil
	}, client.MatchingLabelsSelector{Selector: selector})
}

// count is how many run, as far as is known.
func (a *nodeAgents) count() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, pods := range a.running {
		n += pods
	}
	return n
}

// halts says why this controller only observes; it is empty where no agent runs. Of agents that were seen it is believed that they run until
// a look shows that they do not; that none does is believed for some time, and before the first look it is not known.
func (a *nodeAgents) halts() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case len(a.running) > 0:
		return cluster.AgentsRun(slices.Sorted(maps.Keys(a.running)))
	case !a.looked.IsZero() && a.clock.Now().Sub(a.looked) <= agentsMemory:
		return ""
	case a.failure != nil:
		return "cannot tell whether node agents of 1.x run, which would do the same work: " + a.failure.Error()
	}
	return "it is not known yet whether node agents of 1.x run, which would do the same work"
}
