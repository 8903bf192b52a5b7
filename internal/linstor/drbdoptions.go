package linstor

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/errgroup"

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
)

// OptionPingInt is after how many idle seconds DRBD asks a peer whether it is there; 10 by default.
const OptionPingInt = "DrbdOptions/Net/ping-int"

// OptionQuorum is DRBD's quorum: off, majority, all or a number.
const OptionQuorum = client.PropQuorum

// QuorumOfController returns the quorum that a person has set on LINSTOR's controller, empty where nobody has. LINSTOR shows it on every
// resource definition, and tells no satellite.
func (c *Client) QuorumOfController(ctx context.Context) (string, error) {
	props, err := c.ControllerProps(ctx)
	if err != nil || props[client.PropQuorumSetBy] != setByUser {
		return "", err
	}
	return props[client.PropQuorum], nil
}

// Level is where a property is set. A satellite uses the highest level that sets it.
type Level string

// The levels, the highest first. LevelDefault means that no level sets the property.
const (
	LevelResource   Level = "resource"
	LevelDefinition Level = "resource-definition"
	LevelGroup      Level = "resource-group"
	LevelNode       Level = "node"
	LevelController Level = "controller"
	LevelDefault    Level = ""
)

// Setting is the value of a property in force for one resource.
type Setting struct {
	// Resource is the resource definition, by the name that was asked for, and Node the node.
	Resource, Node string
	// Key is the property and Value its value, empty where no level sets it: then DRBD's default is in force.
	Key, Value string
	// Level is where it is set, and Object the name of the definition, group or node there.
	Level  Level
	Object string
}

// optionReads is how many definitions are read at a time.
const optionReads = 8

// Settings reads what is in force of some properties for each resource of some definitions. It merges the levels as
// a LINSTOR satellite does: resource, resource definition, resource group, node, controller. Definitions that
// LINSTOR does not have are left out.
func (c *Client) Settings(ctx context.Context, definitions, keys []string) ([]Setting, error) {
	nodes, errNodes := c.Nodes(ctx)
	groups, errGroups := c.Groups(ctx)
	controller, errController := c.ControllerProps(ctx)
	if err := cmp.Or(errNodes, errGroups, errController); err != nil {
		return nil, err
	}
	upper := upperLevels{nodes: map[string]client.Node{}, groups: map[string]client.Group{}, controller: controller}
	for _, n := range nodes {
		upper.nodes[fold(n.Name)] = n
	}
	for _, g := range groups {
		upper.groups[fold(g.Name)] = g
	}

	var mu sync.Mutex
	var all []Setting
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.SetLimit(optionReads)
	for _, name := range definitions {
		tasks.Go(func() error {
			definition, err := c.Definition(ctx, name)
			resources, errResources := c.Resources(ctx, name)
			err = cmp.Or(err, errResources)
			if errors.Is(err, ErrNotFound) {
				return nil
			}
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			for _, r := range resources {
				for _, key := range keys {
					s := upper.setting(definition, r, key)
					s.Resource = name
					all = append(all, s)
				}
			}
			return nil
		})
	}
	return all, tasks.Wait()
}

// upperLevels are the properties above the resource definition, by folded name.
type upperLevels struct {
	nodes      map[string]client.Node
	groups     map[string]client.Group
	controller map[string]string
}

// setting finds the highest level that sets a property.
func (u upperLevels) setting(d client.Definition, r client.Resource, key string) Setting {
	group, node := u.groups[fold(d.ResourceGroupName)], u.nodes[fold(r.NodeName)]
	for _, l := range []struct {
		level  Level
		object string
		props  map[string]string
	}{
		{LevelResource, r.NodeName, r.Props},
		{LevelDefinition, d.Name, d.Props},
		{LevelGroup, group.Name, group.Props},
		{LevelNode, node.Name, node.Props},
		{LevelController, "", u.controller},
	} {
		if value := l.props[key]; value != "" {
			return Setting{Node: fold(r.NodeName), Key: key, Value: value, Level: l.level, Object: l.object}
		}
	}
	return Setting{Node: fold(r.NodeName), Key: key}
}
