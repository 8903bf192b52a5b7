package linstorsim

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

// Properties that DRBD's behaviour depends on.
const (
	PropQuorum             = "DrbdOptions/Resource/quorum"
	PropOnNoQuorum         = "DrbdOptions/Resource/on-no-quorum"
	PropOnSuspendedPrimary = "DrbdOptions/Resource/on-suspended-primary-outdated"
	PropRRConflict         = "DrbdOptions/Net/rr-conflict"
	PropAllowTwoPrimaries  = "DrbdOptions/Net/allow-two-primaries"
	// PropAutoTieBreaker lets LINSTOR add and remove tie-breakers; see [Options.TieBreakers].
	PropAutoTieBreaker         = "DrbdOptions/auto-add-quorum-tiebreaker"
	propOnNoDataAccessible     = "DrbdOptions/Resource/on-no-data-accessible"
	propAutoQuorum             = "DrbdOptions/auto-quorum"
	propAutoEvictAllowEviction = "DrbdOptions/AutoEvictAllowEviction"
	// PropQuorumSetBy is "user" beside a quorum that a person has set.
	PropQuorumSetBy = "Internal/Drbd/QuorumSetBy"
	setByUser       = "user"
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
		PropAutoTieBreaker:         "True",
		propAutoEvictAllowEviction: "false",
	}
}

// ErrInvalidProperty says that LINSTOR does not take the property at that level.
var ErrInvalidProperty = errors.New("invalid property key")

// SetControllerProperty sets a property of the controller; an empty value removes it. A quorum is written into every
// definition whose quorum nobody has set there or on its group, and REST shows it at once, but the satellites are told
// of the controller's properties only: they go on with the definition's value that they heard last.
func (s *Server) SetControllerProperty(key, value string) {
	s.mu.Lock()
	setQuorumAware(s.props, key, value)
	var touched []string
	if key == PropQuorum || key == PropAutoTieBreaker {
		for _, name := range slices.Sorted(maps.Keys(s.definitions)) {
			if s.automatics(s.definitions[name]) {
				touched = append(touched, name)
			}
		}
	}
	var jobs []job
	if drbdOptions[key] != "" {
		jobs = s.repeated(func(*node) bool { return true })
	}
	s.mu.Unlock()
	s.run(jobs)
	for _, name := range touched {
		// A tie-breaker that comes or goes touches the definition.
		s.send(name)
	}
}

// SetNodeProperty sets a property of a node; an empty value removes it. LINSTOR takes no quorum there.
func (s *Server) SetNodeProperty(nodeName, key, value string) error {
	if key == PropQuorum {
		return fmt.Errorf("setting %s on node %s: %w", key, nodeName, ErrInvalidProperty)
	}
	s.mu.Lock()
	n := s.nodes[fold(nodeName)]
	if n == nil {
		s.mu.Unlock()
		return fmt.Errorf("node %s: %w", nodeName, ErrNotFound)
	}
	set(n.props, key, value)
	var jobs []job
	if drbdOptions[key] != "" {
		jobs = s.repeated(func(other *node) bool { return other == n })
	}
	s.mu.Unlock()
	s.run(jobs)
	return nil
}

// SetGroupProperty sets a property of a resource group, which is created if need be; an empty value removes it. All of
// the group's definitions are sent to their satellites.
func (s *Server) SetGroupProperty(group, key, value string) {
	_ = s.setGroup(group, map[string]string{key: value})
}

// setGroup changes properties of a group in one commit.
func (s *Server) setGroup(group string, props map[string]string) (result outcome) {
	s.mu.Lock()
	if s.groups[group] == nil {
		s.groups[group] = map[string]string{}
	}
	for key, value := range props {
		setQuorumAware(s.groups[group], key, value)
	}
	var touched []string
	for _, name := range slices.Sorted(maps.Keys(s.definitions)) {
		if d := s.definitions[name]; d.group == group {
			s.automatics(d)
			touched = append(touched, name)
		}
	}
	s.mu.Unlock()
	for _, name := range touched {
		one := s.send(name)
		result.failed, result.hung = result.failed || one.failed, result.hung || one.hung
	}
	return result
}

// SetDefinitionProperty sets a property of a resource definition, and sends the definition to its satellites; an empty
// value removes it. Quorum set here is the user's: LINSTOR's automatics leave it alone until it is removed.
func (s *Server) SetDefinitionProperty(resourceName, key, value string) {
	_ = s.setDefinition(resourceName, map[string]string{key: value})
}

// setDefinition changes properties of a definition in one commit.
func (s *Server) setDefinition(resourceName string, props map[string]string) outcome {
	s.mu.Lock()
	d := s.definitions[fold(resourceName)]
	if d == nil {
		s.mu.Unlock()
		return outcome{}
	}
	for key, value := range props {
		setQuorumAware(d.props, key, value)
	}
	s.automatics(d)
	s.mu.Unlock()
	return s.send(d.name)
}

// SetResourceProperty sets a property of one resource, and sends the definition to its satellites; an empty value
// removes it. LINSTOR takes no quorum there.
func (s *Server) SetResourceProperty(resourceName, nodeName, key, value string) error {
	if key == PropQuorum {
		return fmt.Errorf("setting %s on resource %s on node %s: %w", key, resourceName, nodeName, ErrInvalidProperty)
	}
	s.mu.Lock()
	d := s.definitions[fold(resourceName)]
	if d == nil || d.resources[fold(nodeName)] == nil {
		s.mu.Unlock()
		return fmt.Errorf("resource %s on node %s: %w", resourceName, nodeName, ErrNotFound)
	}
	set(d.resources[fold(nodeName)].props, key, value)
	s.mu.Unlock()
	s.send(d.name)
	return nil
}

func set(props map[string]string, key, value string) {
	if value == "" {
		delete(props, key)
	} else {
		props[key] = value
	}
}

// setQuorumAware sets a property and, beside a quorum, the mark that a person set it.
func setQuorumAware(props map[string]string, key, value string) {
	set(props, key, value)
	if key == PropQuorum {
		set(props, PropQuorumSetBy, map[bool]string{true: setByUser}[value != ""])
	}
}

// effective is the value of a property as a node's satellite writes it into DRBD's configuration: resource,
// definition, group, node, controller. Without a resource, those levels are left out. Of quorum the satellite knows what
// it was last sent, see [resource].
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

// usersQuorum is the quorum that a person has set on the definition, its group or the controller; empty when nobody has.
func (s *Server) usersQuorum(d *definition) string {
	if d.props[PropQuorumSetBy] == setByUser {
		return d.props[PropQuorum]
	}
	return cmp.Or(s.groups[d.group][PropQuorum], s.props[PropQuorum])
}

// wantedQuorum is the quorum that LINSTOR tells the satellites when it sends a definition.
func (s *Server) wantedQuorum(d *definition) string {
	return cmp.Or(d.props[PropQuorum], s.groups[d.group][PropQuorum], s.props[PropQuorum])
}

// updateQuorum is LINSTOR's automatic: unless a user set the quorum, the definition gets majority or off with its first replica.
func (s *Server) updateQuorum(d *definition) {
	if !d.drbd() || len(d.resources) == 0 {
		return
	}
	if value := s.usersQuorum(d); value != "" {
		d.props[PropQuorum] = value
		return
	}
	diskful, diskless, _ := d.voters()
	d.props[PropQuorum] = drbd.QuorumOff
	if diskful >= 3 || diskful == 2 && diskless >= 1 {
		d.props[PropQuorum] = drbd.QuorumMajority
	}
}
