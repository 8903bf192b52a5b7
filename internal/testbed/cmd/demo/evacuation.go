package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/csidriver"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

const (
	// ledger is a database whose volume exists on its node only.
	ledger = "ledger"
	// syncRate is how fast the demo's DRBD copies, in KiB per second: 1 GiB in ten seconds.
	syncRate = 100 << 10
	// off is how long the node is switched off.
	off = 20 * time.Second
	// reboot bounds the whole reboot.
	reboot = 5 * time.Minute
)

// evacuate brings up a cluster, takes a node out of it that has the only copy of a volume, switches it off, and takes it back.
func evacuate(ctx context.Context) error {
	fmt.Println("A node with the only copy of a volume is rebooted")
	t := newTeller()
	defer t.stop()
	t.begin("Starting a cluster on this machine")
	b, err := bed.Start(ctx, bed.Options{
		Progress: t.step, SyncRate: syncRate, LINSTOR: linstorsim.Options{TieBreakers: true}, Driver: csidriver.Options{NodeCache: time.Second},
	})
	if err != nil {
		return err
	}
	defer b.Stop()
	d := departure{scenario: scenario{bed: b, teller: t}}
	err = d.run(ctx)
	fmt.Printf("\nLogs of all parts: %s\n\n", b.LogDir)
	return err
}

// departure is the reboot of a node with two databases, one of which has its only copy there.
type departure struct {
	scenario

	only     bed.Workload
	timeline *bed.Timeline
	took     []string // what took how long

	mu   sync.Mutex
	told map[evacuation.Call]int // how often LINSTOR was told what
}

// run deploys all, takes the node out and back, and tells what happens.
func (d *departure) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reboot)
	defer cancel()
	d.teller.say("the high availability controller from deploy/all.yaml, 3 replicas")
	if err := d.bed.DeployController(ctx); err != nil {
		return err
	}
	d.teller.say("nodes node-1, node-2, node-3")
	var err error
	if d.nodes, err = d.bed.AddNodes(ctx, "node", 3); err != nil {
		return err
	}
	if err := d.deployBoth(ctx); err != nil {
		return err
	}
	if d.timeline, err = d.bed.Record(ctx, namespace); err != nil {
		return err
	}
	d.told = map[evacuation.Call]int{}
	d.bed.LINSTOR.Intercept(d.note)
	start := d.teller.begin("Rebooting node-1")
	end := follow(ctx, d.timeline, start, d.teller)
	storyErr := d.story(ctx)
	if _, err := end(); err != nil {
		return errors.Join(storyErr, err)
	}
	fmt.Println()
	for _, line := range d.took {
		fmt.Println("  " + line)
	}
	return storyErr
}

// deployBoth starts the two databases, both on the first node.
func (d *departure) deployBoth(ctx context.Context) error {
	d.selected = d.workload(orders)
	d.only = d.workload(ledger)
	d.only.Volumes[0].Nodes, d.only.Volumes[0].Diskful, d.only.Volumes[0].Pinned = d.nodes[:1], true, true
	d.teller.say("two StatefulSets on node-1: %s, whose volume has a replica elsewhere, and %s, whose volume has none", orders, ledger)
	for _, w := range []bed.Workload{d.selected, d.only} {
		if err := d.bed.Deploy(ctx, w); err != nil {
			return err
		}
	}
	for _, w := range []bed.Workload{d.selected, d.only} {
		if _, err := d.bed.WaitRunning(ctx, w, d.nodes[0]); err != nil {
			return err
		}
	}
	d.bed.KeepAffinity(ctx, d.only.Volumes[0].Name)
	return nil
}

// note notes what the controller tells LINSTOR, and lets it through.
func (d *departure) note(_ http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodGet || !strings.HasPrefix(r.UserAgent(), bed.ControllerName) {
		return false
	}
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/") // v1, nodes, name, evacuate
	call := evacuation.Properties
	if len(path) > 3 {
		call = evacuation.Call(path[3])
	}
	d.mu.Lock()
	d.told[call]++
	d.mu.Unlock()
	d.timeline.Note(bed.ControllerName, fmt.Sprintf("tells LINSTOR: %s of %s", call, path[2]))
	return false
}

// story is what an operator does.
func (d *departure) story(ctx context.Context) error {
	node := d.nodes[0]
	start := time.Now()
	kubectl := func(args ...string) error {
		d.timeline.Note("you", "kubectl "+strings.Join(args, " "))
		_, err := d.bed.Kubectl(ctx, args...)
		return err
	}
	if err := errors.Join(
		kubectl("taint", "node", node, evacuation.TaintKey+"="+string(evacuation.LastCopies)+":NoSchedule"),
		kubectl("wait", "node/"+node, "--for=condition="+evacuation.StorageSafe, "--timeout=2m"),
	); err != nil {
		return err
	}
	d.lasted("taint -> safe", start)
	drained := time.Now()
	if err := kubectl("drain", node, "--ignore-daemonsets"); err != nil {
		return err
	}
	for _, w := range []bed.Workload{d.selected, d.only} {
		if _, err := d.bed.WaitRunning(ctx, w, d.nodes[1:]...); err != nil {
			return err
		}
	}
	d.lasted("drain -> both Running elsewhere", drained)
	if err := d.powerCycle(ctx, node); err != nil {
		return err
	}
	untainted := time.Now()
	if err := errors.Join(kubectl("uncordon", node), kubectl("taint", "node", node, evacuation.TaintKey+"-"), d.waitReturned(ctx, node)); err != nil {
		return err
	}
	d.lasted("uncordon and untaint -> nothing left of it", untainted)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.told[evacuation.Autoplace] != 1 || d.told[evacuation.Evacuate] > 0 {
		return fmt.Errorf("LINSTOR was told %v, want one copy and nothing to leave", d.told)
	}
	return nil
}

// lasted notes how long something took.
func (d *departure) lasted(what string, since time.Time) {
	d.took = append(d.took, fmt.Sprintf("%s: %.1f s", what, time.Since(since).Seconds()))
}

// powerCycle switches a node off and on again, and waits until it is back.
func (d *departure) powerCycle(ctx context.Context, node string) error {
	d.timeline.Note("you", "switch "+node+" off")
	d.bed.Crash(node)
	select {
	case <-time.After(off):
	case <-ctx.Done():
		return ctx.Err()
	}
	d.timeline.Note("you", "switch "+node+" on again")
	d.bed.Return(node)
	return d.bed.WaitFor(ctx, node+" to be ONLINE again", func() (bool, error) {
		return d.bed.LINSTOR.ConnectionStatus(node) == linstorsim.Online, nil
	})
}

// waitReturned waits until a node says nothing of an evacuation any more.
func (d *departure) waitReturned(ctx context.Context, name string) error {
	return d.bed.WaitFor(ctx, "nothing of the evacuation of "+name+" to be left", func() (bool, error) {
		var node corev1.Node
		if err := d.bed.Client.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
			return false, err
		}
		c := cluster.EvacuationConditions(&node)
		return c.Safe == nil && c.Evacuated == nil && node.Annotations[cluster.AnnotationEvacuation] == "", nil
	})
}
