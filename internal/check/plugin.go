package check

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/forecast"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/options"
)

// program is the program in the controller's pods.
const program = "/piraeus-ha-controller"

// asker returns who asks.
func (c *commandLine) asker() (asker, error) {
	if !c.plugin {
		return here, nil
	}
	config, err := c.cluster.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the Kubernetes API: %w", err)
	}
	config = rest.CopyConfig(config)
	options.Tune(config)
	scheme := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(scheme))
	utilruntime.Must(appsv1.AddToScheme(scheme))
	api, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to the Kubernetes API: %w", err)
	}
	return replicas{api: api, controller: c.controller, exec: c.kubectl}.ask, nil
}

// kubectl runs a command in a pod by kubectl exec, which knows how to get there, and returns what the command writes.
func (c *commandLine) kubectl(ctx context.Context, pod types.NamespacedName, command ...string) ([]byte, error) {
	var args []string
	c.own.VisitAll(func(f *pflag.Flag) {
		if f.Changed && f.Name != "namespace" {
			args = append(args, "--"+f.Name+"="+f.Value.String())
		}
	})
	args = append(args, "--namespace="+pod.Namespace, "exec", pod.Name, "--")
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "kubectl", append(args, command...)...) //nolint:gosec // arguments, not a shell's line
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run() // the exit status is that of the command, which answers all the same
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || stdout.Len() == 0) {
		return nil, fmt.Errorf("%w: %s", err, lastLine(stderr.String()))
	}
	return stdout.Bytes(), nil
}

// replicas are those of the controller in a cluster.
type replicas struct {
	api        client.Reader
	controller types.NamespacedName
	exec       func(ctx context.Context, pod types.NamespacedName, command ...string) ([]byte, error)
}

// ask asks the leader or, if that is not possible, another replica. That none answers is an answer, too.
func (r replicas) ask(ctx context.Context, q forecast.Question) (forecast.Report, error) {
	if q.Namespace != "" { // the controller may not read whether it exists
		if err := r.api.Get(ctx, client.ObjectKey{Name: q.Namespace}, &corev1.Namespace{}); apierrors.IsNotFound(err) {
			return forecast.Report{}, fmt.Errorf("there is no namespace %q", q.Namespace)
		}
	}
	var deployment appsv1.Deployment
	if err := r.api.Get(ctx, r.controller, &deployment); apierrors.IsNotFound(err) {
		return absent(fmt.Sprintf("there is no Deployment %s", r.controller), nil,
			"install the controller by deploy/all.yaml, or name its Deployment by --controller=namespace/name"), nil
	} else if err != nil {
		return forecast.Report{}, fmt.Errorf("reading the controller's Deployment %s: %w", r.controller, err)
	}
	selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
	if err != nil {
		return forecast.Report{}, fmt.Errorf("reading the selector of Deployment %s: %w", r.controller, err)
	}
	var pods corev1.PodList
	if err := r.api.List(ctx, &pods, client.InNamespace(r.controller.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return forecast.Report{}, fmt.Errorf("listing the controller's pods: %w", err)
	}
	slices.SortFunc(pods.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	report, reasons := r.first(ctx, q, running(pods.Items, true))
	if report != nil {
		return *report, nil
	}
	if ctx.Err() != nil {
		return forecast.Report{}, fmt.Errorf("no replica has answered in time: %s", strings.Join(reasons, "; "))
	}
	report, failed := r.first(ctx, q, running(pods.Items, false))
	if report != nil { // it knows why it is not ready
		report.Findings = slices.Insert(report.Findings, 0, notRunning("no replica of Deployment "+r.controller.String()+" is ready", reasons, lookAtThem))
		return *report, nil
	}
	reasons = slices.Concat(reasons, failed, whyNone(&deployment, pods.Items))
	return absent(fmt.Sprintf("no replica of Deployment %s answers", r.controller), reasons, lookAtThem), nil
}

// whyNone returns why none of the pods of a Deployment runs.
func whyNone(deployment *appsv1.Deployment, pods []corev1.Pod) (reasons []string) {
	for i := range pods {
		if why := whyNotRunning(&pods[i]); why != "" {
			reasons = append(reasons, pods[i].Name+": "+why)
		}
	}
	for _, c := range deployment.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			reasons = append(reasons, c.Message)
		}
	}
	if len(pods) == 0 && len(reasons) == 0 {
		reasons = append(reasons, "it has no pod: see its replicas")
	}
	return reasons
}

