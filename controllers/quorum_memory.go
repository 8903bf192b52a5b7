package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
)

// unconfirmedLasts is how long a node must have been unconfirmed until that is kept for other processes. Where LINSTOR changes the quorum by
// itself, the nodes show within a second or two that they have applied it.
const unconfirmedLasts = 10 * time.Second

// quorumMemory keeps which nodes are not known to run the quorum of a resource on the resource's attachments, so that it outlives this process, which
// has seen why. The leader writes, and every process takes it over.
type quorumMemory struct {
	linstor Confirmations

	mu sync.Mutex
	// said is what the attachments of each volume have said.
	said map[string]map[types.UID]saidOf
	// wrote is what this process has written on an attachment itself, and when: no news.
	wrote map[types.UID]wrote
}

// saidOf is what an attachment says in one of its versions.
type saidOf struct {
	version uint64
	nodes   []string
}

type wrote struct {
	at    time.Time
	nodes []string
}

func newQuorumMemory(word Confirmations) *quorumMemory {
	return &quorumMemory{linstor: word, said: map[string]map[types.UID]saidOf{}, wrote: map[types.UID]wrote{}}
}

// take takes over what the attachments of a volume say of its resource. What none of them says any more that one said before is over: there is
// evidence. With the attachment itself nothing is.
func (m *quorumMemory) take(volume, resource string, attachments []storagev1.VolumeAttachment, now time.Time) error {
	// Held until the store knows it all: whoever finds nothing new here may write over what the attachments say.
	m.mu.Lock()
	defer m.mu.Unlock()
	before, after := m.said[volume], make(map[types.UID]saidOf, len(attachments))
	var still, withdrawn []string
	news := make(map[string]time.Time)
	var errs []error
	for i := range attachments {
		va := &attachments[i]
		version, _ := strconv.ParseUint(va.ResourceVersion, 10, 64)
		last, now := before[va.UID], saidOf{version: version}
		says, err := cluster.Unconfirmed(va)
		nodes := slices.Sorted(maps.Keys(says))
		switch {
		case version < last.version: // another reconciler has looked later, and is here first
			now = last
		case err != nil: // it might say anything
			errs = append(errs, err)
			now.nodes = union(nodes, last.nodes)
		default:
			now.nodes = nodes
		}
		after[va.UID] = now
		still = union(still, now.nodes)
		for _, node := range minus(now.nodes, union(last.nodes, m.wrote[va.UID].nodes)) {
			news[node] = says[node]
		}
		gone := minus(last.nodes, now.nodes)
		withdrawn = union(withdrawn, gone)
		if own, ok := m.wrote[va.UID]; ok { // who writes them again knows something new
			m.wrote[va.UID] = wrote{own.at, minus(own.nodes, gone)}
		}
	}
	for uid := range before {
		if _, there := after[uid]; !there {
			delete(m.wrote, uid)
		}
	}
	if m.said[volume] = after; len(after) == 0 {
		delete(m.said, volume)
	}
	if len(minus(withdrawn, still)) > 0 {
		m.linstor.Untell(resource, still, now)
	}
	if len(news) > 0 {
		m.linstor.Tell(resource, news, now)
	}
	return errors.Join(errs...)
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

func minus(all, others []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(one string) bool { return slices.Contains(others, one) })
}

// forget drops what is known of a volume that is gone.
func (m *quorumMemory) forget(volume string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid := range m.said[volume] {
		delete(m.wrote, uid)
	}
	delete(m.said, volume)
}

// +kubebuilder:rbac:groups=storage.k8s.io,resources=volumeattachments,verbs=patch

// write writes on attachments which nodes have been unconfirmed for long, and takes that off when they are not any more. It tells when to come back.
// Nothing waits for it: a conflict means that the attachment has changed, upon which it is looked at again.
func (m *quorumMemory) write(ctx context.Context, c client.Client, resource string, attachments []storagev1.VolumeAttachment, now time.Time) (next time.Duration, err error) {
	since := m.linstor.Unconfirmed(resource)
	all := slices.Sorted(maps.Keys(since))
	lasting := maps.Clone(since)
	maps.DeleteFunc(lasting, func(_ string, since time.Time) bool {
		left := unconfirmedLasts - now.Sub(since)
		if left > 0 {
			next = sooner(next, left)
		}
		return left > 0
	})
	for i := range attachments {
		va := &attachments[i]
		before, err := cluster.UnconfirmedBefore(va)
		// What cannot be understood is left for a person to see. What version 2 has written stays until there is evidence of all that it names.
		keep := err != nil || len(minus(before, all)) < len(before) || va.Annotations[cluster.AnnotationMayRun] == ""
		text := cluster.FormatUnconfirmed(lasting)
		if va.DeletionTimestamp != nil || keep && va.Annotations[cluster.AnnotationUnconfirmed] == text {
			continue
		}
		if left := m.mayWrite(va.UID, slices.Sorted(maps.Keys(lasting)), now); left > 0 {
			next = sooner(next, left)
			continue
		}
		written, err := annotate(ctx, c, va, text, keep)
		if err != nil { // it may have been written all the same
			return next, err
		}
		if !written {
			m.unwritten(va.UID)
			continue
		}
		ctrl.LoggerFrom(ctx).V(1).Info("Kept which nodes are unconfirmed", "resource", resource, "volumeAttachment", va.Name, "nodes", text)
	}
	return next, nil
}

// mayWrite tells for how long an attachment is not written again, and notes that it is where that is over. While one leader
// follows the other both may write, and each may know what the other does not.
func (m *quorumMemory) mayWrite(va types.UID, nodes []string, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if last, ok := m.wrote[va]; ok && now.Sub(last.at) < unconfirmedLasts {
		return unconfirmedLasts - now.Sub(last.at)
	}
	m.wrote[va] = wrote{now, nodes}
	return 0
}

// sooner returns the shorter of two waits; zero is none.
func sooner(a, b time.Duration) time.Duration {
	if b > 0 && (a <= 0 || b < a) {
		return b
	}
	return a
}

// unwritten notes that an attachment was not written after all: whatever it says is another's word.
func (m *quorumMemory) unwritten(va types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wrote[va] = wrote{at: m.wrote[va].at}
}

// annotate reports whether it has written what an attachment is to say. One that has changed or gone meanwhile is no error.
func annotate(ctx context.Context, c client.Client, va *storagev1.VolumeAttachment, text string, keep bool) (written bool, err error) {
	annotations := map[string]any{cluster.AnnotationUnconfirmed: nil}
	if text != "" {
		annotations[cluster.AnnotationUnconfirmed] = text
	}
	if !keep {
		annotations[cluster.AnnotationMayRun] = nil
	}
	target := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: va.Name}}
	err = c.Patch(ctx, target, mergePatch(va.UID, va.ResourceVersion, annotations, nil))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return false, fmt.Errorf("writing annotation %s of VolumeAttachment %s: %w", cluster.AnnotationUnconfirmed, va.Name, err)
	}
	return err == nil, nil
}
