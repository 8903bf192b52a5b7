package controllers

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// shown returns what a metric of the controller shows at the moment; zero where the series does not exist, too.
func (p *process) shown(series string) float64 {
	p.parts.gauges.show(p.ctx)
	return p.counted()["piraeus_ha_controller_"+series]
}

// Whoever looks at the metrics during a fail-over sees it begin and end.
func TestAFailoverIsShownFromItsFirstSignToItsEnd(t *testing.T) {
	scene(t, func(w *world, p *process) {
		if n := p.shown("volumes verdict=NotLost"); n != 1 {
			t.Errorf("%g volumes are well, want 1", n)
		}
		decided := p.counted()["piraeus_ha_controller_event_to_decision_seconds"]
		w.Crash(nodeA)
		w.until(time.Minute, "the grace is shown", func() bool { return p.shown("volumes verdict=Pending") == 1 })
		if n := p.counted()["piraeus_ha_controller_event_to_decision_seconds"]; n == decided {
			t.Error("it was not noted how long the event waited for a decision")
		}
		w.until(time.Minute, "the taint is shown", func() bool { return p.shown("tainted_nodes taint=lost-quorum") == 1 })
		w.until(time.Minute, "the fail-over is completed", func() bool {
			return p.shown("failovers_completed_total reason=NodeUnreachable") == 1
		})
		w.until(time.Minute, "the volume is well", func() bool {
			return p.shown("volumes verdict=NotLost") == 1 && p.shown("volumes verdict=Lost") == 0
		})
		if n := p.shown("blocked_volumes reason=NodeUnreachable"); n != 0 {
			t.Errorf("%g volumes are blocked while they are moved", n)
		}
		if n := p.counted()["piraeus_ha_controller_failover_duration_seconds stage=total"]; n != 1 {
			t.Errorf("the duration was noted %g times, want once", n)
		}
		w.until(time.Minute, "the silent kubelet is shown", func() bool { return p.shown("silent_kubelets") == 1 })
		w.Return(nodeA)
		w.until(3*time.Minute, "all is well", func() bool {
			return p.shown("silent_kubelets") == 0 && p.shown("tainted_nodes taint=lost-quorum") == 0
		})
	})
}

// A fail-over that stops at what it may not read counts that, and goes on when it may.
func TestWhatALookMayNotReadIsCounted(t *testing.T) {
	scene(t, func(w *world, p *process) {
		w.API.Fail(func(r apimodel.Request) error {
			if r.Kind == "VolumeAttachment" && r.Verb == apimodel.VerbGet && r.Actor == controllerActor+p.name {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "volumeattachments"}, r.Name, errors.New("taken away"))
			}
			return nil
		})
		w.Crash(nodeA)
		w.until(time.Minute, "the error is counted", func() bool { return p.shown("failover_errors_total code=403 step=look") > 0 })
		w.API.Fail(nil)
		w.until(time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
	})
}

// What keeps a volume from being moved is shown as long as it does: a gate at once, all else after the time after which pods are told.
func TestABlockedVolumeIsShownAsLongAsItIs(t *testing.T) {
	scene(t, func(w *world, p *process) {
		w.Crash(nodeB)
		w.pass(time.Minute)
		if n := p.shown("blocked_volumes reason=NoSurvivor"); n != 0 {
			t.Errorf("%g volumes are blocked before anything is lost", n)
		}
		w.Crash(nodeA)
		w.pass(20 * time.Second)
		if n := p.shown("blocked_volumes reason=NoSurvivor"); n != 0 {
			t.Errorf("%g volumes are blocked before anybody was told so", n)
		}
		w.until(time.Minute, "the volume is shown to be blocked", func() bool { return p.shown("blocked_volumes reason=NoSurvivor") == 1 })
		w.Return(nodeA)
		w.Return(nodeB)
		w.until(2*time.Minute, "the volume is shown to be well", func() bool {
			return p.shown("blocked_volumes reason=NoSurvivor") == 0 && p.shown("volumes verdict=NotLost") == 1
		})
	})
}

// Agents that do the work in another way are counted by what the API lists: the cache does not have them. What an agent means for pods is foreseen.
func TestANodeAgentIsCounted(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		cfg := defaults()
		p := w.startProcess("one", cfg)
		p.leads()
		w.volume("selected")
		w.workload("selected", selected)
		w.replaceAgent(w.agent(nodeT), func(agent *corev1.Pod) {
			agent.OwnerReferences[0].Name = "ha"
			agent.Spec.Containers = []corev1.Container{{Name: "ha", Image: "registry.example.com:5000/piraeus-ha-controller:v1.3.0@sha256:0"}}
		})
		w.pass(agentsInterval + 2*checkInterval)
		if n := p.shown("node_agents"); n != 1 {
			t.Errorf("%g node agents run, want 1", n)
		}
		w.countProtection(p)
		if n := p.shown("pods protection=Unprotected"); n != 1 {
			t.Errorf("%g pods are unprotected beside the agent, want 1", n)
		}
		if n := p.shown("unprotected_pods reason=NodeAgentRuns"); n != 1 {
			t.Errorf("%g pods are unprotected for the agent, want 1", n)
		}
	})
}

// onePodAtATime answers a list of pods by one pod, and how to go on.
type onePodAtATime struct{ client.Reader }

func (r onePodAtATime) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if err := r.Reader.List(ctx, list, options...); err != nil {
		return err
	}
	var asked client.ListOptions
	asked.ApplyOptions(options)
	at, _ := strconv.Atoi(asked.Continue)
	pods := list.(*corev1.PodList)
	if pods.Items = pods.Items[at:]; len(pods.Items) > 1 {
		pods.Items, pods.Continue = pods.Items[:1], strconv.Itoa(at+1)
	}
	return nil
}

// Agents are counted in all parts of an answer.
func TestAgentsAreCountedInEachPartOfTheAnswer(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		p := w.startProcess("one", defaults())
		p.leads()
		for _, node := range []string{nodeA, nodeB, nodeT} {
			w.agent(node)
		}
		agents := &nodeAgents{live: onePodAtATime{p.parts.agents.live}, clock: p.parts.agents.clock}
		w.must(agents.look(w.ctx))
		if n := agents.count(); n != 3 {
			t.Errorf("%d node agents run, want 3", n)
		}
	})
}
