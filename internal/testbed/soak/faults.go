package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
)

// loss takes the storage of a node away, and gives it back.
type loss struct {
	name        string
	begin, heal func(r *runner, node string)
}

// nothingLost is the loss of a round in which nothing must be moved.
const nothingLost = "no loss"

var losses = []loss{
	{nothingLost, func(*runner, string) {}, func(*runner, string) {}},
	{"crash", func(r *runner, node string) { r.bed.Crash(node) }, func(r *runner, node string) { r.bed.Return(node) }},
	{"isolation", func(r *runner, node string) { r.bed.Isolate(node) }, func(r *runner, node string) { r.bed.Rejoin(node) }},
	{
		"loss of DRBD's network", func(r *runner, node string) { r.bed.IsolateDRBD(node) },
		func(r *runner, node string) { r.bed.RejoinDRBD(node) },
	},
}

// disturbance is what happens besides. It ends by itself.
type disturbance struct {
	name string
	do   func(ctx context.Context, r *runner) error
	// ends is set if a process of the controller may end of it: it is killed, or loses its Lease with the API.
	ends bool
}

var disturbances = slices.Concat([]disturbance{
	{name: "nothing", do: func(context.Context, *runner) error { return nil }},
	{name: "LINSTOR restarts", do: func(_ context.Context, r *runner) error { r.bed.LINSTOR.Restart(); return nil }},
	{name: "LINSTOR is away for a while", do: func(_ context.Context, r *runner) error {
		r.bed.LINSTOR.Stop()
		r.after(partition, r.bed.LINSTOR.Start)
		return nil
	}},
	{name: "event streams end", do: func(_ context.Context, r *runner) error { r.bed.LINSTOR.DropStreams(); return nil }},
	{name: "event streams are reset", do: func(_ context.Context, r *runner) error { r.bed.LINSTOR.ResetStreams(); return nil }},
	{name: "event streams are half open", do: func(_ context.Context, r *runner) error { r.bed.LINSTOR.SilenceStreams(); return nil }},
	{name: "the leader is killed", ends: true, do: func(ctx context.Context, r *runner) error {
		return r.endLeader(ctx, syscall.SIGKILL)
	}},
	{name: "the leader is asked to end", ends: true, do: func(ctx context.Context, r *runner) error {
		return r.endLeader(ctx, syscall.SIGTERM)
	}},
	{name: "any of the replicas is killed", ends: true, do: func(_ context.Context, r *runner) error {
		return r.endController(pick(r.random, r.bed.ControllerProcesses()).Pod, syscall.SIGKILL)
	}},
	{name: "the leader loses the API for a while", ends: true, do: func(ctx context.Context, r *runner) error {
		node, err := r.leaderNode(ctx)
		if err != nil {
			return err
		}
		r.bed.PartitionAPI(node)
		r.after(partition, func() { r.bed.HealAPI(node) })
		return nil
	}},
	{name: "the leader loses LINSTOR for a while", do: func(ctx context.Context, r *runner) error {
		node, err := r.leaderNode(ctx)
		if err != nil {
			return err
		}
		r.bed.CutLINSTOR(node)
		r.after(partition, func() { r.bed.HealLINSTOR(node) })
		return nil
	}},
}, kills(bed.Etcd, bed.APIServer, bed.ControllerManager, bed.Scheduler, bed.Attacher))

// kills are the deaths of parts of the control plane.
func kills(components ...bed.Component) []disturbance {
	var all []disturbance
	for _, c := range components {
		all = append(all, disturbance{
			name: string(c) + " is killed", ends: c == bed.Etcd || c == bed.APIServer,
			do: func(_ context.Context, r *runner) error { return r.bed.Kill(c) },
		})
	}
	return all
}

// endLeader ends the leader by a signal.
func (r *runner) endLeader(ctx context.Context, signal syscall.Signal) error {
	var leader string
	if err := r.bed.WaitFor(ctx, "a leader to end", func() (done bool, err error) {
		leader, err = r.bed.Leader(ctx)
		return leader != "", err
	}); err != nil {
		return err
	}
	return r.endController(leader, signal)
}

// endController ends a process of the controller by a signal, unless it has just ended.
func (r *runner) endController(pod string, signal syscall.Signal) error {
	_ = r.bed.KillController(pod, signal)
	return nil
}

// leaderNode returns the leader's node.
func (r *runner) leaderNode(ctx context.Context) (string, error) {
	var node string
	err := r.bed.WaitFor(ctx, "a leader", func() (done bool, err error) {
		node, err = r.bed.LeaderNode(ctx)
		return node != "", err
	})
	return node, err
}

// plan is what happens besides in one round, and how long after the loss.
type plan struct {
	disturbance
	after time.Duration
}

// String names it.
func (p plan) String() string { return fmt.Sprintf("%s %.1f s later", p.name, p.after.Seconds()) }

// lateness is how long after a loss a disturbance comes at most. A fail-over takes about as long.
const lateness = 8 * time.Second

// plans chooses one disturbance, or two at a time, in the order in which they come. Where the controller is spared,
// none may end one of its processes.
func plans(random *rand.Rand, spared bool) []plan {
	from := slices.DeleteFunc(slices.Clone(disturbances), func(d disturbance) bool { return spared && d.ends })
	chosen := make([]plan, 1+random.IntN(5)/4)
	for i := range chosen {
		chosen[i] = plan{pick(random, from), time.Duration(random.Int64N(int64(lateness))).Round(100 * time.Millisecond)}
	}
	slices.SortFunc(chosen, func(a, b plan) int { return int(a.after - b.after) })
	return chosen
}

func pick[T any](random *rand.Rand, list []T) T { return list[random.IntN(len(list))] }
