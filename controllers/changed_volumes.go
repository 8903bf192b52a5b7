package controllers

import (
	"maps"
	"slices"
	"sync"
)

// changedVolumes has the volumes of each node whose resources have changed in LINSTOR since the node was last reconciled. While nothing is lost
// there and nothing else calls for a reconcile, no other volume of the node is decided: each event of a storm would have all of them decided.
type changedVolumes struct {
	mu sync.Mutex
	// onNode are the names of the volumes, by node; an empty set stands for all of them.
	onNode map[string]map[string]bool
}

func newChangedVolumes() *changedVolumes {
	return &changedVolumes{onNode: make(map[string]map[string]bool)}
}

// add records that a volume has changed.
func (c *changedVolumes) add(node, volume string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, isKnown := c.onNode[node]
	switch {
	case !isKnown:
		known = make(map[string]bool)
		c.onNode[node] = known
	case len(known) == 0:
		return
	}
	known[volume] = true
}

// addAll records that something has changed that may concern any volume of the node.
func (c *changedVolumes) addAll(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onNode[node] = nil
}

// take returns the volumes that have changed, and forgets them. None stands for all: something else has changed, or nothing was recorded.
func (c *changedVolumes) take(node string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	volumes := slices.Sorted(maps.Keys(c.onNode[node]))
	delete(c.onNode, node)
	return volumes
}
