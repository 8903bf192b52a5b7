package linstorsim

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

// Durations are how long satellites take for what LINSTOR asks of them while all is well. The zero value is no time.
type Durations struct {
	// View is how long they take to tell how full their thin pools are.
	View time.Duration
	// Create is how long a new diskless replica takes.
	Create time.Duration
	// Delete is how long the deletion of one takes, and as long again where its satellite is away.
	Delete time.Duration
}

// RealDurations are those that LINSTOR 1.34 was measured with in a cluster of three nodes.
func RealDurations() Durations {
	return Durations{View: 40 * time.Millisecond, Create: 400 * time.Millisecond, Delete: 350 * time.Millisecond}
}

// PropAutoplaceTarget of a node keeps new replicas away from it while it is false.
const PropAutoplaceTarget = "AutoplaceTarget"

// Return codes of what the CSI driver asks for.
const (
	retInUse      = -4611686018427387904 | 997
	retNotEnough  = -4611686018427387904 | 996
	retNotOnline  = -4611686018427387904 | 995
	retExists     = -4611686018427387904 | 507
	retReconnects = 20447235
)

// driverRoutes are the calls that only the CSI driver makes.
func (s *Server) driverRoutes(handle func(pattern string, kind Kind, handler http.HandlerFunc)) {
	handle("GET /v1/resource-definitions/{definition}/volume-definitions", KindVolumeDefinitions, s.serveVolumeDefinitions)
	handle("POST /v1/resource-definitions/{definition}/resources/{node}/make-available", KindChange, s.postReplica(s.makeAvailable))
	handle("POST /v1/resource-definitions/{definition}/resources/{node}", KindChange, s.postReplica(s.createDiskless))
	handle("DELETE /v1/resource-definitions/{definition}/resources/{node}", KindChange, s.deleteReplica)
	handle("PUT /v1/nodes/{node}/reconnect", KindChange, s.reconnectNode)
}

func (s *Server) serveVolumeDefinitions(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	d := s.definitions[fold(r.PathValue("definition"))]
	var list []volumeDefinitionJSON
	if d != nil {
		list = s.definition(d, true).VolumeDefinitions
	}
	s.mu.Unlock()
	if d == nil {
		notFound(w, "resource definition", r.PathValue("definition"))
		return
	}
	if list == nil {
		list = []volumeDefinitionJSON{}
	}
	answer(w, list)
}

// placing is what came of making a replica.
type placing struct {
	outcome
	// made is set if there was none before.
	made bool
}

// postReplica answers a call that makes a replica, once the peers have heard of it: those that are ONLINE are waited for, and the
// replica stays when one of them fails or is given up.
func (s *Server) postReplica(place func(resourceName, nodeName string) (placing, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		resource, node := r.PathValue("definition"), r.PathValue("node")
		result, err := place(resource, node)
		switch {
		case errors.Is(err, ErrNotFound):
			notFound(w, "resource", resource+" on node "+node)
			return
		case errors.Is(err, ErrNoTarget):
			send(w, http.StatusNotFound, encode([]apiCallRC{{RetCode: retNotEnough, Message: err.Error()}}))
			return
		case errors.Is(err, ErrEvacuating):
			send(w, http.StatusInternalServerError, encode([]apiCallRC{{RetCode: maskError | codeEvacuating, Message: err.Error()}}))
			return
		case errors.Is(err, drbd.ErrExists):
			send(w, http.StatusInternalServerError, encode([]apiCallRC{{RetCode: retExists, Message: err.Error()}}))
			return
		case err != nil:
			send(w, http.StatusInternalServerError, encode([]apiCallRC{{RetCode: retNotOnline, Message: err.Error()}}))
			return
		}
		if result.made {
			gone := s.awaitPeers(r.Context(), resource)
			if gone || !pause(r.Context(), s.options.Durations.Create) {
				result.failed = true
			}
		}
		answerOutcome(w, r, result.outcome)
	}
}

// createDiskless makes a diskless replica whatever the node's properties say.
func (s *Server) createDiskless(resourceName, nodeName string) (placing, error) {
	result, err := s.placeAndSend(resourceName, drbd.ReplicaSpec{Node: nodeName, Diskless: true, Client: s.options.Clients})
	return placing{result, true}, err
}

