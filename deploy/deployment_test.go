package deploy

import (
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/options"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/version"
)

// container returns the pod and its only container.
func container(t *testing.T) (corev1.PodTemplateSpec, corev1.Container) {
	t.Helper()

	pod := load(t).deployment.Spec.Template
	if len(pod.Spec.Containers) != 1 || len(pod.Spec.InitContainers) != 0 {
		t.Fatalf("the pod has %d containers and %d init containers, want one and none",
			len(pod.Spec.Containers), len(pod.Spec.InitContainers))
	}

	return pod, pod.Spec.Containers[0]
}

func TestReplicasAndSelectors(t *testing.T) {
	t.Parallel()

	all := load(t)
	if n := all.deployment.Spec.Replicas; n == nil || *n != 3 {
		t.Errorf("replicas = %v, want 3", n)
	}

	// The selector is immutable, and this is the one of 0.x.
	want := map[string]string{"app.kubernetes.io/name": name}
	if diff := cmp.Diff(&metav1.LabelSelector{MatchLabels: want}, all.deployment.Spec.Selector); diff != "" {
		t.Errorf("selector of the Deployment (-want +got):\n%s", diff)
	}

	pod := all.deployment.Spec.Template
	selectors := map[string]*metav1.LabelSelector{
		"Deployment":          all.deployment.Spec.Selector,
		"PodDisruptionBudget": all.budget.Spec.Selector,
	}

	for _, spread := range pod.Spec.TopologySpreadConstraints {
		selectors["spread over "+spread.TopologyKey] = spread.LabelSelector
	}

	if selectors["spread over "+corev1.LabelHostname] == nil {
		t.Error("the replicas are not spread over the nodes")
	}

	for of, selector := range selectors {
		s, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			t.Fatal(err)
		}

		if s.Empty() || !s.Matches(labels.Set(pod.Labels)) {
			t.Errorf("the selector %q of the %s does not select the pods %v", s, of, pod.Labels)
		}
	}
}

func TestDisruptionBudgetNeverBlocksADrain(t *testing.T) {
	t.Parallel()

	budget := load(t).budget.Spec
	if budget.MaxUnavailable == nil || budget.MaxUnavailable.IntValue() != 1 || budget.MinAvailable != nil {
		t.Errorf("maxUnavailable = %v, minAvailable = %v, want 1 and none", budget.MaxUnavailable, budget.MinAvailable)
	}

	if p := budget.UnhealthyPodEvictionPolicy; p == nil || *p != policyv1.AlwaysAllow {
		t.Errorf("unhealthyPodEvictionPolicy = %v, want AlwaysAllow", p)
	}
}

func TestSecurityContext(t *testing.T) {
	t.Parallel()

	pod, c := container(t)
	restricted := &corev1.PodSecurityContext{
		RunAsNonRoot:   new(true),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}

	// No user is named: some platforms pick one themselves and admit no other.
	if diff := cmp.Diff(restricted, pod.Spec.SecurityContext); diff != "" {
		t.Errorf("security context of the pod (-want +got):\n%s", diff)
	}

	confined := &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}

	if diff := cmp.Diff(confined, c.SecurityContext); diff != "" {
		t.Errorf("security context of the container (-want +got):\n%s", diff)
	}

	if pod.Spec.HostNetwork || pod.Spec.HostPID || pod.Spec.HostIPC || len(pod.Spec.Volumes) > 0 {
		t.Error("the pod shares something with its node, or has volumes")
	}

	if pod.Spec.ServiceAccountName != serviceAccount || pod.Spec.PriorityClassName != "system-cluster-critical" {
		t.Errorf("service account %q, priority class %q", pod.Spec.ServiceAccountName, pod.Spec.PriorityClassName)
	}
}

func TestProbesAndPortsAreWhereTheControllerListens(t *testing.T) {
	t.Parallel()

	_, c := container(t)
	defaults := options.Default()
	_, metrics, _ := net.SplitHostPort(defaults.MetricsBindAddress)
	want := map[string]string{"healthz": strconv.Itoa(defaults.LeaderElectionHealthzPort), "metrics": metrics}
	got := map[string]string{}

	for _, port := range c.Ports {
		got[port.Name] = strconv.Itoa(int(port.ContainerPort))
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}

	for path, probe := range map[string]*corev1.Probe{"/healthz": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
		if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != path || probe.HTTPGet.Port.String() != "healthz" {
			t.Errorf("probe for %s = %v", path, probe)
		}
	}

	if c.StartupProbe == nil || c.StartupProbe.HTTPGet.Path != "/healthz" {
		t.Errorf("startup probe = %v, want one of /healthz", c.StartupProbe)
	}
}

// What a replica has learnt of what nodes run ends with it, and those that an update starts need 25 seconds to learn it.
func TestAnUpdateEndsNoReplicaBeforeItsSuccessorKnowsWhatNodesRun(t *testing.T) {
	t.Parallel()

	d := deploymentOf(t, readObjects(t, "all.yaml"))
	if d.Spec.MinReadySeconds < 25 {
		t.Errorf("a new replica counts as available after %d s", d.Spec.MinReadySeconds)
	}

	if d.Spec.Strategy != (appsv1.DeploymentStrategy{}) {
		t.Errorf("the strategy is %v, and by that of Kubernetes a quarter of three replicas, which is none, ends before a new one is available", d.Spec.Strategy)
	}
}

