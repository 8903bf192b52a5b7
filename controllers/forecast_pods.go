package controllers

import (
	"context"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/forecast"
)

// Values of the component label.
const linstorController = "linstor-controller"

// storageComponents are the pods of Piraeus without which a node has no storage, by the label of components.
var storageComponents = []string{"linstor-satellite", "linstor-csi-node"}

// census is what a forecast needs of all pods of the cluster, of which the cache has those that are selected. Of each pod it retains a part.
type census struct {
	*Forecaster

	question forecast.Question
	trim     toolscache.TransformFunc

	inNamespace int
	neighbours  cluster.Neighbours
	// others are not selected and use a volume of ours, and bystanders are those of them that could be moved.
	others     []corev1.Pod
	bystanders []forecast.Bystander
	// agents are the DaemonSets of 1.x, and whether one of their pods runs.
	agents  map[string]bool
	drivers []forecast.Driver
	// storage are the pods without which a node has no storage.
	storage []corev1.Pod
	// onNode are the pods on the node that is asked about.
	onNode []censusPod
	// owner owns the pod of this process, and siblings are the nodes of the ready pods in its namespace, by their owner.
	owner    types.UID
	siblings map[types.UID][]string
}

type censusPod struct{ name, component string }

// take reads all pods.
func (c *census) take(ctx context.Context) error {
	c.agents, c.siblings = make(map[string]bool), make(map[types.UID][]string)
	var failure error
	err := cluster.EachPod(ctx, c.asked.API, labels.Everything(), func(pod *corev1.Pod) {
		if err := c.see(ctx, pod); err != nil {
			failure = err
		}
	})
	if err != nil {
		return err
	}
	return failure
}

func (c *census) see(ctx context.Context, pod *corev1.Pod) error {
	name, component := cluster.Key(pod.Namespace, pod.Name), pod.Labels[cluster.ComponentLabel]
	asked := c.question.Namespace == "" || pod.Namespace == c.question.Namespace
	if asked {
		c.inNamespace++
	}
	if pod.Spec.NodeName == c.question.Node && !cluster.Ended(pod) {
		c.onNode = append(c.onNode, censusPod{name, component})
	}
	c.seeComponent(pod, name, component)
	selected := c.reading.Selector.Matches(labels.Set(pod.Labels))
	c.neighbours.Add(pod, selected)
	if selected {
		return nil
	}
	volumes, err := c.volumes.OfPod(ctx, pod)
	if err != nil || len(volumes) == 0 {
		return err
	}
	if asked && cluster.Movable(pod) {
		c.bystanders = append(c.bystanders, forecast.Bystander{Pod: name, Node: pod.Spec.NodeName})
	}
	trimmed, err := c.trim(pod)
	if err != nil {
		return err
	}
	c.others = append(c.others, *trimmed.(*corev1.Pod))
	return nil
}

// seeComponent takes in a pod of ours or of Piraeus.
func (c *census) seeComponent(pod *corev1.Pod, name, component string) {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil && pod.Namespace == c.ownNamespace() {
		if name == c.pod {
			c.owner = owner.UID
		}
		if cluster.Runs(pod) {
			c.siblings[owner.UID] = append(c.siblings[owner.UID], pod.Spec.NodeName)
		}
	}
	switch {
	case cluster.IsNodeAgent(pod):
		daemonSet := cluster.Key(pod.Namespace, metav1.GetControllerOf(pod).Name)
		c.agents[daemonSet] = c.agents[daemonSet] || cluster.Runs(pod)
	case component == cluster.AttacherComponent:
		c.drivers = append(c.drivers, forecast.DriverOf(pod))
	case slices.Contains(storageComponents, component) && !cluster.Ended(pod):
		c.storage = append(c.storage, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
			Spec:       corev1.PodSpec{NodeName: pod.Spec.NodeName, Tolerations: pod.Spec.Tolerations},
		})
	}
}

// ownNamespace returns the namespace of this process's pod; empty if there is none.
func (c *census) ownNamespace() string {
	namespace, _, _ := strings.Cut(c.pod, "/")
	return namespace
}

func (c *census) runningAgents() (running []string) {
	for _, name := range slices.Sorted(maps.Keys(c.agents)) {
		if c.agents[name] {
			running = append(running, name)
		}
	}
	return running
}
