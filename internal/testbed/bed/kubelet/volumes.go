package kubelet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// volumesInUse is what the node reports as status.volumesInUse: the volumes that its pods want or
// have mounted.
type volumesInUse struct {
	mu       sync.Mutex
	users    map[corev1.UniqueVolumeName]sets.Set[types.UID]
	reported sets.Set[corev1.UniqueVolumeName] // those in the node's status, as last read or posted
}

// claim adds a pod's volumes.
func (v *volumesInUse) claim(pod types.UID, volumes []volume) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.users == nil {
		v.users = map[corev1.UniqueVolumeName]sets.Set[types.UID]{}
	}
	for _, volume := range volumes {
		if v.users[volume.name] == nil {
			v.users[volume.name] = sets.New[types.UID]()
		}
		v.users[volume.name].Insert(pod)
	}
}

// release removes a pod's volumes, except those that other pods use as well.
func (v *volumesInUse) release(pod types.UID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for name, users := range v.users {
		if users.Delete(pod); users.Len() == 0 {
			delete(v.users, name)
		}
	}
}

// list returns the names of all volumes in use, sorted.
func (v *volumesInUse) list() []corev1.UniqueVolumeName {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Sorted(maps.Keys(v.users))
}

// setReported records what the node's status says.
func (v *volumesInUse) setReported(names []corev1.UniqueVolumeName) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.reported = sets.New(names...)
}

// isReported tells whether the node's status has the volume.
func (v *volumesInUse) isReported(name corev1.UniqueVolumeName) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.reported.Has(name)
}

// resolve returns the volumes behind a pod's claims. It fails while a claim is not bound.
func (l *life) resolve(pod *corev1.Pod) ([]volume, error) {
	var volumes []volume
	for _, podVolume := range pod.Spec.Volumes {
		source := podVolume.PersistentVolumeClaim
		if podVolume.Ephemeral != nil {
			source = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: pod.Name + "-" + podVolume.Name}
		}
		if source == nil {
			continue
		}
		pv, err := l.persistentVolume(pod.Namespace, source.ClaimName)
		if err != nil {
			return nil, err
		}
		volumes = append(volumes, newVolume(pv, source))
	}
	return volumes, nil
}

// persistentVolume returns the volume that a claim is bound to.
func (l *life) persistentVolume(namespace, claim string) (*corev1.PersistentVolume, error) {
	core := l.fleet.factory.Core().V1()
	pvc, err := core.PersistentVolumeClaims().Lister().PersistentVolumeClaims(namespace).Get(claim)
	if err != nil {
		return nil, fmt.Errorf("claim %s/%s: %w", namespace, claim, err)
	}
	if pvc.Status.Phase != corev1.ClaimBound {
		return nil, fmt.Errorf("claim %s/%s is not bound", namespace, claim)
	}
	pv, err := core.PersistentVolumes().Lister().Get(pvc.Spec.VolumeName)
	if err != nil {
		return nil, fmt.Errorf("volume of claim %s/%s: %w", namespace, claim, err)
	}
	if pv.Spec.CSI == nil || pv.Spec.CSI.Driver != l.cfg.DriverName {
		return nil, fmt.Errorf("volume %s is not of driver %s", pv.Name, l.cfg.DriverName)
	}
	return pv, nil
}

// waitAttached waits until the volume can be mounted, and tells whether that came before ctx ended.
func (l *life) waitAttached(ctx context.Context, v volume) bool {
	for !l.mountable(v) {
		if !sleep(ctx, l.cfg.Timings.VolumeLoop) {
			return false
		}
	}
	return ctx.Err() == nil
}

// mountable tells whether the volume is reported in use and attached: the node's status and the
// attachment must both say so.
func (l *life) mountable(v volume) bool {
	if !l.gate.reachable() || !l.volumes.isReported(v.name) {
		return false
	}
	node, err := l.fleet.factory.Core().V1().Nodes().Lister().Get(l.node)
	if err != nil {
		return false
	}
	inStatus := slices.ContainsFunc(node.Status.VolumesAttached, func(a corev1.AttachedVolume) bool { return a.Name == v.name })
	if !inStatus {
		return false
	}
	name := AttachmentName(l.cfg.DriverName, v.handle, l.node)
	attachment, err := l.fleet.factory.Storage().V1().VolumeAttachments().Lister().Get(name)
	return err == nil && attached(attachment)
}
