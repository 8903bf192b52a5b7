package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
)

const (
	// freezesPerRun is how many workloads are frozen for each run of a single loss. Each has three nodes, of which one is frozen, so that
	// the guard never takes most nodes for lost.
	freezesPerRun = 2
	// shortSilence is how long links are down while they flap, and all nodes while a switch reboots.
	shortSilence = 3 * time.Second
	// harmlessFreeze is how long a node may be frozen without anything being removed.
	harmlessFreeze = 6 * time.Second
	// aftermath is when a workload that moves because of a disturbance has surely been removed.
	aftermath = 20 * time.Second
	// unlearnt is how long after a freeze the controller does not take the silence any more for a habit of the kubelet: five
	// renewals later.
	unlearnt = 65 * time.Second
)

// freezes are how long nodes are frozen.
var freezes = []time.Duration{3 * time.Second, harmlessFreeze, 10 * time.Second, 13 * time.Second}

// groupFreeze and groupFreezePatient freeze nodes, with a DRBD that notices as a real one was seen to.
var (
	groupFreeze = Group{
		Name: "frozen nodes, as shipped", Rows: []string{rowFreeze.Key, rowHarmless.Key}, Calm: true,
		run: func(ctx context.Context, s Settings) (Results, error) {
			var harmless []Measure
			v := variant{name: "unanimous grace 1s"}
			n, moved, err := freezeNodes(ctx, s, v, "freeze", func(ctx context.Context, all []*trio) (err error) {
				harmless, err = disturb(ctx, all)
				return err
			})
			return Results{rowFreeze.Key: freezeMeasures(v, n, moved, never), rowHarmless.Key: harmless}, err
		},
	}
	groupFreezePatient = Group{
		Name: "frozen nodes, unanimous grace off", Rows: []string{rowFreeze.Key}, Calm: true,
		run: func(ctx context.Context, s Settings) (Results, error) {
			v := variant{name: "unanimous grace 5s", args: withoutEarly.args}
			n, moved, err := freezeNodes(ctx, s, v, "freeze-patient", nil)
			measures := freezeMeasures(v, n, moved)
			for i := range measures {
				measures[i].Baseline = true
			}
			return Results{rowFreeze.Key: measures}, err
		},
	}
)

// freezeMeasures are how many of n workloads moved, by how long their nodes were frozen. The limits are those of what must move none.
func freezeMeasures(v variant, n int, moved map[time.Duration]int, limits ...Limit) []Measure {
	var measures []Measure
	for _, length := range freezes {
		m := count(fmt.Sprintf("frozen for %s: workloads of %d that moved, %s", length, n, v.name), moved[length])
		if length <= harmlessFreeze {
			m.Limits = limits
		}
		measures = append(measures, m)
	}
	return measures
}

// freezeNodes freezes the node of each of n workloads for each length of time, and returns how many workloads moved, by length. What
// else is to happen to them follows.
func freezeNodes(
	ctx context.Context, s Settings, v variant, slug string, then func(ctx context.Context, all []*trio) error,
) (n int, moved map[time.Duration]int, err error) {
	n, moved = freezesPerRun*s.Runs, map[time.Duration]int{}
	options := bed.Options{ControllerArgs: v.args, DRBDMeasured: true}
	err = withCluster(ctx, s, slug, options, func(ctx context.Context, c *cluster) error {
		all, err := newTrios(ctx, c, n)
		if err != nil {
			return err
		}
		c.say("%d pods run; the controller runs %s", n, v.name)
		var mu sync.Mutex
		group, groupCtx := errgroup.WithContext(ctx)
		for _, t := range all {
			group.Go(func() error {
				for _, length := range freezes {
					gone, err := t.freeze(groupCtx, length)
					if err != nil {
						return err
					}
					if gone {
						mu.Lock()
						moved[length]++
						mu.Unlock()
					}
				}
				return nil
			})
		}
		if err := group.Wait(); err != nil || then == nil {
			return err
		}
		return then(ctx, all)
	})
	return n, moved, err
}

