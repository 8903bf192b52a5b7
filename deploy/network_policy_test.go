package deploy

import (
	"os"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// The network policy is for the pods of the Deployment, lets in what they serve, and lets out what they need.
func TestNetworkPolicyFitsTheDeployment(t *testing.T) {
	t.Parallel()

	content, err := os.ReadFile("../config/components/network-policy/network-policy.yaml")
	if err != nil {
		t.Fatal(err)
	}

	var policy networkingv1.NetworkPolicy
	if err := yaml.UnmarshalStrict(content, &policy); err != nil {
		t.Fatal(err)
	}

	all := load(t)
	pod, c := container(t)

	selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
	if err != nil || selector.Empty() || !selector.Matches(labels.Set(pod.Labels)) || policy.Namespace != all.deployment.Namespace {
		t.Errorf("the policy of namespace %s selects %q, and the pods have %v", policy.Namespace, selector, pod.Labels)
	}

	if !slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) || !slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) {
		t.Errorf("the policy is for %v only", policy.Spec.PolicyTypes)
	}

	for _, rule := range policy.Spec.Ingress {
		for _, port := range rule.Ports {
			if !slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == port.Port.StrVal }) {
				t.Errorf("port %s is let in, and the container has none of that name", port.Port)
			}
		}
	}

	var out []intstr.IntOrString
	for _, rule := range policy.Spec.Egress {
		for _, port := range rule.Ports {
			out = append(out, *port.Port)
		}
	}

	for _, needed := range []int{3370, 3371, 443, 6443, 53} {
		if !slices.Contains(out, intstr.FromInt32(int32(needed))) {
			t.Errorf("port %d is not let out", needed)
		}
	}
}
