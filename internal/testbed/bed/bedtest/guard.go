package bedtest

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
)

// guard watches the scenario's pods until the test ends and reports each that the controller removes
// although it is not selected, or although its node could still write one of its volumes.
func (s *Scenario) guard() {
	s.T.Helper()
	c, err := client.NewWithWatch(s.Config, client.Options{})
	s.Must(err)
	// Not for as long as the scenario may wait: some take more time than that of their beginning.
	pods, err := c.Watch(s.T.Context(), &corev1.PodList{}, client.InNamespace(s.Name))
	s.Must(err)
	attachments, err := c.Watch(s.T.Context(), &storagev1.VolumeAttachmentList{})
	s.Must(err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.follow(pods.ResultChan(), attachments.ResultChan())
	}()
	s.T.Cleanup(func() {
		pods.Stop()
		attachments.Stop()
		<-done
	})
}

// follow judges each pod when the controller announces that it removes it, until both watches have ended: when its attachment is
// marked, and when it gets its condition, which may come later.
func (s *Scenario) follow(pods, attachments <-chan watch.Event) {
	type announcement struct {
		uid types.UID
		by  string
	}
	known, announced, judged := map[types.UID]*corev1.Pod{}, map[announcement]bool{}, map[announcement]bool{}
	judge := func(uid types.UID) {
		for _, a := range []announcement{{uid, "mark"}, {uid, "condition"}} {
			if pod := known[uid]; pod != nil && announced[a] && !judged[a] {
				judged[a] = true
				s.judge(pod)
			}
		}
	}
	for pods != nil || attachments != nil {
		select {
		case event, open := <-pods:
			if !open {
				pods = nil
			}
			pod, ok := event.Object.(*corev1.Pod)
			if !ok || event.Type == watch.Deleted {
				continue
			}
			known[pod.UID] = pod
			if disrupted(pod) {
				announced[announcement{pod.UID, "condition"}] = true
			}
			judge(pod.UID)
		case event, open := <-attachments:
			if !open {
				attachments = nil
			}
			if va, ok := event.Object.(*storagev1.VolumeAttachment); ok && event.Type != watch.Deleted {
				for _, uid := range marked(va) {
					announced[announcement{uid, "mark"}] = true
					judge(uid)
				}
			}
		}
	}
}

// disrupted tells whether a pod has the condition that the controller sets before it removes one whose object outlives its deletion. Others set
// it too, such as Kubernetes' evictions and a kubelet that shuts down.
func disrupted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && strings.HasPrefix(c.Message, cluster.DisruptedBy)
	})
}

// marked returns the pods in the mark that the controller sets on an attachment before it removes any of its pods.
func marked(va *storagev1.VolumeAttachment) []types.UID {
	var mark struct {
		Pods []types.UID `json:"pods"`
	}
	if json.Unmarshal([]byte(va.Annotations[cluster.AnnotationFailOver]), &mark) != nil {
		return nil // none, or none of the controller's
	}
	return mark.Pods
}

// judge reports a pod that the controller should have left alone.
func (s *Scenario) judge(pod *corev1.Pod) {
	if pod.Labels[bed.SelectedLabel] != bed.SelectedValue {
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
