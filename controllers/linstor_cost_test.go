package controllers

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
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
					t.Errorf("reported %q, want %q", reason, tc.reason)
				}
				var byLeader, byStandbys atomic.Int64
				w.Linstor.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
					switch {
					case strings.HasPrefix(r.URL.Path, "/v1/events"):
					case r.RemoteAddr == p.name:
						byLeader.Add(1)
					case strings.HasPrefix(r.RemoteAddr, "standby"):
						byStandbys.Add(1)
					}
					return false
				})
				const minutes = 10
				w.pass(minutes * time.Minute)
				w.Linstor.Intercept(nil)
				leader, others := byLeader.Load()/minutes, byStandbys.Load()/minutes
				t.Logf("%d requests a minute of the leader, %d of the standbys", leader, others)
				if leader+others > 60 {
					t.Errorf("%d requests a minute, want at most 60", leader+others)
				}
			})
		})
	}
}
