package cluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Three replicas on three nodes: where one could go if its node were lost.
func TestOtherPodsKeepAPodFromNodes(t *testing.T) {
	t.Parallel()
	app := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}
	apart := func(term corev1.PodAffinityTerm) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}}
		}
	}
	spread := func(change func(*corev1.TopologySpreadConstraint)) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			s := corev1.TopologySpreadConstraint{MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: app}
			change(&s)
			pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{s}
		}
	}
	honor := corev1.NodeInclusionPolicyHonor
	for name, c := range map[string]struct {
		constrain func(*corev1.Pod)
		refused   bool
	}{
		"nothing is required":                 {func(*corev1.Pod) {}, false},
		"no two on a node":                    {apart(corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname, LabelSelector: app}), true},
		"no two of another namespace":         {apart(corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname, LabelSelector: app, Namespaces: []string{"shop"}}), false},
		"nobody has the labels":               {apart(corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}), false},
		"the nodes are in no zone":            {apart(corev1.PodAffinityTerm{TopologyKey: corev1.LabelTopologyZone, LabelSelector: app}), false},
		"evenly spread":                       {spread(func(*corev1.TopologySpreadConstraint) {}), true},
		"evenly spread, but for taints":       {spread(func(s *corev1.TopologySpreadConstraint) { s.NodeTaintsPolicy = &honor }), false},
		"spread with room":                    {spread(func(s *corev1.TopologySpreadConstraint) { s.MaxSkew = 2 }), false},
		"spread if possible":                  {spread(func(s *corev1.TopologySpreadConstraint) { s.WhenUnsatisfiable = corev1.ScheduleAnyway }), false},
		"spread, each revision for itself":    {spread(func(s *corev1.TopologySpreadConstraint) { s.MatchLabelKeys = []string{"revision"} }), false},
		"spread over zones that nobody knows": {spread(func(s *corev1.TopologySpreadConstraint) { s.TopologyKey = corev1.LabelTopologyZone }), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var all Neighbours
			var nodes []corev1.Node
			var first *corev1.Pod
			for i, node := range []string{"node-a", "node-b", "node-c"} {
				nodes = append(nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{corev1.LabelHostname: node}}})
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
					Namespace: "default", Name: node, UID: types.UID(node), Labels: map[string]string{"app": "db", "revision": []string{"new", "old", "old"}[i]},
				}, Spec: corev1.PodSpec{NodeName: node}}
				c.constrain(pod)
				all.Add(pod, true)
				if first == nil {
					first = pod
				}
			}
			for i := range nodes[1:] {
				if refused := all.refuses(first, &nodes[1+i], nodes); refused != c.refused {
					t.Errorf("node %s refuses: %t, want %t", nodes[1+i].Name, refused, c.refused)
				}
			}
		})
	}
}
