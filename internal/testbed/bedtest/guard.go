package bedtest

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed"
)

// guard watches the scenario's pods until the test ends and reports each that the controller removes
// although it is not selected, or although its node could still write one of its volumes.
func (s *Scenario) guard() {
	s.T.Helper()
	c, err := client.NewWithWatch(s.Config, client.Options{})
	s.Must(err)
	// Not for as long as the scenario may wait: some take more time than that of their beginning.
	w, err := c.Watch(s.T.Context(), &corev1.PodList{}, client.InNamespace(s.Name))
	s.Must(err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		seen := map[types.UID]bool{}
		for event := range w.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok && event.Type != watch.Deleted && marked(pod) && !seen[pod.UID] {
				seen[pod.UID] = true
				s.judge(pod)
			}
		}
	}()
	s.T.Cleanup(func() {
		w.Stop()
		<-done
	})
}

// marked tells whether the controller has announced that it removes a pod, which it does before it does.
func marked(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// judge reports a pod that the controller should have left alone.
func (s *Scenario) judge(pod *corev1.Pod) {
	if pod.Labels[testbed.SelectedLabel] != testbed.SelectedValue {
		s.T.Errorf("pod %s is removed, but was not selected", pod.Name)
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.PersistentVolumeClaim == nil {
			continue
		}
		resource := volume.PersistentVolumeClaim.ClaimName
		if s.DRBD.CanWrite(resource, pod.Spec.NodeName) {
			s.T.Errorf("pod %s is removed, but node %s could still write resource %s", pod.Name, pod.Spec.NodeName, resource)
		}
	}
}
