package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Sightings remembers when this process first saw pods, PersistentVolumes and VolumeAttachments, and what happened to the pods. The times that other
// machines write into objects prove nothing: their clocks may be hours off, or jump. What was there when the watch began is known, not new: its time is
// zero. It is safe for concurrent use. A nil Sightings has seen nothing come.
type Sightings struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	seen map[types.UID]sighting
}

// sighting is what was seen of an object.
type sighting struct {
	// since is when it was first seen, a pod on its present node.
	since time.Time
	node  string
	// ran is when a container of the pod was first seen to have run, if one has.
	hasRun bool
	ran    time.Time
	// deleting is when the deletion of the pod with that grace period was first seen.
	deleting time.Time
	grace    int64
	// begun is since when the pod has been seen both being deleted and in the annotation of a fail-over.
	begun time.Time
}

// NewSightings returns an empty memory.
func NewSightings(clock clock.PassiveClock) *Sightings {
	return &Sightings{clock: clock, seen: make(map[types.UID]sighting)}
}

// Follow keeps the memory up to date from the cache, on every replica.
func (s *Sightings) Follow(ctx context.Context, informers cache.Informers) error {
	for _, kind := range []client.Object{&corev1.Pod{}, &corev1.PersistentVolume{}, &storagev1.VolumeAttachment{}} {
		informer, err := informers.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err == nil {
			_, err = informer.AddEventHandler(s.handler())
		}
		if err != nil {
			return fmt.Errorf("watching %T: %w", kind, err)
		}
	}
	return nil
}

func (s *Sightings) handler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(o any, first bool) { apply(o, func(o client.Object) { s.Observe(o, first) }) },
		UpdateFunc: func(old, o any) { s.change(old, o) },
		DeleteFunc: func(o any) { apply(lastOf(o), s.Forget) },
	}
}

// change records a change of an object, which may have been replaced by another one of its name.
func (s *Sightings) change(before, now any) {
	old, _ := before.(client.Object)
	o, ok := now.(client.Object)
	if !ok {
		return
	}
	same := old != nil && old.GetUID() == o.GetUID()
	if old != nil && !same {
		s.Forget(old)
	}
	s.Observe(o, same)
}

// Observe records an object as it is now. known is set if it was there before, and only its changes are news.
func (s *Sightings) Observe(o client.Object, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	last, has := s.seen[o.GetUID()]
	if pod, ok := o.(*corev1.Pod); !has && known && ok {
		last = sighting{node: pod.Spec.NodeName, hasRun: HasRun(pod)}
	} else if !has && !known {
		last.since = now
	}
	s.seen[o.GetUID()] = last.next(o, now)
}

// Forget takes it that an object was deleted.
func (s *Sightings) Forget(o client.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, o.GetUID())
}

// next returns what is known of an object that is so now.
func (s sighting) next(o client.Object, now time.Time) sighting {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return s
	}
	if node := pod.Spec.NodeName; node != s.node {
		s.since, s.node = now, node
	}
	if !s.hasRun && HasRun(pod) {
		s.hasRun, s.ran = true, now
	}
	if grace := graceOf(pod); pod.DeletionTimestamp != nil && (s.deleting.IsZero() || s.grace != grace) { // somebody may shorten it
		s.deleting, s.grace = now, grace
	}
	return s
}

// graceOf returns the grace period of the deletion of a pod in seconds.
func graceOf(pod *corev1.Pod) (seconds int64) {
	if grace := pod.DeletionGracePeriodSeconds; grace != nil {
		seconds = *grace
	}
	return seconds
}

// since returns when an object was first seen. One that nobody was told of yet is new.
func (s *Sightings) since(object types.UID) time.Time {
	if s == nil {
		return time.Time{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, has := s.seen[object]; has {
		return known.since
	}
	return s.clock.Now()
}

// failsOver records that a fail-over of a pod that is being deleted has begun, and returns since when that has been known. It is zero for a pod that is
// not watched.
func (s *Sightings) failsOver(pod types.UID) time.Time {
	if s == nil {
		return time.Time{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known, has := s.seen[pod]
	if has && known.begun.IsZero() {
		known.begun = s.clock.Now()
		s.seen[pod] = known
	}
	return known.begun
}

// pod returns what is known of a pod that was read now, if it is among those that are watched. Of others nothing is known: all that they show has been
// so for long.
func (s *Sightings) pod(pod *corev1.Pod, watched bool) sighting {
	if s == nil || !watched {
		return sighting{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	known, has := s.seen[pod.UID]
	if !has {
		known.since = now
	}
	return known.next(pod, now)
}
