package cluster

import (
	"encoding/json"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
)

// MayRun returns what nodes may run of a resource by the annotation of its attachment; nil if there is none.
func MayRun(va *storagev1.VolumeAttachment) (linstor.Sets, error) {
	sets, err := ParseMayRun(va.Annotations[AnnotationMayRun])
	if err != nil {
		return nil, fmt.Errorf("attachment %s: %w", va.Name, err)
	}
	return sets, nil
}

// ParseMayRun reads the value of AnnotationMayRun. It returns nil if that is empty.
func ParseMayRun(text string) (linstor.Sets, error) {
	if text == "" {
		return nil, nil
	}
	var sets linstor.Sets
	if err := json.Unmarshal([]byte(text), &sets); err != nil {
		return nil, fmt.Errorf("reading annotation %s: %w", AnnotationMayRun, err)
	}
	return sets, nil
}
