package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
)

// Planned is what a cluster has in which nodes leave on purpose. The zero value is that of one in which none does.
type Planned struct {
	// Is gives nodes the condition Ready and the label by which volumes are pinned.
	Is bool
	// SyncRate, in KiB per second, is how fast a new disk is filled.
	SyncRate int64
	// Balancing lets LINSTOR bring all volumes to their place count, once a minute and when they are a minute old.
	Balancing bool
	// MaxNodes and MaxCopies are the controller's limits; 0 means 1.
	MaxNodes, MaxCopies int
	// Balances are the values of LINSTOR's property for balancing that a person has set, by volume.
	Balances map[string]string
	// Group is the node list of the resource group; empty for all nodes.
	Group []string
}

// settings are the controller's.
func (p Planned) settings() *evacuation.Settings {
	return &evacuation.Settings{MaxNodes: max(p.MaxNodes, 1), MaxCopies: max(p.MaxCopies, 1)}
}

// listed tells whether the resource group allows a disk on a node.
func (p Planned) listed(node string) bool { return len(p.Group) == 0 || slices.Contains(p.Group, node) }

// String is a line of the story; empty where no node leaves.
func (p Planned) String() string {
	if !p.Is {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "nodes may leave: %d at a time with %d copies; a disk is filled at %d KiB/s; balancing %t",
		cmp.Or(p.MaxNodes, 1), cmp.Or(p.MaxCopies, 1), p.SyncRate, p.Balancing)
	if len(p.Balances) > 0 {
		fmt.Fprintf(&b, ", of volumes %v", p.Balances)
	}
	if len(p.Group) > 0 {
		fmt.Fprintf(&b, "; disks may be on %v only", p.Group)
	}
	b.WriteString("\n")
	return b.String()
}
