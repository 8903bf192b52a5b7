package bench

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
)

// crowdSize is what a node of Kubernetes takes by default.
const crowdSize = 110

// Targets of mass losses, as a multiple of what the same takes by hand.
const (
	massFactor     = 1.2
	stockFactor    = 1.05
	thousandFactor = 1.5
)

// oldest is how old a look may be in seconds when a write is sent that rests on it.
const oldest = 2

// raised is the rate limit that docs/benchmarks.md recommends for controller-manager and attacher.
const raised = 200

// groupMass and groupStock lose 110 pods of one node.
var (
	groupMass = Group{
		Name: "110 pods, raised rate limits", Rows: []string{rowMass.Key},
		run: func(ctx context.Context, s Settings) (Results, error) {
			losses, err := loseMass(ctx, s, "mass", bed.Options{KubeAPIQPS: raised, Profiling: s.ProfileDir != ""}, s.MassRuns)
			if err != nil {
				return nil, err
			}
			return Results{rowMass.Key: massMeasures(losses, massFactor)}, nil
		},
	}
	groupStock = Group{
		Name: "110 pods, stock rate limits", Rows: []string{rowStock.Key},
		run: func(ctx context.Context, s Settings) (Results, error) {
			losses, err := loseMass(ctx, s, "stock", bed.Options{}, s.MassStockRuns)
			if err != nil {
				return nil, err
			}
			return Results{rowStock.Key: massMeasures(losses, stockFactor)}, nil
		},
	}
)

// massBlock is how many losses of each way are played before new beds are brought up: the pods that were moved pile up in a bed, and one
// bed may be faster than the next.
const massBlock = 3

// loseMass crashes nodes with 110 pods, the given number with the controller and as many handled by hand, and returns the losses of
// both in that order. They are played in blocks, of which every other one begins by hand.
func loseMass(ctx context.Context, s Settings, slug string, options bed.Options, runs int) ([][]massLoss, error) {
	ways := []way{asShipped, byHandAlone}
	losses := make([][]massLoss, len(ways))
	for block := 0; block*massBlock < runs; block++ {
		order := slices.Clone(ways)
		if block%2 == 1 {
			slices.Reverse(order)
		}
		seen, err := loseBlock(ctx, s, fmt.Sprintf("%s-%d", slug, block+1), options, min(massBlock, runs-block*massBlock), order)
		if err != nil {
			return nil, err
		}
		if block%2 == 1 {
			slices.Reverse(seen)
		}
		for i := range losses {
			losses[i] = append(losses[i], seen[i]...)
		}
	}
	return losses, nil
}

// loseBlock is loseMass for one block. The ways take turns, each in a bed of its own: the machine may be faster at one time than at
// another.
func loseBlock(ctx context.Context, s Settings, slug string, options bed.Options, runs int, ways []way) ([][]massLoss, error) {
	crowds := make([][]*crowd, len(ways))
	losses := make([][]massLoss, len(ways))
	var withBeds func(ctx context.Context, next int) error
	withBeds = func(ctx context.Context, next int) error {
		if next == len(ways) {
			return loseInTurn(ctx, s, slug, crowds, ways, losses)
		}
		return withCluster(ctx, s, fmt.Sprintf("%s-%d", slug, next+1), options, func(ctx context.Context, c *cluster) (err error) {
			if crowds[next], err = massCrowds(ctx, c, runs); err != nil {
				return err
			}
			if prepare := ways[next].prepare; prepare != nil {
				if err := prepare(c, ctx); err != nil {
					return err
				}
			}
			return withBeds(ctx, next+1)
		})
	}
	return losses, withBeds(ctx, 0)
}

// massCrowds starts crowds of 110 pods, each on a node of its own.
func massCrowds(ctx context.Context, c *cluster, number int) ([]*crowd, error) {
	nodes, err := c.AddNodes(ctx, "crowded", number)
	if err != nil {
		return nil, err
	}
	spares, err := c.AddNodes(ctx, "spare", number+3)
	if err != nil {
		return nil, err
	}
	return newCrowds(ctx, c, nodes, spares, crowdSize)
}

// eventsLast is for how long the controller writes Events of a loss. Who acts by hand next does not begin before that is over.
const eventsLast = 45 * time.Second

