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

// A loss that lasts costs LINSTOR little, with three replicas of the controller, which cost 57 requests a minute when all is well. Volumes that could
// be moved, but for a gate, are read every eight seconds by the leader, and now and then by the others.
func TestALossThatLastsForAnHourCostsLinstorLittle(t *testing.T) {
	t.Parallel()
	const volumes, standbys = 10, 2
	lasts := time.Hour
	if underRace || testing.Short() {
		lasts = 15 * time.Minute // after twelve nothing is read more rarely than before
	}
	for name, tc := range map[string]struct {
		volume   func(*virtual.Volume)
		workload func(*virtual.Workload)
		paused   bool
		reason   failover.Reason // that is reported in the end
		limit    int             // requests a minute
	}{
		"the volumes have moved, and the node stays dead": {limit: 60},
		"fail-over is paused":                             {paused: true, reason: failover.Paused, limit: 155},
		"the volumes have no quorum": {
			volume: func(v *virtual.Volume) { v.Quorum = "off" }, reason: failover.NoQuorum, limit: 155,
		},
		"the pods are exempt": {workload: func(v *virtual.Workload) {
			v.Annotations = map[string]string{cluster.AnnotationIgnore: ""}
		}, reason: failover.Exempt, limit: 155},
		"there is no survivor": {
			volume: func(v *virtual.Volume) { v.Diskful, v.TieBreaker = []string{nodeA}, "" }, limit: 90,
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
				w.pass(lasts)
				if _, reason := p.said("db0", nodeA); reason != tc.reason {
					w.Errorf("reported %q, want %q", reason, tc.reason)
				}
				const minutes = 5
				all, kinds := w.asked(minutes * time.Minute)
				if all > tc.limit*minutes {
					w.Errorf("%d requests within %d minutes, want at most %d a minute: %v", all, minutes, tc.limit, kinds)
				}
			})
		})
	}
}

// A process that starts reads everything at once. A standby may read 16 resources a second: it must not read each of thousands by itself as well.
func TestAProcessThatStartsReadsHealthyVolumesOnlyTogether(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		p, later := w.startProcess("one", defaults()), w.newView(defaults())
		p.leads()
		for i := range 60 {
			name := fmt.Sprintf("db%d", i)
			w.volume(name)
			w.workload(name, selected)
		}
		w.pass(3 * time.Minute)
		w.startProcessOn("standby", defaults(), later)
		if _, kinds := w.asked(2 * time.Minute); kinds["standby /v1/view/resources"] != 1 || kinds["standby /v1/resource-definitions/*/resources"] > 6 {
			w.Errorf("the standby reads %v, want everything at once", kinds)
		}
	})
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
