package scenarios_test

import (
	"slices"
	"strings"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

// triple is a workload on the first node whose volume has disks on the first three.
func (d *departure) triple(name string) bed.Workload {
	w := d.Workload(name)
	w.Volumes = []bed.Volume{d.volume(name, true, d.Nodes[:3]...)}
	return w
}

// leave takes everything off a node: one, two and three replicas, all in use before the node is drained.
func leave(d *departure) {
	leaving := d.Nodes[0]
	one, two, three := d.local("one"), d.shared("two"), d.triple("three")
	workloads := []bed.Workload{one, two, three}
	d.startAll(workloads...)
	d.keepAffinity(one)

	tainted := time.Now()
	d.taint(leaving, evacuation.Everything)
	d.waitSafe(leaving)
	d.wantTold(evacuation.Autoplace, 1, volumeOf(one))
	d.wantTold(evacuation.Autoplace, 1)
	d.waitSays(leaving, evacuation.StorageEvacuated, evacuation.False, evacuation.WaitingForDrain, "holds")
	d.wantTold(evacuation.Evacuate, 0)
	d.drain(leaving)
	for _, w := range workloads {
		d.waitDrained(w)
	}
	d.waitEvacuated(leaving)
	d.T.Logf("%s has left %.1f s after its taint", leaving, time.Since(tainted).Seconds())
	if n := len(d.told(evacuation.Evacuate)); n > 2 {
		d.T.Errorf("LINSTOR was told %d times to evacuate a node", n)
	}
	for i, w := range workloads {
		d.wantDisks(w, i+1, leaving)
	}
	d.kubectl("uncordon", leaving)
	d.untaint(leaving)
	d.wantClean(leaving, workloads...)
	for i, w := range workloads {
		d.wantDisks(w, i+1)
	}
	d.clear(workloads...)
}

// noFourthNode is a node of three, each of which has a replica: they are safe at once, and have nowhere to go.
func noFourthNode(d *departure) {
	leaving, w := d.Nodes[0], d.triple("three")
	d.startAll(w)
	d.taint(leaving, evacuation.Everything)
	d.waitSafe(leaving)
	d.wantTold(evacuation.Autoplace, 0)
	d.drain(leaving)
	d.waitDrained(w)
	d.waitSays(leaving, evacuation.StorageEvacuated, evacuation.False, evacuation.NoTarget, "1 replica left")
	d.kubectl("uncordon", leaving)
	d.untaint(leaving)
	d.wantClean(leaving, w)
	d.wantDisks(w, 3)
	d.wantTold(evacuation.Autoplace, 0)
	d.wantTold(evacuation.Restore, 1, leaving)
	d.clear(w)
}

// quorumOff is a volume with two disks and a tie-breaker on three nodes, of which one leaves: there is no place for a tie-breaker until it is back.
func quorumOff(d *departure) {
	leaving, w := d.Nodes[0], d.shared("two")
	d.startAll(w)
	d.taint(leaving, evacuation.Everything)
	d.waitSafe(leaving)
	d.drain(leaving)
	waitEvent(d.Scenario, "QuorumWillBeOff", "Node", "", leaving)
	d.waitDrained(w)
	d.waitSays(leaving, evacuation.StorageEvacuated, evacuation.True, evacuation.NothingLeft, "quorum off for 1 volume")
	if quorum := d.props(volumeOf(w))[linstorsim.PropQuorum]; quorum != drbd.QuorumOff {
		d.T.Errorf("the scenario is void: the volume has the quorum %s", quorum)
	}
	d.wantDisks(w, 2, leaving)
	d.kubectl("uncordon", leaving)
	d.untaint(leaving)
	d.wantClean(leaving, w)
	waitUntil(d.Scenario, "the majority and the tie-breaker to be back", func() bool {
		return d.props(volumeOf(w))[linstorsim.PropQuorum] == drbd.QuorumMajority && slices.Contains(d.LINSTOR.ReplicaNodes(volumeOf(w)), leaving)
	})
	d.wantDisks(w, 2, leaving)
	d.clear(w)
}

// operatorInterval is how often the operator looks that restores nodes; a real one does so every minute.
const operatorInterval = 15 * time.Second

// restoringOperator is a node that leaves although an operator takes the flag from it again and again.
func restoringOperator(d *departure) {
	d.LINSTOR.SetOperator(operatorInterval)
	d.T.Cleanup(func() { d.LINSTOR.SetOperator(0) })
	leaving, two, three := d.Nodes[0], d.shared("two"), d.triple("three")
	d.startAll(two, three)
	d.taint(leaving, evacuation.Everything)
	d.waitSafe(leaving)
	d.drain(leaving)
	d.waitTold(evacuation.Evacuate, leaving)
	d.waitEvacuated(leaving)
	if n := len(d.told(evacuation.Evacuate)); n > 3 {
		d.T.Errorf("LINSTOR was told %d times to evacuate the node, want at most 3", n)
	}
	d.wantDisks(two, 2, leaving)
	d.wantDisks(three, 3, leaving)
	waitUntil(d.Scenario, "the operator to restore the node", func() bool { return !slices.Contains(d.flags(leaving), linstorsim.FlagEvacuate) })
	d.kubectl("uncordon", leaving)
	d.untaint(leaving)
	d.wantClean(leaving, two, three)
	d.clear(two, three)
}

// takenBackWhileLeaving takes the taint off while LINSTOR moves disks off the node. They may leave yet, but not the last one.
func takenBackWhileLeaving(d *departure) {
	leaving, two, three := d.Nodes[0], d.shared("two"), d.triple("three")
	d.startAll(two, three)
	d.taint(leaving, evacuation.Everything)
	d.waitSafe(leaving)
	d.drain(leaving)
	d.waitTold(evacuation.Evacuate, leaving)
	d.untaint(leaving)
	d.kubectl("uncordon", leaving)
	d.wantClean(leaving, two, three)
	waitEvent(d.Scenario, "UnfinishedMove", "Node", "", leaving)
	waitUntil(d.Scenario, "the moves to end", func() bool {
		return !slices.Contains(append(d.LINSTOR.DiskNodes(volumeOf(two)), d.LINSTOR.DiskNodes(volumeOf(three))...), leaving)
	})
	d.wantDisks(two, 2)
	d.wantDisks(three, 3)
	d.wantTold(evacuation.Evacuate, 1)
	d.clear(two, three)
}

// crashWhileLeaving takes the power from a node while LINSTOR moves disks off it. Nobody tells LINSTOR anything about it until it is back.
func crashWhileLeaving(d *departure) {
	leaving, two, three := d.Nodes[0], d.shared("two"), d.triple("three")
	d.startAll(two, three)
	d.taint(leaving, evacuation.Everything)
	d.waitSafe(leaving)
	d.drain(leaving)
	d.waitDrained(two)
	d.waitDrained(three)
	d.waitTold(evacuation.Evacuate, leaving)
	d.Crash(leaving)
	d.waitSays(leaving, evacuation.StorageEvacuated, evacuation.StatusUnknown, evacuation.SatelliteOffline)
	calls := len(d.told(evacuation.Evacuate))
	pass(d.Scenario, usual)
	for _, w := range []bed.Workload{two, three} {
		pod, err := d.WaitRunning(d.Ctx, w)
		d.Must(err)
		if !d.DRBD.CanWrite(volumeOf(w), pod.Spec.NodeName) {
			d.T.Errorf("pod %s cannot write", pod.Name)
		}
	}
	d.wantTold(evacuation.Evacuate, calls)
	d.wantTold(evacuation.Restore, 0)
	d.Return(leaving)
	d.waitEvacuated(leaving)
	d.wantDisks(two, 2, leaving)
	d.wantDisks(three, 3, leaving)
	d.kubectl("uncordon", leaving)
	d.untaint(leaving)
	d.wantClean(leaving, two, three)
	d.clear(two, three)
}

// twoAtOnce lets two of five nodes leave at the same time: one goes first, and no copy ever lands on either.
func twoAtOnce(d *departure) {
	first, second := d.Nodes[0], d.Nodes[1]
	twoLeave(d, func() (both time.Time) {
		d.kubectl("taint", "node", first, second, evacuation.TaintKey+":NoSchedule")
		for _, node := range []string{first, second} {
			d.waitSafe(node)
			d.drain(node)
		}
		return d.Began
	})
}

// oneAfterTheOther lets a second node leave while the first one is still out.
func oneAfterTheOther(d *departure) {
	first, second := d.Nodes[0], d.Nodes[1]
	twoLeave(d, func() (both time.Time) {
		d.taint(first, evacuation.Everything)
		d.waitSafe(first)
		d.drain(first)
		d.waitEvacuated(first)
		both = time.Now()
		d.taint(second, evacuation.Everything)
		d.waitSafe(second)
		d.drain(second)
		return both
	})
}

// twoLeave lets the first two of five nodes leave. How returns since when both are to be left alone.
func twoLeave(d *departure, how func() time.Time) {
	first, second := d.Nodes[0], d.Nodes[1]
	onBoth, onFirst, one := d.shared("both"), d.shared("first"), d.local("one")
	onFirst.Volumes = []bed.Volume{d.volume("first", false, first, d.Nodes[2], d.Nodes[3])}
	workloads := []bed.Workload{onBoth, onFirst, one}
	d.startAll(workloads...)
	d.keepAffinity(one)
	both := how()
	d.waitEvacuated(first)
	d.waitEvacuated(second)
	for i, w := range workloads {
		d.wantDisks(w, []int{2, 2, 1}[i], first, second)
		if n := len(d.told(evacuation.Autoplace, volumeOf(w))); n > 2 {
			d.T.Errorf("%s was copied %d times, want at most once for each node that it leaves", volumeOf(w), n)
		}
	}
	for _, c := range append(d.told(evacuation.Autoplace), d.told(evacuation.Evacuate)...) {
		allows := c.call == evacuation.Autoplace && (strings.Contains(c.body, first) || strings.Contains(c.body, second) || !strings.Contains(c.body, d.Name))
		forgets := c.call == evacuation.Evacuate && !strings.Contains(c.body, map[string]string{first: second, second: first}[c.of])
		if c.at.After(both) && (allows || forgets) {
			d.T.Errorf("LINSTOR was told %s of %s with %s, which lets it use a node that leaves", c.call, c.of, c.body)
		}
	}
	d.kubectl("uncordon", first, second)
	d.untaint(first)
	d.untaint(second)
	d.wantClean(first, workloads...)
	d.wantClean(second, workloads...)
	d.clear(workloads...)
}

// leaderKilled kills the leader in every state of an evacuation. The next one goes on, and does nothing twice.
func leaderKilled(d *departure) {
	leaving, one, two := d.Nodes[0], d.local("one"), d.shared("two")
	d.startAll(one, two)
	d.taint(leaving, evacuation.Everything)
	d.waitTold(evacuation.Autoplace, volumeOf(one))
	killLeader(d) // while it copies
	d.waitSays(leaving, evacuation.StorageSafe, evacuation.False, evacuation.AffinityPinned)
	d.keepAffinity(one)
	d.waitSafe(leaving)
	killLeader(d) // while it waits for the drain
	d.drain(leaving)
	d.waitTold(evacuation.Evacuate, leaving)
	killLeader(d) // while LINSTOR moves the rest
	d.waitEvacuated(leaving)
	d.wantTold(evacuation.Autoplace, 1)
	if n := len(d.told(evacuation.Evacuate)); n > 2 {
		d.T.Errorf("LINSTOR was told %d times to evacuate the node", n)
	}
	d.untaint(leaving)
	killLeader(d) // while the node returns
	d.wantClean(leaving, one, two)
	d.wantDisks(one, 1, leaving)
	d.wantDisks(two, 2, leaving)
	d.clear(one, two)
	d.Must(d.WaitController(d.Ctx))
}

// killLeader kills the process of the leader, and waits until another one leads.
func killLeader(d *departure) {
	d.T.Helper()
	leader, err := d.Leader(d.Ctx)
	d.Must(err)
	node, err := d.LeaderNode(d.Ctx)
	d.Must(err)
	d.Crash(node)
	d.Must(d.WaitFor(d.Ctx, "another leader than "+leader, func() (bool, error) {
		next, err := d.Leader(d.Ctx)
		return next != "" && next != leader, err
	}))
	d.Return(node)
}

// restartedLinstor is a LINSTOR that runs on the node that leaves, and is drained with it while a copy is made.
func restartedLinstor(d *departure) {
	leaving, one, two := d.Nodes[0], d.local("one"), d.shared("two")
	linstor := piraeus(d.Scenario, bed.LINSTORComponent)
	d.startAll(one, two, linstor)
	d.keepAffinity(one)
	d.taint(leaving, evacuation.Everything)
	d.waitTold(evacuation.Autoplace, volumeOf(one))
	d.drain(leaving)
	_, err := d.WaitRunning(d.Ctx, linstor, d.Nodes[1:]...)
	d.Must(err)
	d.waitSafe(leaving)
	d.waitEvacuated(leaving)
	d.wantTold(evacuation.Autoplace, 1)
	d.wantDisks(one, 1, leaving)
	d.wantDisks(two, 2, leaving)
	d.kubectl("uncordon", leaving)
	d.untaint(leaving)
	d.wantClean(leaving, one, two)
}
