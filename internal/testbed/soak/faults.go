package soak

import (
	"context"
	"math/rand/v2"
	"syscall"
)

// loss takes the storage of a node away, and gives it back.
type loss struct {
	name        string
	begin, heal func(r *runner, node string)
}

var losses = []loss{
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
}

var disturbances = []disturbance{
	{"nothing", func(context.Context, *runner) error { return nil }},
	{"LINSTOR restarts", func(_ context.Context, r *runner) error { r.bed.LINSTOR.Restart(); return nil }},
	{"event streams end", func(_ context.Context, r *runner) error { r.bed.LINSTOR.DropStreams(); return nil }},
	{"event streams are reset", func(_ context.Context, r *runner) error { r.bed.LINSTOR.ResetStreams(); return nil }},
	{"event streams are half open", func(_ context.Context, r *runner) error { r.bed.LINSTOR.SilenceStreams(); return nil }},
	{"the leader is killed", func(ctx context.Context, r *runner) error { return r.killLeader(ctx, syscall.SIGKILL) }},
	{"the leader is asked to end", func(ctx context.Context, r *runner) error { return r.killLeader(ctx, syscall.SIGTERM) }},
	{"the leader loses the API for a while", func(ctx context.Context, r *runner) error {
		node, err := r.bed.LeaderNode(ctx)
		if err != nil {
			return err
		}
		r.bed.PartitionAPI(node)
		r.after(partition, func() { r.bed.HealAPI(node) })
		return nil
	}},
	{"the leader loses LINSTOR for a while", func(ctx context.Context, r *runner) error {
		node, err := r.bed.LeaderNode(ctx)
		if err != nil {
			return err
		}
		r.bed.CutLINSTOR(node)
		r.after(partition, func() { r.bed.HealLINSTOR(node) })
		return nil
	}},
}

func (r *runner) killLeader(ctx context.Context, signal syscall.Signal) error {
	leader, err := r.bed.Leader(ctx)
	if err != nil || leader == "" {
		return err
	}
	return r.bed.KillController(leader, signal)
}

func pick[T any](random *rand.Rand, list []T) T { return list[random.IntN(len(list))] }
