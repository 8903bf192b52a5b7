package bench

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
)

// Figures of the defaults that targets refer to.
const (
	detection      = 10 * time.Second // of the bed's DRBD
	confirmedGrace = 5 * time.Second  // --confirmed-loss-grace-period
	unanimousGrace = time.Second      // --unanimous-loss-grace-period
	deletionGrace  = 10 * time.Second // --grace-period-seconds
	verification   = time.Minute      // how often Kubernetes compares its attachments with the API by itself
	leaseSilence   = 12 * time.Second // a node may be alive until its Lease is silent for so long
)

// variant is a way to run the controller.
type variant struct {
	name string
	args []string
}

var (
	shipped       = variant{"as shipped", nil}
	withoutGrace  = variant{"confirmed grace 0s", []string{"--confirmed-loss-grace-period=0s"}}
	withoutFast   = variant{"fast detach off", []string{"--fast-detach=false"}}
	withoutTaints = variant{"keep-away off", []string{"--disable-node-taints"}}
	withoutEarly  = variant{"unanimous grace off, that is as long as the confirmed one", []string{"--unanimous-loss-grace-period=5s"}}
	withoutShort  = variant{"confirmed grace off, that is as long as the others", []string{"--confirmed-loss-grace-period=45s"}}
)

// play is what happens to trios under a variant.
type play struct {
	variant
	slug    string
	bed     bed.Options
	crashes int           // in all
	cuts    bool          // of DRBD's network, as many as there are trios
	spread  time.Duration // in which losses begin; that of a Lease's renewals if zero
}

// played is what was seen.
type played struct{ crashes, cuts []loss }

// run brings up as many trios as s has runs, and loses the node of each again and again.
func (p play) run(ctx context.Context, s Settings) (played, error) {
	var seen played
	trios := s.Runs
	p.bed.ControllerArgs = p.args
	err := withCluster(ctx, s, p.slug, p.bed, func(ctx context.Context, c *cluster) error {
		all, err := newTrios(ctx, c, trios)
		if err != nil {
			return err
		}
		c.say("%d pods run; the controller runs %s", trios, p.name)
		var mu sync.Mutex
		group, ctx := errgroup.WithContext(ctx)
		for i, t := range all {
			if p.spread > 0 {
				t.spread = p.spread
			}
			rounds := (p.crashes + trios - 1 - i) / trios
			group.Go(func() error {
				own, err := p.rounds(ctx, t, rounds)
				mu.Lock()
				defer mu.Unlock()
				seen.crashes = append(seen.crashes, own.crashes...)
				seen.cuts = append(seen.cuts, own.cuts...)
				return err
			})
		}
		return group.Wait()
	})
	return seen, err
}

// rounds plays the losses of one trio. What is lost is healed before the next.
func (p play) rounds(ctx context.Context, t *trio, crashes int) (played, error) {
	var seen played
	for range crashes {
		l, err := t.crash(ctx)
		if err != nil {
			return seen, err
		}
		seen.crashes = append(seen.crashes, l)
		if err := t.heal(ctx); err != nil {
			return seen, err
		}
	}
	if !p.cuts {
		return seen, nil
	}
	l, err := t.lose(ctx, "cut", func(node string) { t.IsolateDRBD(node) })
	seen.cuts = append(seen.cuts, l)
	return seen, err
}

// between returns the durations between two moments of losses.
func between(losses []loss, from, to func(loss) time.Time) []time.Duration {
	var took []time.Duration
	for _, l := range losses {
		took = append(took, to(l).Sub(from(l)))
	}
	return took
}

func began(l loss) time.Time      { return l.began }
func promotable(l loss) time.Time { return l.promotable }
func gone(l loss) time.Time       { return l.gone }
func marked(l loss) time.Time     { return l.marked }
func placed(l loss) time.Time     { return l.placed }
func attached(l loss) time.Time   { return l.attached }
func running(l loss) time.Time    { return l.running }

