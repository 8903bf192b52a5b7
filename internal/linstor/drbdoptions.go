package linstor

import (
	"cmp"
	"context"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

// Properties that decide what DRBD does on a node that has lost its peers or its data. The values are those of
// drbd.conf(5).
const (
	// OptionOnNoQuorum is suspend-io, DRBD's default, or io-error.
	OptionOnNoQuorum = client.PropOnNoQuorum
	// OptionOnNoDataAccessible is io-error, DRBD's default, or suspend-io.
	OptionOnNoDataAccessible = "DrbdOptions/Resource/on-no-data-accessible"
	// OptionOnSuspendedPrimaryOutdated is disconnect, DRBD's default, or force-secondary.
	OptionOnSuspendedPrimaryOutdated = "DrbdOptions/Resource/on-suspended-primary-outdated"
	// OptionRRConflict is disconnect, DRBD's default, retry-connect and others.
	OptionRRConflict = "DrbdOptions/Net/rr-conflict"
	// OptionProtocol is C, DRBD's default, or A or B, with which a peer need not have written what was acknowledged.
	OptionProtocol = "DrbdOptions/Net/protocol"
)

// OptionPingInt is after how many idle seconds DRBD asks a peer whether it is there; 10 by default.
const OptionPingInt = "DrbdOptions/Net/ping-int"

// Properties of LINSTOR's controller that say whether, and after how many minutes, LINSTOR replaces the replicas of a node that is OFFLINE.
const (
	OptionEvict      = "DrbdOptions/AutoEvictAllowEviction"
	OptionEvictAfter = "DrbdOptions/AutoEvictAfterTime"
)

// OptionQuorum is DRBD's quorum: off, majority, all or a number.
const OptionQuorum = client.PropQuorum

// Level is where a property is set. A satellite uses the highest level that sets it.
type Level string

// The levels, the highest first. LevelDefault means that no level sets the property. Options of a single replica are not looked at.
const (
	LevelDefinition Level = "resource-definition"
	LevelGroup      Level = "resource-group"
	LevelNode       Level = "node"
	LevelController Level = "controller"
	LevelDefault    Level = ""
)

// Setting is the value of a property in force for the replica of a resource on a node.
type Setting struct {
	// Value is empty if no level sets it: then DRBD's default is in force.
	Value string
	// Level is where it is set, and Object the name of the definition, group or node there.
	Level  Level
	Object string
}

// properties are those of one object, and the group of a definition.
type properties struct {
	name, group string
	props       map[string]string
}

// DRBDOptions are LINSTOR's properties of some names, as they were read at one time. The zero value has none.
type DRBDOptions struct {
	definitions, groups, nodes map[string]properties // by folded name
	controller                 map[string]string
}

// DRBDOptions reads the properties of these names, wherever they are set but on a single replica.
func (c *Client) DRBDOptions(ctx context.Context, keys []string) (DRBDOptions, error) {
	definitions, errDefinitions := c.DefinitionProps(ctx, keys)
	nodes, errNodes := c.Nodes(ctx)
	groups, errGroups := c.Groups(ctx)
	controller, errController := c.ControllerProps(ctx)
	if err := cmp.Or(errDefinitions, errNodes, errGroups, errController); err != nil {
		return DRBDOptions{}, err
	}
	o := DRBDOptions{
		definitions: make(map[string]properties, len(definitions)), groups: make(map[string]properties), nodes: make(map[string]properties), controller: controller,
	}
	for _, d := range definitions {
		o.definitions[fold(d.Name)] = properties{name: d.Name, props: d.Props, group: d.ResourceGroupName}
	}
	for _, n := range nodes {
		o.nodes[fold(n.Name)] = properties{name: n.Name, props: n.Props}
	}
	for _, g := range groups {
		o.groups[fold(g.Name)] = properties{name: g.Name, props: g.Props}
	}
	return o, nil
}

// Has reports whether LINSTOR has a resource definition of that name.
func (o DRBDOptions) Has(resource string) bool {
	_, ok := o.definitions[fold(resource)]
	return ok
}

// Controller returns a property of the controller; empty if it is not set there.
func (o DRBDOptions) Controller(key string) string { return o.controller[key] }

// QuorumOfController returns the quorum that a person has set on LINSTOR's controller, empty if nobody has. LINSTOR shows it on every
// resource definition, and tells no satellite.
func (o DRBDOptions) QuorumOfController() string {
	if o.controller[client.PropQuorumSetBy] != setByUser {
		return ""
	}
	return o.controller[client.PropQuorum]
}

// Setting finds the highest level that sets a property, as a LINSTOR satellite does.
func (o DRBDOptions) Setting(resource, node, key string) Setting {
	definition := o.definitions[fold(resource)]
	for _, l := range [...]struct {
		level Level
		properties
	}{
		{LevelDefinition, definition},
		{LevelGroup, o.groups[fold(definition.group)]},
		{LevelNode, o.nodes[fold(node)]},
		{LevelController, properties{props: o.controller}},
	} {
		if value := l.props[key]; value != "" {
			return Setting{Value: value, Level: l.level, Object: l.name}
		}
	}
	return Setting{}
}