// running returns the pods in which the controller runs and is ready, or is not.
func running(pods []corev1.Pod, ready bool) []corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod corev1.Pod) bool {
		return whyNotRunning(&pod) != "" || pod.DeletionTimestamp != nil || cluster.Runs(&pod) != ready
	})
}

// first asks one pod after the other, and the leader if one says which it is. It returns no report if none answers, and why.
func (r replicas) first(ctx context.Context, q forecast.Question, pods []corev1.Pod) (_ *forecast.Report, failed []string) {
	for i := range pods {
		report, err := r.askPod(ctx, q, pods[i].Name)
		if err != nil {
			failed = append(failed, fmt.Sprintf("%s: %v", pods[i].Name, err))
			continue
		}
		if report.Process.Leads || report.Process.Leader == "" {
			return &report, nil
		}
		namespace, leader, _ := strings.Cut(report.Process.Leader, "/")
		if namespace == r.controller.Namespace {
			if fromLeader, err := r.askPod(ctx, q, leader); err == nil {
				return &fromLeader, nil
			}
		}
		return &report, nil
	}
	return nil, failed
}

func (r replicas) askPod(ctx context.Context, q forecast.Question, pod string) (forecast.Report, error) {
	command := []string{program, "check", "--output=" + formatJSON}
	if q.Namespace != "" {
		command = append(command, "--namespace="+q.Namespace)
	}
	if q.Node != "" {
		command = append(command, "--node="+q.Node)
	}
	out, err := r.exec(ctx, types.NamespacedName{Namespace: r.controller.Namespace, Name: pod}, command...)
	if err != nil {
		return forecast.Report{}, err
	}
	return forecast.Decode(bytes.NewReader(out))
}

const lookAtThem = "see to what is named; else look at the controller's pods by kubectl describe, and at their logs"

// absent is the answer if no replica answers.
func absent(message string, reasons []string, remedy string) forecast.Report {
	return forecast.Report{
		Version: forecast.Version, Verdict: "Unprotected", Message: message + ", so nothing is moved", Volumes: []forecast.Row{},
		Findings: []forecast.Finding{notRunning(message, reasons, remedy)},
	}
}

func notRunning(message string, reasons []string, remedy string) forecast.Finding {
	return forecast.Finding{Severity: forecast.Error, Code: forecast.ControllerNotRunning, Message: message, Objects: reasons, Remedy: remedy}
}

// defaultContainer is the annotation of a pod that names the container which kubectl exec goes to.
const defaultContainer = "kubectl.kubernetes.io/default-container"

// whyNotRunning returns why the controller does not run in a pod; empty if it does.
func whyNotRunning(pod *corev1.Pod) string {
	for _, c := range pod.Status.ContainerStatuses {
		if c.Name != cmp.Or(pod.Annotations[defaultContainer], c.Name) || c.State.Running != nil {
			continue
		}
		why := string(pod.Status.Phase)
		if waiting := c.State.Waiting; waiting != nil {
			why = strings.TrimSuffix(waiting.Reason+": "+lastLine(waiting.Message), ": ")
			if last := c.LastTerminationState.Terminated; last != nil && last.Message != "" { // what it wrote last says more than when it is restarted
				why = waiting.Reason + ": " + lastLine(last.Message)
			}
		} else if ended := c.State.Terminated; ended != nil {
			why = strings.TrimSuffix(ended.Reason+": "+lastLine(ended.Message), ": ")
		}
		return why
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Reason + ": " + c.Message
		}
	}
	if pod.Status.Phase != corev1.PodRunning {
		return string(pod.Status.Phase)
	}
	return ""
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
