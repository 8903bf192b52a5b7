package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/oracle"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

const (
	namespace = "soak"
	workloads = 3
	// partition is how long something is away.
	partition = 20 * time.Second
	// patience is how long a fail-over may take, whatever happens besides: two changes of leaders, LINSTOR's return and
	// the longest grace.
	patience = 3 * time.Minute
	// healing is how long everything may take to be well again.
	healing = 3 * time.Minute
	// quiet is how long nothing must happen where nothing is lost, beside the disturbances.
	quiet = 10 * time.Second
	// excuse is how long after a disturbance a process of the controller may end of it: one that has lost the API ends
	// when it could not renew its Lease.
	excuse = time.Minute
)

// Options say how long and what.
type Options struct {
	// Duration is how long new rounds begin.
	Duration time.Duration
	// Seed chooses what happens; the same seed chooses the same, if not at the same moments.
	Seed uint64
	// Out takes a line for each round.
	Out io.Writer
}

// runner is one soak.
type runner struct {
	bed    *bed.Bed
	random *rand.Rand
	out    io.Writer
	judge  *oracle.Oracle
	// workloads are all; the first of them may be moved, and the last is not selected.
	workloads []bed.Workload
	later     sync.WaitGroup

	mu      sync.Mutex
	report  Report
	excused time.Time // until when a process may end
}

// Run brings up a bed and breaks it until the time is over. In the second half of it nothing happens that could end a
// process of the controller, so that they live long enough to see a trend. An error means that it could not go on.
func Run(ctx context.Context, o Options) (Report, error) {
	b, err := bed.Start(ctx, bed.Options{
		NodeStatusUpdateFrequency: time.Second, DRBDDetection: time.Second, LINSTOR: linstorsim.Options{ReconnectInterval: 2 * time.Second},
		// The address is of this machine only, and what is read there is no secret.
		ControllerArgs: []string{"--confirmed-loss-grace-period=2s", "--metrics-secure=false"},
		// Processes are killed more often than in any cluster.
		RestartBackoff: time.Second,
	})
	if err != nil {
		return Report{}, err
	}
	defer b.Stop()
	if err := b.DeployController(ctx); err != nil {
		return Report{}, err
	}
	r := &runner{
		bed: b, random: rand.New(rand.NewPCG(o.Seed, 0)), out: o.Out,
		report: Report{Moved: map[string]int{}, Disturbed: map[string]int{}},
	}
	_, _ = fmt.Fprintf(o.Out, "logs in %s\n", b.LogDir)
	if err := r.deploy(ctx); err != nil {
		return r.report, err
	}
	r.judge = oracle.Watch(b)
	defer r.judge.Stop()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var watch sync.WaitGroup
	watch.Go(func() { r.watchProcesses(watching) })
	began := time.Now()
	for err == nil && time.Since(began) < o.Duration && ctx.Err() == nil {
		err = r.round(ctx, time.Since(began) > o.Duration/2)
	}
	stop()
	watch.Wait()
	return r.report, errors.Join(err, ctx.Err())
}

