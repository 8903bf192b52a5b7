package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/forecast"
)

// inUseFor is how long a volume must have been in use on a node before it is missed that no pod there uses it.
const inUseFor = time.Minute

// inUseOn returns the nodes, by their names in LINSTOR, on which a resource has been in use for a while.
func inUseOn(r failover.Resource, now time.Time) (satellites []string) {
	for _, replica := range r.Replicas {
		if replica.InUse.Known && replica.InUse.Value && replica.Online.Known && replica.Online.Value && now.Sub(replica.InUse.Since) >= inUseFor {
			satellites = append(satellites, replica.Node)
		}
	}
	return satellites
}

// unclaimed finds the volumes that are in use on a node where Kubernetes knows no pod that uses them.
func (f *Forecaster) unclaimed(ctx context.Context, facts *forecast.Facts, everyone *census) error {
	if facts.KubernetesError != "" || facts.Namespace != "" || facts.Lost != nil {
		return nil // not all pods are known, or the question is another one
	}
	reading := f.reading
	reading.Cache = cluster.WithPods(reading.Cache, everyone.others)
	readers := cluster.NewReaders(reading)
	var volumes corev1.PersistentVolumeList
	if err := f.cache.List(ctx, &volumes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing volumes: %w", err)
	}
	for i := range volumes.Items {
		pv := &volumes.Items[i]
		name := f.volumes.Resource(pv)
		if name == "" || cluster.IsNFSExport(pv) {
			continue
		}
		resource, _ := f.linstor.Resource(name)
		satellites := inUseOn(resource, f.clock.Now())
		if len(satellites) == 0 {
			continue
		}
		pods, err := readers.Pods.Of(ctx, pv)
		if err != nil {
			return err
		}
		for _, satellite := range satellites {
			if !f.anyOn(satellite, pods) {
				facts.Unclaimed = append(facts.Unclaimed, unclaimedText(pv.Name, satellite, pods))
			}
		}
	}
	slices.Sort(facts.Unclaimed)
	return nil
}

// anyOn reports whether one of the pods is on a node of LINSTOR.
func (s *shared) anyOn(satellite string, pods []corev1.Pod) bool {
	return slices.ContainsFunc(pods, func(pod corev1.Pod) bool {
		return pod.Spec.NodeName != "" && s.kubelets.Satellite(pod.Spec.NodeName) == satellite
	})
}

func unclaimedText(volume, satellite string, pods []corev1.Pod) string {
	text := fmt.Sprintf("volume %s on node %s", volume, satellite)
	var waiting []string
	for i := range pods {
		if !cluster.HasRun(&pods[i]) {
			waiting = append(waiting, cluster.Key(pods[i].Namespace, pods[i].Name))
		}
	}
	if len(waiting) > 0 {
		text += ", for which pod " + strings.Join(waiting, ", ") + " waits"
	}
	return text
}

// waiting finds the pods that wait for a volume in use on another node.
type waiting struct {
	shared

	// since are the pods that waited when they were last counted; told are those of them that were reported.
	since, told map[types.UID]bool
	found       []awaited
}

// awaited is a volume for which a pod waits, and the node, by its name in LINSTOR, on which it is in use.
type awaited struct {
	pod               *corev1.Pod
	volume, satellite string
}

// see takes in a pod with the volumes that it uses.
func (w *waiting) see(pod *corev1.Pod, uses []cluster.Use) {
	if pod.Spec.NodeName == "" || cluster.HasRun(pod) || pod.DeletionTimestamp != nil {
		return
	}
	for i := range uses {
		in := &uses[i].Input
		for _, satellite := range inUseOn(in.Resource, in.Now) {
			if satellite != in.Node.Satellite && !in.Volume.NFSExport {
				w.found = append(w.found, awaited{pod, uses[i].Volume, satellite})
			}
		}
	}
}

// tell reports to each pod that has waited for a minute that the volume is in use on a node where no pod uses it, by a live list of the pods there.
func (w *waiting) tell(ctx context.Context) error {
	found, since := w.found, make(map[types.UID]bool)
	w.found = nil
	for _, a := range found {
		uid := a.pod.UID
		if since[uid] = true; !w.since[uid] || w.told[uid] {
			continue
		}
		pv, err := w.volumes.Get(ctx, a.volume)
		if err != nil || pv == nil {
			continue
		}
		for _, node := range w.nodeNames(ctx) {
			if w.kubelets.Satellite(node) != a.satellite {
				continue
			}
			pods, err := w.live.PodsOn(ctx, node)
			if err != nil {
				return err
			}
			users, err := w.live.UsersOf(ctx, pv, pods)
			if err != nil {
				return err
			}
			if len(users) == 0 {
				w.told[uid] = true
				w.event(podRef(a.pod.Namespace, a.pod.Name, uid), pvRef(pv), EventInUseWithoutPod, actionRefuse, fmt.Sprintf(
					"the pod waits for volume %s, which is in use on node %s, where Kubernetes knows no pod that uses it: look there for what holds "+
						"it, such as a process or a mount that a pod has left, and end it, or restart the node", a.volume, node))
			}
		}
	}
	w.since = since
	for uid := range w.told {
		if !since[uid] {
			delete(w.told, uid)
		}
	}
	return nil
}
