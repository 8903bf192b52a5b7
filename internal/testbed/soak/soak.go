package soak

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/linstorsim"
)

const (
	namespace = "soak"
	workloads = 3
	// partition is how long the leader is cut off.
	partition = 20 * time.Second
	// patience is how long a fail-over may take, whatever happens besides: two changes of leaders, LINSTOR's return and
	// the longest grace.
	patience = 3 * time.Minute
	// healing is how long everything may take to be well again.
	healing = 3 * time.Minute
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

// Report is what came of it.
type Report struct {
	// Moved is how many fail-overs there were, by what caused them.
	Moved map[string]int
	// Wrong, Missed and Leftover describe what must not happen.
	Wrong, Missed, Leftover []string
	// Slowest is the longest fail-over.
	Slowest time.Duration
	// Restarts is how often a process of the controller was started although nobody had ended the one before.
	Restarts int
	// First and Last are what the controller's processes took, after the first round and at the end.
	First, Last []Footprint
}

// runner is one soak.
type runner struct {
	bed    *testbed.Bed
	random *rand.Rand
	out    io.Writer
	nodes  map[string][]string // of each workload
	kills  int
	report Report

	mu    sync.Mutex
	later sync.WaitGroup
}

// Run brings up a bed and breaks it until the time is over. An error means that it could not go on.
func Run(ctx context.Context, o Options) (Report, error) {
	bed, err := testbed.Start(ctx, testbed.Options{
		DRBDDetection: time.Second, LINSTOR: linstorsim.Options{ReconnectInterval: 2 * time.Second},
		// The address is of this machine only, and what is read there is no secret.
		ControllerArgs: []string{"--confirmed-loss-grace-period=2s", "--metrics-secure=false"},
	})
	if err != nil {
		return Report{}, err
	}
	defer bed.Stop()
	if err := bed.DeployController(ctx); err != nil {
		return Report{}, err
	}
	r := &runner{
		bed: bed, random: rand.New(rand.NewPCG(o.Seed, 0)), out: o.Out, nodes: make(map[string][]string),
		report: Report{Moved: make(map[string]int)},
	}
	guardCtx, stop := context.WithCancel(ctx)
	defer stop()
	if err := r.deploy(ctx); err != nil {
		return r.report, err
	}
	if err := r.guard(guardCtx); err != nil {
		return r.report, err
	}
	end := time.Now().Add(o.Duration)
	for round := 1; time.Now().Before(end) && ctx.Err() == nil; round++ {
		if err := r.round(ctx, round); err != nil {
			return r.report, err
		}
		if round == 1 {
			r.report.First = r.footprints(ctx)
		}
	}
	r.report.Last = r.footprints(ctx)
	for _, p := range bed.ControllerProcesses() {
		r.report.Restarts += p.Starts - 1
	}
	r.report.Restarts = max(0, r.report.Restarts-r.kills)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.report, ctx.Err()
}

// deploy creates the workloads, each with three nodes of its own.
func (r *runner) deploy(ctx context.Context) error {
	for i := range workloads {
		name := fmt.Sprintf("db%d", i)
		nodes, err := r.bed.AddNodes(ctx, "soak-"+name, 3)
		if err != nil {
			return err
		}
		r.nodes[name] = nodes
		if err := r.bed.Deploy(ctx, r.workload(name)); err != nil {
			return err
		}
	}
	for name := range r.nodes {
		if _, err := r.bed.WaitRunning(ctx, r.workload(name)); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) workload(name string) testbed.Workload {
	return testbed.Workload{
		Namespace: namespace, Name: name, Nodes: r.nodes[name],
		Volumes: []testbed.Volume{{
			Name: namespace + "-" + name, Nodes: r.nodes[name], Diskful: true,
			Options: map[string]string{drbd.OptionOnNoQuorum: drbd.OnNoQuorumIOError},
		}},
	}
}

// round is one fail-over, with something else that happens at the same time.
func (r *runner) round(ctx context.Context, number int) error {
	name := fmt.Sprintf("db%d", r.random.IntN(workloads))
	loss, disturbance := pick(r.random, losses), pick(r.random, disturbances)
	lead := time.Duration(r.random.IntN(5)) * time.Second
	w := r.workload(name)
	pod, err := r.bed.WaitRunning(ctx, w)
	if err != nil {
		return fmt.Errorf("round %d: %w", number, err)
	}
	lost := pod.Spec.NodeName
	what := fmt.Sprintf("%s of the node of %s, %s %s later", loss.name, name, disturbance.name, lead)
	began := time.Now()
	loss.begin(r, lost)
	if err := sleep(ctx, lead); err != nil {
		return err
	}
	// Without the API, the leader gives up its leadership, and ends.
	if strings.HasPrefix(disturbance.name, "the leader is") || strings.Contains(disturbance.name, "loses the API") {
		r.kills++
	}
	if err := disturbance.do(ctx, r); err != nil {
		return fmt.Errorf("round %d: %s: %w", number, what, err)
	}
	others := slices.DeleteFunc(slices.Clone(w.Nodes), func(node string) bool { return node == lost })
	moving, cancel := context.WithTimeout(ctx, patience)
	_, err = r.bed.WaitRunning(moving, w, others...)
	cancel()
	took := time.Since(began).Round(100 * time.Millisecond)
	r.note(func(report *Report) {
		if err != nil {
			report.Missed = append(report.Missed, what+": "+err.Error())
			return
		}
		report.Moved[loss.name]++
		report.Slowest = max(report.Slowest, took)
	})
	_, _ = fmt.Fprintf(r.out, "%4d  %6.1f s  %s\n", number, took.Seconds(), what)
	loss.heal(r, lost)
	r.later.Wait()
	return r.settle(ctx, w, what)
}

// settle waits until everything is well again, and notes what is not.
func (r *runner) settle(ctx context.Context, w testbed.Workload, what string) error {
	settling, cancel := context.WithTimeout(ctx, healing)
	defer cancel()
	last := ""
	err := r.bed.WaitFor(settling, "everything to be well again", func() (bool, error) {
		left, err := r.left(settling, w)
		if left != "" && err == nil {
			last, err = left, fmt.Errorf("left: %s", left)
		}
		return left == "" && err == nil, err
	})
	if err != nil && ctx.Err() == nil {
		r.note(func(report *Report) { report.Leftover = append(report.Leftover, what+": "+last+": "+err.Error()) })
	}
	if err := r.bed.Err(); err != nil {
		return err
	}
	return ctx.Err()
}

// left says what is not well, empty if everything is.
func (r *runner) left(ctx context.Context, w testbed.Workload) (string, error) {
	var nodes corev1.NodeList
	if err := r.bed.Client.List(ctx, &nodes); err != nil {
		return "", err
	}
	for _, node := range nodes.Items {
		for _, taint := range node.Spec.Taints {
			if taint.Key != "node-role.kubernetes.io/control-plane" {
				return "taint " + taint.Key + " on " + node.Name, nil
			}
		}
		if node.Annotations["drbd.linbit.com/keep-away"] != "" {
			return "a mark on " + node.Name, nil
		}
	}
	for _, node := range w.Nodes {
		state, _ := r.bed.DRBD.Replica(w.Volumes[0].Name, node)
		if state.DiskState != drbd.UpToDate || r.bed.LINSTOR.ConnectionStatus(node) != "ONLINE" {
			return "the replica on " + node, nil
		}
	}
	leader, err := r.bed.Leader(ctx)
	if leader == "" {
		return "no leader", err
	}
	return "", err
}

// guard watches for pods that the controller removes and should not.
func (r *runner) guard(ctx context.Context) error {
	c, err := client.NewWithWatch(r.bed.Config, client.Options{})
	if err != nil {
		return fmt.Errorf("guard: %w", err)
	}
	w, err := c.Watch(ctx, &corev1.PodList{}, client.InNamespace(namespace))
	if err != nil {
		return fmt.Errorf("guard: %w", err)
	}
	go func() {
		seen := map[types.UID]bool{}
		for event := range w.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok || event.Type == watch.Deleted || seen[pod.UID] || !disrupted(pod) {
				continue
			}
			seen[pod.UID] = true
			volume := pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName
			if r.bed.DRBD.CanWrite(volume, pod.Spec.NodeName) {
				r.note(func(report *Report) {
					report.Wrong = append(report.Wrong, fmt.Sprintf("pod %s on %s, which could write", pod.Name, pod.Spec.NodeName))
				})
			}
		}
	}()
	return nil
}

func disrupted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
	})
}

func (r *runner) note(change func(*Report)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.report)
}

// after does something later; settle waits for it.
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
