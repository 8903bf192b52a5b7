package linstorsim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

// Evacuation is what an evacuation is asked for beside the node.
type Evacuation struct {
	// Target are the only nodes that may get something, DoNotTarget those that may not. Either replaces the resource group's own list of
	// nodes, and so does neither. Only one of them can be given.
	Target      []string `json:"target"`
	DoNotTarget []string `json:"do_not_target"`
}

// evacuateNode answers PUT /v1/nodes/{node}/evacuate with an entry for all that has begun, been refused or been left. The moves go on in
// the background.
func (s *Server) evacuateNode(w http.ResponseWriter, r *http.Request) {
	var body Evacuation
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil && !errors.Is(err, io.EOF) {
		send(w, http.StatusBadRequest, encode([]apiCallRC{{RetCode: retInvalidProp, Message: "Unable to parse input json."}}))
		return
	}
	if s.before133() {
		body = Evacuation{}
	}
	s.evacuate(r.PathValue("node"), body).sendTo(w, http.StatusOK)
}

// before133 tells whether LINSTOR is older than 1.33.
func (s *Server) before133() bool {
	var major, minor int
	_, _ = fmt.Sscanf(s.options.Version, "%d.%d", &major, &minor)
	const first = 33
	return major < 1 || major == 1 && minor < first
}

// Evacuate evacuates a node as somebody does who looks first: it fails with an error that wraps [drbd.ErrInUse], and does nothing, while
// a volume is in use on the node. [Server.RestoreNode] takes the flags away.
func (s *Server) Evacuate(nodeName string) error {
	s.mu.Lock()
	n := s.nodes[fold(nodeName)]
	inUse := ""
	if n != nil {
		s.eachOn(n, func(d *definition, rsc *resource) {
			if rsc.values.usedNow() {
				inUse = d.name
			}
		})
	}
	s.mu.Unlock()
	switch {
	case n == nil:
		return fmt.Errorf("node %s: %w", nodeName, ErrNotFound)
	case inUse != "":
		return fmt.Errorf("evacuating node %s: resource %s: %w", nodeName, inUse, drbd.ErrInUse)
	}
	if list := s.evacuate(nodeName, Evacuation{}); list.failed() {
		return fmt.Errorf("evacuating node %s: %w: %s", nodeName, ErrRefused, list.errorText())
	}
	return nil
}

// evacuate lets LINSTOR move everything away from a node, whether or not it is ONLINE. What it can not do now it does not try again.
func (s *Server) evacuate(nodeName string, body Evacuation) (list answers) {
	s.mu.Lock()
	n := s.nodes[fold(nodeName)]
	switch {
	case n == nil:
		s.mu.Unlock()
		return sayNodeNotFound(nodeName)
	case len(body.Target) > 0 && len(body.DoNotTarget) > 0:
		s.mu.Unlock()
		return answers{{
			RetCode: maskError | codeInvalidConf, Message: "Must not use --target and --do-not-target in the same request",
		}}
	}
	if !n.has(FlagEvacuate) {
		n.flags = append(slices.Clone(n.flags), FlagEvacuate)
	}
	var names []string
	s.eachOn(n, func(d *definition, rsc *resource) {
		if !rsc.has(FlagEvacuate) {
			rsc.flags = append(slices.Clone(rsc.flags), FlagEvacuate)
		}
		rsc.props[PropMigrateFrom] = strings.ToUpper(n.name)
		names = append(names, d.name)
	})
	if s.movesSnapshots(n) {
		for _, key := range slices.Sorted(maps.Keys(s.definitions)) {
			if d := s.definitions[key]; len(d.snapshotsOn(n)) > 0 && !containsName(names, d.name) {
				names = append(names, d.name)
			}
		}
	}
	allowed := s.allowedNames(body)
	s.mu.Unlock()
	for _, name := range names {
		s.evacuateResource(name, n, allowed, &list)
	}
	return list
}

