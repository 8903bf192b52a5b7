package controllers

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// agent adds the pod of a node agent of 1.x to a node, as its DaemonSet makes it, which is ready.
func (w *world) agent(node string) *corev1.Pod {
	w.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "piraeus-datastore", Name: "ha-controller-" + node, Labels: map[string]string{"controller-revision-hash": "5d8f"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "ha-controller", Controller: new(true)}},
	}}
	pod.Spec.NodeName = node
	w.must(w.Client().Create(w.ctx, pod))
	w.ready(pod, true)
	return pod
}

// ready has Kubernetes say whether a pod is ready.
func (w *world) ready(pod *corev1.Pod, is bool) {
	w.Helper()
	w.must(w.Client().Get(w.ctx, client.ObjectKeyFromObject(pod), pod))
	status := corev1.ConditionFalse
	if is {
		status = corev1.ConditionTrue
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
	w.must(w.Client().Status().Update(w.ctx, pod))
}

// withoutAgent deletes the pod of an agent.
func (w *world) withoutAgent(pod *corev1.Pod) {
	w.Helper()
	w.must(w.Client().Delete(w.ctx, pod, client.GracePeriodSeconds(0)))
}

// besideAgents is a story in which node agents run on A and T before the controller comes.
func besideAgents(t *testing.T, story func(w *world, p *process, agents []*corev1.Pod)) {
	t.Helper()
	inWorld(t, virtual.Options{}, func(w *world) {
		agents := []*corev1.Pod{w.agent(nodeA), w.agent(nodeT)}
		p := w.startProcess("one", defaults())
		p.leads()
		w.volume("db")
		w.workload("db", selected)
		w.pass(time.Minute)
		story(w, p, agents)
	})
}

// wantObserved fails the story unless the controller has changed nothing about a lost volume, and has said why.
func (p *process) wantObserved() {
	w := p.world
	w.Helper()
	w.wantUntouched()
	if verdict, reason := p.said("db", nodeA); verdict != failover.Blocked || reason != failover.NodeAgentRuns {
		w.Errorf("told %s: %s", verdict, reason)
	}
	if !p.events.has(string(failover.NodeAgentRuns), "Pod", "db-0") {
		w.Errorf("events: %q", p.events.texts())
	}
	if n := p.shown("blocked_volumes reason=NodeAgentRuns"); n != 1 {
		w.Errorf("%g volumes are blocked, want 1", n)
	}
}

// Two that move pods by rules of their own disturb each other: who was there before goes on, and the other one says so.
func TestNodeAgentsAreLeftToItUntilTheyAreGone(t *testing.T) {
	besideAgents(t, func(w *world, p *process, agents []*corev1.Pod) {
		if n := p.shown("node_agents"); n != 2 {
			t.Errorf("%g agents run, want 2", n)
		}
		w.Crash(nodeA)
		w.ready(agents[0], false) // as Kubernetes says of all pods on a node that it does not hear of
		w.pass(2 * time.Minute)
		p.wantObserved()
		const why = "NodeAgentRuns of Pod db-0: the pod stays on node node-a with volume db: node agents of 1.x run " +
			"(DaemonSet piraeus-datastore/ha-controller), which remove pods and attachments by rules of their own; until they are removed " +
			"this controller only observes"
		if texts := strings.Join(p.events.texts(), "\n"); !strings.Contains(texts, why) {
			t.Errorf("%q is not in\n%s", why, texts)
		}
		w.withoutAgent(agents[1]) // that on A stays in the API until the node is back
		w.until(40*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		if n := p.shown("node_agents"); n != 0 {
			t.Errorf("%g agents run, want none", n)
		}
	})
}

func TestNodeAgentsThatComeLaterAreSeen(t *testing.T) {
	scene(t, func(w *world, p *process) {
		w.agent(nodeT)
		w.pass(agentsInterval + time.Second)
		w.Crash(nodeA)
		w.pass(2 * time.Minute)
		p.wantObserved()
	})
}

// What looks like an agent and does not run moves nothing: there would be nobody to do it.
func TestNodeAgentsThatDoNotRunHoldNothingUp(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(w *world, agent *corev1.Pod){
		"it is not ready": func(w *world, agent *corev1.Pod) { w.ready(agent, false) },
		"it is not of 1.x": func(w *world, agent *corev1.Pod) {
			w.replaceAgent(agent, func(p *corev1.Pod) { p.OwnerReferences[0].Name = "csi-node" })
		},
		"it is of a Deployment": func(w *world, agent *corev1.Pod) {
			w.replaceAgent(agent, func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "ReplicaSet" })
		},
		"it is on no node": func(w *world, agent *corev1.Pod) { w.replaceAgent(agent, func(p *corev1.Pod) { p.Spec.NodeName = "" }) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, virtual.Options{}, func(w *world) {
				change(w, w.agent(nodeT))
				p := w.startProcess("one", defaults())
				p.leads()
				w.volume("db")
				w.workload("db", selected)
				w.pass(time.Minute)
				w.Crash(nodeA)
				w.until(40*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
			})
		})
	}
}

