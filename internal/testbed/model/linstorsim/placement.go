package linstorsim

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Placement is what a resource group says about where the disks of its definitions go: LINSTOR's select filter.
type Placement struct {
	// PlaceCount is how many disks each definition is to have; 0 means 2, LINSTOR's default.
	PlaceCount int
	// NodeNames are the nodes that may get one; empty means all.
	NodeNames []string
	// OnDifferent is the key of a property of nodes of which no two replicas may have the same value, such as "Aux/zone"; empty means
	// none. Nodes without the property may have any.
	OnDifferent string
}

// DefaultPlaceCount is how many disks a definition is to have where its group says nothing.
const DefaultPlaceCount = 2

// SetPlacement says where the disks of a resource group go from now on. The group is created if need be; what is placed already stays.
func (s *Server) SetPlacement(group string, p Placement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.groups[group] == nil {
		s.groups[group] = map[string]string{}
	}
	s.placements[group] = p
}

func (s *Server) placementOf(group string) Placement {
	p := s.placements[group]
	p.PlaceCount = cmp.Or(p.PlaceCount, DefaultPlaceCount)
	return p
}

// SetPool gives the storage pool of a node a capacity in KiB, of which each disk takes its whole size. Without one, a pool has room for
// everything; that is what 0 makes of it.
func (s *Server) SetPool(nodeName string, capacityKiB int64) {
	s.onNode(nodeName, func(n *node) { n.poolKiB = capacityKiB })
}

// freeKiB is how much room the storage pool of a node has.
func (s *Server) freeKiB(n *node) int64 {
	if n.poolKiB == 0 {
		return poolKiB
	}
	free := n.poolKiB
	s.eachOn(n, func(d *definition, rsc *resource) {
		if !rsc.has(FlagDiskless) {
			free -= d.totalKiB()
		}
	})
	return max(free, 0)
}

// fits tells whether the storage pool of a node has room for a disk.
func (s *Server) fits(d *definition, n *node) bool {
	return n.poolKiB == 0 || s.freeKiB(n) >= d.totalKiB()
}

func (d *definition) totalKiB() int64 { return d.sizeKiB * int64(d.volumes) }

// wish is what auto-place looks for.
type wish struct {
	// disks is how many there are to be more.
	disks int
	// nodes are those that may get one. An empty list is no filter, as LINSTOR takes it, and so is none.
	nodes []string
	// reusable are the nodes on which a diskless replica is no obstacle: it gets the disk.
	reusable []string
}

// places returns as many nodes as are wished for, those with the most room first; none if there are not so many.
func (s *Server) places(d *definition, w wish) []*node {
	key := s.placementOf(d.group).OnDifferent
	taken := map[string]bool{}
	for _, rsc := range d.resources {
		if value := rsc.node.props[key]; value != "" && !rsc.isLeaving() && !containsName(w.reusable, rsc.node.name) {
			taken[value] = true
		}
	}
	var chosen []*node
	for _, n := range s.byRoom() {
		value := n.props[key]
		if len(chosen) < w.disks && s.eligible(d, n, w) && !taken[value] {
			chosen = append(chosen, n)
			taken[value] = value != ""
		}
	}
	if len(chosen) < w.disks {
		return nil
	}
	return chosen
}

// byRoom returns the nodes, those with the most room first.
func (s *Server) byRoom() []*node {
	var list []*node
	free := map[*node]int64{}
	for _, key := range slices.Sorted(maps.Keys(s.nodes)) {
		list = append(list, s.nodes[key])
		free[s.nodes[key]] = s.freeKiB(s.nodes[key])
	}
	slices.SortStableFunc(list, func(a, b *node) int { return cmp.Compare(free[b], free[a]) })
	return list
}

// eligible tells whether a node can get a disk of a definition, the other replicas aside.
func (s *Server) eligible(d *definition, n *node, w wish) bool {
	rsc := d.resources[fold(n.name)]
	return n.connected && n.status == Online && !n.has(FlagEvacuate) && !n.has(FlagEvicted) &&
		!strings.EqualFold(cmp.Or(n.props[PropAutoplaceTarget], s.props[PropAutoplaceTarget]), "false") &&
		(len(w.nodes) == 0 || containsName(w.nodes, n.name)) && s.fits(d, n) &&
		(rsc == nil || rsc.has(FlagDiskless) && !rsc.leaves() && containsName(w.reusable, n.name))
}

// isLeaving tells whether placement does not count a replica: it or its node is to leave.
func (rsc *resource) isLeaving() bool {
	return rsc.has(FlagEvacuate) || rsc.has(FlagEvicted) || rsc.node.has(FlagEvacuate) || rsc.node.has(FlagEvicted)
}

func (n *node) has(flag string) bool { return slices.Contains(n.flags, flag) }

// placed counts the disks that placement takes for there.
func (d *definition) placed() (count int) {
	for _, rsc := range d.resources {
		if !rsc.has(FlagDiskless) && !rsc.leaves() && !rsc.isLeaving() {
			count++
		}
	}
	return count
}

// disklessNodes are the nodes with a replica that could get a disk.
func (d *definition) disklessNodes() (names []string) {
	for _, key := range slices.Sorted(maps.Keys(d.resources)) {
		if rsc := d.resources[key]; rsc.has(FlagDiskless) && !rsc.leaves() && !rsc.isLeaving() {
			names = append(names, rsc.node.name)
		}
	}
	return names
}

func containsName(list []string, name string) bool {
	return slices.ContainsFunc(list, func(one string) bool { return fold(one) == fold(name) })
}
