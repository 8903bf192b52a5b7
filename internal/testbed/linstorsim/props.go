package linstorsim

import (
	"maps"
	"slices"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/drbd"
)

// Properties that DRBD's behaviour depends on.
const (
	PropQuorum                 = "DrbdOptions/Resource/quorum"
	PropOnNoQuorum             = "DrbdOptions/Resource/on-no-quorum"
	PropOnSuspendedPrimary     = "DrbdOptions/Resource/on-suspended-primary-outdated"
	PropRRConflict             = "DrbdOptions/Net/rr-conflict"
	PropAllowTwoPrimaries      = "DrbdOptions/Net/allow-two-primaries"
	propOnNoDataAccessible     = "DrbdOptions/Resource/on-no-data-accessible"
	propAutoQuorum             = "DrbdOptions/auto-quorum"
	propAutoTieBreaker         = "DrbdOptions/auto-add-quorum-tiebreaker"
	propAutoEvictAllowEviction = "DrbdOptions/AutoEvictAllowEviction"
	propQuorumSetBy            = "Internal/Drbd/QuorumSetBy"
)

// drbdOptions are the properties that satellites write into DRBD's configuration, with the options' names.
var drbdOptions = map[string]string{
	PropQuorum:             drbd.OptionQuorum,
	PropOnNoQuorum:         drbd.OptionOnNoQuorum,
	PropOnSuspendedPrimary: drbd.OptionOnSuspendedPrimary,
	PropRRConflict:         drbd.OptionRRConflict,
	PropAllowTwoPrimaries:  drbd.OptionAllowTwoPrimaries,
}

// PiraeusProps returns the controller properties of a LINSTOR that the Piraeus operator set up.
func PiraeusProps() map[string]string {
	return map[string]string{
		PropOnNoQuorum:             drbd.OnNoQuorumSuspendIO,
		PropOnSuspendedPrimary:     drbd.OnSuspendedPrimaryForceSecond,
		PropRRConflict:             drbd.RRConflictRetryConnect,
		propOnNoDataAccessible:     "suspend-io",
		propAutoQuorum:             "suspend-io",
		propAutoTieBreaker:         "True",
		propAutoEvictAllowEviction: "false",
	}
}

// SetControllerProperty sets a property of the controller; an empty value removes it.
func (s *Server) SetControllerProperty(key, value string) {
	s.setProperty(func() map[string]string { return s.props }, key, value)
}

// SetNodeProperty sets a property of a node; an empty value removes it.
func (s *Server) SetNodeProperty(nodeName, key, value string) {
	s.setProperty(func() map[string]string {
		if n := s.nodes[fold(nodeName)]; n != nil {
			return n.props
		}
		return nil
	}, key, value)
}

// SetGroupProperty sets a property of a resource group, which is created if need be; an empty value removes it.
func (s *Server) SetGroupProperty(group, key, value string) {
	s.setProperty(func() map[string]string {
		if s.groups[group] == nil {
			s.groups[group] = map[string]string{}
		}
		return s.groups[group]
	}, key, value)
}

// SetDefinitionProperty sets a property of a resource definition; an empty value removes it. Quorum set here is
// the user's: LINSTOR's automatics leave it alone.
func (s *Server) SetDefinitionProperty(resourceName, key, value string) {
	s.setProperty(func() map[string]string {
		d := s.definitions[fold(resourceName)]
		if d == nil {
			return nil
		}
		if key == PropQuorum {
			d.props[propQuorumSetBy] = "user"
		}
		return d.props
	}, key, value, resourceName)
}

// SetResourceProperty sets a property of one resource; an empty value removes it.
func (s *Server) SetResourceProperty(resourceName, nodeName, key, value string) {
	s.setProperty(func() map[string]string {
		if d := s.definitions[fold(resourceName)]; d != nil && d.resources[fold(nodeName)] != nil {
			return d.resources[fold(nodeName)].props
		}
		return nil
	}, key, value, resourceName)
}

