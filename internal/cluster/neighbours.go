package cluster

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Neighbours are all pods as far as they keep each other from nodes, by what the scheduler must not violate. The caches do not have it.
type Neighbours struct {
	pods []neighbour
	// sets are the labels, each set once.
	sets map[string]labels.Set
	// bound are the pods with such a constraint.
	bound map[types.UID]constraints
}

// neighbour is a pod on a node.
type neighbour struct {
	uid             types.UID
	namespace, node string
	labels          labels.Set
}

// constraints are those of a pod, with its labels.
type constraints struct {
	labels labels.Set
	apart  []corev1.PodAffinityTerm
	spread []corev1.TopologySpreadConstraint
}

// Add takes in a pod; constrained is set if what keeps itself from nodes is asked for.
func (n *Neighbours) Add(pod *corev1.Pod, constrained bool) {
	if Ended(pod) {
		return
	}
	if n.sets == nil {
		n.sets, n.bound = make(map[string]labels.Set), make(map[types.UID]constraints)
	}
	content := labels.Set(pod.Labels).String()
	if n.sets[content] == nil {
		n.sets[content] = pod.Labels
	}
	if pod.Spec.NodeName != "" {
		n.pods = append(n.pods, neighbour{pod.UID, pod.Namespace, pod.Spec.NodeName, n.sets[content]})
	}
	if !constrained {
		return
	}
	c := constraints{labels: n.sets[content]}
	if a := pod.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		c.apart = a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	for _, s := range pod.Spec.TopologySpreadConstraints {
		if s.WhenUnsatisfiable == corev1.DoNotSchedule {
			c.spread = append(c.spread, s)
		}
	}
	if len(c.apart) > 0 || len(c.spread) > 0 {
		n.bound[pod.UID] = c
	}
}

// refuses reports whether other pods keep a pod from a node once its own node is lost, with all pods there.
func (n *Neighbours) refuses(pod *corev1.Pod, node *corev1.Node, nodes []corev1.Node) bool {
	if n == nil {
		return false
	}
	c, ok := n.bound[pod.UID]
	return ok && (slices.ContainsFunc(c.apart, func(t corev1.PodAffinityTerm) bool { return n.meets(t, pod, node, nodes) }) ||
		slices.ContainsFunc(c.spread, func(s corev1.TopologySpreadConstraint) bool { return n.skews(s, c, pod, node, nodes) }))
}

// meets reports whether a pod from which another must stay apart is where a node is. Terms that select namespaces by labels, which are not known, forbid nothing.
func (n *Neighbours) meets(term corev1.PodAffinityTerm, pod *corev1.Pod, node *corev1.Node, nodes []corev1.Node) bool {
	selector, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
	domain, has := node.Labels[term.TopologyKey]
	if err != nil || !has || term.NamespaceSelector != nil {
		return false
	}
	namespaces := term.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{pod.Namespace}
	}
	return n.count(pod, nodes, term.TopologyKey, selector, namespaces)[domain] > 0
}

// skews reports whether one pod more where a node is would spread the pods too unevenly. The lost node counts as an empty one, unless taints are honoured.
func (n *Neighbours) skews(s corev1.TopologySpreadConstraint, c constraints, pod *corev1.Pod, node *corev1.Node, nodes []corev1.Node) bool {
	selector, err := metav1.LabelSelectorAsSelector(s.LabelSelector)
	domain, has := node.Labels[s.TopologyKey]
	if err != nil {
		return false
	}
	if !has {
		return true
	}
	for _, key := range s.MatchLabelKeys {
		if requirement, err := labels.NewRequirement(key, "in", []string{c.labels[key]}); err == nil {
			selector = selector.Add(*requirement)
		}
	}
	counts := n.count(pod, nodes, s.TopologyKey, selector, []string{pod.Namespace})
	least := counts[domain]
	honoured := s.NodeTaintsPolicy != nil && *s.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor
	for i := range nodes {
		if other, has := nodes[i].Labels[s.TopologyKey]; has && (nodes[i].Name != pod.Spec.NodeName || !honoured) {
			least = min(least, counts[other])
		}
	}
	return counts[domain]+1-least > int(s.MaxSkew)
}

// count counts the other pods in each domain, without those on the pod's own node.
func (n *Neighbours) count(pod *corev1.Pod, nodes []corev1.Node, key string, selector labels.Selector, namespaces []string) map[string]int {
	domains, counts := make(map[string]string, len(nodes)), make(map[string]int)
	for i := range nodes {
		if domain, has := nodes[i].Labels[key]; has {
			domains[nodes[i].Name] = domain
		}
	}
	for _, other := range n.pods {
		domain, has := domains[other.node]
		if has && other.uid != pod.UID && other.node != pod.Spec.NodeName && slices.Contains(namespaces, other.namespace) && selector.Matches(other.labels) {
			counts[domain]++
		}
	}
	return counts
}