func TestToleratesLostNodesBrieflyAndLostStorageForEver(t *testing.T) {
	t.Parallel()

	pod, _ := container(t)
	briefly := func(key string) bool {
		return slices.ContainsFunc(pod.Spec.Tolerations, func(tol corev1.Toleration) bool {
			return tol.Key == key && tol.Effect == corev1.TaintEffectNoExecute &&
				tol.TolerationSeconds != nil && *tol.TolerationSeconds <= 10
		})
	}

	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		if !briefly(key) {
			t.Errorf("taint %s is not tolerated for a few seconds: the default are 300", key)
		}
	}

	for _, key := range []string{
		"node-role.kubernetes.io/control-plane", "drbd.linbit.com/lost-quorum", "drbd.linbit.com/force-io-error",
	} {
		want := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
		if !slices.Contains(pod.Spec.Tolerations, want) {
			t.Errorf("taint %s is not tolerated", key)
		}
	}

	if s := pod.Spec.TerminationGracePeriodSeconds; s == nil || *s < 10 {
		t.Errorf("terminationGracePeriodSeconds = %v, too short to release the Lease", s)
	}
}

func TestResources(t *testing.T) {
	t.Parallel()

	_, c := container(t)
	if c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
		t.Errorf("resources = %v, want requests, and a limit of the memory", c.Resources)
	}

	if !c.Resources.Limits.Cpu().IsZero() {
		t.Error("the CPU is limited")
	}

	limit := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "GOMEMLIMIT" })
	if limit < 0 || c.Env[limit].ValueFrom == nil || c.Env[limit].ValueFrom.ResourceFieldRef == nil ||
		c.Env[limit].ValueFrom.ResourceFieldRef.Resource != "limits.memory" {
		t.Errorf("GOMEMLIMIT does not come from the limit of the memory: %v", c.Env)
	}
}

// reference is how Kubernetes spells the use of an environment variable in an argument.
var reference = regexp.MustCompile(`\$\(([A-Za-z_][A-Za-z0-9_]*)\)`)

// parsed returns the options that the program makes of the container's arguments, with the variables that they name.
func parsed(t *testing.T, c corev1.Container) options.Options {
	t.Helper()

	fields := map[string]string{"metadata.name": "pod-of-the-test", "metadata.namespace": namespace}
	env := map[string]string{}

	for _, e := range c.Env {
		env[e.Name] = e.Value
		if e.ValueFrom != nil && e.ValueFrom.FieldRef != nil {
			env[e.Name] = fields[e.ValueFrom.FieldRef.FieldPath]
		}
	}

	args := make([]string, 0, len(c.Args))
	for _, arg := range c.Args {
		args = append(args, reference.ReplaceAllStringFunc(arg, func(ref string) string {
			return env[reference.FindStringSubmatch(ref)[1]]
		}))
	}

	o, err := options.Parse(args)
	if err != nil {
		t.Fatalf("the arguments %q are refused: %v", args, err)
	}

	return o
}

func TestArgumentsAreUnderstood(t *testing.T) {
	t.Parallel()

	_, c := container(t)
	o := parsed(t, c)

	if !o.LeaderElection || o.LeaderElectionLeaseName != "pod-of-the-test" || o.LeaderElectionNamespace != namespace {
		t.Errorf("leader election %t as %q in %q", o.LeaderElection, o.LeaderElectionLeaseName, o.LeaderElectionNamespace)
	}

	// The labels that the Piraeus Operator gives to the pods without which nothing can fail over.
	for _, component := range []string{"linstor-controller", "linstor-csi-controller"} {
		if o.RecoverSelector == nil || !o.RecoverSelector.Matches(labels.Set{"app.kubernetes.io/component": component}) {
			t.Errorf("the pods of %s are not brought back: %q", component, o.RecoverPodSelector)
		}
	}

	if address := envValue(c, "LS_CONTROLLERS"); !strings.HasPrefix(address, "http") {
		t.Errorf("LS_CONTROLLERS = %q, want the address of LINSTOR", address)
	}
}

// The controller finds the Deployment whose annotation pauses it by its own pod.
func TestAPodIsToldItsName(t *testing.T) {
	t.Parallel()

	_, c := container(t)
	fields := map[string]string{}
	for _, e := range c.Env {
		if e.ValueFrom != nil && e.ValueFrom.FieldRef != nil {
			fields[e.Name] = e.ValueFrom.FieldRef.FieldPath
		}
	}
	if fields["POD_NAME"] != "metadata.name" || fields["POD_NAMESPACE"] != "metadata.namespace" {
		t.Errorf("the pod is told %v", fields)
	}
}

func TestImage(t *testing.T) {
	t.Parallel()

	_, c := container(t)

	repository, tag, found := strings.Cut(c.Image, ":")
	if !found || tag == "" || tag == "latest" || !strings.HasSuffix(repository, "/"+name) {
		t.Errorf("image = %q, want one of %s with a version", c.Image, name)
	}
}

// Where no manifest names a user, Kubernetes takes that of the image, and can see by a number only that it is not root.
func TestTheImageRunsAsAUserByNumber(t *testing.T) {
	t.Parallel()

	content, err := os.ReadFile("../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}

	users := regexp.MustCompile(`(?m)^USER (.*)$`).FindAllStringSubmatch(string(content), -1)
	if len(users) == 0 || !regexp.MustCompile(`^[1-9]\d*:[1-9]\d*$`).MatchString(users[len(users)-1][1]) {
		t.Errorf("the image runs as %v", users)
	}
}

// A plain "docker build ." gives no version, and the image still tells the one of the program.
func TestTheImageHasTheVersionOfTheProgram(t *testing.T) {
	t.Parallel()

	content, err := os.ReadFile("../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}

	if want := "\nARG VERSION=" + version.Version() + "\n"; !strings.Contains(string(content), want) {
		t.Errorf("the Dockerfile does not have %q", want)
	}
}
