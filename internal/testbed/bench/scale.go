package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/forecast"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

// Targets on the large state.
const (
	maxRSS      = 200 // MiB
	maxCPU      = 1.5 // % of a core
	maxRequests = 60  // of the Deployment to LINSTOR in a minute
	maxAnswers  = 20  // MB of LINSTOR's answers to the Deployment in a minute
	maxReady    = 10  // s
	maxReads    = 100 // of single resources after a start, of 10,000
	maxDecision = 100 // ms

	maxForecast    = 2  // s
	maxForecastRSS = 20 // MiB
)

const (
	scaleTimeout = 20 * time.Minute
	restarts     = 3
	afterStart   = 20 * time.Second
	idleMinutes  = 2
	// settle is how long the processes are left alone before they are watched: what follows a start is over then. For a minute evidence is
	// awaited of what nodes run, and nodes are read more often.
	settle = 90 * time.Second
)

// groupScale fills a large state and measures the controller on it.
var groupScale = Group{
	Name: "10,000 volumes", Rows: []string{rowIdle.Key, rowManaged.Key, rowStorm.Key, rowRestart.Key},
	run: func(ctx context.Context, s Settings) (Results, error) {
		results := Results{}
		options := bed.Options{Bare: true, Profiling: s.ProfileDir != "", ControllerArgs: []string{"--metrics-secure=false"}}
		return results, withCluster(ctx, s, "scale", options, func(ctx context.Context, c *cluster) error {
			ctx, cancel := context.WithTimeout(ctx, scaleTimeout)
			defer cancel()
			if err := c.ApplyManifest(ctx); err != nil {
				return err
			}
			state, err := newState(ctx, c)
			if err != nil {
				return err
			}
			leasesCtx, stopLeases := context.WithCancel(ctx)
			leases := make(chan struct{})
			go func() { defer close(leases); state.keepLeases(leasesCtx) }()
			defer func() { stopLeases(); <-leases }()
			return state.measure(ctx, s, results)
		})
	},
}

// measure measures all rows of the large state.
func (s *state) measure(ctx context.Context, settings Settings, results Results) error {
	var err error
	if results[rowRestart.Key], err = s.restarts(ctx); err != nil {
		return err
	}
	replicas, err := s.startReplicas(ctx)
	if err != nil {
		return err
	}
	if results[rowIdle.Key], err = s.idle(ctx, replicas); err != nil {
		return err
	}
	if err := s.profileIdle(ctx, settings, replicas); err != nil {
		return err
	}
	profile, err := settings.profilePath("storm")
	if err != nil {
		return err
	}
	if results[rowStorm.Key], err = s.storms(ctx, replicas, profile); err != nil {
		return err
	}
	for _, r := range replicas {
		r.Stop()
	}
	results[rowManaged.Key], err = s.managed(ctx)
	return err
}

// profileIdle writes, once all has been measured that they would spoil, profiles of processes that have nothing to do, if
// there is a folder for them: of the leader's processor time, and of the memory of each.
func (s *state) profileIdle(ctx context.Context, settings Settings, replicas []*bed.Replica) error {
	path, err := settings.profilePath("idle")
	if err != nil || path == "" {
		return err
	}
	if err := s.profileLeader(ctx, path, time.Minute)(); err != nil {
		return err
	}
	for _, r := range replicas {
		if path, err = settings.profilePath("heap-" + r.Name); err != nil {
			return err
		}
		if err := s.HeapProfile(ctx, r.Name, path); err != nil {
			return err
		}
	}
	return nil
}

// synced waits until a process follows LINSTOR and has read everything, and returns how long after its
// start that was.
func (s *state) synced(ctx context.Context, r *bed.Replica) (time.Duration, error) {
	err := s.WaitFor(ctx, r.Name+" to have read LINSTOR", func() (bool, error) {
		m, err := scrape(ctx, r.MetricsURL)
		return err == nil && m.value("piraeus_ha_controller_linstor_resync_duration_seconds", "") > 0, err
	})
	return time.Since(r.Started), err
}