// allowedNames are the nodes that an evacuation may take for targets.
func (s *Server) allowedNames(body Evacuation) (names []string) {
	for _, key := range slices.Sorted(maps.Keys(s.nodes)) {
		name := s.nodes[key].name
		if len(body.Target) > 0 && containsName(body.Target, name) || len(body.Target) == 0 && !containsName(body.DoNotTarget, name) {
			names = append(names, name)
		}
	}
	return names
}

// evacuateResource moves one replica away, or deletes it: where it has no disk, where it is known not to be UpToDate, even if it is the
// last one, and where there are enough others that are.
func (s *Server) evacuateResource(resourceName string, n *node, allowed []string, list *answers) {
	s.mu.Lock()
	d := s.definitions[fold(resourceName)]
	if d == nil {
		s.mu.Unlock()
		return
	}
	rsc, snapshots := d.resources[fold(n.name)], s.movesSnapshots(n)
	switch {
	case rsc == nil || rsc.leaves():
		if snapshots {
			s.moveSnapshots(d, n, allowed, list)
		}
		s.mu.Unlock()
	case !d.drbd():
		list.say(maskWarn|codeNotEvacuating, d.name, "",
			fmt.Sprintf("Resource '%s' cannot be evacuated as it is not a DRBD resource", d.name))
		s.mu.Unlock()
	case rsc.has(FlagDiskless) || rsc.values != nil && !rsc.values.upToDate() || d.upToDatePeers() >= s.placementOf(d.group).PlaceCount:
		if snapshots {
			s.moveSnapshots(d, n, allowed, list)
		}
		s.mu.Unlock()
		s.deleteOrRefuse(d, rsc, list)
	default:
		target := s.moveAway(d, rsc, allowed, list)
		for _, snapshot := range d.snapshotsOn(n) {
			if target != nil && snapshots {
				s.ship(d, snapshot, n, target)
			}
		}
		s.mu.Unlock()
		if target != nil {
			s.send(d.name)
			s.completeMoves(d.name)
		}
	}
}

// upToDatePeers counts the disks that are known to be UpToDate and are not to leave.
func (d *definition) upToDatePeers() (count int) {
	for _, rsc := range d.resources {
		if !rsc.leaves() && !rsc.has(FlagEvacuate) && !rsc.has(FlagDiskless) && rsc.values.upToDate() {
			count++
		}
	}
	return count
}

// moveAway gives another node a disk, from which on LINSTOR waits to delete this one, and returns that node, nil if it did not. A diskless
// replica gets it first of all, but not while the source is in use.
func (s *Server) moveAway(d *definition, source *resource, allowed []string, list *answers) *node {
	target := s.evacuationTarget(d, allowed)
	if target == nil {
		list.say(maskWarn|codeNotEvacuating, d.name, "",
			fmt.Sprintf("Resource '%s' cannot be evacuated as no available storage pool was found", d.name))
		return nil
	}
	there := d.resources[fold(target.name)]
	if there == nil {
		rsc := s.giveDisk(d, target)
		list.say(opCreate|ofResource|codeCreated, d.name, target.name,
			fmt.Sprintf("New resource '%s' on node '%s' registered.", d.name, target.name))
		s.waitForMove(d, source, rsc)
		s.automatics(d)
		return target
	}
	if source.values.usedNow() {
		list.sayInUse(d, source)
		return nil
	}
	there.props[PropMigrateFrom] = strings.ToUpper(source.node.name)
	s.giveDisk(d, target)
	list.say(opModify|ofResource|codeModified, d.name, target.name,
		fmt.Sprintf("Addition of disk to resource '%s' on node '%s' registered", d.name, target.name))
	s.automatics(d)
	return target
}

