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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
)

// doubtLasts is how long a setting must be unconfirmed until that is written for other processes. If LINSTOR itself changes a setting, the nodes show
// within a second or two that they have applied it.
const doubtLasts = 10 * time.Second

// settingsMemory keeps what nodes may run of a resource on the resource's attachments, so that it outlives this process: a setting
// that LINSTOR no longer shows may still be the one that a node runs. The leader writes, and every process takes it over.
type settingsMemory struct {
	linstor Linstor

	mu sync.Mutex
	// told are the annotations of the attachments of each volume, by UID.
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

// take adds the annotations of the attachments of a volume to what this process knows of its resource. Settings that no annotation has any more were
// confirmed, and are removed. If the attachment itself is deleted, they were not.
func (m *settingsMemory) take(volume, resource string, attachments []storagev1.VolumeAttachment, now time.Time) error {
	// Held until all is united: otherwise another worker finds nothing new here, and overwrites the annotations.
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

// united returns the settings of all texts; false if one of them cannot be read.
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

// lacks reports whether some texts have a setting that sets do not have.
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

// write writes the unconfirmed settings of the resource of a volume on its attachments, and removes them once they are confirmed. It returns when to
// do that again. After a conflict the next reconcile does it.
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
		// What cannot be read is left for a person to see, unless there is something to write.
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
		var value any
		if text != "" {
			value = text
		}
		target := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: va.Name}}
		err := c.Patch(ctx, target, mergePatch(va.UID, va.ResourceVersion, map[string]any{cluster.AnnotationMayRun: value}, nil))
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return 0, fmt.Errorf("writing annotation %s of VolumeAttachment %s: %w", cluster.AnnotationMayRun, va.Name, err)
		}
		ctrl.LoggerFrom(ctx).V(1).Info("Kept what nodes may run of a resource", "resource", resource, "volumeAttachment", va.Name, "sets", text)
	}
	return 0, nil
}

// mayWrite returns how long the attachments of a volume must not be written again. If that is zero, it counts them as written. While the leadership
// changes, two processes may write, and each may know what the other does not.
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
