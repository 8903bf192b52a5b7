package evacuation

import (
	"slices"
	"strings"
)

// The properties of a resource definition that an evacuation sets, and removes.
const (
	// PropMark names the leaving nodes for which the definition has a copy, separated by commas.
	PropMark = "Aux/piraeus.io/evacuation"
	// PropBalance lets LINSTOR's balancing remove surplus replicas of the definition: "false" keeps it from that.
	PropBalance = "BalanceResourcesEnabled"
)

// balanceOff is the value of PropBalance that an evacuation sets.
const balanceOff = "false"

// Mark is what a resource definition says of balancing and of us. The balancing is ours only where there is a mark.
type Mark struct {
	// Resource is the resource definition.
	Resource string
	// Nodes are those of our mark, in lower case; none where it has none.
	Nodes []string
	// Balance is the value of PropBalance; empty where it is not set there.
	Balance string
}

// Marks are marks that may not have been asked for.
type Marks struct {
	// Known is set where they were.
	Known bool
	// All are meaningful only while Known is true.
	All []Mark
}

// MarkOf reads the properties of a resource definition.
func MarkOf(resource string, props map[string]string) Mark {
	m := Mark{Resource: resource, Balance: props[PropBalance]}
	for name := range strings.SplitSeq(props[PropMark], ",") {
		if name = strings.ToLower(strings.TrimSpace(name)); name != "" {
			m.Nodes = append(m.Nodes, name)
		}
	}
	return m
}

// Change is a change of a resource definition's properties.
type Change struct {
	// Resource is the resource definition.
	Resource string
	// Set are the properties to set, Delete those to remove.
	Set    map[string]string
	Delete []string
}

// set returns what keeps a copy for the node from LINSTOR's balancing; nil where nothing is to be done, because it is so already or a person
// has decided.
func (m Mark) set(resource, node string) *Change {
	switch {
	case slices.Contains(m.Nodes, node):
		return nil
	case len(m.Nodes) > 0:
		nodes := append(slices.Clone(m.Nodes), node)
		slices.Sort(nodes)
		return &Change{Resource: resource, Set: map[string]string{PropMark: strings.Join(nodes, ",")}}
	case m.Balance != "":
		return nil
	}
	return &Change{Resource: resource, Set: map[string]string{PropMark: node, PropBalance: balanceOff}}
}

// keep returns what keeps the copies of a volume on other nodes from LINSTOR's balancing; nil where nothing is to be done. Balancing removes
// disks that are UpToDate until there are as many as the group wants, whether or not N is to leave, and none while one syncs. So it can take
// all good copies where no more of them are there, or are on their way, than there are disks too many: one may be left from the last time
// that N was taken out.
func (s situation) keep(v Volume) *Change {
	disks, copies := 0, 0
	for _, r := range v.Replicas {
		if !r.Diskless || r.has(toggling...) {
			disks++
		}
		if r.Node != s.self.Satellite && (s.good(v, r) || s.comes(v, r)) {
			copies++
		}
	}
	if here, _ := v.on(s.self.Satellite); here.Diskless || disks-max(1, v.PlaceCount) < max(1, copies) {
		return nil
	}
	return v.Mark.set(v.Resource, s.self.Satellite)
}

// kept are the changes that keep copies which there are already.
func (s situation) kept() []Change {
	var changes []Change
	for _, v := range s.mine {
		if change := s.keep(v); change != nil && s.goodElsewhere(v) {
			changes = append(changes, *change)
		}
	}
	return changes
}

// without returns what takes nodes out of the mark, and the balancing with the last of them unless a person has changed that since; nil
// where none of them is in it.
func (m Mark) without(gone func(node string) bool) *Change {
	left := slices.DeleteFunc(slices.Clone(m.Nodes), gone)
	switch {
	case len(left) == len(m.Nodes):
		return nil
	case len(left) > 0:
		return &Change{Resource: m.Resource, Set: map[string]string{PropMark: strings.Join(left, ",")}}
	}
	change := &Change{Resource: m.Resource, Delete: []string{PropMark}}
	if m.Balance == balanceOff {
		change.Delete = append(change.Delete, PropBalance)
	}
	return change
}

// unmark returns the marks that have had their day: those for N where it returns or has no disk of the volume any more, and those for nodes
// that nobody evacuates.
func (s situation) unmark(returning bool) []Change {
	var changes []Change
	for _, m := range s.Marked.All {
		gone := func(satellite string) bool {
			if satellite != s.self.Satellite {
				return len(s.node(satellite).Evacuate) == 0
			}
			return returning || !s.hasDisk(m.Resource)
		}
		if change := m.without(gone); change != nil {
			changes = append(changes, *change)
		}
	}
	return changes
}

// hasDisk tells whether N has a disk of the resource.
func (s situation) hasDisk(resource string) bool {
	return slices.ContainsFunc(s.disks(), func(v Volume) bool { return strings.EqualFold(v.Resource, resource) })
}