// freeze stops the node of the trio's pod for a while, and tells whether the pod was removed for it. To everybody else a frozen node is
// one that nothing comes from and nothing goes to, which is how it is played.
func (t *trio) freeze(ctx context.Context, length time.Duration) (removed bool, err error) {
	pod, ok := t.seen.current(t.pod())
	if !ok {
		return false, fmt.Errorf("pod %s does not run", t.pod())
	}
	if err := pause(ctx, rand.N(t.spread)); err != nil {
		return false, err
	}
	t.Isolate(pod.node)
	err = pause(ctx, length)
	t.Rejoin(pod.node)
	if err != nil {
		return false, err
	}
	thawed := time.Now()
	if err := pause(ctx, aftermath); err != nil {
		return false, err
	}
	removed = t.seen.removed(pod)
	if removed {
		t.say("%s was frozen for %s: %s moved", pod.node, length, pod.name)
	}
	if err := t.heal(ctx); err != nil {
		return removed, err
	}
	if _, err := t.WaitRunning(ctx, t.workload); err != nil {
		return removed, err
	}
	return removed, pause(ctx, time.Until(thawed.Add(unlearnt)))
}

// removed tells whether somebody began to remove a pod.
func (o *observer) removed(pod podLife) bool {
	life := o.life(pod.uid)
	return !life.marked.IsZero() || !life.end.IsZero()
}

// disturbance is what must move nothing; used are the nodes that run a pod.
type disturbance struct {
	what string
	do   func(ctx context.Context, c *cluster, all, used []string) error
}

// disturbances are played one after the other.
var disturbances = []disturbance{
	{"the DRBD links of their nodes flap, 5 times for 3 s", flapLinks},
	{"LINSTOR restarts", func(_ context.Context, c *cluster, _, _ []string) error {
		c.LINSTOR.Restart()
		return nil
	}},
	{"a switch reboots, all their nodes lose the network for 3 s", func(ctx context.Context, c *cluster, all, _ []string) error {
		c.Isolate(all...)
		err := pause(ctx, shortSilence)
		c.Rejoin(all...)
		return err
	}},
}

// flapLinks takes the links of nodes away again and again.
func flapLinks(ctx context.Context, c *cluster, _, used []string) error {
	for range 5 {
		c.IsolateDRBD(used...)
		err := pause(ctx, shortSilence)
		c.RejoinDRBD(used...)
		if err == nil {
			err = pause(ctx, shortSilence)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// disturb does to all workloads at once what must move none of them, and returns how many were removed for each.
func disturb(ctx context.Context, trios []*trio) ([]Measure, error) {
	var measures []Measure
	for _, d := range disturbances {
		n, err := d.play(ctx, trios)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.what, err)
		}
		measures = append(measures, count(fmt.Sprintf("%s: workloads of %d that moved", d.what, len(trios)), n, never))
	}
	return measures, nil
}

// play lets it happen to all workloads at once, and returns how many of their pods were removed for it.
func (d disturbance) play(ctx context.Context, trios []*trio) (removed int, err error) {
	c := trios[0].cluster
	var pods []podLife
	var all, used []string
	for _, t := range trios {
		pod, ok := c.seen.current(t.pod())
		if !ok {
			return 0, fmt.Errorf("pod %s does not run", t.pod())
		}
		pods, used, all = append(pods, pod), append(used, pod.node), append(all, t.nodes...)
	}
	c.say("%s", d.what)
	if err := d.do(ctx, c, all, used); err != nil {
		return 0, err
	}
	if err := pause(ctx, aftermath); err != nil {
		return 0, err
	}
	for _, pod := range pods {
		if c.seen.removed(pod) {
			removed++
		}
	}
	for _, t := range trios {
		if err := t.heal(ctx); err != nil {
			return removed, err
		}
		if _, err := t.WaitRunning(ctx, t.workload); err != nil {
			return removed, err
		}
	}
	return removed, nil
}
