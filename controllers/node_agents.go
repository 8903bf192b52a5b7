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
	// agentsInterval is how often pods are listed to find node agents of 1.x while none runs.
	agentsInterval = 5 * time.Minute
	// agentsSoon is how often while one runs, so that fail-over goes on soon after the last one has gone.
	agentsSoon = 3 * checkInterval
	// agentsMemory is for how long it is believed that none runs.
	agentsMemory = 3 * agentsInterval
)

// ofDaemonSets selects the pods that may be of a DaemonSet. The controllers of DaemonSets and of StatefulSets set the first label on each of
// their pods, that of StatefulSets the second one as well.
const ofDaemonSets = appsv1.ControllerRevisionHashLabelKey + ",!" + appsv1.StatefulSetPodNameLabel

// nodeAgents knows whether node agents of 1.x run. They remove pods and attachments by their own rules: this controller only observes as long as
// one runs. Every replica lists them, and a new leader need not wait for a list of pods. It changes nothing.
type nodeAgents struct {
	live  client.Reader
	clock clock.PassiveClock

	mu sync.Mutex
	// running is how many run, by DaemonSet. looked is when they were last listed, and due when they are listed again.
	running     map[string]int
	looked, due time.Time
	// failure is why they could not be listed the last time; nil if they were.
	failure error
}

func (a *nodeAgents) keep(ctx context.Context) error {
	a.mu.Lock()
	due := !a.clock.Now().Before(a.due)
	a.mu.Unlock()
	if !due {
		return nil
	}
	return a.look(ctx)
}

func (a *nodeAgents) look(ctx context.Context) error {
	now := a.clock.Now()
	running, err := a.list(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failure = err; err != nil {
		a.due = now.Add(checkInterval)
		return err
	}
	if news := !maps.Equal(running, a.running); news && len(running) > 0 {
		ctrl.LoggerFrom(ctx).Info("Node agents of 1.x run, so that nothing is moved", "agents", running)
	} else if news {
		ctrl.LoggerFrom(ctx).Info("Node agents of 1.x run no more, so that fail-over goes on")
	}
	a.running, a.looked, a.due = running, now, now.Add(agentsInterval)
	if len(running) > 0 {
		a.due = now.Add(agentsSoon)
	}
	return nil
}

// list counts those that run, by their DaemonSets. The cache has selected pods only: they are read past it, a part at a time.
func (a *nodeAgents) list(ctx context.Context) (map[string]int, error) {
	selector, err := labels.Parse(ofDaemonSets)
	if err != nil {
		return nil, err
	}
	running := make(map[string]int)
	err = cluster.EachPod(ctx, a.live, selector, func(pod *corev1.Pod) {
		if cluster.IsNodeAgent(pod) && cluster.Runs(pod) {
			running[cluster.Key(pod.Namespace, metav1.GetControllerOfNoCopy(pod).Name)]++
		}
	})
	return running, err
}

// count returns how many run, as far as is known.
func (a *nodeAgents) count() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, pods := range a.running {
		n += pods
	}
	return n
}

// halts returns why this controller only observes; empty if no agent runs. Agents that were listed count as running until a list shows that they do
// not. That none runs counts for some time, and is unknown before the first list.
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
