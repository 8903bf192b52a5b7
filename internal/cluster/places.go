package cluster

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	schedulingcorev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// places tells how the nodes would receive a pod that uses these volumes of ours. It looks no further than to the first that could run it.
func (s *Survey) places(ctx context.Context, nodes []corev1.Node, volumes []placedVolume, pod *corev1.Pod) failover.Places {
	wanted := nodeaffinity.GetRequiredNodeAffinity(pod)
	places := failover.Places{Known: true, Obstacles: make(map[string]int)}
	for i := range nodes {
		node := &nodes[i]
		if node.Name == pod.Spec.NodeName {
			continue
		}
		place := failover.Place{NotReady: IsNotReady(node), Cordoned: cordoned(ctx, node, pod), Taint: Untolerated(ctx, node, pod)}
		fits, err := wanted.Match(node)
		place.Unwanted = err != nil || !fits
		place.Volume, place.Unattachable = s.refusing(volumes, node)
		place.Crowded = s.neighbours.refuses(pod, node, nodes)
		obstacle := place.Obstacle()
		if obstacle == "" {
			return failover.Places{Known: true, Fit: true}
		}
		places.Obstacles[obstacle]++
	}
	return places
}

// placedVolume is a volume as nodes can use it.
type placedVolume struct {
	name     string
	affinity *nodeaffinity.NodeSelector // nil where any node can
	resource failover.Resource
	// attached is set where its resource must be had on the node itself.
	attached bool
}

// placedVolumes are the volume and the other ones of a pod that go where it goes.
func (s *Survey) placedVolumes(
	ctx context.Context, pv *corev1.PersistentVolume, resource failover.Resource, pod *corev1.Pod, known []failover.OtherVolume,
) ([]placedVolume, error) {
	others, err := s.readers.Pods.others(ctx, pod, pv)
	if err != nil {
		return nil, err
	}
	volumes := []placedVolume{placed(pv, resource)}
	for _, other := range others.ours {
		i := slices.IndexFunc(known, func(v failover.OtherVolume) bool { return v.Name == other.Name })
		if !other.ephemeral && i >= 0 { // an ephemeral one is created again where the pod goes
			volumes = append(volumes, placed(other.PersistentVolume, known[i].Resource))
		}
	}
	return volumes, nil
}

func placed(pv *corev1.PersistentVolume, resource failover.Resource) placedVolume {
	v := placedVolume{name: pv.Name, resource: resource, attached: resource.Known && !IsNFSExport(pv)}
	if affinity := pv.Spec.NodeAffinity; affinity != nil && affinity.Required != nil {
		// The API server has validated it; one that cannot be read is one that no node is known to fit.
		if v.affinity, _ = nodeaffinity.NewNodeSelector(affinity.Required); v.affinity == nil {
			v.affinity = &nodeaffinity.NodeSelector{}
		}
	}
	return v
}

// refusing names the first volume that cannot be used on a node by its node affinity, and the first that LINSTOR would not let be attached
// there.
func (s *Survey) refusing(volumes []placedVolume, node *corev1.Node) (byAffinity, byLinstor string) {
	satellite := s.kubelets.Satellite(node.Name)
	known, listed := s.readers.Inputs.Linstor.Node(satellite)
	for _, v := range volumes {
		if byAffinity == "" && v.affinity != nil && !v.affinity.Match(node) {
			byAffinity = v.name
		}
		if byLinstor == "" && v.attached && !v.resource.Attachable(satellite, !listed || known.NoTarget) {
			byLinstor = v.name
		}
	}
	return byAffinity, byLinstor
}

// IsNotReady reports whether Kubernetes says of a node that it is not ready, or does not know.
func IsNotReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
	})
}

// cordoned reports whether a node takes no new pods, this one included: the scheduler lets pods through that tolerate the taint of a cordon.
func cordoned(ctx context.Context, node *corev1.Node, pod *corev1.Pod) bool {
	taint := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	return node.Spec.Unschedulable &&
		!schedulingcorev1.TolerationsTolerateTaint(klog.FromContext(ctx), pod.Spec.Tolerations, &taint, false)
}

// Untolerated returns the key of the first taint of a node that keeps a pod away which does not tolerate it, empty where there is none.
func Untolerated(ctx context.Context, node *corev1.Node, pod *corev1.Pod) string {
	forbids := func(t *corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule }
	taint, found := schedulingcorev1.FindMatchingUntoleratedTaint(
		klog.FromContext(ctx), node.Spec.Taints, pod.Spec.Tolerations, forbids, false)
	if !found {
		return ""
	}
	return taint.Key
}

// nodes returns all nodes that the cache knows.
func (s *Survey) nodes(ctx context.Context) ([]corev1.Node, error) {
	var nodes corev1.NodeList
	if err := s.cache.List(ctx, &nodes, shared); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	return nodes.Items, nil
}
