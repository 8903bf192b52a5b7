package deploy

import (
	"bytes"
	"errors"
	"io"
	"net/url"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/options"
)

// built is what a user's kustomization with the component leads to.
type built struct {
	policies    []*networkingv1.NetworkPolicy
	flows       []*flowcontrolv1.FlowSchema
	levels      []*flowcontrolv1.PriorityLevelConfiguration
	deployments []*appsv1.Deployment
}

// buildWithComponent builds the default configuration with a component, as its comment tells users to.
func buildWithComponent(t *testing.T, component string) built {
	t.Helper()

	content := kustomize(t, "resources: [$CONFIG/default]\ncomponents: [$CONFIG/components/"+component+"]\n")
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(content)))
	buffer := make([]byte, len(content))

	var all built

	for {
		n, err := documents.Read(buffer)
		if errors.Is(err, io.EOF) {
			return all
		}

		if err != nil {
			t.Fatal(err)
		}

		object, _, err := decoder.Decode(buffer[:n], nil, nil)
		if err != nil {
			t.Fatalf("decoding a document: %v\n%s", err, buffer[:n])
		}

		switch o := object.(type) {
		case *networkingv1.NetworkPolicy:
			all.policies = append(all.policies, o)
		case *flowcontrolv1.FlowSchema:
			all.flows = append(all.flows, o)
		case *flowcontrolv1.PriorityLevelConfiguration:
			all.levels = append(all.levels, o)
		case *appsv1.Deployment:
			all.deployments = append(all.deployments, o)
		}
	}
}

// linstorPort returns the port to which the program connects for an address of LINSTOR.
func linstorPort(t *testing.T, controllers string) string {
	t.Helper()

	config, err := linstor.ConfigFromEnv(func(name string) (string, bool) { return controllers, name == "LS_CONTROLLERS" })
	if err != nil {
		t.Fatal(err)
	}

	address, err := url.Parse(config.Endpoints()[0])
	if err != nil {
		t.Fatal(err)
	}

	return address.Port() + "/TCP"
}

// ports returns the ports of a rule as "port/protocol".
func ports(rule []networkingv1.NetworkPolicyPort) []string {
	var all []string

	for _, p := range rule {
		if p.EndPort != nil || p.Port == nil || p.Protocol == nil {
			all = append(all, "more than a port")
			continue
		}

		all = append(all, p.Port.String()+"/"+string(*p.Protocol))
	}

	return all
}

// The network policy is for the pods of the Deployment, lets in what they serve, and lets out what they need, and nothing
// else.
func TestNetworkPolicyFitsTheDeployment(t *testing.T) {
	t.Parallel()

	all := buildWithComponent(t, "network-policy")
	if len(all.policies) != 1 || len(all.deployments) != 1 {
		t.Fatalf("built %d policies and %d Deployments", len(all.policies), len(all.deployments))
	}

	policy, deployment := all.policies[0], all.deployments[0]
	pod := deployment.Spec.Template
	container := pod.Spec.Containers[0]

	if diff := cmp.Diff(load(t).deployment, deployment); diff != "" {
		t.Errorf("the component changes the Deployment:\n%s", diff)
	}

	selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
	if err != nil || selector.Empty() || !selector.Matches(labels.Set(pod.Labels)) || policy.Namespace != deployment.Namespace {
		t.Errorf("the policy of namespace %s selects %q, and the pods have %v", policy.Namespace, selector, pod.Labels)
	}

	if !slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) || !slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) {
		t.Errorf("the policy is for %v only", policy.Spec.PolicyTypes)
	}

	// Metrics, by the name that the container gives to the port where the program serves them.
	opts, err := options.Parse(nil)
	if err != nil {
		t.Fatal(err)
	}

	named := slices.IndexFunc(container.Ports, func(p corev1.ContainerPort) bool {
		return ":"+strconv.Itoa(int(p.ContainerPort)) == opts.MetricsBindAddress
	})
	if named < 0 {
		t.Fatalf("the container has no port %s: %+v", opts.MetricsBindAddress, container.Ports)
	}

	var in []string
	for _, rule := range policy.Spec.Ingress {
		in = append(in, ports(rule.Ports)...)
	}

	if diff := cmp.Diff([]string{container.Ports[named].Name + "/TCP"}, in); diff != "" {
		t.Errorf("let in (-want +got):\n%s", diff)
	}

	var out []string

	for _, rule := range policy.Spec.Egress {
		if len(rule.Ports) == 0 {
			t.Errorf("everything is let out to %v", rule.To)
		}

		out = append(out, ports(rule.Ports)...)
	}

	shipped := slices.IndexFunc(container.Env, func(e corev1.EnvVar) bool { return e.Name == "LS_CONTROLLERS" })
	want := []string{linstorPort(t, "http://linstor"), linstorPort(t, "https://linstor"), "443/TCP", "6443/TCP", "53/UDP", "53/TCP"}

	if shipped < 0 || !slices.Contains(want, linstorPort(t, container.Env[shipped].Value)) {
		t.Errorf("LINSTOR is expected elsewhere: %+v", container.Env)
	}

	slices.Sort(want)
	slices.Sort(out)

	if diff := cmp.Diff(want, out); diff != "" {
		t.Errorf("let out (-want +got):\n%s", diff)
	}
}
