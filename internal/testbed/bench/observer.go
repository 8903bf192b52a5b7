package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	names "github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
)

// podLife is what happened to a pod object, and when it was seen. Times are zero until then.
type podLife struct {
	name, node    string
	uid           types.UID
	placed, ready time.Time
	marked, end   time.Time // when its owner was told of the removal, and when the object was gone
}

// attachment is a volume that became attached, or whose attachment was marked by a fail-over.
type attachment struct {
	volume, node string
	at           time.Time
}

// promotion is whether a replica may be promoted, and when it became so, each time.
type promotion struct {
	now   bool
	since []time.Time
}

// observer notes what happens to the pods of a namespace, to all attachments and in DRBD.
type observer struct {
	mu         sync.Mutex
	pods       map[types.UID]*podLife
	named      map[string][]*podLife // the same pods, by name
	attached   []attachment
	marked     []attachment
	promotable map[[2]string]*promotion // by resource and node
}

// namespace is that of all workloads of the benchmark.
const namespace = "bench"

// observe watches a bed until ctx ends.
func observe(ctx context.Context, b *bed.Bed) (*observer, error) {
	client, err := kubernetes.NewForConfig(b.Config)
	if err != nil {
		return nil, fmt.Errorf("observe: %w", err)
	}
	o := &observer{pods: map[types.UID]*podLife{}, named: map[string][]*podLife{}, promotable: map[[2]string]*promotion{}}
	factory := informers.NewSharedInformerFactory(client, 0)
	for informer, seen := range map[cache.SharedIndexInformer]func(obj any, gone bool){
		factory.Core().V1().Pods().Informer():                 o.pod,
		factory.Storage().V1().VolumeAttachments().Informer(): o.attachment,
	} {
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { seen(obj, false) },
			UpdateFunc: func(_, obj any) { seen(obj, false) },
			DeleteFunc: func(obj any) { seen(obj, true) },
		}); err != nil {
			return nil, fmt.Errorf("observe: %w", err)
		}
	}
	factory.StartWithContext(ctx)
	if err := factory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		return nil, fmt.Errorf("observe: %w", err)
	}
	b.DRBD.OnChange(func(resource, node string) {
		state, ok := b.DRBD.Replica(resource, node)
		o.replica(resource, node, ok && state.MayPromote)
	})
	return o, nil
}

// pod notes a change of a pod.
func (o *observer) pod(obj any, gone bool) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok || pod.Namespace != namespace {
		return
	}
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	life := o.pods[pod.UID]
	if life == nil {
		life = &podLife{name: pod.Name, uid: pod.UID}
		o.pods[pod.UID] = life
		o.named[pod.Name] = append(o.named[pod.Name], life)
	}
	first := func(t *time.Time, is bool) {
		if is && t.IsZero() {
			*t = now
		}
	}
	life.node = pod.Spec.NodeName
	first(&life.placed, life.node != "")
	first(&life.ready, isTrue(pod, corev1.PodReady) && pod.DeletionTimestamp == nil)
	first(&life.marked, isTrue(pod, corev1.DisruptionTarget))
	first(&life.end, gone)
}

// isTrue tells whether a condition of a pod is true.
func isTrue(pod *corev1.Pod, kind corev1.PodConditionType) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// attachment notes that a volume became attached, or that its attachment was marked.
func (o *observer) attachment(obj any, gone bool) {
	va, ok := obj.(*storagev1.VolumeAttachment)
	if !ok || gone || va.DeletionTimestamp != nil || va.Spec.Source.PersistentVolumeName == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	seen := attachment{*va.Spec.Source.PersistentVolumeName, va.Spec.NodeName, time.Now()}
	if va.Status.Attached {
		o.attached = append(o.attached, seen)
	}
	if va.Annotations[names.AnnotationFailOver] != "" {
		o.marked = append(o.marked, seen)
	}
}

// replica notes whether a replica may be promoted.
func (o *observer) replica(resource, node string, mayPromote bool) {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.promotable[[2]string{resource, node}]
	if p == nil {
		p = &promotion{}
		o.promotable[[2]string{resource, node}] = p
	}
	if mayPromote && !p.now {
		p.since = append(p.since, now)
	}
	p.now = mayPromote
}

// current returns the pod of a name that is Ready now.
func (o *observer) current(name string) (podLife, bool) {
	return o.find(name, func(p *podLife) bool { return !p.ready.IsZero() && p.end.IsZero() })
}

// life returns what happened to a pod.
func (o *observer) life(uid types.UID) podLife {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p := o.pods[uid]; p != nil {
		return *p
	}
	return podLife{}
}

// replacement returns the first pod of the same name that became Ready on another node after a time.
func (o *observer) replacement(lost podLife, since time.Time) (podLife, bool) {
	return o.find(lost.name, func(p *podLife) bool { return p.uid != lost.uid && p.node != lost.node && p.ready.After(since) })
}

// find returns the earliest pod of a name that fits.
func (o *observer) find(name string, fits func(*podLife) bool) (podLife, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var found *podLife
	for _, p := range o.named[name] {
		if fits(p) && (found == nil || p.ready.Before(found.ready)) {
			found = p
		}
	}
	if found == nil {
		return podLife{}, false
	}
	return *found, true
}

// placedBack counts the pods that were placed on a node after a time.
func (o *observer) placedBack(node string, since time.Time, names func(name string) bool) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for _, p := range o.pods {
		if p.node == node && p.placed.After(since) && names(p.name) {
			n++
		}
	}
	return n
}

// attachedAt returns when a volume became attached to a node after a time, zero if it did not.
func (o *observer) attachedAt(volume, node string, since time.Time) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return firstOf(o.attached, volume, node, since)
}

// markedAt returns when the attachment of a volume to a node was marked after a time, zero if it was not.
func (o *observer) markedAt(volume, node string, since time.Time) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return firstOf(o.marked, volume, node, since)
}

func firstOf(all []attachment, volume, node string, since time.Time) time.Time {
	for _, a := range all {
		if a.volume == volume && a.node == node && a.at.After(since) {
			return a.at
		}
	}
	return time.Time{}
}

// promotableAt returns when a resource first became promotable on a node after a time; zero if it did not.
func (o *observer) promotableAt(resource, node string, since time.Time) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p := o.promotable[[2]string{resource, node}]; p != nil {
		for _, at := range p.since {
			if at.After(since) {
				return at
			}
		}
	}
	return time.Time{}
}
