package evacuation

import (
	"slices"
	"strings"
)

// The properties of a resource definition that an evacuation sets, and removes.
const (
	// PropMark names the leaving nodes for which the definition has a copy, each with its cluster ([Entry]), separated by commas.
	// On a node it is the cluster that has LINSTOR evacuate it.
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
	// Nodes are the entries of our mark, in lower case, also those of other clusters; none where it has none.
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

// Entry names a node of LINSTOR in a mark, and the cluster that evacuates it: others use the same LINSTOR.
func Entry(node, cluster string) string { return node + "@" + strings.ToLower(cluster) }

// entry names N.
func (s situation) entry() string { return Entry(s.self.Satellite, s.Cluster) }

// Change is a change of a resource definition's properties.
type Change struct {
	// Resource is the resource definition.
	Resource string
	// Set are the properties to set, Delete those to remove.
	Set    map[string]string
	Delete []string
}

// With returns what keeps a copy for a node, by its [Entry], from LINSTOR's balancing; nil where nothing is to be done, because it is so
// already or a person has decided.
func (m Mark) With(entry string) *Change {
	set := make(map[string]string)
	if m.Balance == "" {
		set[PropBalance] = balanceOff
	}
	if !m.settled(entry) {
		nodes := append(slices.Clone(m.Nodes), entry)
		slices.Sort(nodes)
		set[PropMark] = strings.Join(nodes, ",")
	}
	if len(set) == 0 {
		return nil
	}
	return &Change{Resource: m.Resource, Set: set}
}

// settled reports whether the definition needs no mark for a node: it has one, or a person has decided on balancing.
func (m Mark) settled(entry string) bool {
	return slices.Contains(m.Nodes, entry) || len(m.Nodes) == 0 && m.Balance != ""
}

// balances reports whether LINSTOR's balancing may remove replicas of the definition.
func (m Mark) balances() bool { return !strings.EqualFold(m.Balance, balanceOff) }

// exposed tells whether LINSTOR's balancing may take all copies that a volume has on other nodes, and is not kept from that. Balancing removes
// disks that are UpToDate until there are as many as the group wants, whether or not N is to leave, and none while one syncs. So it can take
// all good copies where no more of them are there, or are on their way, than there are disks too many: one may be left from the last time
// that N was taken out.
func (s situation) exposed(v Volume) bool {
	disks, copies := 0, 0
	for _, r := range v.Replicas {
		if !r.Diskless || r.has(toggling...) {
			disks++
		}
		if s.good(v, r) || s.comes(v, r) { // none on N, which leaves
			copies++
		}
	}
	here, _ := v.on(s.self.Satellite)
	return !here.Diskless && disks-v.PlaceCount >= copies && (v.Mark.balances() || !v.Mark.settled(s.entry()))
}

// exposedCopies are the definitions of volumes with a good copy that balancing may take, unless a person wants that.
func (s situation) exposedCopies() []string {
	var names []string
	for _, v := range s.mine {
		if s.goodElsewhere(v) && s.exposed(v) && v.Mark.With(s.entry()) != nil {
			names = append(names, v.Resource)
		}
	}
	return names
}

// Without returns what takes nodes out of the mark, by their entries, and the balancing with the last of them unless a person has
// changed that since; nil where none of them is in it.
func (m Mark) Without(entries ...string) *Change {
	left := slices.DeleteFunc(slices.Clone(m.Nodes), func(name string) bool { return slices.Contains(entries, name) })
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

// unmark returns the definitions whose mark for N has had its day: N returns, or has no disk of the volume any more. Those of nodes that nobody
// evacuates any more are not for N to take off: what it knows of others may be older than their marks.
func (s situation) unmark(returning bool) []string {
	var names []string
	for _, m := range s.Marked.All {
		if slices.Contains(m.Nodes, s.entry()) && (returning || !s.hasDisk(m.Resource)) {
			names = append(names, m.Resource)
		}
	}
	return names
}

// hasDisk tells whether N has a disk of the resource.
func (s situation) hasDisk(resource string) bool {
	return slices.ContainsFunc(s.disks(), func(v Volume) bool { return strings.EqualFold(v.Resource, resource) })
}
