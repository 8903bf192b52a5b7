package controllers

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// A loss that lasts costs LINSTOR next to nothing, however many replicas of the controller there are.
func TestALossThatLastsForAnHourCostsLinstorLittle(t *testing.T) {
	const volumes, standbys = 10, 2
	for name, tc := range map[string]struct {
		volume   func(*virtual.Volume)
		workload func(*virtual.Workload)
		paused   bool
		reason   failover.Reason // that is reported in the end
	}{
		"the volumes have moved, and the node stays dead": {},
		"fail-over is paused":                             {paused: true, reason: failover.Paused},
		"the volumes have no quorum":                      {volume: func(v *virtual.Volume) { v.Quorum = "off" }, reason: failover.NoQuorum},
		"the pods are exempt": {workload: func(v *virtual.Workload) {
			v.Annotations = map[string]string{cluster.AnnotationIgnore: ""}
		}, reason: failover.Exempt},
		"there is no survivor": {
			volume: func(v *virtual.Volume) { v.Diskful, v.TieBreaker = []string{nodeA}, "" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, virtual.Options{}, func(w *world) {
				cfg := defaults()
				pausable(&cfg)
				w.addDeployment()
				w.pause(tc.paused)
				p := w.startProcess("one", cfg)
				p.leads()
				for i := range standbys {
					w.startProcess(fmt.Sprintf("standby-%d", i), cfg)
				}
				w.bystanders()
				for i := range volumes {
					name := fmt.Sprintf("db%d", i)
					w.volume(name, orNothing(tc.volume))
					w.workload(name, selected, orNothing(tc.workload))
				}
				w.pass(time.Minute)
				w.Crash(nodeA)
				w.pass(time.Hour)
				if _, reason := p.said("db0", nodeA); reason != tc.reason {
					w.Errorf("reported %q, want %q", reason, tc.reason)
				}
				const minutes = 10
				all, kinds := w.asked(minutes * time.Minute)
				if all > 60*minutes {
					w.Errorf("%d requests within %d minutes, want at most 60 a minute: %v", all, minutes, kinds)
				}
			})
		})
	}
}

// asked lets time pass, and returns how often the replicas of the controller have asked LINSTOR meanwhile, and each of them for what.
func (w *world) asked(during time.Duration) (all int, kinds map[string]int) {
	var mu sync.Mutex
	kinds = make(map[string]int)
	w.Linstor.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		isOurs := slices.ContainsFunc(w.processes, func(p *process) bool { return p.name == r.RemoteAddr })
		if !isOurs || strings.HasPrefix(r.URL.Path, "/v1/events") {
			return false
		}
		kind := r.URL.Path
		if parts := strings.Split(kind, "/"); len(parts) > 3 && parts[2] == "resource-definitions" {
			parts[3] = "*"
			kind = strings.Join(parts, "/")
		}
		mu.Lock()
		defer mu.Unlock()
		all++
		kinds[r.RemoteAddr+" "+kind]++
		return false
	})
	w.pass(during)
	w.Linstor.Intercept(nil)
	mu.Lock()
	defer mu.Unlock()
	return all, maps.Clone(kinds)
}
