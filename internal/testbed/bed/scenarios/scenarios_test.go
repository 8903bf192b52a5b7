package scenarios_test

import (
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/bedtest"
)

// TestScenarios plays what one workload at a time notices.
//
//nolint:tparallel // the scenarios are parallel; what looks back on them is not
func TestScenarios(t *testing.T) {
	t.Parallel()
	b := bedtest.Shared(t)
	t.Run("scenarios", func(t *testing.T) {
		for name, play := range map[string]func(*bedtest.Scenario){
			"the selected pod of a crashed node moves, the other stays":     crash,
			"a pod that was stopping when its node crashed moves":           crashWhileTerminating,
			"two selected pods on one claim move together":                  twoOnOneClaim,
			"a selected pod stays that shares a claim with another":         sharedWithUnselected,
			"a replacement is spared that somebody asked for meanwhile":     recreatedByHand,
			"a volume is freed whose pod was removed by hand":               removedByHand,
			"a replacement that was put back on the dead node moves":        putBack,
			"a pod stays while a peer is connected, whatever LINSTOR says":  frozenSurvivor,
			"a pod stays that takes its time to restart":                    slowRestart,
			"a pod stays that never opened its raw block volume":            unopenedBlock,
			"a pod stays whose node is out of Kubernetes' reach":            withoutAPI,
			"a pod stays whose node is out of LINSTOR's reach":              withoutLINSTOR,
			"a pod stays when one DRBD link of its node is cut":             oneLinkCut,
			"a pod stays when another node of its volume crashes":           otherNodeCrashed,
			"a pod stays when the other nodes lose DRBD's network":          othersIsolated,
			"one bad volume taints its node softly":                         oneBadVolume,
			"a taint ends where Kubernetes has its own":                     handedOver,
			"a pod with hanging IO moves off a node without DRBD's network": cutSuspended,
			"a node returns 8 s after its crash":                            returnsAfter(8 * time.Second),
			"a node returns 11 s after its crash":                           returnsAfter(11 * time.Second),
			"a node returns 60 s after its crash":                           returnsAfter(time.Minute),
			"a kubelet is killed amid a fail-over and starts 2 s later":     kubeletKilled(2 * time.Second),
			"a kubelet is killed amid a fail-over and starts 40 s later":    kubeletKilled(40 * time.Second),
			"a pod stays whose kubelet is stopped for a minute":             kubeletFrozen,
			"a pod moves whose kubelet is stopped for a minute":             kubeletFrozenAmid,
			"a pod that was stopping when its node lost DRBD moves":         cutWhileTerminating,
			"pods of a Deployment and a Job move, others stay":              ownersOfAllKinds,
			"a pod with failing IO moves off a node without DRBD's network": cutFailing,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				play(bedtest.New(t, b, 3))
			})
		}
	})
	if err := b.Err(); err != nil {
		t.Error(err)
	}
	nothingForbidden(t, b)
	t.Run("the API keeps its word", func(t *testing.T) { apiSemantics(bedtest.New(t, b, 3)) })
}

// nothingForbidden checks that the shipped roles let the controller do all it tried on this bed.
func nothingForbidden(t *testing.T, b *bed.Bed) {
	t.Helper()
	all, err := b.ControllerRequests(time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		if r.Code == http.StatusUnauthorized || r.Code == http.StatusForbidden {
			t.Errorf("the controller may not %s %s %s/%s: %d", r.Verb, r.Resource, r.Namespace, r.Name, r.Code)
		}
	}
	t.Logf("the API granted %d changes to the controller", len(all))
	logs, err := filepath.Glob(filepath.Join(b.LogDir, bed.ControllerName+"-*.log"))
	if err != nil || len(logs) < 3 {
		t.Fatalf("logs of the controller: %v, %v; want three or more", logs, err)
	}
	for _, log := range logs {
		complainsOf(t, log, "forbidden", "unauthorized", "panic")
	}
	nothingTold(t, b)
}

// complainsOf reports the first line of a log with one of some words.
func complainsOf(t *testing.T, log string, words ...string) {
	t.Helper()
	line, err := bed.LineWith(log, words...)
	if err != nil {
		t.Fatal(err)
	}
	if line != "" {
		t.Errorf("%s: %s", filepath.Base(log), line)
	}
}
