package evacuation

import (
	"slices"
	"time"
)

const (
	// RefusalHolds is for how long LINSTOR is not asked again for a copy that it has refused while the nodes are the same.
	RefusalHolds = 10 * time.Minute
	// SilenceHolds is for how long it is not asked again where it has not answered: it may be at work on it.
	SilenceHolds = time.Minute
)

// Copy is a copy to be made: by autoplace, with one replica more than there are.
type Copy struct {
	// Resource is the resource definition.
	Resource string
	// Targets are the nodes that LINSTOR may choose from. They are never none: LINSTOR takes an empty list for no filter.
	Targets []string
	// Mark is set where the definition is to get a mark for N before ([Mark.With]), so that LINSTOR's balancing does not remove the copy.
	Mark bool
}

// Eligible are the nodes that could have a copy, by their names in LINSTOR: all satellites without those that leave, are cordoned or
// tainted, not Ready or not ONLINE.
func (in Input) Eligible() []string {
	var names []string
	for _, n := range in.Nodes {
		if n.Listed && n.steady() && !n.Cordoned && !n.Repelling {
			names = append(names, n.Satellite)
		}
	}
	slices.Sort(names)
	return names
}

// targets are those of them that are in the node list of a definition's group, or all where it has none.
func (s situation) targets(d Definition) []string {
	return slices.DeleteFunc(s.Eligible(), func(name string) bool { return len(d.Nodes) > 0 && !slices.Contains(d.Nodes, name) })
}

// copying is how many copies are in progress in the cluster. One that has nothing to be copied from is not, nor one that LINSTOR could not make
// or that is connected to no disk with the data.
func (s situation) copying() int {
	n := 0
	for _, v := range s.Volumes {
		_, coming := s.onItsWay(v)
		notMade, _ := volumeNotMade(s, v, Replica{})
		apart, _ := volumeApart(s, v, Replica{})
		if coming && notMade == "" && apart == "" && s.source(v) {
			n++
		}
	}
	return n
}

// copies plans copies of the volumes, as many as may be in progress. It returns what must be read before that, and which volumes have no
// target.
func (s situation) copies(wanted []Volume) (copies []Copy, unread []string, noTarget []string) {
	free := s.Settings.MaxCopies - s.copying()
	for _, v := range wanted {
		if len(copies)+len(unread) >= free {
			break
		}
		if v.Definition == nil {
			unread = append(unread, v.Resource)
			continue
		}
		targets := slices.DeleteFunc(s.targets(*v.Definition), v.wouldLose)
		if !slices.ContainsFunc(targets, func(name string) bool { return s.room(v, name) }) {
			noTarget = append(noTarget, v.Resource)
			continue
		}
		copies = append(copies, Copy{Resource: v.Resource, Targets: targets, Mark: v.Definition.Mark.With(s.entry()) != nil})
	}
	return copies, unread, noTarget
}

// wouldLose tells whether LINSTOR would delete a disk that the replica on a node gets: a note of an old move makes it the source of one, which
// is over as soon as that disk is UpToDate.
func (v Volume) wouldLose(node string) bool {
	r, _ := v.on(node)
	return r.Moves
}

// room tells whether a node could get a disk of the volume.
func (s situation) room(v Volume, node string) bool {
	r, ok := v.on(node)
	return !ok || r.Diskless
}
