package linstor

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evidence"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

const (
	// reportsEvery is how often the error reports of a satellite are read while its node is unconfirmed, reportsAgain when the evidence waits for them
	// and they could not be read, and reportsAtOnce of how many satellites at a time.
	reportsEvery  = 15 * time.Second
	reportsAgain  = 5 * time.Second
	reportsAtOnce = 4
)

// awaitReports reads the error reports of those satellites of whose nodes the evidence needs them. One that is slow to answer keeps the next reading waiting, as long as a request may take.
func (f *Feed) awaitReports(ctx context.Context, now time.Time) error {
	var reads errgroup.Group
	reads.SetLimit(reportsAtOnce)
	for _, node := range f.store.needsReports(now) {
		reads.Go(func() error { return f.readReports(ctx, node) })
	}
	return reads.Wait()
}

// readReports reads the error reports of one satellite, and before and after that whether it is ONLINE.
func (f *Feed) readReports(ctx context.Context, node string) error {
	at := span{start: time.Now()}
	if err := f.readNodes(ctx, at.start); err != nil {
		return fmt.Errorf("ask LINSTOR for its nodes: %w", err)
	}
	asked := time.Now()
	reports, err := f.client.ErrorReports(ctx, node)
	if err != nil {
		return fmt.Errorf("ask LINSTOR for the error reports of %s: %w", node, err)
	}
	if err := f.readNodes(ctx, time.Now()); err != nil {
		return fmt.Errorf("ask LINSTOR for its nodes again: %w", err)
	}
	at.end = time.Now()
	f.store.applyReports(node, reports, asked, at)
	return nil
}

// applyReports takes over the error reports of a satellite that were asked for at a time, if its node was ONLINE all the time.
func (s *Store) applyReports(node string, list []client.ErrorReport, asked time.Time, at span) {
	reports := make([]evidence.Report, 0, len(list))
	for _, r := range list {
		reports = append(reports, evidence.Report{ID: r.FileName, Exception: r.Exception, Message: r.ExceptionMessage})
	}
	var changed []string
	s.mu.Lock()
	if n := s.nodes[fold(node)]; n != nil && s.isOnline(n.Name) && n.away < stampOf(at.start) && n.back < stampOf(asked) {
		n.reports = n.reports.With(reports, evidence.Moment(stampOf(asked)))
		changed = s.bearOut(stampOf(at.end))
	}
	s.mu.Unlock()
	s.notify(changed...)
}

// needsReports returns the nodes whose error reports are to be read, and notes that they are.
func (s *Store) needsReports(now time.Time) (nodes []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := map[string]bool{}
	for key := range s.unsettled {
		e := s.resources[key]
		if e == nil || !e.fence.NeedsReports() {
			continue
		}
		for i := range e.replicas {
			r := &e.replicas[i]
			n := s.nodes[r.Node]
			if n == nil || !s.isOnline(r.Node) || !r.evidence.Awaits(&e.fence) {
				continue
			}
			age := now.Sub(n.reportsAsked)
			due[r.Node] = due[r.Node] || age >= reportsEvery || age >= reportsAgain && r.evidence.AwaitsReports(n.satellite())
		}
	}
	for node := range due {
		if due[node] {
			s.nodes[node].reportsAsked = now
			nodes = append(nodes, node)
		}
	}
	return nodes
}
