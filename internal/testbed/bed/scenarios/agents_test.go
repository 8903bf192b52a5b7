package scenarios_test

import (
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/bedtest"
)

// besideAgents is the crash of a node while a node agent of 1.x runs on another one: the controller observes, and goes on when the agent
// has gone. Who begins to lead looks for agents at once.
func besideAgents(s *bedtest.Scenario) {
	w := s.Workload("db")
	pod := s.Start(w)
	end := runAgent(s, s.Nodes[2])
	leader, err := s.Leader(s.Ctx)
	s.Must(err)
	s.Must(s.KillController(leader, syscall.SIGKILL))
	waitUntil(s, "another replica to lead", func() bool {
		next, err := s.Leader(s.Ctx)
		return err == nil && next != "" && next != leader
	})
	s.Crash(s.Nodes[0])
	leftAlone(s, calm, pod)
	waitEvent(s, string(failover.NodeAgentRuns), "Pod", s.Name, pod.Name)
	if keptAway(s, s.Nodes[0]) {
		s.T.Error("the node is tainted while an agent runs")
	}
	end()
	gone := time.Now()
	s.WaitMoved(w, s.Nodes[0], gone)
	movedCleanly(s, w, s.Nodes[0])
}

// runAgent lets a node agent of 1.x run on a node, beside which the controller only observes, and returns what ends that.
func runAgent(s *bedtest.Scenario, node string) (end func()) {
	agents := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "agents"}}
	labels := map[string]string{"app": "agents"}
	agents.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	agents.Spec.Template.Labels = labels
	agents.Spec.Template.Spec = barePod(s, "", "example.com/piraeusdatastore/piraeus-ha-controller:v1.3.2").Spec
	agents.Spec.Template.Spec.Containers[0].Args = []string{"/agent"}
	agents.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	s.Must(s.Client.Create(s.Ctx, agents))
	s.Must(s.WaitFor(s.Ctx, "the node agent to run", func() (bool, error) {
		err := s.Client.Get(s.Ctx, client.ObjectKeyFromObject(agents), agents)
		return agents.Status.NumberReady > 0, err
	}))
	return func() {
		s.Must(s.Client.Delete(s.Ctx, agents, client.PropagationPolicy(metav1.DeletePropagationForeground)))
		s.Must(s.WaitFor(s.Ctx, "the node agent to go", func() (bool, error) {
			err := s.Client.Get(s.Ctx, client.ObjectKeyFromObject(agents), agents)
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		}))
	}
}
