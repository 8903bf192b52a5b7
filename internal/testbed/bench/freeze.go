package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed"
)

const (
	// freezesPerRun is how many workloads are frozen for each run of a single loss. Each has three nodes, of which one is frozen, so that
	// the guard never takes most nodes for lost.
	freezesPerRun = 2
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
			measures, err := freezeNodes(ctx, s, variant{name: "unanimous grace 1s"}, "freeze", func(ctx context.Context, all []*trio) (err error) {
				harmless, err = disturb(ctx, all)
				return err
			})
			for i := range measures {
				if freezes[i] <= harmlessFreeze {
					measures[i].Limits = []Limit{never}
				}
			}
			return Results{rowFreeze.Key: measures, rowHarmless.Key: harmless}, err
		},
	}
	groupFreezePatient = Group{
		Name: "frozen nodes, unanimous grace off", Rows: []string{rowFreeze.Key}, Calm: true,
		run: func(ctx context.Context, s Settings) (Results, error) {
			v := variant{name: "unanimous grace 5s", args: withoutEarly.args}
			measures, err := freezeNodes(ctx, s, v, "freeze-patient", nil)
			for i := range measures {
				measures[i].Baseline = true
			}
			return Results{rowFreeze.Key: measures}, err
		},
	}
)

// freezeNodes freezes the node of each of many workloads for each length of time, and returns how many workloads moved, by
// length. What else is to happen to them follows.
func freezeNodes(
	ctx context.Context, s Settings, v variant, slug string, then func(ctx context.Context, all []*trio) error,
) ([]Measure, error) {
	moved, n := map[time.Duration]int{}, freezesPerRun*s.Runs
	options := testbed.Options{ControllerArgs: v.args, DRBDMeasured: true}
	err := withCluster(ctx, s, slug, options, func(ctx context.Context, c *cluster) error {
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
	var measures []Measure
	for _, length := range freezes {
		measures = append(measures, count(fmt.Sprintf("frozen for %s: workloads of %d that moved, %s", length, n, v.name), moved[length]))
	}
	return measures, err
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

// disturb does to all workloads at once what must move none of them, and returns how many were removed for each.
func disturb(ctx context.Context, all []*trio) ([]Measure, error) {
	const short = 3 * time.Second
	c := all[0].cluster
	var everywhere []string
	for _, t := range all {
		everywhere = append(everywhere, t.nodes...)
	}
	var measures []Measure
	for _, disturbance := range []struct {
		what string
		do   func(used []string) error
	}{
		{"the DRBD links of their nodes flap, 5 times for 3 s", func(used []string) error {
			for range 5 {
				c.IsolateDRBD(used...)
				err := pause(ctx, short)
				c.RejoinDRBD(used...)
				if err != nil {
					return err
				}
				if err := pause(ctx, short); err != nil {
					return err
				}
			}
			return nil
		}},
		{"LINSTOR restarts", func([]string) error { c.LINSTOR.Restart(); return nil }},
		{"a switch reboots, all nodes lose the network for 3 s", func([]string) error {
			c.Isolate(everywhere...)
			err := pause(ctx, short)
			c.Rejoin(everywhere...)
			return err
		}},
	} {
		var pods []podLife
		var used []string
		for _, t := range all {
			pod, ok := c.seen.current(t.pod())
			if !ok {
				return nil, fmt.Errorf("pod %s does not run", t.pod())
			}
			pods, used = append(pods, pod), append(used, pod.node)
		}
		c.say("%s", disturbance.what)
		if err := disturbance.do(used); err != nil {
			return nil, err
		}
		if err := pause(ctx, aftermath); err != nil {
			return nil, err
		}
		n := 0
		for _, pod := range pods {
			if c.seen.removed(pod) {
				n++
			}
		}
		measures = append(measures, count(fmt.Sprintf("%s: workloads of %d that moved", disturbance.what, len(all)), n, never))
		for _, t := range all {
			if err := t.heal(ctx); err != nil {
				return nil, err
			}
		}
	}
	return measures, nil
}
