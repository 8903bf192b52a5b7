package linstorsim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
)

// RestoreNode undoes [Server.Evict] and [FlagEvacuate]: the flags of the node and its resources go, and LINSTOR connects. LINSTOR looks
// again at what all definitions need. Moves that are under way go on, and what was placed stays.
func (s *Server) RestoreNode(nodeName string) error {
	s.mu.Lock()
	n := s.nodes[fold(nodeName)]
	if n == nil {
		s.mu.Unlock()
		return fmt.Errorf("node %s: %w", nodeName, ErrNotFound)
	}
	n.flags, n.evicted = nil, false
	var touched []string
	for _, key := range slices.Sorted(maps.Keys(s.definitions)) {
		d := s.definitions[key]
		rsc := d.resources[fold(n.name)]
		if rsc != nil {
			rsc.flags = slices.DeleteFunc(slices.Clone(rsc.flags), func(flag string) bool {
				return flag == FlagInactive || flag == FlagEvicted || flag == FlagEvacuate
			})
		}
		if s.automatics(d) || rsc != nil {
			touched = append(touched, d.name)
		}
	}
	if n.running && n.reachable {
		s.reconnect(n)
	}
	s.mu.Unlock()
	for _, name := range touched {
		s.send(name)
	}
	return nil
}

// restoreNode answers PUT /v1/nodes/{node}/restore.
func (s *Server) restoreNode(w http.ResponseWriter, r *http.Request) {
	var body struct {
		DeleteResources bool `json:"delete_resources"`
		DeleteSnapshots bool `json:"delete_snapshots"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil && !errors.Is(err, io.EOF) {
		send(w, http.StatusBadRequest, encode([]apiCallRC{{RetCode: retInvalidProp, Message: "Unable to parse input json."}}))
		return
	}
	name := r.PathValue("node")
	s.mu.Lock()
	n := s.nodes[fold(name)]
	flagged := n != nil && (n.has(FlagEvacuate) || n.has(FlagEvicted))
	s.mu.Unlock()
	switch {
	case n == nil:
		sayNodeNotFound(name).sendTo(w, http.StatusOK)
		return
	case !flagged:
		answers{{RetCode: maskError, Message: fmt.Sprintf("Node '%s' is neither evicted nor evacuated.", name)}}.sendTo(w, http.StatusOK)
		return
	}
	var list answers
	if err := s.RestoreNode(name); err != nil {
		sayNodeNotFound(name).sendTo(w, http.StatusOK)
		return
	}
	if body.DeleteResources {
		s.deleteAllOn(n, &list)
	}
	if body.DeleteSnapshots {
		s.mu.Lock()
		s.dropCopies(n)
		s.mu.Unlock()
	}
	list = append(list, apiCallRC{RetCode: ofNode, Message: "Successfully restored node " + n.name})
	list.sendTo(w, http.StatusOK)
}

// deleteAllOn deletes the replicas of a node that are not the last with a disk.
func (s *Server) deleteAllOn(n *node, list *answers) {
	type replica struct {
		d   *definition
		rsc *resource
	}
	var all []replica
	s.mu.Lock()
	s.eachOn(n, func(d *definition, rsc *resource) {
		diskful, _, _ := d.voters()
		if !d.drbd() || rsc.has(FlagDiskless) || diskful > 1 {
			all = append(all, replica{d, rsc})
		}
	})
	s.mu.Unlock()
	for _, one := range all {
		s.deleteOrRefuse(one.d, one.rsc, list)
	}
}
