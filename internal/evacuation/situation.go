package evacuation

import (
	"cmp"
	"slices"
	"strings"
)

// situation is an input together with what was derived from it once.
type situation struct {
	Input
	self       Node
	satellites map[string]Node
	mine       []Volume // with a replica on N
}

func assess(in Input) situation {
	s := situation{Input: in, satellites: make(map[string]Node, len(in.Nodes))}
	for _, n := range in.Nodes {
		s.satellites[n.Satellite] = n
		if n.Name == in.Node {
			s.self = n
		}
	}
	for _, v := range in.Volumes {
		if _, ok := v.on(s.self.Satellite); ok {
			s.mine = append(s.mine, v)
		}
	}
	slices.SortFunc(s.mine, func(a, b Volume) int { return cmp.Compare(a.Resource, b.Resource) })
	return s
}

// ours reports whether a flag EVACUATE on a node is this cluster's. Only LINSTOR says so: a kubelet may annotate its own node.
func (s situation) ours(n Node) bool { return n.Evacuator != "" && n.Evacuator == s.Cluster }

// Satellite is N's name in LINSTOR; empty where Nodes does not have it.
func (in Input) Satellite() string { return assess(in).self.Satellite }

// node returns a node by its name in LINSTOR; of one that is not there everything is unknown.
func (s situation) node(satellite string) Node { return s.satellites[satellite] }

// on returns the replica on a node, by its name in LINSTOR.
func (v Volume) on(satellite string) (Replica, bool) {
	i := slices.IndexFunc(v.Replicas, func(r Replica) bool { return r.Node == satellite })
	if i < 0 {
		return Replica{}, false
	}
	return v.Replicas[i], true
}

// disks are the volumes with a disk on N.
func (s situation) disks() []Volume {
	var volumes []Volume
	for _, v := range s.mine {
		if r, _ := v.on(s.self.Satellite); !r.Diskless || r.has(toggling...) {
			volumes = append(volumes, v)
		}
	}
	return volumes
}

// mode returns the mode that the taints of a node ask for, or why they are refused.
func (n Node) mode() (mode Mode, refused Reason, message string) {
	for _, t := range n.Evacuate {
		if t.Effect != effectNoSchedule {
			return "", WrongEffect, "the taint " + TaintKey + " must have the effect NoSchedule, not " + t.Effect
		}
		switch mode = Mode(t.Value); mode {
		case LastCopies, Everything:
		default:
			return "", UnknownMode, "the taint " + TaintKey + " means nothing with the value " + quoted(t.Value) + "; it may be " +
				quoted(string(LastCopies)) + " or empty"
		}
	}
	if n.Satellite == "" {
		return mode, NotASatellite, twoClaim
	}
	if !n.Listed {
		return mode, NotASatellite, "LINSTOR lists no node " + n.Satellite + " that could have replicas"
	}
	return mode, "", ""
}

// twoClaim is why it is not known which node of LINSTOR a node is.
const twoClaim = "another node claims the same name in LINSTOR, so that nobody knows which node it is: compare the node IDs in kubectl get csinodes -o yaml"

// TaintKey is the key of the taint that has a node evacuated.
const TaintKey = "piraeus.io/evacuate"

const effectNoSchedule = "NoSchedule"

// ahead are the nodes that are at work and go before N: those that began earlier, of two at the same time by their names.
func (s situation) ahead() []string {
	var names []string
	for _, n := range s.Nodes {
		if len(n.Evacuate) == 0 || !n.Conditions.active() {
			continue
		}
		if _, refused, _ := n.mode(); refused == "" && goesBefore(n, s.self) {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	return names
}

// overtaken are the nodes that came after N and leave already, because N was not drained when they were: N, of which LINSTOR was told nothing yet, waits for
// them in its turn.
func (s situation) overtaken() []string {
	if s.Progress.asked() {
		return nil
	}
	var names []string
	for _, n := range s.Nodes {
		if len(n.Evacuate) > 0 && n.Conditions.leaving() && goesBefore(s.self, n) {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	return names
}

// goesBefore tells whether one node goes before another. None goes before itself.
func goesBefore(a, b Node) bool {
	switch {
	case a.Since.IsZero() != b.Since.IsZero():
		return b.Since.IsZero()
	case !a.Since.Equal(b.Since):
		return a.Since.Before(b.Since)
	}
	return a.Name < b.Name
}

// otherLeaving are the nodes other than N that nothing may be moved to, by their names in LINSTOR.
func (s situation) otherLeaving() []string {
	var names []string
	for _, n := range s.Nodes {
		if n.Name != s.Node && n.Listed && n.leaving() {
			names = append(names, n.Satellite)
		}
	}
	slices.Sort(names)
	return names
}

// few names the first of many.
func few(names []string) string {
	const shown = 3
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:shown], ", ") + ", ..."
}

func quoted(text string) string { return `"` + text + `"` }
