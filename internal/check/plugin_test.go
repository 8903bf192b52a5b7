package check

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/forecast"
)

// fleet are the replicas of a controller, as a person with kubectl finds them.
type fleet struct {
	pods []corev1.Pod
	// answers are those of the pods that answer.
	answers map[string]forecast.Report
	// asked are the pods that were asked, in order, with the options of the question.
	asked []string
	// conditions are those of the Deployment, and without is set if there is none.
	conditions []appsv1.DeploymentCondition
	without    bool
}

// replica adds a pod that runs, and is ready or not.
func (f *fleet) replica(name string, ready bool, change ...func(*corev1.Pod)) {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ha-controller", Name: name, Labels: map[string]string{"app": "ha"}}, Spec: corev1.PodSpec{NodeName: nodeA}}
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "controller", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}},
	}
	for _, c := range change {
		c(&pod)
	}
	f.pods = append(f.pods, pod)
}

// says lets a pod answer; leader is who leads.
func (f *fleet) says(pod, leader string, change ...func(*forecast.Report)) {
	report := forecast.Report{
		Version: forecast.Version, Verdict: failover.Protected, Message: "all is well",
		Process: forecast.Process{Pod: "ha-controller/" + pod, Leads: pod == leader, Leader: "ha-controller/" + leader},
	}
	for _, c := range change {
		c(&report)
	}
	if f.answers == nil {
		f.answers = make(map[string]forecast.Report)
	}
	f.answers[pod] = report
}

func (f *fleet) exec(_ context.Context, pod types.NamespacedName, command ...string) ([]byte, error) {
	f.asked = append(f.asked, strings.Join(append([]string{pod.Name}, command[3:]...), " "))
	report, ok := f.answers[pod.Name]
	if !ok {
		return nil, errors.New("exit status 1: container not found")
	}
	return json.Marshal(report)
}

// check prints what a person sees.
func (f *fleet) check(t *testing.T, args ...string) (string, Status, error) {
	t.Helper()
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ha-controller", Name: "piraeus-ha-controller"}}
	deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "ha"}}
	deployment.Status.Conditions = f.conditions
	builder := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	if !f.without {
		builder.WithObjects(deployment)
	}
	for i := range f.pods {
		builder.WithObjects(&f.pods[i])
	}
	c, err := parseCommandLine(true, args)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	status, err := run(t.Context(), c, replicas{api: builder.Build(), controller: c.controller, exec: f.exec}.ask, &out)
	return out.String(), status, err
}

// crashes lets a pod be restarted again and again, after it wrote some last lines.
func crashes(lines string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
			Reason: "CrashLoopBackOff", Message: "back-off 5m0s restarting failed container",
		}}
		pod.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Message: lines}
	}
}

func TestThePluginAsksTheLeader(t *testing.T) {
	t.Parallel()
	var f fleet
	for _, name := range []string{"ha-0", "ha-1", "ha-2"} {
		f.replica(name, true)
		f.says(name, "ha-2")
	}
	out, status, err := f.check(t, "-n", "shop", "--node", nodeB)
	if err != nil || status != StatusProtected || strings.Contains(out, "STANDBY") {
		t.Errorf("status %d, %v:\n%s", status, err, out)
	}
	want := []string{"ha-0 --namespace=shop --node=node-b", "ha-2 --namespace=shop --node=node-b"}
	if !slices.Equal(f.asked, want) {
		t.Errorf("asked %q, want %q", f.asked, want)
	}
}

