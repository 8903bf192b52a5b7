package linstor

import (
	"maps"
	"strings"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

// applyNodes takes over the complete list of nodes.
func (s *Store) applyNodes(list []client.Node, at span) {
	s.mu.Lock()
	if at.start.Before(s.nodesRead.start) {
		s.mu.Unlock()
		return
	}
	before := s.nodesRead
	s.nodesRead = at
	at.unsure = s.unsure(s.lost, stampOf(before.start))
	changed := map[string]bool{}
	listed := make(map[string]bool, len(list))
	for _, w := range list {
		name := fold(w.Name)
		listed[name] = true
		n := s.nodes[name]
		if n == nil {
			// A node that LINSTOR did not list was away for it.
			n = &nodeEntry{Node: Node{Name: name}, away: stampOf(before.start)}
			s.nodes[name] = n
			changed[name] = true
		}
		was := *n
		n.take(w, at)
		if !same(was.Online, n.Online) || was.Leaving != n.Leaving {
			changed[name] = true
		}
	}
	maps.DeleteFunc(s.nodes, func(name string, _ *nodeEntry) bool {
		if !listed[name] {
			changed[name] = true
		}
		return !listed[name]
	})
	names := s.namesWhere(func(e *entry) bool {
		for node := range changed {
			if e.replica(node) != nil || s.gone[fold(e.name)][node] != nil {
				return true
			}
		}
		return false
	})
	names = append(names, s.bearOut(stampOf(at.end))...)
	s.mu.Unlock()
	s.notify(names...)
}

// take takes over what a list says of a node.
func (n *nodeEntry) take(w client.Node, at span) {
	var online *bool
	if w.ConnectionStatus != "" {
		online = new(w.ConnectionStatus == client.StatusOnline)
	}
	n.Online = observe(n.Online, online, at)
	n.OtherVersion = w.ConnectionStatus == client.StatusVersionMismatch
	n.Satellite = client.HasSatellite(w)
	n.Leaving = client.AnyFlag(w.Flags, client.FlagDelete, client.FlagEvicted)
	n.Evacuating = client.AnyFlag(w.Flags, client.FlagEvacuate)
	n.Evacuator = w.Props[evacuation.PropMark]
	n.NoTarget = strings.EqualFold(w.Props[client.PropAutoplaceTarget], "false")
	switch {
	case !n.Online.Known:
	case !n.Online.Value:
		n.away = stampOf(at.start)
	default:
		n.LastOnline = at.start
		if n.back <= n.away {
			n.back = stampOf(at.end)
		}
	}
}

// applyDefinitions takes over the complete list of resource definitions. Those that were read one by one
// later stay. It returns the resources whose definition has changed, and those that are to be read because LINSTOR lists a definition
// that was not there before, or lists one no longer.
func (s *Store) applyDefinitions(list []client.Definition, at span) (changed []string) {
	var formed, moved []string
	s.mu.Lock()
	if !at.start.Before(s.definitionsRead.start) {
		s.definitionsRead = at
		listed := make(map[string]bool, len(list))
		for _, w := range list {
			listed[fold(w.Name)] = true
			changed = append(changed, s.takeDefinition(w, at)...)
		}
		formed = s.formAll(stampOf(at.end))
		maps.DeleteFunc(s.definitions, func(key string, d *definitionEntry) bool {
			return !listed[key] && d.read <= stampOf(at.start)
		})
		moved = s.moved(at)
	}
	s.mu.Unlock()
	s.notify(append(formed, changed...)...)
	return append(changed, moved...)
}

// moved returns the resources that LINSTOR lists no definition of any more, and the definitions of which no replicas were read yet. The
// first view brings those that were there from the beginning. The lock must be held.
func (s *Store) moved(at span) (names []string) {
	if !s.complete {
		return nil
	}
	for key, e := range s.resources {
		if s.definitions[key] == nil && e.set.Confirmed.Before(at.start) {
			names = append(names, e.name)
		}
	}
	for key, d := range s.definitions {
		if s.resources[key] == nil {
			names = append(names, d.name)
		}
	}
	return names
}

// applyDefinition takes over one resource definition.
func (s *Store) applyDefinition(w client.Definition, at span) {
	s.mu.Lock()
	changed := s.takeDefinition(w, at)
	if e := s.resources[fold(w.Name)]; e != nil && s.form(e, stampOf(at.end)) && len(changed) == 0 {
		changed = append(changed, e.name)
	}
	s.mu.Unlock()
	s.notify(changed...)
}

// takeDefinition returns the name of the resource if that is affected. The lock must be held.
func (s *Store) takeDefinition(w client.Definition, at span) []string {
	key := fold(w.Name)
	d := s.definitions[key]
	if d == nil {
		d = &definitionEntry{}
		s.definitions[key] = d
	}
	if stampOf(at.start) < d.read {
		return nil
	}
	before := *d
	d.read = stampOf(at.start)
	if d.name != w.Name { // the string that is there is shared
		d.name = w.Name
	}
	if group := fold(w.ResourceGroupName); d.group != group {
		d.group = group
	}
	d.drbd = len(w.LayerData) > 0 && w.LayerData[0].Type == client.LayerDRBD
	d.quorum = observeLevel(d.quorum, w.Props, at)
	d.mark = evacuation.MarkOf(d.name, w.Props)
	if before.group == d.group && before.drbd == d.drbd && before.quorum == d.quorum {
		return nil
	}
	if e := s.resources[key]; e != nil {
		return []string{e.name}
	}
	return nil
}

// applyGroups takes over the complete list of resource groups. It returns the resources whose quorum may
// have changed.
func (s *Store) applyGroups(list []client.Group, at span) (changed []string) {
	s.mu.Lock()
	if !at.start.Before(s.groupsRead.start) {
		groups, placeCounts := make(map[string]level, len(list)), make(map[string]int, len(list))
		for _, w := range list {
			key := fold(w.Name)
			placeCounts[key] = int(w.SelectFilter.PlaceCount)
			if groups[key] = observeLevel(s.groups[key], w.Props, at); groups[key] != s.groups[key] {
				changed = append(changed, s.namesWhere(func(e *entry) bool {
					d := s.definitions[fold(e.name)]
					return d != nil && d.group == key
				})...)
			}
		}
		s.groups, s.placeCounts, s.groupsRead = groups, placeCounts, at
		if len(changed) > 0 {
			s.formAll(stampOf(at.end))
		}
	}
	s.mu.Unlock()
	s.notify(changed...)
	return changed
}

// applyControllerProps takes over the controller's properties. It returns the resources whose quorum may
// have changed.
func (s *Store) applyControllerProps(props map[string]string, at span) (changed []string) {
	s.mu.Lock()
	if !at.start.Before(s.controllerRead.start) {
		before := s.controller
		s.controllerRead, s.controller = at, observeLevel(s.controller, props, at)
		if before != s.controller {
			changed = s.namesWhere(func(*entry) bool { return true })
			s.formAll(stampOf(at.end))
		}
	}
	s.mu.Unlock()
	s.notify(changed...)
	return changed
}

// readAt returns when the newest reading of one of the store's lists began; the zero time when there was none.
func (s *Store) readAt(list *span) time.Time {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return list.start
}

// definitionReadAt returns the same for a definition, listReadAt for the replicas of a resource.
func (s *Store) definitionReadAt(name string) time.Time {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if d := s.definitions[fold(name)]; d != nil {
		return d.read.time()
	}
	return time.Time{}
}

func (s *Store) listReadAt(name string) time.Time {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if e := s.resources[fold(name)]; e != nil {
		return e.set.Confirmed
	}
	return time.Time{}
}

// isUnsure reports whether an event may have brought news of a resource since its newest reading began.
func (s *Store) isUnsure(name string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e := s.resources[fold(name)]
	return e != nil && s.unsure(e.heard, stampOf(e.set.Confirmed))
}

// unsure reports whether an event brought news since a reading began, or may have been missed. news is when the newest event came that did.
// The lock must be held.
func (s *Store) unsure(news, read stamp) bool { return s.deaf || s.events > read || news >= read }

// settingsInDoubt reports whether the quorum of a resource may have changed. LINSTOR adapts it when replicas or their disks change, and once
// more after one was deleted.
func (s *Store) settingsInDoubt(name string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e, d := s.resources[fold(name)], s.definitions[fold(name)]
	if e == nil || d == nil {
		return e != nil
	}
	if d.group != "" && !s.groups[d.group].read() {
		return true
	}
	return d.read == 0 || e.inDoubt(d) || e.shrunk != 0 && d.read < e.shrunk+stamp(shrunkApart)
}

// shrunkApart is how much later than a list without a replica a definition must be read: LINSTOR deletes a replica first, and adapts the quorum
// in the next step.
const shrunkApart = 500 * time.Millisecond

// anyInDoubt reports whether replicas or disks of any resource changed after its definition was read.
func (s *Store) anyInDoubt() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for key, e := range s.resources {
		if e.inDoubt(s.definitions[key]) {
			return true
		}
	}
	return false
}

// displayName returns the name in the case in which LINSTOR shows it, if it is known.
func (s *Store) displayName(name string) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if e := s.resources[fold(name)]; e != nil {
		return e.name
	}
	if d := s.definitions[fold(name)]; d != nil {
		return d.name
	}
	return name
}
