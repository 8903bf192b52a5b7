package cluster

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
)

// placement is what says where a pod may run, or where a volume can be used. The pods of a workload, and most volumes of a StorageClass, have
// it in common.
type placement struct {
	NodeSelector map[string]string          `json:"nodeSelector,omitempty"`
	Affinity     *corev1.Affinity           `json:"affinity,omitempty"`
	Tolerations  []corev1.Toleration        `json:"tolerations,omitempty"`
	Volume       *corev1.VolumeNodeAffinity `json:"volume,omitempty"`
}

// placementOf returns what of a pod rules nodes out by what they are: what it only prefers does not, nor do the other pods there.
func placementOf(pod *corev1.Pod) placement {
	p := placement{NodeSelector: pod.Spec.NodeSelector, Tolerations: pod.Spec.Tolerations}
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		p.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
		}}
	}
	return p
}

// placementOnce returns the place of that content which other objects have already. Who holds t.mu may call it.
func (t *trimmer) placementOnce(p placement) *placement {
	if p.NodeSelector == nil && p.Affinity == nil && p.Tolerations == nil && p.Volume == nil {
		return &placement{}
	}
	content, err := json.Marshal(p)
	if err != nil {
		return &p // it is kept all the same, for this object alone
	}
	if known, ok := t.places[string(content)]; ok {
		return known
	}
	if len(t.places) >= manySame {
		clear(t.places)
	}
	t.places[string(content)] = &p
	return &p
}
