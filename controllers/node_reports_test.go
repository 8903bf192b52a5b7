package controllers

import (
	"testing"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// LINSTOR is told nothing for a node from which a volume fails over, also if that says nothing of the node.
func TestANodeFailsOverWhileAVolumeThereIsLost(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		report volumeReport
		want   bool
	}{
		"a volume that was demoted by force":           {volumeReport{verdict: failover.Lost, reason: failover.ForcedIOErrors}, true},
		"a volume that is lost with its node":          {volumeReport{verdict: failover.Blocked, lost: true}, true},
		"a volume that works":                          {volumeReport{verdict: failover.NotLost}, false},
		"a volume that has moved and is not there yet": {volumeReport{verdict: failover.NotLost, moving: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var reports nodeReports
			reports.publish(nodeA, map[string]volumeReport{"other": {}, "db": tc.report})
			if got := reports.failsOver(nodeA); got != tc.want {
				t.Errorf("the node fails over: %t, want %t", got, tc.want)
			}
			if reports.failsOver(nodeB) {
				t.Error("a node without volumes fails over")
			}
		})
	}
}