// evacuationTarget looks for a node for the disk of one that leaves: one with a diskless replica; a new one, as many as the group wants;
// a new one, to have as many replicas as there are. Of several it takes the first.
func (s *Server) evacuationTarget(d *definition, allowed []string) *node {
	diskless := slices.DeleteFunc(d.disklessNodes(), func(name string) bool { return !containsName(allowed, name) })
	placed, missing := d.placed(), s.placementOf(d.group).PlaceCount-d.placed()
	wishes := []wish{{disks: missing, nodes: allowed}, {disks: len(d.resources) - placed, nodes: allowed}}
	if len(d.disklessNodes()) > 0 {
		// With none of them allowed the list is empty, and no filter.
		wishes = slices.Insert(wishes, 0, wish{disks: missing, nodes: diskless, reusable: diskless})
	}
	for _, w := range wishes {
		if nodes := s.places(d, w); len(nodes) > 0 {
			return nodes[0]
		}
	}
	return nil
}

// deleteOrRefuse deletes a replica as a person does, but refuses one that is in use, and the last disk while there are diskless replicas.
// LINSTOR wants no tie-breaker on a node that is evacuated.
func (s *Server) deleteOrRefuse(d *definition, rsc *resource, list *answers) {
	s.mu.Lock()
	listens, name := rsc.node.listens(), rsc.node.name
	keeps := !rsc.isLeaving() && s.keepsAsTieBreaker(d, rsc)
	switch {
	case d.resources[fold(name)] != rsc:
		s.mu.Unlock()
		return
	case rsc.values.usedNow():
		list.sayInUse(d, rsc)
		s.mu.Unlock()
		return
	case d.isLastDisk(rsc):
		entry := list.say(maskError|opDelete|ofResource|codeInUse, d.name, name,
			fmt.Sprintf("Last resource of '%s' with disk still has diskless resources attached.", d.name))
		entry.Cause = "Resource still has diskless users."
		entry.Correction = "Before deleting this resource, delete the diskless resources attached to it."
		s.mu.Unlock()
		return
	}
	if !listens {
		rsc.markDeleted()
		list.say(maskWarn|opDelete|ofResource|codeNotConnected, d.name, name, fmt.Sprintf("No active connection to satellite '%s'", name))
	}
	s.mu.Unlock()
	var err error
	switch {
	case !listens:
		s.send(d.name)
	case keeps:
		err = s.toggle(d, rsc, drbd.ReplicaSpec{TieBreaker: true})
	default:
		err = s.forget(d, rsc)
	}
	if errors.Is(err, drbd.ErrInUse) {
		list.sayInUse(d, rsc)
		return
	}
	if err != nil {
		list.say(retFailedNode, d.name, name, err.Error())
		return
	}
	list.say(opDelete|ofResource|codeDeleted, d.name, name, fmt.Sprintf("Node: %s, Resource: %s marked for deletion.", name, d.name))
}

// isLastDisk tells whether a replica has the only disk of a definition that has diskless ones too.
func (d *definition) isLastDisk(rsc *resource) bool {
	diskful, diskless, _ := d.voters()
	return !rsc.has(FlagDiskless) && !rsc.leaves() && diskful == 1 && diskless > 0
}

func (a *answers) sayInUse(d *definition, rsc *resource) {
	entry := a.say(maskError|opModify|ofResource|codeInUse, d.name, rsc.node.name, fmt.Sprintf("Resource '%s' is still in use.", d.name))
	entry.Cause = "Resource is mounted/in use."
	entry.Correction = fmt.Sprintf("Un-mount resource '%s' on the node '%s'.", d.name, rsc.node.name)
}

// usedNow tells whether a replica is known to be in use.
func (v *values) usedNow() bool { return v != nil && v.inUse != nil && *v.inUse }

// upToDate tells whether all disks of a replica are known to have the data.
func (v *values) upToDate() bool {
	return v != nil && len(v.disks) > 0 && !slices.ContainsFunc(v.disks, func(disk string) bool { return disk != drbd.UpToDate })
}
