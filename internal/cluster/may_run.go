package cluster

import (
	"encoding/json"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
)

// MayRun returns what an attachment says that nodes may run of its resource; nil where it says nothing.
func MayRun(va *storagev1.VolumeAttachment) (linstor.Sets, error) {
	text := va.Annotations[AnnotationMayRun]
	if text == "" {
		return nil, nil
	}
	sets, err := ParseMayRun(text)
	if err != nil {
		return nil, fmt.Errorf("attachment %s: %w", va.Name, err)
	}
	return sets, nil
}

// ParseMayRun reads the value of AnnotationMayRun.
func ParseMayRun(text string) (linstor.Sets, error) {
	var sets linstor.Sets
	if err := json.Unmarshal([]byte(text), &sets); err != nil {
		return nil, fmt.Errorf("reading annotation %s: %w", AnnotationMayRun, err)
	}
	return sets, nil
}
