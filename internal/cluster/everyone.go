package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// listedAtOnce is how many pods one answer of the API server has.
const listedAtOnce = 500

// EachPod visits all pods that a selector matches, read past the cache a part at a time. A pod that the visitor retains must be a copy.
func EachPod(ctx context.Context, live client.Reader, selector labels.Selector, visit func(*corev1.Pod)) error {
	for next := ""; ; {
		var pods corev1.PodList
		if err := live.List(ctx, &pods, client.MatchingLabelsSelector{Selector: selector}, client.Limit(listedAtOnce), client.Continue(next)); err != nil {
			return fmt.Errorf("listing pods: %w", err)
		}
		for i := range pods.Items {
			visit(&pods.Items[i])
		}
		if next = pods.Continue; next == "" {
			return nil
		}
	}
}

// withPods is a cache that has some more pods.
type withPods struct {
	client.Reader

	pods                    []corev1.Pod
	byName, byClaim, byNode map[string][]int
}

// WithPods returns the cache as it would be with some more pods, which it does not have.
func WithPods(cache client.Reader, pods []corev1.Pod) client.Reader {
	w := withPods{cache, pods, make(map[string][]int), make(map[string][]int), make(map[string][]int)}
	for i := range pods {
		pod := &pods[i]
		name := Key(pod.Namespace, pod.Name)
		w.byName[name] = append(w.byName[name], i)
		w.byNode[pod.Spec.NodeName] = append(w.byNode[pod.Spec.NodeName], i)
		for _, claim := range ClaimsOf(pod) {
			w.byClaim[claim] = append(w.byClaim[claim], i)
		}
	}
	return w
}

// Get implements client.Reader.
func (w withPods) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	err := w.Reader.Get(ctx, key, o, opts...)
	pod, is := o.(*corev1.Pod)
	if !is || !apierrors.IsNotFound(err) {
		return err
	}
	for _, i := range w.byName[Key(key.Namespace, key.Name)] {
		*pod = w.pods[i]
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, key.Name)
}

// List implements client.Reader.
func (w withPods) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := w.Reader.List(ctx, list, opts...); err != nil {
		return err
	}
	pods, is := list.(*corev1.PodList)
	if !is {
		return nil
	}
	var asked client.ListOptions
	asked.ApplyOptions(opts)
	for _, i := range w.matching(asked) {
		if pod := w.pods[i]; asked.Namespace == "" || asked.Namespace == pod.Namespace {
			pods.Items = append(pods.Items, pod)
		}
	}
	return nil
}

// matching returns the indexes of the pods that a list asks for by one of the indexes, or of all.
func (w withPods) matching(asked client.ListOptions) []int {
	if asked.FieldSelector != nil {
		if claim, ok := asked.FieldSelector.RequiresExactMatch(indexPodClaims); ok {
			return w.byClaim[claim]
		}
		if node, ok := asked.FieldSelector.RequiresExactMatch(indexPodNode); ok {
			return w.byNode[node]
		}
	}
	all := make([]int, len(w.pods))
	for i := range all {
		all[i] = i
	}
	return all
}