// deleteReplica answers DELETE of a replica in two commits. With keep_tiebreaker a tie-breaker stays one.
func (s *Server) deleteReplica(w http.ResponseWriter, r *http.Request) {
	resource, node := r.PathValue("definition"), r.PathValue("node")
	listens, hung := s.replicaListens(resource, node)
	remove := s.RemoveReplica
	if r.URL.Query().Get("keep_tiebreaker") == "true" {
		remove = s.RemoveTemporary
	}
	err := remove(resource, node)
	switch {
	case errors.Is(err, ErrNotFound):
		// LINSTOR takes it for deleted.
		send(w, http.StatusOK, encode([]apiCallRC{{RetCode: retModified}}))
		return
	case errors.Is(err, drbd.ErrInUse):
		send(w, http.StatusInternalServerError, encode([]apiCallRC{{RetCode: retInUse, Message: err.Error()}}))
		return
	}
	took := s.options.Durations.Delete
	if !listens {
		took *= 2
	}
	if hung {
		took += 2 * hungCommand // once for each commit
	}
	if !pause(r.Context(), took) {
		return
	}
	answerOutcome(w, r, outcome{failed: err != nil || hung})
}

// replicaListens tells whether the satellite of a replica hears LINSTOR, and whether an adjust of one of its peers hangs.
func (s *Server) replicaListens(resourceName, nodeName string) (listens, hung bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.definitions[fold(resourceName)]
	if d == nil {
		return true, false
	}
	for _, rsc := range d.resources {
		if fold(rsc.node.name) == fold(nodeName) {
			listens = rsc.node.listens()
		}
		hung = hung || rsc.node.listens() && rsc.node.adjustFault(d.name) == AdjustHangs
	}
	return listens, hung
}

// awaitPeers waits for the satellites of a definition that are silent and not given up yet. It tells whether one of them was.
func (s *Server) awaitPeers(ctx context.Context, resourceName string) (gone bool) {
	silent := map[*node]<-chan struct{}{}
	s.mu.Lock()
	if d := s.definitions[fold(resourceName)]; d != nil {
		for _, rsc := range d.resources {
			if n := rsc.node; n.unsettled != nil && !n.frozen {
				silent[n] = n.unsettled
			}
		}
	}
	s.mu.Unlock()
	return s.settled(ctx, silent) != nil
}

// settled waits until it is known whether satellites are gone. It fails with [errGivenUp] where one is.
func (s *Server) settled(ctx context.Context, silent map[*node]<-chan struct{}) error {
	for _, unsettled := range silent {
		select {
		case <-unsettled:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down || s.closed {
		panic(http.ErrAbortHandler)
	}
	for n := range silent {
		if !n.connected {
			return errGivenUp
		}
	}
	return nil
}

// HangPools makes the queries of a node's thin pools hang, as a hung lvs does, or ends that. The satellite stays ONLINE and reports.
// LINSTOR waits 45 s for each answer with all resources and then goes without.
func (s *Server) HangPools(nodeName string, hang bool) {
	s.onNode(nodeName, func(n *node) {
		switch {
		case hang && n.poolsHang == nil:
			n.poolsHang = make(chan struct{})
		case !hang:
			n.freePools()
		}
	})
}

// freePools ends the hang of a node's thin pools.
func (n *node) freePools() {
	if n.poolsHang != nil {
		close(n.poolsHang)
		n.poolsHang = nil
	}
}

// awaitPools waits for a satellite whose thin pools hang. It fails with [errGivenUp] when the connection ends meanwhile.
func (s *Server) awaitPools(ctx context.Context, n *node, free <-chan struct{}, attempt int) error {
	timer := time.NewTimer(hungCommand)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-free:
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.attempt != attempt {
		return errGivenUp
	}
	return nil
}

// Reconnect drops the connection to a satellite and makes a new one at once. Commands that hung there are given up.
func (s *Server) Reconnect(nodeName string) {
	s.onNode(nodeName, func(n *node) {
		if n.connected {
			s.lose(n, 0)
		}
		n.freePools()
		attempt := n.attempt
		s.later(reconnectAtOnce, func() { s.join(n, attempt) })
	})
}

// reconnectAtOnce is how long a node is OFFLINE when LINSTOR is told to connect it anew.
const reconnectAtOnce = 200 * time.Millisecond

// reconnectNode answers PUT /v1/nodes/{node}/reconnect.
func (s *Server) reconnectNode(w http.ResponseWriter, r *http.Request) {
	s.Reconnect(r.PathValue("node"))
	send(w, http.StatusOK, encode([]apiCallRC{{RetCode: retReconnects}}))
}

// pause waits, and tells whether the context has not ended meanwhile.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// adjustFault is what goes wrong with the adjusts of a resource on the node.
func (n *node) adjustFault(resourceName string) AdjustFault {
	if fault, own := n.adjustFaults[fold(resourceName)]; own {
		return fault
	}
	return n.adjustFaults[""]
}