// replaceAgent puts another pod in the place of an agent.
func (w *world) replaceAgent(agent *corev1.Pod, change func(*corev1.Pod)) {
	w.Helper()
	w.withoutAgent(agent)
	agent.UID, agent.ResourceVersion = "", ""
	change(agent)
	w.must(w.Client().Create(w.ctx, agent))
	w.ready(agent, true)
}

// A taint that was set before the agents came goes with its cause, and is neither renewed nor set again: they set the same one.
func TestATaintIsTakenOffBesideNodeAgents(t *testing.T) {
	scene(t, func(w *world, p *process) {
		w.Crash(nodeA)
		w.until(time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		w.agent(nodeT)
		w.must(p.parts.agents.look(p.ctx))
		patches := w.nodePatches()
		w.pass(taintExpiry/2 + 2*time.Minute) // after half of it the taint would be renewed
		if more := w.nodePatches() - patches; more > 0 {
			t.Errorf("the node is written %d times while agents run", more)
		}
		w.Return(nodeA)
		w.until(3*time.Minute, "A takes pods again", func() bool { return w.tainted(nodeA) == "" })
	})
}

// As long as nobody knows whether agents run, nothing is moved.
func TestNothingIsMovedUntilItIsKnownWhetherNodeAgentsRun(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		w.API.Fail(func(r apimodel.Request) error {
			if r.Actor == controllerActor+"one" && r.Verb == apimodel.VerbList && r.Kind == "Pod" && r.Node == "" {
				return errors.New("the list is too long")
			}
			return nil
		})
		p := w.startProcess("one", defaults())
		p.leads()
		w.volume("db")
		w.workload("db", selected)
		w.pass(time.Minute)
		w.Crash(nodeA)
		w.pass(2 * time.Minute)
		p.wantObserved()
		if texts := strings.Join(p.events.texts(), "\n"); !strings.Contains(texts, "cannot tell whether node agents of 1.x run") || !strings.Contains(texts, "the list is too long") {
			t.Errorf("events:\n%s", texts)
		}
		w.API.Fail(nil)
		w.until(30*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
	})
}

// That no agent runs is believed for a while, and that one runs until it is seen that it does not.
func TestWhatIsKnownOfNodeAgentsIsBelieved(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		var failure error
		w.ofController(func(apimodel.Request) error { return failure })
		known := &nodeAgents{live: w.API.Client(controllerActor + "one"), clock: defaults().Clock}
		look := func(after time.Duration, err error) string {
			<-time.After(after)
			failure = err
			_ = known.look(w.ctx)
			return known.halts()
		}
		if said := known.halts(); !strings.HasPrefix(said, "it is not known yet") {
			t.Errorf("before the first look: %q", said)
		}
		if said := look(0, nil); said != "" {
			t.Errorf("without agents: %q", said)
		}
		if said := look(agentsMemory, errors.New("no")); said != "" {
			t.Errorf("for a quarter of an hour it is believed: %q", said)
		}
		if said := look(1, errors.New("no")); !strings.HasPrefix(said, "cannot tell whether node agents of 1.x run") {
			t.Errorf("after that: %q", said)
		}
		agent := w.agent(nodeT)
		if said := look(0, nil); !strings.HasPrefix(said, "node agents of 1.x run") {
			t.Errorf("with one: %q", said)
		}
		w.withoutAgent(agent)
		if said := look(24*time.Hour, errors.New("no")); !strings.HasPrefix(said, "node agents of 1.x run") {
			t.Errorf("unseen for a day: %q", said)
		}
		if said := look(0, nil); said != "" {
			t.Errorf("when it is seen that it has gone: %q", said)
		}
	})
}

// podCounter counts the pods that are listed through it.
type podCounter struct {
	client.Reader

	pods int
}

func (c *podCounter) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	err := c.Reader.List(ctx, list, opts...)
	if pods, ok := list.(*corev1.PodList); ok {
		c.pods += len(pods.Items)
	}
	return err
}

// A large cluster has many pods of StatefulSets: every replica would read them all every few minutes.
func TestNodeAgentsAreLookedForAmongPodsOfDaemonSetsAlone(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		w.agent(nodeT)
		for _, pod := range []metav1.ObjectMeta{
			{Name: "db-0", Labels: map[string]string{"controller-revision-hash": "db-6d5f", "statefulset.kubernetes.io/pod-name": "db-0"}},
			{Name: "web-6d5f-x2x4z", Labels: map[string]string{"pod-template-hash": "6d5f"}},
		} {
			pod.Namespace = "default"
			w.must(w.Client().Create(w.ctx, &corev1.Pod{ObjectMeta: pod}))
		}
		live := &podCounter{Reader: w.API.Client(controllerActor + "one")}
		known := &nodeAgents{live: live, clock: defaults().Clock}
		w.must(known.look(w.ctx))
		if live.pods != 1 || known.count() != 1 {
			t.Errorf("%d pods were read and %d agents found, want the one that a DaemonSet owns", live.pods, known.count())
		}
	})
}