// What is printed if the leader cannot be asked, or none is there.
func TestThePluginSaysWhoAnswers(t *testing.T) {
	t.Parallel()
	notRead := func(r *forecast.Report) {
		r.Verdict, r.Message = failover.Untold, "could not tell"
		r.Findings = []forecast.Finding{{Severity: forecast.Error, Code: forecast.MissingPermission, Objects: []string{"list pods"}, Remedy: "apply the roles"}}
	}
	for name, c := range map[string]struct {
		fleet  func(*fleet)
		status Status
		says   []string
	}{
		"the leader does not answer": {
			func(f *fleet) { f.replica("ha-0", true); f.replica("ha-1", true); f.says("ha-1", "ha-0") }, StatusProtected,
			[]string{"STANDBY: pod ha-controller/ha-1 answers, which does not lead", "kubectl -n ha-controller exec ha-0 -- /piraeus-ha-controller check", "All is well."},
		},
		"there is no Deployment": {
			func(f *fleet) { f.without = true }, StatusUnprotected,
			[]string{"ERROR ControllerNotRunning: there is no Deployment ha-controller/piraeus-ha-controller", "deploy/all.yaml", "so nothing is moved."},
		},
		"an option is wrong": {
			func(f *fleet) {
				f.replica("ha-0", false, crashes("starting\npiraeus-ha-controller: invalid option --max-lost-nodes=\"many\": must be a number\n"))
			}, StatusUnprotected,
			[]string{
				"ERROR ControllerNotRunning: no replica of Deployment ha-controller/piraeus-ha-controller answers",
				`- ha-0: CrashLoopBackOff: piraeus-ha-controller: invalid option --max-lost-nodes="many": must be a number`,
			},
		},
		"the image cannot be had": {
			func(f *fleet) {
				f.replica("ha-0", false, func(pod *corev1.Pod) {
					pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}}
				})
			}, StatusUnprotected, []string{"- ha-0: ImagePullBackOff: no such image"},
		},
		"no node takes the pod": {
			func(f *fleet) {
				f.replica("ha-0", false, func(pod *corev1.Pod) {
					pod.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
						Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes are available",
					}}}
				})
			}, StatusUnprotected, []string{"- ha-0: Unschedulable: 0/3 nodes are available"},
		},
		"no pod can be made": {
			func(f *fleet) {
				f.conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: "exceeded quota"}}
			}, StatusUnprotected, []string{"- exceeded quota"},
		},
		"no pod is wanted": {func(*fleet) {}, StatusUnprotected, []string{"- it has no pod: see its replicas"}},
		"a permission is missing, so none is ready": {
			func(f *fleet) { f.replica("ha-0", false); f.says("ha-0", "", notRead) }, StatusUnknown,
			[]string{"ERROR ControllerNotRunning: no replica of Deployment ha-controller/piraeus-ha-controller is ready", "ERROR MissingPermission", "- list pods"},
		},
		"none is ready or answers": {
			func(f *fleet) { f.replica("ha-0", false) }, StatusUnprotected, []string{"- ha-0: exit status 1: container not found"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var f fleet
			c.fleet(&f)
			out, status, err := f.check(t)
			if err != nil || status != c.status {
				t.Errorf("status %d, want %d, %v:\n%s", status, c.status, err, out)
			}
			rest := strings.Join(strings.Fields(out), " ")
			for _, words := range c.says {
				i := strings.Index(rest, words)
				if i < 0 {
					t.Fatalf("%q is not said where it is expected:\n%s", words, out)
				}
				rest = rest[i+len(words):]
			}
		})
	}
}

// A program and a controller of different releases must not misunderstand each other.
func TestThePluginDoesNotReadAnotherVersion(t *testing.T) {
	t.Parallel()
	var f fleet
	f.replica("ha-0", true)
	f.says("ha-0", "ha-0", func(r *forecast.Report) { r.Version++ })
	out, _, err := f.check(t)
	if err != nil || !strings.Contains(strings.Join(strings.Fields(out), " "), "use the one of the controller's release") {
		t.Errorf("%v:\n%s", err, out)
	}
}

// Who misspells a namespace must not be told that all is well there.
func TestANamespaceThatDoesNotExist(t *testing.T) {
	t.Parallel()
	var f fleet
	f.replica("ha-0", true)
	f.says("ha-0", "ha-0")
	out, status, err := f.check(t, "-n", "missing")
	if err == nil || err.Error() != `there is no namespace "missing"` || status != StatusUnknown || out != "" {
		t.Errorf("status %d, error %v, said %q", status, err, out)
	}
}

// The LINSTOR of whoever asks is no matter: the answer is that of the controller, with the LINSTOR that it reaches.
func TestAnotherLinstorOutsideChangesNothing(t *testing.T) { //nolint:paralleltest // of the environment
	t.Setenv("LS_CONTROLLERS", "http://127.0.0.1:3370")
	var f fleet
	f.replica("ha-0", true)
	onBench(t, nil, func(b *bench) {
		b.Linstor.Stop()
		report, err := b.ask(b.ctx, forecast.Question{})
		b.must(err)
		f.answers = map[string]forecast.Report{"ha-0": report}
	})
	out, status, err := f.check(t)
	if err != nil || status != StatusUnprotected || !strings.Contains(out, "LinstorUnreachable: ") || strings.Contains(out, "127.0.0.1") {
		t.Errorf("status %d, %v:\n%s", status, err, out)
	}
}

// Who is on which cluster decides where kubectl goes: it gets the options that say so, and none of check's own.
func TestKubectlIsGivenTheClusterThatWasAskedFor(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\necho \"$@\" >&2\necho '{\"version\":1}'\nprintf '%s ' \"$@\" > " + filepath.Join(dir, "args") + "\nexit 1\n"
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	c, err := parseCommandLine(true, []string{"--context", "production", "-n", "shop", "--node", nodeA})
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.kubectl(t.Context(), types.NamespacedName{Namespace: "ha-controller", Name: "ha-0"}, program, "check")
	if err != nil || !strings.Contains(string(out), "version") {
		t.Errorf("an answer with exit status 1 counts: %q, %v", out, err)
	}
	args, err := os.ReadFile(filepath.Join(dir, "args"))
	want := "--context=production --namespace=ha-controller exec ha-0 -- /piraeus-ha-controller check "
	if err != nil || string(args) != want {
		t.Errorf("kubectl got %q, want %q, %v", args, want, err)
	}
}