// restarts starts a single process again and again.
func (s *state) restarts(ctx context.Context) ([]Measure, error) {
	var ready, synced []time.Duration
	size, own, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	views := Measure{What: "views of everything that LINSTOR was asked for", Limits: []Limit{{Worst, 1}}}
	reads := Measure{
		What:   fmt.Sprintf("reads of single resources within %s of being ready", afterStart),
		Limits: []Limit{{Worst, maxReads}},
	}
	others := Measure{What: "all requests to LINSTOR by then"}
	for i := range restarts {
		s.LINSTOR.ResetRequests()
		r, err := s.StartReplica(ctx, fmt.Sprintf("restart-%d", i))
		if err != nil {
			return nil, err
		}
		readyAfter, err := r.WaitReady(ctx)
		if err != nil {
			return nil, err
		}
		syncedAfter, err := s.synced(ctx, r)
		if err != nil {
			return nil, err
		}
		if err := pause(ctx, time.Until(r.Started.Add(readyAfter+afterStart))); err != nil {
			return nil, err
		}
		requests := s.LINSTOR.Requests()
		r.Stop()
		all := 0
		for _, n := range requests {
			all += n
		}
		s.say("restart: ready after %.1f s, LINSTOR read after %.1f s, requests %v", readyAfter.Seconds(), syncedAfter.Seconds(), requests)
		ready, synced = append(ready, readyAfter), append(synced, syncedAfter)
		views.Values = append(views.Values, float64(requests[linstorsim.KindView]))
		reads.Values = append(reads.Values, float64(requests[linstorsim.KindResources]))
		others.Values = append(others.Values, float64(all))
	}
	return []Measure{
		seconds("start → ready", ready, Limit{Worst, maxReady}),
		seconds("start → everything of LINSTOR read", synced, Limit{Worst, maxReady}),
		views, reads, others,
		{What: "size of the view", Unit: "MiB", Values: []float64{size}},
		seconds("time that the simulated LINSTOR and the network take for the view alone", []time.Duration{own}),
	}, nil
}

// view reads LINSTOR's view of all resources once, for its size and for the time that is not the controller's.
func (s *state) view(ctx context.Context) (mib float64, took time.Duration, err error) {
	began := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.LINSTORURL()+"/v1/view/resources", nil)
	if err != nil {
		return 0, 0, fmt.Errorf("view: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, 0, fmt.Errorf("view: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	n, err := io.Copy(io.Discard, resp.Body)
	if err != nil {
		return 0, 0, fmt.Errorf("view: %w", err)
	}
	return round3(float64(n) / (1 << 20)), time.Since(began), nil
}

// startReplicas starts as many processes as the manifest does.
func (s *state) startReplicas(ctx context.Context) ([]*bed.Replica, error) {
	replicas := make([]*bed.Replica, 3)
	for i := range replicas {
		var err error
		if replicas[i], err = s.StartReplica(ctx, fmt.Sprintf("replica-%d", i)); err != nil {
			return nil, err
		}
	}
	for _, r := range replicas {
		if _, err := r.WaitReady(ctx); err != nil {
			return nil, err
		}
		if _, err := s.synced(ctx, r); err != nil {
			return nil, err
		}
	}
	return replicas, s.WaitFor(ctx, "a leader", func() (bool, error) {
		leader, err := s.Leader(ctx)
		return leader != "", err
	})
}

// allPods is the option that the component manage-all-pods adds.
const allPods = "--pod-label-selector=linstor.csi.linbit.com/on-storage-lost!=keep"

// managed measures a process to which every pod is selected.
func (s *state) managed(ctx context.Context) ([]Measure, error) {
	var d appsv1.Deployment
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: bed.ControllerNamespace, Name: bed.ControllerName}, &d); err != nil {
		return nil, fmt.Errorf("deployment of the high availability controller: %w", err)
	}
	container := &d.Spec.Template.Spec.Containers[0]
	container.Args = append(container.Args, allPods)
	if err := s.Client.Update(ctx, &d); err != nil {
		return nil, fmt.Errorf("select every pod: %w", err)
	}
	r, err := s.StartReplica(ctx, "managed")
	if err != nil {
		return nil, err
	}
	defer r.Stop()
	ready, err := r.WaitReady(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := s.synced(ctx, r); err != nil {
		return nil, err
	}
	if err := pause(ctx, settle); err != nil {
		return nil, err
	}
	rss := Measure{What: "RSS of a process that leads", Unit: "MiB"}
	load := Measure{What: "CPU of a process that leads, of one core", Unit: "%"}
	for range idleMinutes {
		if err := watchMinute(ctx, []*bed.Replica{r}, &rss, &load); err != nil {
			return nil, err
		}
	}
	m, err := scrape(ctx, r.MetricsURL)
	if err != nil {
		return nil, err
	}
	selected := Measure{What: "pods that are selected", Values: []float64{m.value("piraeus_ha_controller_pods", "")}}
	s.say("managed: %.0f pods, RSS %.0f MiB, CPU %.2f %%", selected.Values, rss.Values, load.Values)
	return []Measure{selected, rss, load, seconds("start → ready", []time.Duration{ready}, Limit{Worst, maxReady})}, nil
}

