package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
)

func TestThePartsOfAFailOverAddUpToAllOfIt(t *testing.T) {
	t.Parallel()
	crashed := time.Now()
	at := func(seconds float64, who, what string) bed.Step {
		return bed.Step{At: crashed.Add(time.Duration(seconds * float64(time.Second))), Who: who, What: what}
	}
	steps := []bed.Step{
		at(0, "you", "power loss on node-1"),
		at(9, "DRBD on node-2", "resource archive-data may be promoted here"),
		at(10, "DRBD on node-3", "resource orders-data may be promoted here"),
		at(11, bed.ControllerName, "pod orders-0 on node-1 deleted"),
		at(11, "statefulset-controller", "pod orders-0 created anew"),
		at(11.5, "csi-attacher", "volume orders-data attached to node-3"), // nobody saw how it was placed
		at(12, "kubelet of node-3", "pod orders-0 Running on node-3"),
	}
	got := map[string]time.Duration{}
	for _, p := range parts(steps, crashed, "orders-0", "orders-data") {
		got[p.what] = p.took
	}
	if diff := cmp.Diff(map[string]time.Duration{
		"DRBD notices that its peer is gone, and the quorum moves on":           10 * time.Second,
		"the controller's grace period, and its decision: the pod is deleted":   time.Second,
		"the volume is detached from the dead node and attached to the new one": time.Second / 2,
		"the kubelet mounts the volume and starts the pod":                      time.Second / 2,
	}, got); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
}
