package scenarios_test

import (
	"fmt"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/bedtest"
)

// reboot takes a node out and back of which three volumes exist nowhere else: they are copied, the node is drained and switched off, and it comes
// back as if nothing had been.
func reboot(d *departure) {
	const copiedAlready, local = 20, 3
	leaving := d.Nodes[0]
	var workloads, locals []bed.Workload
	var pinned []string
	for i := range copiedAlready {
		workloads = append(workloads, d.shared(fmt.Sprintf("db%02d", i)))
	}
	for i := range local {
		w := d.local(fmt.Sprintf("local%d", i))
		locals, pinned = append(locals, w), append(pinned, volumeOf(w))
	}
	workloads = append(workloads, locals...)
	d.startAll(workloads...)
	d.keepAffinity(locals...)

	tainted := time.Now()
	d.taint(leaving, evacuation.LastCopies)
	d.kubectl("wait", "--for=condition="+evacuation.StorageSafe, "node/"+leaving, "--timeout="+bedtest.Timeout.String())
	d.T.Logf("%s is safe %.1f s after its taint", leaving, time.Since(tainted).Seconds())
	d.wantTold(evacuation.Autoplace, local)
	d.wantTold(evacuation.Autoplace, local, pinned...)
	d.drain(leaving)
	for _, w := range workloads {
		d.waitDrained(w)
	}

	created := podsCreated(d.Scenario)
	d.Crash(leaving)
	pass(d.Scenario, usual)
	d.waitSays(leaving, evacuation.StorageSafe, evacuation.StatusUnknown, evacuation.SatelliteOffline)
	d.Return(leaving)
	waitReturned(d, leaving, workloads)
	for _, w := range workloads {
		d.wantDisks(w, 2) // although LINSTOR's balancing has looked more than once
	}
	d.kubectl("uncordon", leaving)
	d.untaint(leaving)
	d.wantClean(leaving, workloads...)
	d.wantTold(evacuation.Autoplace, local)
	d.wantTold(evacuation.Evacuate, 0)
	d.wantTold(evacuation.Restore, 0)
	if n := podsCreated(d.Scenario); n != created || len(gracesGiven(d.Scenario)) > 0 {
		d.T.Errorf("%d pods were created after the drain, and the controller has deleted %v: want none", n-created, gracesGiven(d.Scenario))
	}
	waitEvent(d.Scenario, "EvacuationStarted", "Node", "", leaving)
	waitEvent(d.Scenario, "StorageSafe", "Node", "", leaving)
	waitEvent(d.Scenario, "StorageReturned", "Node", "", leaving)
	d.clear(workloads...)
}

// waitReturned waits until a node is back: LINSTOR calls it ONLINE, and all of its disks have caught up.
func waitReturned(d *departure, node string, workloads []bed.Workload) {
	d.T.Helper()
	waitUntil(d.Scenario, node+" to be back", func() bool {
		for _, w := range workloads {
			if state, _ := d.DRBD.Replica(volumeOf(w), node); state.DiskState != "UpToDate" {
				return false
			}
		}
		return d.LINSTOR.ConnectionStatus(node) == "ONLINE"
	})
}
