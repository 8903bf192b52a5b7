package linstorsim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
)

// DisklessPool is the storage pool that each node has for replicas without a disk, DiskPool the one that it has for the others.
const (
	DisklessPool = "DfltDisklessStorPool"
	DiskPool     = "thin"
)

const (
	// retNotConnected is LINSTOR's warning that it has no connection to a satellite.
	retNotConnected = -9223372036854774806
	// poolKiB is the size of a storage pool that has none of its own, see [Server.SetPool], boundless that of one that takes no room.
	poolKiB   = 64 * 1024 * 1024
	boundless = 1<<63 - 1
)

type poolJSON struct {
	StorPoolName      string            `json:"storage_pool_name,omitempty"`
	NodeName          string            `json:"node_name,omitempty"`
	ProviderKind      string            `json:"provider_kind,omitempty"`
	StaticTraits      map[string]string `json:"static_traits,omitempty"`
	FreeCapacity      *int64            `json:"free_capacity,omitempty"`
	TotalCapacity     *int64            `json:"total_capacity,omitempty"`
	FreeSpaceMgrName  string            `json:"free_space_mgr_name,omitempty"`
	UUID              string            `json:"uuid,omitempty"`
	Reports           []apiCallRC       `json:"reports,omitempty"`
	SupportsSnapshots bool              `json:"supports_snapshots"`
	ExternalLocking   bool              `json:"external_locking"`
}

// serveStoragePools answers with the storage pools of all nodes, after asking each satellite that LINSTOR has a connection to how much
// room there is. Of the others it says that it has none, whatever it calls them.
func (s *Server) serveStoragePools(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	nodes, pools := newFilter(query["nodes"]), newFilter(query["storage_pools"])
	switch err := s.askPools(r.Context(), nodes); {
	case errors.Is(err, errGivenUp):
		send(w, http.StatusInternalServerError, encode([]apiCallRC{{RetCode: retFailedQuery}}))
		return
	case err != nil:
		return
	}
	list := []poolJSON{}
	s.mu.Lock()
	for _, pool := range []string{DisklessPool, DiskPool} {
		for _, key := range slices.Sorted(maps.Keys(s.nodes)) {
			if n := s.nodes[key]; nodes.passes(n.name) && pools.passes(pool) {
				list = append(list, s.pool(n, pool))
			}
		}
	}
	s.mu.Unlock()
	answer(w, page(query, list))
}

// askPools waits for the satellites that are silent and not yet given up.
func (s *Server) askPools(ctx context.Context, filter filter) error {
	s.mu.Lock()
	var asked []*node
	for _, n := range s.nodes {
		if filter.passes(n.name) {
			asked = append(asked, n)
		}
	}
	s.mu.Unlock()
	return s.await(ctx, asked)
}

// pool renders the storage pool of a node.
func (s *Server) pool(n *node, name string) poolJSON {
	out := poolJSON{
		StorPoolName: name, NodeName: n.name, ProviderKind: s.poolKind(name),
		FreeSpaceMgrName: n.name + ";" + name, UUID: uuidOf("pool", n.name, name), SupportsSnapshots: name == DiskPool && !s.options.ThickPools,
	}
	out.StaticTraits = map[string]string{"SupportsSnapshots": strconv.FormatBool(out.SupportsSnapshots)}
	size := int64(boundless)
	free := size
	if name == DiskPool {
		size, free = cmp.Or(n.poolKiB, poolKiB), s.freeKiB(n)
	}
	if n.connected && !s.blind {
		out.FreeCapacity, out.TotalCapacity = &free, &size
	} else {
		out.Reports = []apiCallRC{{RetCode: retNotConnected, Message: fmt.Sprintf("No active connection to satellite '%s'", n.name)}}
	}
	return out
}

// poolKind is what the volumes of a storage pool are made of.
func (s *Server) poolKind(pool string) string {
	switch {
	case pool == DisklessPool:
		return "DISKLESS"
	case s.options.ThickPools:
		return "LVM"
	}
	return "LVM_THIN"
}