// watchMinute adds what each process has used in a minute of the processor, and of memory at its end.
func watchMinute(ctx context.Context, replicas []*bed.Replica, rss, load *Measure) error {
	before := make([]time.Duration, len(replicas))
	for i, r := range replicas {
		var err error
		if before[i], err = cpuTime(r.PID); err != nil {
			return err
		}
	}
	began := time.Now()
	if err := pause(ctx, time.Minute); err != nil {
		return err
	}
	for i, r := range replicas {
		used, err := cpuTime(r.PID)
		if err != nil {
			return err
		}
		now, err := memory(r.PID, "VmRSS")
		if err != nil {
			return err
		}
		load.Values = append(load.Values, round3(100*float64(used-before[i])/float64(time.Since(began))))
		rss.Values = append(rss.Values, round3(now))
	}
	return nil
}

// idle watches processes that have nothing to do.
func (s *state) idle(ctx context.Context, replicas []*bed.Replica) ([]Measure, error) {
	if err := pause(ctx, settle); err != nil {
		return nil, err
	}
	rss := Measure{What: "RSS of a process", Unit: "MiB", Limits: []Limit{{Worst, maxRSS}}}
	peak := Measure{What: "greatest RSS of a process since its start", Unit: "MiB"}
	load := Measure{What: "CPU of a process, of one core", Unit: "%", Limits: []Limit{{Worst, maxCPU}}}
	requests := Measure{What: "requests of all processes to LINSTOR in a minute", Limits: []Limit{{Worst, maxRequests}}}
	answers := Measure{What: "LINSTOR's answers to all processes in a minute", Unit: "MB", Limits: []Limit{{Worst, maxAnswers}}}
	for range idleMinutes {
		s.LINSTOR.ResetRequests()
		if err := watchMinute(ctx, replicas, &rss, &load); err != nil {
			return nil, err
		}
		n := 0
		for _, of := range s.LINSTOR.Requests() {
			n += of
		}
		requests.Values = append(requests.Values, float64(n))
		answers.Values = append(answers.Values, round3(float64(s.LINSTOR.Answered())/1e6))
		s.say("idle: RSS %.0f MiB, CPU %.2f %%, LINSTOR %v, %.1f MB", rss.Values, load.Values, s.LINSTOR.Requests(), answers.Values)
	}
	for _, r := range replicas {
		most, err := memory(r.PID, "VmHWM")
		if err != nil {
			return nil, err
		}
		peak.Values = append(peak.Values, round3(most))
	}
	took, grown, err := s.forecasts(ctx, replicas)
	return []Measure{rss, load, requests, answers, peak, took, grown}, err
}

// forecasts asks the processes for forecasts of all selected pods, as the command check does.
func (s *state) forecasts(ctx context.Context, replicas []*bed.Replica) (took, grown Measure, err error) {
	var times []time.Duration
	grown = Measure{What: "RSS that a forecast of all selected pods takes at most", Unit: "MiB", Limits: []Limit{{Worst, maxForecastRSS}}}
	for _, r := range replicas {
		before, err := memory(r.PID, "VmRSS")
		if err != nil {
			return took, grown, err
		}
		if err := resetPeak(r.PID); err != nil {
			return took, grown, err
		}
		asked := time.Now()
		report, err := forecast.Ask(ctx, r.ForecastPort, forecast.Question{})
		if err != nil {
			return took, grown, err
		}
		times = append(times, time.Since(asked))
		most, err := memory(r.PID, "VmHWM")
		if err != nil {
			return took, grown, err
		}
		grown.Values = append(grown.Values, round3(most-before))
		s.say("forecast: %d volumes, %s, %.0f MiB", len(report.Volumes), time.Since(asked).Round(time.Millisecond), most-before)
	}
	return seconds("forecast of all selected pods", times, Limit{Worst, maxForecast}), grown, nil
}
