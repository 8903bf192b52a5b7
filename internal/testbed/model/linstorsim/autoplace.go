package linstorsim

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

// Properties of resources that LINSTOR's own placement writes.
const (
	// PropMigrateFrom names, in capitals, the node that a replica's disk comes from; at a source of an evacuation the node itself.
	PropMigrateFrom = "MigrateFrom"
	propDiskfulBy   = "DiskfulBy"
	byAutoPlacer    = "auto-placer"
)

// autoPlaceRequest is the body of an auto-place, as far as it counts here.
type autoPlaceRequest struct {
	SelectFilter struct {
		PlaceCount           *int     `json:"place_count"`
		AdditionalPlaceCount *int     `json:"additional_place_count"`
		NodeNameList         []string `json:"node_name_list"`
	} `json:"select_filter"`
}

// autoPlace answers POST /v1/resource-definitions/{definition}/autoplace: disks beside those that are there, on nodes without a replica
// or instead of a diskless one, in use or not. Nothing is deleted. A list of nodes replaces the group's own; an empty one is no filter.
func (s *Server) autoPlace(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("definition")
	var body autoPlaceRequest
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		send(w, http.StatusBadRequest, encode([]apiCallRC{{RetCode: retInvalidProp, Message: "Unable to parse input json."}}))
		return
	}
	list, placed := s.placeMore(name, body)
	if placed {
		gone := s.awaitPeers(r.Context(), name)
		if gone || !pause(r.Context(), s.options.Durations.Create) {
			list.say(retFailedNode, name, "", "(Node) Failed to create the resource.")
		}
	}
	list.sendTo(w, http.StatusCreated)
}

// placeMore carries out an auto-place, and tells whether it placed anything.
func (s *Server) placeMore(resourceName string, body autoPlaceRequest) (list answers, placed bool) {
	s.mu.Lock()
	d := s.definitions[fold(resourceName)]
	if d == nil {
		s.mu.Unlock()
		list.say(maskError|opCreate|ofResource|codeDefNotFound, resourceName, "",
			fmt.Sprintf("Resource definition '%s' not found.", resourceName))
		return list, false
	}
	defer func() {
		s.mu.Unlock()
		if placed {
			result := s.send(d.name)
			if result.failed || result.hung {
				list.say(retFailedNode, d.name, "", "Failed to adjust the DRBD resource.")
			}
			s.completeMoves(d.name)
		}
	}()
	group := s.placementOf(d.group)
	wanted := group.PlaceCount
	filter := body.SelectFilter
	if filter.PlaceCount != nil {
		wanted = *filter.PlaceCount
	}
	w := wish{disks: wanted - d.placed(), nodes: group.NodeNames, reusable: d.disklessNodes()}
	if filter.AdditionalPlaceCount != nil {
		w.disks = *filter.AdditionalPlaceCount
	}
	if filter.NodeNameList != nil {
		w.nodes = filter.NodeNameList
	}
	switch {
	case w.disks < 0:
		list.say(maskError|opCreate|ofResource|codeInvalidPlaceCount, d.name, "", fmt.Sprintf(
			"The resource '%s' was already deployed on %d nodes. The resource would have to be deleted from nodes to reach the placement count.",
			d.name, d.placed()))
		return list, false
	case w.disks == 0:
		list.say(maskWarn|opCreate|ofResource|codeAlreadyDeployed, d.name, "", fmt.Sprintf(
			"Resource '%s' was already deployed on %d nodes. Skipping.", d.name, d.placed()))
		return list, false
	}
	nodes := s.places(d, w)
	if len(nodes) == 0 {
		list.sayNotEnough(d)
		return list, false
	}
	s.giveDisks(d, nodes, &list)
	return list, true
}

// sayNotEnough says that there are not enough nodes for what auto-place was asked for.
func (a *answers) sayNotEnough(d *definition) {
	entry := a.say(maskError|opCreate|ofResource|codeNotEnoughNodes, d.name, "", "Not enough available nodes")
	entry.Details = "Not enough nodes fulfilling the following auto-place criteria:\n" +
		" * has a deployed storage pool named [" + DiskPool + "]\n" +
		fmt.Sprintf(" * the storage pools have to have at least '%d' free space\n", d.totalKiB()) +
		" * the current access context has enough privileges to use the node and the storage pool\n" +
		" * the node is online\n" +
		"Auto-placing resource: " + d.name
}

// giveDisks gives nodes a disk of a definition. The caller sends the definition.
func (s *Server) giveDisks(d *definition, nodes []*node, list *answers) {
	var names []string
	refs := map[string]string{}
	for i, n := range nodes {
		s.giveDisk(d, n)
		names = append(names, fmt.Sprintf("%s (%s)", n.name, DiskPool))
		refs[fmt.Sprintf("Node/%d", i)] = n.name
		refs[fmt.Sprintf("StoragePool/%d/0", i)] = DiskPool + "," + s.poolKind(DiskPool)
	}
	entry := list.say(opCreate|ofResource|codeCreated, d.name, "", fmt.Sprintf(
		"Resource '%s' successfully autoplaced on %d nodes", d.name, len(nodes)))
	entry.Details = fmt.Sprintf("Used nodes (storage pool name): '%s'", strings.Join(names, "', '"))
	maps.Copy(entry.ObjRefs, refs)
	s.automatics(d)
}

// giveDisk makes a new replica with a disk, or gives the diskless one of the node a disk.
func (s *Server) giveDisk(d *definition, n *node) *resource {
	rsc := d.resources[fold(n.name)]
	if rsc == nil {
		first := len(d.resources) == 0
		s.add(d, n, drbd.ReplicaSpec{})
		rsc = d.resources[fold(n.name)]
		rsc.first = first
	} else {
		rsc.shape(drbd.ReplicaSpec{})
		s.resumeMove(d, rsc)
	}
	rsc.props[propDiskfulBy] = byAutoPlacer
	return rsc
}