// deploy creates the workloads, each with three nodes of its own, and one that is not selected on the first three.
func (r *runner) deploy(ctx context.Context) error {
	for i := range workloads {
		nodes, err := r.bed.AddNodes(ctx, fmt.Sprintf("soak-db%d", i), 3)
		if err != nil {
			return err
		}
		r.workloads = append(r.workloads, workload(fmt.Sprintf("db%d", i), nodes))
	}
	bystander := workload("bystander", r.workloads[0].Nodes)
	bystander.Unselected = true
	r.workloads = append(r.workloads, bystander)
	for _, w := range r.workloads {
		if err := r.bed.Deploy(ctx, w); err != nil {
			return err
		}
	}
	for _, w := range r.workloads {
		if _, err := r.bed.WaitRunning(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

func workload(name string, nodes []string) bed.Workload {
	return bed.Workload{
		Namespace: namespace, Name: name, Nodes: nodes,
		Volumes: []bed.Volume{{
			Name: namespace + "-" + name, Nodes: nodes, Diskful: true,
			Options: map[string]string{drbd.OptionOnNoQuorum: drbd.OnNoQuorumIOError},
		}},
	}
}

// round is one fail-over, or none, with something else that happens at the same time.
func (r *runner) round(ctx context.Context, spared bool) error {
	w, loss, plans := r.workloads[r.random.IntN(workloads)], pick(r.random, losses), plans(r.random, spared)
	// A workload for which there was no cure in the round before may have none in this one.
	waiting, cancel := context.WithTimeout(ctx, healing)
	defer cancel()
	var before *corev1.Pod
	if err := r.bed.WaitFor(waiting, "the pod of "+w.Name, func() (done bool, err error) {
		before, err = r.onlyPod(waiting, w)
		return before != nil, err
	}); err != nil {
		return err
	}
	lost := before.Spec.NodeName
	r.report.Rounds++
	what := fmt.Sprintf("%3d  %s, %s of the node of %s", r.report.Rounds, time.Now().Format(time.TimeOnly), loss.name, w.Name)
	what += fmt.Sprint(", ", plans)
	began := time.Now()
	loss.begin(r, lost)
	for _, p := range plans {
		if err := sleep(ctx, time.Until(began.Add(p.after))); err != nil {
			return err
		}
		r.report.Disturbed[p.name]++
		if p.ends {
			r.excuse(time.Now().Add(excuse))
		}
		if err := r.disturb(ctx, p); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	outcome := r.outcome(ctx, loss, w, before, began)
	loss.heal(r, lost)
	r.later.Wait()
	err := r.settle(ctx, what)
	_, _ = fmt.Fprintf(r.out, "%s: %s, well after %.1f s\n", what, outcome, time.Since(began).Seconds())
	return errors.Join(err, r.judgeRound(what))
}

// disturb begins a disturbance, for which it may have to wait for a leader.
func (r *runner) disturb(ctx context.Context, p plan) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return p.do(ctx, r)
}

// outcome waits for what must come of a loss, and says what did.
func (r *runner) outcome(ctx context.Context, loss loss, w bed.Workload, before *corev1.Pod, began time.Time) string {
	if loss.name == nothingLost {
		r.report.Quiet++
		_ = sleep(ctx, quiet)
		return "nothing lost"
	}
	others := slices.DeleteFunc(slices.Clone(w.Nodes), func(node string) bool { return node == before.Spec.NodeName })
	moving, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := r.bed.WaitRunning(moving, w, others...)
	took := time.Since(began).Round(100 * time.Millisecond)
	if err != nil {
		if ctx.Err() == nil {
			r.report.Missed = append(r.report.Missed, fmt.Sprintf("round %d: %v", r.report.Rounds, err))
		}
		return "missed"
	}
	r.report.Moved[loss.name]++
	r.report.Times = append(r.report.Times, took)
	return fmt.Sprintf("moved after %.1f s", took.Seconds())
}

// judgeRound notes what was wrong in a round.
func (r *runner) judgeRound(what string) error {
	wrong, err := r.judge.Wrong()
	for _, w := range r.workloads {
		if volume := w.Volumes[0].Name; r.bed.DRBD.Diverged(volume) {
			wrong = append(wrong, "the data of "+volume+" diverged")
		}
	}
	for _, w := range wrong {
		r.report.Wrong = append(r.report.Wrong, strings.TrimSpace(what)+": "+w)
	}
	return err
}

// excuse lets processes of the controller end until a time.
func (r *runner) excuse(until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.excused = until
}

// endedAt notes that a process of the controller has ended.
func (r *runner) endedAt(p bed.ControllerProcess, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at.After(r.excused) {
		r.report.Ended = append(r.report.Ended, fmt.Sprintf("%s: %s (%d)", at.Format(time.TimeOnly), p.Pod, p.PID))
	}
}

func (r *runner) note(change func(*Report)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.report)
}

// after does something later; a round waits for it.
func (r *runner) after(d time.Duration, f func()) {
	r.later.Go(func() {
		<-time.After(d)
		f()
	})
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