// placedBack counts the replacements that were placed on the lost node.
func placedBack(losses []loss) int {
	n := 0
	for _, l := range losses {
		n += l.back
	}
	return n
}

// toRunning is the measure of crash → Running under a variant.
func toRunning(v variant, losses []loss, limits ...Limit) Measure {
	m := seconds("crash → Running, "+v.name, between(losses, began, running), limits...)
	m.Note = unfinished(losses)
	return m
}

// unfinished says how many losses were not over in time, if any.
func unfinished(losses []loss) string {
	n := 0
	for _, l := range losses {
		if l.unfinished {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%s did not run after %s", share(n, len(losses)), lossTimeout)
}

// toAttached is the measure of pod gone → attached under a variant.
func toAttached(v variant, losses []loss, limits ...Limit) Measure {
	return seconds("pod gone → attached elsewhere, "+v.name, between(losses, gone, attached), limits...)
}

// stepMeasures say where the time of a loss goes.
func stepMeasures(losses []loss) []Measure {
	limit := Measure{What: "the physical limit: all of these but the grace and what the controller does", Unit: "s"}
	for _, l := range losses {
		limit.Values = append(limit.Values, round3((l.promotable.Sub(l.began) + l.running.Sub(l.gone)).Seconds()))
	}
	return []Measure{
		seconds("DRBD: crash → a survivor may be promoted", between(losses, began, promotable)),
		seconds("controller: grace, decision, taint → attachment marked", between(losses, promotable, marked)),
		seconds("controller: attachment marked → pod gone", between(losses, marked, gone)),
		seconds("Kubernetes: pod gone → replacement created and placed", between(losses, gone, placed)),
		seconds("controller, Kubernetes, attacher: placed → volume detached and attached here", between(losses, placed, attached)),
		seconds("kubelet: attached → Running", between(losses, attached, running)),
		limit,
	}
}

// cutMeasures are those of cuts under a variant.
func cutMeasures(v variant, cuts []loss, limits ...Limit) []Measure {
	back := count("placed back on the cut node, "+v.name, placedBack(cuts))
	if len(limits) > 0 {
		back.Limits = []Limit{never}
	}
	all := seconds("survivor promotable → Running, "+v.name, between(cuts, promotable, running), limits...)
	all.Note = unfinished(cuts)
	return []Measure{all, back}
}

// groupShipped plays single losses with the controller as shipped.
var groupShipped = Group{
	Name: "single losses, as shipped", Calm: true,
	Rows: []string{rowCrash.Key, rowAttach.Key, rowCut.Key, rowLeader.Key, rowSteps.Key, rowNotice.Key},
	run: func(ctx context.Context, s Settings) (Results, error) {
		seen, err := play{variant: shipped, slug: "shipped", crashes: max(s.Runs, s.Attachments), cuts: true}.run(ctx, s)
		if err != nil {
			return nil, err
		}
		limit := (confirmedGrace + deletionGrace + 2*time.Second).Seconds()
		return Results{
			rowCrash.Key:  {toRunning(shipped, seen.crashes, Limit{Median, 12.5}, Limit{Worst, 14.5})},
			rowSteps.Key:  stepMeasures(seen.crashes),
			rowAttach.Key: {toAttached(shipped, seen.crashes, Limit{P99, 1.5})},
			rowCut.Key:    cutMeasures(shipped, seen.cuts, Limit{Worst, limit}),
			// What the loss of the leader and a DRBD that notices sooner are compared with.
			rowNotice.Key: {baseline(toRunning(variant{name: fmt.Sprintf("DRBD notices after %s, as in the first row", detection)}, seen.crashes))},
			rowLeader.Key: {baseline(toRunning(variant{name: "the leader's node stays"}, seen.crashes))},
		}, nil
	},
}

// groupNoGrace plays single crashes without a grace for confirmed losses.
var groupNoGrace = Group{
	Name: "single losses, confirmed grace 0s", Rows: []string{rowNoGrace.Key, rowCrash.Key}, Calm: true,
	run: func(ctx context.Context, s Settings) (Results, error) {
		seen, err := play{variant: withoutGrace, slug: "nograce", crashes: s.Runs}.run(ctx, s)
		if err != nil {
			return nil, err
		}
		var silent, renewed []loss
		for _, l := range seen.crashes {
			if l.silent+detection >= leaseSilence {
				silent = append(silent, l)
			} else {
				renewed = append(renewed, l)
			}
		}
		all := len(seen.crashes)
		measures := []Measure{{
			What: fmt.Sprintf("crash → Running, Lease silent for %s when DRBD notices (%s)", leaseSilence, share(len(silent), all)), Unit: "s",
			Values: seconds("", between(silent, began, running)).Values, Limits: []Limit{{Worst, 12}},
		}}
		if len(renewed) > 0 {
			measures = append(measures, seconds(fmt.Sprintf("crash → Running, Lease renewed later (%s)", share(len(renewed), all)),
				between(renewed, began, running), Limit{Worst, 14.5}))
		}
		return Results{
			rowNoGrace.Key: measures,
			rowCrash.Key:   {baseline(toRunning(withoutGrace, seen.crashes))},
		}, nil
	},
}

// groupWithoutFast, groupWithoutTaints, groupWithoutEarly and groupWithoutShort are what single losses are compared with.
var (
	groupWithoutFast = Group{
		Name: "single losses, fast detach off", Rows: []string{rowCrash.Key, rowAttach.Key}, Calm: true,
		run: func(ctx context.Context, s Settings) (Results, error) {
			seen, err := play{variant: withoutFast, slug: "without-fast-detach", crashes: s.Runs, spread: verification}.run(ctx, s)
			return Results{
				rowCrash.Key:  {baseline(toRunning(withoutFast, seen.crashes))},
				rowAttach.Key: {baseline(toAttached(withoutFast, seen.crashes))},
			}, err
		},
	}
	groupWithoutTaints = Group{
		Name: "single losses, keep-away off", Rows: []string{rowCrash.Key, rowCut.Key}, Calm: true,
		run: func(ctx context.Context, s Settings) (Results, error) {
			seen, err := play{variant: withoutTaints, slug: "without-keep-away", crashes: s.Runs, cuts: true}.run(ctx, s)
			crash := toRunning(withoutTaints, seen.crashes)
			crash.Note = strings.TrimPrefix(crash.Note+"; placed back on the dead node: "+strconv.Itoa(placedBack(seen.crashes)), "; ")
			cuts := cutMeasures(withoutTaints, seen.cuts)
			for i := range cuts {
				cuts[i].Baseline = true
			}
			return Results{rowCrash.Key: {baseline(crash)}, rowCut.Key: cuts}, err
		},
	}
	groupWithoutEarly = Group{
		Name: "single losses, unanimous grace off", Rows: []string{rowCrash.Key}, Calm: true,
		run: func(ctx context.Context, s Settings) (Results, error) {
			seen, err := play{variant: withoutEarly, slug: "without-unanimous-grace", crashes: s.Runs}.run(ctx, s)
			return Results{rowCrash.Key: {baseline(toRunning(withoutEarly, seen.crashes))}}, err
		},
	}
	groupWithoutShort = Group{
		Name: "single losses, confirmed grace off", Rows: []string{rowCrash.Key}, Calm: true,
		run: func(ctx context.Context, s Settings) (Results, error) {
			seen, err := play{variant: withoutShort, slug: "without-confirmed-grace", crashes: s.Runs}.run(ctx, s)
			return Results{rowCrash.Key: {baseline(toRunning(withoutShort, seen.crashes))}}, err
		},
	}
)

// groupLeader crashes the node of the leader together with that of the pod.
var groupLeader = Group{
	Name: "loss of the leader", Rows: []string{rowLeader.Key}, Calm: true,
	run: func(ctx context.Context, s Settings) (Results, error) {
		var losses, afterRollouts []loss
		err := withCluster(ctx, s, "leader", bed.Options{}, func(ctx context.Context, c *cluster) error {
			trios, err := newTrios(ctx, c, 1)
			if err != nil {
				return err
			}
			for i := range s.Runs + min(s.Runs, rollouts) {
				prepare, to := c.waitGrownUp, &losses
				if i >= s.Runs {
					prepare, to = c.rollOut, &afterRollouts
				}
				l, err := loseLeaderToo(ctx, trios[0], prepare)
				if err != nil {
					return err
				}
				*to = append(*to, l)
			}
			return nil
		})
		limits := []Limit{{Median, 14}, {Worst, 17}}
		return Results{rowLeader.Key: {
			toRunning(variant{name: "the leader's node crashes as well"}, losses, limits...),
			toRunning(variant{name: "the same, 35 s after the last replica of a rollout became ready"}, afterRollouts, limits...),
		}}, err
	},
}

// rollouts is how many losses follow a rollout of the controller, which takes two minutes.
const rollouts = 5

// loseLeaderToo crashes the pod's node and the leader's at once, and heals both. Before that, it prepares the replicas of the controller: those of the
// last loss came back only a moment ago, which is not what a cluster loses its leader with.
func loseLeaderToo(ctx context.Context, t *trio, prepare func(context.Context) error) (loss, error) {
	if err := prepare(ctx); err != nil {
		return loss{}, err
	}
	node, err := t.LeaderNode(ctx)
	if err != nil {
		return loss{}, err
	}
	l, err := t.lose(ctx, "crash with the leader on "+node, func(own string) { t.Crash(own, node) })
	if err != nil {
		return l, err
	}
	t.Return(node)
	if err := t.heal(ctx); err != nil {
		return l, err
	}
	ctx, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	return l, t.WaitController(ctx)
}

// waitGrownUp waits until each replica of the controller has run for longer than any grace that began before it did.
func (c *cluster) waitGrownUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	return c.WaitFor(ctx, "the replicas of the controller to be no newcomers", func() (bool, error) {
		var pods corev1.PodList
		if err := c.Client.List(ctx, &pods, client.InNamespace(bed.ControllerNamespace)); err != nil {
			return false, err
		}
		for _, pod := range pods.Items {
			for _, s := range pod.Status.ContainerStatuses {
				if s.State.Running == nil || time.Since(s.State.Running.StartedAt.Time) <= time.Minute {
					return false, fmt.Errorf("%s is one", pod.Name)
				}
			}
		}
		return len(pods.Items) > 0, nil
	})
}

// rollOut replaces all replicas of the controller, and returns 35 s after the last one has become ready.
func (c *cluster) rollOut(ctx context.Context) error {
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"restarted":%q}}}}}`, time.Now())
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: bed.ControllerNamespace, Name: bed.ControllerName}}
	if err := c.Client.Patch(ctx, d, client.RawPatch(types.StrategicMergePatchType, []byte(patch))); err != nil {
		return fmt.Errorf("restart the controller: %w", err)
	}
	waiting, cancel := context.WithTimeout(ctx, lossTimeout)
	defer cancel()
	if err := c.WaitFor(waiting, "the rollout of the controller to end", func() (bool, error) {
		if err := c.Client.Get(waiting, client.ObjectKeyFromObject(d), d); err != nil {
			return false, err
		}
		s := d.Status
		return s.ObservedGeneration >= d.Generation && s.Replicas == *d.Spec.Replicas && s.UpdatedReplicas == s.Replicas && s.AvailableReplicas == s.Replicas, nil
	}); err != nil {
		return err
	}
	return pause(ctx, 35*time.Second-time.Duration(d.Spec.MinReadySeconds)*time.Second)
}