// setProperty changes one level's properties and brings the outcome to the nodes that can be reached. The others
// learn of it when they are back. Where definitions are named, the level is theirs alone, else that of all.
func (s *Server) setProperty(level func() map[string]string, key, value string, names ...string) {
	s.mu.Lock()
	props := level()
	switch {
	case props == nil:
	case value == "":
		delete(props, key)
	default:
		props[key] = value
	}
	if len(names) == 0 || key == PropQuorum {
		names = slices.Sorted(maps.Keys(s.definitions))
	}
	if key == PropQuorum {
		// The automatic looks at them all.
		for _, name := range names {
			s.updateQuorum(s.definitions[name])
		}
	}
	s.mu.Unlock()
	if drbdOptions[key] == "" {
		return
	}
	for _, name := range names {
		s.adjustDefinition(name)
	}
}

// effective is the value of a property as a node's satellite writes it into DRBD's configuration: resource,
// definition, group, node, controller. Without a resource, those levels are left out.
func (s *Server) effective(d *definition, rsc *resource, key string) string {
	levels := []map[string]string{d.props, s.groups[d.group], s.props}
	if rsc != nil {
		levels = []map[string]string{rsc.props, d.props, s.groups[d.group], rsc.node.props, s.props}
	}
	for _, level := range levels {
		if value := level[key]; value != "" {
			return value
		}
	}
	return ""
}

// updateQuorum is LINSTOR's automatic: unless a user set the quorum, the definition gets majority or off.
func (s *Server) updateQuorum(d *definition) {
	if !d.drbd() || d.props[propQuorumSetBy] == "user" {
		return
	}
	for _, level := range []map[string]string{s.groups[d.group], s.props} {
		if value := level[PropQuorum]; value != "" {
			d.props[PropQuorum] = value
			return
		}
	}
	diskful, diskless := 0, 0
	for _, rsc := range d.resources {
		switch {
		case rsc.has(FlagDelete) || rsc.has(FlagInactive):
		case rsc.has(FlagDiskless):
			diskless++
		default:
			diskful++
		}
	}
	d.props[PropQuorum] = drbd.QuorumOff
	if diskful >= 3 || diskful == 2 && diskless >= 1 {
		d.props[PropQuorum] = drbd.QuorumMajority
	}
}

// adjustment is one DRBD option that a satellite sets.
type adjustment struct{ resource, node, option, value string }

// adjustDefinition brings a definition's settings to all nodes that can be reached.
func (s *Server) adjustDefinition(resourceName string) {
	s.mu.Lock()
	var list []adjustment
	if d := s.definitions[fold(resourceName)]; d != nil {
		for _, name := range slices.Sorted(maps.Keys(d.resources)) {
			list = append(list, s.adjustments(d, d.resources[name])...)
		}
	}
	s.mu.Unlock()
	s.apply(list)
}

// adjust brings all settings to a node, and carries out the deletions that have waited for it.
func (s *Server) adjust(nodeName string) {
	type deletion struct {
		d   *definition
		rsc *resource
	}
	var list []adjustment
	var deletions []deletion
	s.onNode(nodeName, func(n *node) {
		s.eachOn(n, func(d *definition, rsc *resource) {
			if n.reports() && rsc.has(FlagDelete) && !rsc.has(FlagEvicted) {
				deletions = append(deletions, deletion{d, rsc})
				return
			}
			list = append(list, s.adjustments(d, rsc)...)
		})
	})
	s.apply(list)
	for _, x := range deletions {
		if s.forget(x.d, x.rsc) != nil {
			// A replica that is open by then keeps its flag, and gets the settings like any other.
			s.adjustDefinition(x.d.name)
		}
	}
}

// adjustments lists the DRBD options of one resource, none if its satellite does not listen.
func (s *Server) adjustments(d *definition, rsc *resource) []adjustment {
	if !d.drbd() || d.volumes == 0 || !rsc.node.reports() {
		return nil
	}
	var list []adjustment
	for _, key := range slices.Sorted(maps.Keys(drbdOptions)) {
		list = append(list, adjustment{d.name, rsc.node.name, drbdOptions[key], s.effective(d, rsc, key)})
	}
	return list
}

func (s *Server) apply(list []adjustment) {
	for _, a := range list {
		// LINSTOR refuses a value that DRBD does not know when it is set; here it just never reaches DRBD. A
		// resource may have been deleted meanwhile.
		_ = s.cluster.SetOption(a.resource, a.option, a.value, a.node)
	}
}
