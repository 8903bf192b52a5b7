package linstorsim

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

// serveView answers with all resources that have volumes, after asking the satellites for the fill of their thin
// pools.
func (s *Server) serveView(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if query.Has("resources") || query.Has("nodes") {
		s.count(KindViewPart, r)
	} else {
		s.count(KindView, r)
	}
	filter := newViewFilter(query)
	switch err := s.askSatellites(r.Context(), filter); {
	case errors.Is(err, errGivenUp):
		send(w, http.StatusInternalServerError, encode([]apiCallRC{{RetCode: retFailedQuery}}))
		return
	case err != nil:
		return
	}
	s.mu.Lock()
	keys := filter.resources.keys(s.definitions)
	// Most have three replicas.
	list := make([][]byte, 0, 3*len(keys))
	for _, key := range keys {
		d := s.definitions[key]
		if d.volumes == 0 {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(d.resources)) {
			if rsc := d.resources[name]; filter.selects(rsc) {
				list = append(list, s.resourceText(d, rsc, true))
			}
		}
	}
	s.mu.Unlock()
	answerList(w, page(query, list))
}

// errGivenUp says that a satellite that was asked something has been given up.
var errGivenUp = errors.New("satellite was given up")

// askSatellites waits for every satellite with a replica of the selected resources to answer, be it a tie-breaker (recording 23). It fails with
// [errGivenUp] when the controller gives one of them up meanwhile.
func (s *Server) askSatellites(ctx context.Context, filter viewFilter) error {
	if s.options.ThickPools {
		return nil
	}
	type hang struct {
		free    <-chan struct{}
		attempt int
	}
	silent, hung := map[*node]<-chan struct{}{}, map[*node]hang{}
	s.mu.Lock()
	for _, key := range filter.resources.keys(s.definitions) {
		for _, rsc := range s.definitions[key].resources {
			n := rsc.node
			if n.unnoticed() || !filter.selects(rsc) {
				continue
			}
			if n.unsettled != nil {
				silent[n] = n.unsettled
			} else if n.poolsHang != nil && n.connected {
				hung[n] = hang{n.poolsHang, n.attempt}
			}
		}
	}
	s.mu.Unlock()
	if !pause(ctx, s.options.Durations.View) {
		return ctx.Err()
	}
	// All are asked at the same time.
	var asked errgroup.Group
	for n, h := range hung {
		asked.Go(func() error { return s.awaitPools(ctx, n, h.free, h.attempt) })
	}
	err := s.settled(ctx, silent)
	return cmp.Or(err, asked.Wait())
}

// await waits for those satellites of the given ones that are silent and not yet given up. It fails with [errGivenUp] when the controller
// gives one of them up meanwhile.
func (s *Server) await(ctx context.Context, asked []*node) error {
	silent := map[*node]<-chan struct{}{}
	s.mu.Lock()
	for _, n := range asked {
		if n.unsettled != nil && !n.unnoticed() {
			silent[n] = n.unsettled
		}
	}
	s.mu.Unlock()
	return s.settled(ctx, silent)
}

// viewFilter is the filters of view/resources.
type viewFilter struct {
	resources, nodes, pools filter
	props                   []string
}

func newViewFilter(query url.Values) viewFilter {
	return viewFilter{
		resources: newFilter(query["resources"]), nodes: newFilter(query["nodes"]), pools: newFilter(query["storage_pools"]),
		props: query["props"],
	}
}

// selects applies the filters but for the one of definitions.
func (f viewFilter) selects(rsc *resource) bool {
	if !f.nodes.passes(rsc.node.name) || !f.pools.passes(rsc.props["StorPoolName"]) {
		return false
	}
	return haveAll(rsc.props, f.props)
}

// haveAll tells whether properties are as a filter wants them: each of its entries is a key, or a key with its value.
func haveAll(props map[string]string, wanted []string) bool {
	for _, prop := range wanted {
		key, value, hasValue := strings.Cut(prop, "=")
		if set, ok := props[key]; !ok || hasValue && set != value {
			return false
		}
	}
	return true
}

// filter is a set of names, folded. An empty one lets everything through.
type filter map[string]bool

func newFilter(names []string) filter {
	f := make(filter, len(names))
	for _, name := range names {
		f[fold(name)] = true
	}
	return f
}

func (f filter) passes(name string) bool { return len(f) == 0 || f[fold(name)] }

// keys returns the keys of the definitions that the filter lets through, sorted, without a look at each of them.
func (f filter) keys(definitions map[string]*definition) []string {
	if len(f) == 0 {
		return slices.Sorted(maps.Keys(definitions))
	}
	keys := make([]string, 0, len(f))
	for key := range f {
		if definitions[key] != nil {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}
