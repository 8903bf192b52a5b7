package controllers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
)

// doubtLasts is how long it must be in doubt which setting a node runs until that is kept for other processes. Where LINSTOR changes a
// setting by itself, the nodes show within a second or two that they have applied it.
const doubtLasts = 10 * time.Second

// settingsMemory keeps what nodes may run of a resource on the resource's attachments, so that it outlives this process: a setting
// that LINSTOR no longer shows may still be the one that a node runs. The leader writes, and every process takes it over.
type settingsMemory struct {
	linstor Linstor

	mu sync.Mutex
	// told is what the attachments of each volume have said, by UID.
	told map[string]map[types.UID]version
	// written is when this process wrote an attachment of a volume last.
	written map[string]time.Time
}

// version is the annotation of an attachment in one of its versions; 0 is an unknown one.
type version struct {
	number uint64
	text   string
}

func newSettingsMemory(word Linstor) *settingsMemory {
	return &settingsMemory{linstor: word, told: make(map[string]map[types.UID]version), written: make(map[string]time.Time)}
}

// take unites what the attachments of a volume say of its resource with what this process knows. What none of them says any more that one
// said before is over, be it a part of it: evidence has overtaken it. With the attachment itself nothing is.
func (m *settingsMemory) take(volume, resource string, attachments []storagev1.VolumeAttachment, now time.Time) error {
	// Held until all is united: whoever finds nothing new here may write over what the attachments say.
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.told[volume]
	said := make(map[types.UID]version, len(attachments))
	var all, news, withdrawn []string
	for _, va := range attachments {
		number, _ := strconv.ParseUint(va.ResourceVersion, 10, 64)
		last, newest := before[va.UID], version{number, va.Annotations[cluster.AnnotationMayRun]}
		if newest.number < last.number {
			newest = last // the reconciler of another node has read a later version
		}
		said[va.UID], all = newest, append(all, newest.text)
		if newest.text != last.text {
			news, withdrawn = append(news, newest.text), append(withdrawn, last.text)
		}
	}
	if m.told[volume] = said; len(said) == 0 {
		delete(m.told, volume)
		delete(m.written, volume)
	}
	if still, ok := united(all); ok && lacks(still, withdrawn) {
		m.linstor.Retract(resource, still, now)
	}
	var errs []error
	for _, text := range news {
		if sets, err := cluster.ParseMayRun(text); err != nil {
			errs = append(errs, fmt.Errorf("an attachment of volume %s: %w", volume, err))
		} else if sets != nil {
			m.linstor.Unite(resource, sets, now)
		}
	}
	return errors.Join(errs...)
}

// united returns all that some texts say; false where one of them cannot be understood, and might say anything.
func united(texts []string) (all linstor.Sets, ok bool) {
	all = linstor.Sets{}
	for _, text := range texts {
		sets, err := cluster.ParseMayRun(text)
		if err != nil {
			return nil, false
		}
		for node, settings := range sets {
			all[node] = append(all[node], settings...)
		}
	}
	return all, true
}

// lacks reports whether some texts say anything that sets do not.
func lacks(sets linstor.Sets, texts []string) bool {
	for _, text := range texts {
		was, err := cluster.ParseMayRun(text)
		if err != nil {
			continue
		}
		for node, settings := range was {
			for _, setting := range settings {
				if !slices.ContainsFunc(sets[node], setting.Equal) {
					return true
				}
			}
		}
	}
	return false
}

// forget drops what is known of a volume that is gone.
func (m *settingsMemory) forget(volume string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.told, volume)
	delete(m.written, volume)
}

// +kubebuilder:rbac:groups=storage.k8s.io,resources=volumeattachments,verbs=patch

// write writes what nodes may run of the resource of a volume on its attachments while that is in doubt for long, and takes it off when it is
// not any more. It tells when to come back. Nothing waits for it: a conflict means that the attachment has changed, upon which it
// is looked at again.
func (m *settingsMemory) write(
	ctx context.Context, c client.Client, volume, resource string, attachments []storagev1.VolumeAttachment, now time.Time,
) (time.Duration, error) {
	sets, since := m.linstor.Doubts(resource)
	text := ""
	if sets != nil {
		if left := doubtLasts - now.Sub(since); left > 0 {
			return left, nil
		}
		encoded, err := json.Marshal(sorted(sets))
		if err != nil {
			return 0, fmt.Errorf("encoding what nodes may run of resource %s: %w", resource, err)
		}
		text = string(encoded)
	}
	var stale []*storagev1.VolumeAttachment
	for i := range attachments {
		va := &attachments[i]
		_, err := cluster.MayRun(va)
		// What cannot be understood is left for a person to see, unless there is something to be kept.
		if va.Annotations[cluster.AnnotationMayRun] != text && va.DeletionTimestamp == nil && (err == nil || text != "") {
			stale = append(stale, va)
		}
	}
	if len(stale) == 0 {
		return 0, nil
	}
	if left := m.mayWrite(volume, now); left > 0 {
		return left, nil
	}
	for _, va := range stale {
		if err := annotate(ctx, c, va, text); err != nil {
			return 0, err
		}
		ctrl.LoggerFrom(ctx).V(1).Info("Kept what nodes may run of a resource", "resource", resource, "volumeAttachment", va.Name, "sets", text)
	}
	return 0, nil
}

// mayWrite tells for how long the attachments of a volume are not written again, and notes that they are where that is over. While one leader
// follows the other both may write, and each may know what the other does not.
func (m *settingsMemory) mayWrite(volume string, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if last, ok := m.written[volume]; ok && now.Sub(last) < doubtLasts {
		return doubtLasts - now.Sub(last)
	}
	m.written[volume] = now
	return 0
}

// sorted returns the sets with the settings of each node in an order that does not depend on who has seen which of them first.
func sorted(sets linstor.Sets) linstor.Sets {
	for _, settings := range sets {
		slices.SortFunc(settings, func(a, b failover.Setting) int {
			return cmp.Or(cmp.Compare(a.Quorum, b.Quorum), slices.Compare(a.Diskful, b.Diskful), slices.Compare(a.Diskless, b.Diskless))
		})
	}
	return sets
}

func annotate(ctx context.Context, c client.Client, va *storagev1.VolumeAttachment, text string) error {
	var value any
	if text != "" {
		value = text
	}
	target := &storagev1.VolumeAttachment{}
	target.Name = va.Name
	err := c.Patch(ctx, target, mergePatch(va.UID, va.ResourceVersion, map[string]any{cluster.AnnotationMayRun: value}, nil))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("writing annotation %s of VolumeAttachment %s: %w", cluster.AnnotationMayRun, va.Name, err)
	}
	return nil
}
