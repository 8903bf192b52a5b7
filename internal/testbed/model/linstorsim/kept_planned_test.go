package linstorsim

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

// The same while nodes are evacuated and restored, disks placed and filled, snapshots shipped and everything balanced.
func TestKeptTextsAreThoseOfNowDuringPlannedLoss(t *testing.T) {
	t.Parallel()
	const (
		seeds = 8
		steps = 150
	)
	for seed := range uint64(seeds) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const rate = 100 * 1024
				w := newWildOver(seed, drbd.Options{SyncRate: rate}, Options{Balancing: true, ShipRate: rate})
				w.play(t, steps, func() string {
					if w.IntN(2) == 0 {
						return w.step()
					}
					return w.plannedStep()
				})
			})
		})
	}
}

// plannedStep lets one thing of planned loss happen and says what.
func (w *wild) plannedStep() string {
	s := w.server
	node, rsc := w.one("a", "b", "c", "d", "e"), w.one("r1", "r1", "r2", "r2", "r3", "r4")
	count := w.IntN(3)
	call := func(method, path, body string) {
		s.mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, path, strings.NewReader(body)))
	}
	deeds := map[string]func(){
		"evacuate": func() {
			call(http.MethodPut, "/v1/nodes/"+node+"/evacuate", w.one("", `{}`, `{"do_not_target":["b"]}`))
		},
		"restore": func() { call(http.MethodPut, "/v1/nodes/"+node+"/restore", "{}") },
		"restore and delete": func() {
			call(http.MethodPut, "/v1/nodes/"+node+"/restore", `{"delete_resources":true,"delete_snapshots":true}`)
		},
		"autoplace": func() {
			call(http.MethodPost, "/v1/resource-definitions/"+rsc+"/autoplace", `{"select_filter":{"additional_place_count":1}}`)
		},
		"autoplace as wanted": func() { call(http.MethodPost, "/v1/resource-definitions/"+rsc+"/autoplace", "{}") },
		"SetPlacement": func() {
			s.SetPlacement(w.one(DefaultGroup, "other"), Placement{PlaceCount: count, OnDifferent: "Aux/key"})
		},
		"SetPool":              func() { s.SetPool(node, int64(count)*drbd.DefaultSizeKiB) },
		"TakeSnapshot":         func() { _ = s.TakeSnapshot(rsc, w.one("s1", "s2")) },
		"SetOperator":          func() { s.SetOperator(time.Duration(count) * time.Minute) },
		"an hour passes":       func() { time.Sleep(time.Hour) },
		"a sync goes on":       func() { time.Sleep(time.Duration(w.IntN(15_000)) * time.Millisecond) },
		"a sync goes on, then": func() { time.Sleep(time.Duration(w.IntN(15_000)) * time.Millisecond) },
	}
	name := w.one(slices.Sorted(maps.Keys(deeds))...)
	deeds[name]()
	return name + " " + rsc + " " + node + " " + strconv.Itoa(count)
}
