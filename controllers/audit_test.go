package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// audit checks every change of the controller when it happens.
func (w *world) audit(c apimodel.Change) {
	if c.Kind != "Lease" {
		w.note(fmt.Sprintf("%s %s %s %s %s", c.Actor, c.Verb, c.Kind, c.Name, subresource(c)))
	}
	if !strings.HasPrefix(c.Actor, controllerActor) {
		return
	}
	w.mu.Lock()
	w.changes = append(w.changes, c)
	w.mu.Unlock()
	if c.Verb != apimodel.VerbDelete {
		return
	}
	switch old := c.Old.(type) {
	case *corev1.Pod:
		w.auditRemoval(c, old)
	case *storagev1.VolumeAttachment:
		w.auditDetach(c, old)
	}
}

func subresource(c apimodel.Change) string {
	if c.Status {
		return "(status)"
	}
	return ""
}

// note adds a line to what is shown when the story fails.
func (w *world) note(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, time.Since(w.started).String()+" "+line)
}

// auditRemoval: never a pod that was not selected, never one that can write the lost storage, and never by
// force one that can write any.
func (w *world) auditRemoval(c apimodel.Change, pod *corev1.Pod) {
	at := time.Since(w.started)
	if isLinstor(pod) {
		w.auditRecovery(c, pod)
		return
	}
	if pod.Labels["linstor.csi.linbit.com/on-storage-lost"] != "remove" {
		w.Errorf("after %s: pod %s was removed and not selected", at, pod.Name)
	}
	var writable []string
	volumes := w.VolumesOf(pod)
	for _, volume := range volumes {
		if w.DRBD.CanWrite(volume.Resource(), pod.Spec.NodeName) {
			writable = append(writable, volume.Resource())
		}
	}
	forced := c.GracePeriodSeconds != nil && *c.GracePeriodSeconds == 0
	if len(writable) == len(volumes) || forced && len(writable) > 0 {
		w.Errorf("after %s: pod %s was removed (by force: %t) although it can write %v", at, pod.Name, forced, writable)
	}
}

// auditDetach: never an attachment of somebody else, and never under a pod that the controller could have seen in the two
// seconds that a look at the API is good for.
func (w *world) auditDetach(_ apimodel.Change, va *storagev1.VolumeAttachment) {
	at := time.Since(w.started)
	volume := w.VolumeNamed(*va.Spec.Source.PersistentVolumeName)
	if va.Spec.Attacher != virtual.Driver {
		w.Errorf("after %s: attachment %s of %s was deleted", at, va.Name, va.Spec.Attacher)
	}
	if w.DRBD.CanWrite(volume.Resource(), va.Spec.NodeName) {
		w.Errorf("after %s: attachment %s was deleted although the node can write", at, va.Name)
	}
	var pods corev1.PodList
	if err := w.API.Client("audit").List(context.WithoutCancel(w.ctx), &pods, client.MatchingFields{"spec.nodeName": va.Spec.NodeName}); err != nil {
		w.Error(err)
	}
	for i := range pods.Items {
		seen := w.API.Now().Sub(pods.Items[i].CreationTimestamp.Time) > failover.ActAge || cluster.HasRun(&pods.Items[i])
		holds := !cluster.Ended(&pods.Items[i]) || disrupted(&pods.Items[i])
		if seen && holds && slices.Contains(cluster.ClaimsOf(&pods.Items[i]), cluster.Key(volume.Namespace, volume.Claim)) {
			w.Errorf("after %s: attachment %s was deleted under pod %s", at, va.Name, pods.Items[i].Name)
		}
	}
}
