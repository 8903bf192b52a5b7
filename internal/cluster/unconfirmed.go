package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"
)

// Unconfirmed returns the nodes of which an attachment says that they are not known to run the quorum of its resource, and since when; zero where it does not
// say that.
func Unconfirmed(va *storagev1.VolumeAttachment) (map[string]time.Time, error) {
	nodes := make(map[string]time.Time)
	before, err := UnconfirmedBefore(va)
	for _, node := range before {
		nodes[node] = time.Time{}
	}
	for one := range strings.SplitSeq(va.Annotations[AnnotationUnconfirmed], ",") {
		if node, when, _ := strings.Cut(one, "="); node != "" {
			nodes[node], _ = time.Parse(time.RFC3339, when)
		}
	}
	return nodes, err
}

// FormatUnconfirmed returns the value of the annotation that Unconfirmed reads; empty if there are no such nodes.
func FormatUnconfirmed(nodes map[string]time.Time) string {
	var all []string
	for _, node := range slices.Sorted(maps.Keys(nodes)) {
		all = append(all, node+"="+nodes[node].UTC().Format(time.RFC3339))
	}
	return strings.Join(all, ",")
}

// UnconfirmedBefore returns those of which version 2 has said so: each that it names.
func UnconfirmedBefore(va *storagev1.VolumeAttachment) ([]string, error) {
	text := va.Annotations[AnnotationMayRun]
	if text == "" {
		return nil, nil
	}
	var sets map[string]any
	if err := json.Unmarshal([]byte(text), &sets); err != nil {
		return nil, fmt.Errorf("attachment %s: reading annotation %s: %w", va.Name, AnnotationMayRun, err)
	}
	return slices.Sorted(maps.Keys(sets)), nil
}