// loseInTurn crashes the node of one crowd after the other, of each bed in turn.
func loseInTurn(ctx context.Context, s Settings, slug string, crowds [][]*crowd, ways []way, losses [][]massLoss) error {
	for run := range crowds[0] {
		for i, how := range ways {
			w, profile := crowds[i][run], ""
			if how.by == nil {
				var err error
				if profile, err = s.profilePath(fmt.Sprintf("%s-%d", slug, run+1)); err != nil {
					return err
				}
			}
			profiled := w.profileLeader(ctx, profile, profileLasts)
			m, err := loseCrowds(ctx, []*crowd{w}, how.by)
			if err != nil {
				return err
			}
			if err := profiled(); err != nil {
				return err
			}
			losses[i] = append(losses[i], m)
			if how.by == nil {
				if err := w.healNodes(ctx, w.node); err != nil {
					return err
				}
				if err := pause(ctx, time.Until(m.firstAction.Add(eventsLast-detection-unanimousGrace))); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// massMeasures compares losses with the controller with those by hand. The last pod must run within a multiple of the time by hand.
func massMeasures(losses [][]massLoss, factor float64) []Measure {
	ours, hand := losses[0], losses[1]
	running := seconds("crash → last Running, as shipped", betweenMass(ours, massBegan, lastRunning))
	handRunning := baseline(seconds("crash → last Running, by hand at once", betweenMass(hand, massBegan, lastRunning)))
	running.Limits = []Limit{{Median, factor * handRunning.Of(Median)}}
	running.Note, handRunning.Note = endedBySelf(ours), endedBySelf(hand)
	back := Measure{What: "placed back on a dead node, as shipped", Limits: []Limit{never}}
	typical := Measure{What: "look → write that rests on it, median of a loss", Unit: "s"}
	late := Measure{What: "look → write that rests on it, oldest of a loss", Unit: "s", Limits: []Limit{{Worst, oldest}}}
	for _, m := range ours {
		back.Values = append(back.Values, float64(m.back))
		typical.Values = append(typical.Values, m.age)
		late.Values = append(late.Values, m.oldest)
	}
	return []Measure{
		running, back, typical, late,
		seconds("our first action → our last, as shipped", betweenMass(ours, firstAction, lastAction)),
		seconds("our first action → last pod delete issued, as shipped", betweenMass(ours, firstAction, lastDelete)),
		seconds("our first action → last Running, as shipped", betweenMass(ours, firstAction, lastRunning)),
		handRunning,
		baseline(seconds("our first action → our last, by hand at once", betweenMass(hand, firstAction, lastAction))),
		baseline(seconds("our first action → last Running, by hand at once", betweenMass(hand, firstAction, lastRunning))),
	}
}

// betweenMass returns the durations between two moments of mass losses.
func betweenMass(losses []massLoss, from, to func(massLoss) time.Time) []time.Duration {
	var took []time.Duration
	for _, m := range losses {
		took = append(took, to(m).Sub(from(m)))
	}
	return took
}

func massBegan(m massLoss) time.Time   { return m.began }
func firstAction(m massLoss) time.Time { return m.firstAction }
func lastDelete(m massLoss) time.Time  { return m.lastDelete }
func lastAction(m massLoss) time.Time  { return m.lastAction }
func lastRunning(m massLoss) time.Time { return m.lastRunning }

// profileLasts is from the crash of the nodes until what follows is over.
const profileLasts = 40 * time.Second

// thousandNodes are lost at once, with thousandSize pods each.
const (
	thousandNodes = 10
	thousandSize  = 100
)

// groupThousand loses ten of forty nodes with a hundred pods each, once with the controller and once by hand.
var groupThousand = Group{
	Name: "1,000 pods on 10 of 40 nodes", Rows: []string{rowThousand.Key},
	run: func(ctx context.Context, s Settings) (Results, error) {
		ours, err := loseThousand(ctx, s, "thousand", asShipped)
		if err != nil {
			return nil, err
		}
		hand, err := loseThousand(ctx, s, "thousand-hand", byHandAlone)
		if err != nil {
			return nil, err
		}
		return Results{rowThousand.Key: massMeasures([][]massLoss{{ours}, {hand}}, thousandFactor)}, nil
	},
}

// loseThousand crashes ten of forty nodes at once.
func loseThousand(ctx context.Context, s Settings, slug string, how way) (m massLoss, err error) {
	profile := ""
	if how.by == nil {
		if profile, err = s.profilePath(slug); err != nil {
			return m, err
		}
	}
	options := bed.Options{KubeAPIQPS: raised, SchedulerQPS: raised, Profiling: profile != "", RestartComponents: true}
	err = withCluster(ctx, s, slug, options, func(ctx context.Context, c *cluster) error {
		nodes, err := c.AddNodes(ctx, "crowded", thousandNodes)
		if err != nil {
			return err
		}
		spares, err := c.AddNodes(ctx, "spare", 3*thousandNodes)
		if err != nil {
			return err
		}
		crowds, err := newCrowds(ctx, c, nodes, spares, thousandSize)
		if err != nil {
			return err
		}
		if how.prepare != nil {
			if err := how.prepare(c, ctx); err != nil {
				return err
			}
		}
		profiled := c.profileLeader(ctx, profile, profileLasts)
		if m, err = loseCrowds(ctx, crowds, how.by); err != nil {
			return err
		}
		m.restarts = restarted(c.Restarts())
		return profiled()
	})
	return m, err
}

// restarted says which components ended by themselves, and how often.
func restarted(times map[bed.Component]int) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(times)) {
		all = append(all, fmt.Sprintf("%s ended by itself: %d", name, times[name]))
	}
	return strings.Join(all, ", ")
}

// endedBySelf says that of several losses.
func endedBySelf(losses []massLoss) string {
	var all []string
	for _, m := range losses {
		if m.restarts != "" {
			all = append(all, m.restarts)
		}
	}
	return strings.Join(all, "; ")
}
