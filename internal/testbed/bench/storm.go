package bench

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
)

// A storm is 2,000 promotion events in a second: resources of selected pods are closed, whereupon each of
// their three replicas may be promoted, and opened again in the next storm. The pods stay as they are, so
// that each event makes its volume suspicious, or ends the suspicion.
const (
	stormEvents  = 2000
	stormVolumes = (stormEvents + 2) / 3
	storms       = 10
	stormLasts   = time.Second
	// betweenStorms lets the reads that follow the events end; the grace is far from over.
	betweenStorms = 4 * time.Second
)

// The metrics that a storm is read from.
const (
	eventsTotal     = "piraeus_ha_controller_linstor_events_total"
	reconnectsTotal = "piraeus_ha_controller_linstor_stream_reconnects_total"
	eventToDecision = "piraeus_ha_controller_event_to_decision_seconds"
	queueSeconds    = "workqueue_queue_duration_seconds"
	decideSeconds   = "controller_runtime_reconcile_time_seconds"
	failoverQueue   = "name=failover"
	failoverLoop    = "controller=failover"
)

// storms lets storms loose and reads the leader's metrics.
func (s *state) storms(ctx context.Context, replicas []*bed.Replica, profile string) ([]Measure, error) {
	leader, err := s.leaderOf(ctx, replicas)
	if err != nil {
		return nil, err
	}
	resume, err := s.collectGarbage(ctx)
	if err != nil {
		return nil, err
	}
	defer resume()
	// Without a metric of its own the decision's time is bounded by that of its parts.
	direct := false
	decision := Measure{What: "event → decision, p99 of a storm, upper end of the histogram's bucket", Unit: "ms", Limits: []Limit{{Worst, maxDecision}}}
	wire := Measure{What: "last event sent → last event received", Unit: "ms"}
	profiled := s.profileLeader(ctx, profile, storms*(stormLasts+betweenStorms))
	gaps := Measure{What: "events missing or streams lost", Limits: []Limit{never}}
	for i := range storms {
		before, err := scrape(ctx, leader.MetricsURL)
		if err != nil {
			return nil, err
		}
		if err := s.storm(ctx, i%2 == 0); err != nil {
			return nil, err
		}
		sent := time.Now()
		lag, missing, err := s.received(ctx, leader, before, sent)
		if err != nil {
			return nil, err
		}
		if err := pause(ctx, betweenStorms); err != nil {
			return nil, err
		}
		after, err := scrape(ctx, leader.MetricsURL)
		if err != nil {
			return nil, err
		}
		direct = after.has(eventToDecision)
		p99 := after.quantile(0.99, before, queueSeconds, failoverQueue) + after.quantile(0.99, before, decideSeconds, failoverLoop)
		if direct {
			p99 = after.quantile(0.99, before, eventToDecision, "")
		}
		if math.IsNaN(p99) {
			return nil, fmt.Errorf("storm %d: the leader %s decided nothing", i+1, leader.Name)
		}
		lost := missing + after.value(reconnectsTotal, "") - before.value(reconnectsTotal, "")
		decision.Values = append(decision.Values, round3(1000*p99))
		wire.Values = append(wire.Values, round3(float64(lag)/float64(time.Millisecond)))
		gaps.Values = append(gaps.Values, lost)
		s.say("storm %d: p99 event → decision %.0f ms, last event received after %s, %.0f lost", i+1, 1000*p99, lag.Round(time.Millisecond), lost)
	}
	if !direct {
		decision.Note = "bounded by the p99 of the queue plus the p99 of a reconciliation"
	}
	return []Measure{decision, wire, gaps}, profiled()
}

// collectGarbage has the API server and this process, which is LINSTOR and the nodes, collect their garbage, so that neither does within the
// storms. Go collects two minutes after the last time at the latest, and with a state of this size that takes the API server more than a
// second of processor time, on the cores that the storm has here; in a cluster those are its own. resume lets this process collect as before.
func (s *state) collectGarbage(ctx context.Context) (resume func(), err error) {
	// The API server collects before it answers with a profile, which nobody wants.
	if _, err := s.client.RESTClient().Get().AbsPath("/debug/pprof/heap").Param("gc", "1").DoRaw(ctx); err != nil {
		return nil, fmt.Errorf("have the API server collect its garbage, for which its flag --profiling must be on: %w", err)
	}
	percent := debug.SetGCPercent(storms * 100) // there is room for what the storms leave here
	runtime.GC()
	return func() { debug.SetGCPercent(percent) }, nil
}

// leaderOf returns the process that leads.
func (s *state) leaderOf(ctx context.Context, replicas []*bed.Replica) (*bed.Replica, error) {
	name, err := s.Leader(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range replicas {
		if r.Name == name {
			return r, nil
		}
	}
	return nil, fmt.Errorf("the leader %q is none of the processes", name)
}

// storm closes or opens resources, evenly over its time.
func (s *state) storm(ctx context.Context, closing bool) error {
	const batch = 16
	ticker := time.NewTicker(stormLasts * batch / stormVolumes)
	defer ticker.Stop()
	for i := 0; i < stormVolumes; i += batch {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		var group errgroup.Group
		for v := i; v < min(i+batch, stormVolumes); v++ {
			group.Go(func() error {
				// Volumes of all nodes, and none twice.
				volume := v * (stateSelected / stormVolumes)
				if closing {
					s.DRBD.Close(stateVolume(volume), stateNode(volume))
					return nil
				}
				return s.DRBD.Open(stateVolume(volume), stateNode(volume), false)
			})
		}
		if err := group.Wait(); err != nil {
			return fmt.Errorf("open a resource again: %w", err)
		}
	}
	return nil
}

// received waits until a process has received the events of a storm, and returns how long after the last
// was sent that was, and how many never came.
func (s *state) received(ctx context.Context, r *bed.Replica, before metrics, sent time.Time) (time.Duration, float64, error) {
	const patience = 10 * time.Second
	missing := 0.0
	for time.Since(sent) < patience {
		now, err := scrape(ctx, r.MetricsURL)
		if err != nil {
			return 0, 0, err
		}
		missing = 3*stormVolumes - (now.value(eventsTotal, "") - before.value(eventsTotal, ""))
		if missing <= 0 {
			return time.Since(sent), 0, nil
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return 0, 0, err
		}
	}
	return time.Since(sent), missing, nil
}
