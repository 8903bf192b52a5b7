package linstorsim

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

// Properties of LINSTOR's balancing. The first one counts on a definition, its group and the controller, in this order, the others,
// in seconds, on the controller.
const (
	PropBalance            = "BalanceResourcesEnabled"
	PropBalanceInterval    = "BalanceResourcesInterval"
	PropBalanceGracePeriod = "BalanceResourcesGracePeriod"
)

// balanceDefault is the interval and the grace period where nothing is said.
const balanceDefault = time.Hour

// planBalancing plans the next run of LINSTOR's task that brings each definition to its group's place count.
func (s *Server) planBalancing() {
	if s.options.Balancing {
		s.later(s.seconds(PropBalanceInterval), func() {
			s.balance()
			s.planBalancing()
		})
	}
}

// seconds is a property of the controller, an hour where it says nothing.
func (s *Server) seconds(key string) time.Duration {
	if n, err := strconv.Atoi(s.props[key]); err == nil && n > 0 {
		return time.Duration(n) * time.Second
	}
	return balanceDefault
}

// surplusDisk is a disk beyond a group's place count.
type surplusDisk struct {
	d   *definition
	rsc *resource
}

// balance looks at all definitions and then, with the lock free, places what is missing and deletes what is too much.
func (s *Server) balance() {
	var missing []string
	var surplus []surplusDisk
	for _, key := range slices.Sorted(maps.Keys(s.definitions)) {
		d := s.definitions[key]
		if !s.balances(d) {
			continue
		}
		diskful, _, _ := d.voters()
		count := s.placementOf(d.group).PlaceCount
		if diskful < count {
			missing = append(missing, d.name)
		}
		for i, rsc := range s.removable(d) {
			if i < diskful-count {
				surplus = append(surplus, surplusDisk{d, rsc})
			}
		}
	}
	process := s.process
	time.AfterFunc(1, func() {
		s.mu.Lock()
		ended := s.process != process
		s.mu.Unlock()
		if ended {
			return
		}
		for _, name := range missing {
			s.placeMore(name, autoPlaceRequest{})
		}
		for _, one := range surplus {
			s.deleteOrRefuse(one.d, one.rsc, new(answers))
		}
	})
}

// balances tells whether balancing looks after a definition: not where it is told not to, where a replica has been made within the grace
// period, or where a sync is under way. That a replica is to leave makes no difference.
func (s *Server) balances(d *definition) bool {
	enabled := cmp.Or(d.props[PropBalance], s.groups[d.group][PropBalance], s.props[PropBalance])
	if !d.drbd() || d.volumes == 0 || strings.EqualFold(enabled, "false") {
		return false
	}
	oneUpToDate := false
	for _, rsc := range d.resources {
		if time.Since(rsc.created) < s.seconds(PropBalanceGracePeriod) || rsc.values != nil && len(rsc.values.syncs) > 0 {
			return false
		}
		oneUpToDate = oneUpToDate || !rsc.has(FlagDiskless) && !rsc.leaves() && rsc.values.upToDate()
	}
	return oneUpToDate
}

// removable are the disks that balancing may delete, those on the fullest pools first: not in use, UpToDate, and connected.
func (s *Server) removable(d *definition) (list []*resource) {
	for _, n := range slices.Backward(s.byRoom()) {
		rsc := d.resources[fold(n.name)]
		if rsc == nil || rsc.has(FlagDiskless) || rsc.leaves() || !rsc.values.upToDate() || rsc.values.usedNow() {
			continue
		}
		ready := true
		for peer, state := range rsc.values.connections {
			other := s.nodes[fold(peer)]
			ready = ready && (state == drbd.Connected || other == nil || other.status != Online)
		}
		if ready {
			list = append(list, rsc)
		}
	}
	return list
}
