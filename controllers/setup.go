package controllers

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/servertime"
)

// Config is what the controllers are made of. Every field is required unless it says otherwise.
type Config struct {
	// Driver is the CSI driver's name, which is also the attacher's.
	Driver string
	// Selector selects the pods that may be removed.
	Selector labels.Selector
	// RecoverSelector selects the pods of LINSTOR itself that may be replaced when their node is lost; nil selects none.
	RecoverSelector labels.Selector
	// Settings are the policy's settings.
	Settings failover.Settings
	// Linstor is LINSTOR's word.
	Linstor Linstor
	// Metrics are counted in.
	Metrics *metrics.Metrics
	// Recorder writes the Events; it defaults to one with limits of its own.
	Recorder events.EventRecorder
	// Clock defaults to the real one.
	Clock clock.PassiveClock
	// ServerTime is the API server's clock; nil where it is the same as ours.
	ServerTime *servertime.Clock
	// Renewed tells when this process began the newest renewal of its Lease of the leader election, by the same clock; it is zero
	// while the process does not lead. nil where it stands for no election: then the unanimous grace never applies.
	Renewed func() time.Time
	// Owner is this process's name in the mark of a taint.
	Owner string
	// ShutdownTaints are keys of taints that say that a node was switched off.
	ShutdownTaints []string
	// FastDetach releases volumes from their lost node, so that Kubernetes need not wait for its kubelet.
	FastDetach bool
	// MaxLostNodes is how much of the cluster may seem lost at once before nothing is removed any more.
	MaxLostNodes failover.Limit
	// Evacuation are the settings of evacuations; nil where nodes with the taint are left alone.
	Evacuation *evacuation.Settings
	// PauseDeployment is the Deployment whose annotation pauses fail-over for all; where its name is empty, it is the one that runs Pod.
	PauseDeployment types.NamespacedName
	// Pod is the pod that this process runs in; its name is empty where it runs in none.
	Pod types.NamespacedName
	// DryRun makes the controllers only say what they would do.
	DryRun bool
	// DisableNodeTaints leaves nodes that lost their storage untainted.
	DisableNodeTaints bool
	// ReconcileInterval is how often a volume that is not in its normal state is looked at again.
	ReconcileInterval time.Duration
	// OperationsTimeout bounds one reconciliation.
	OperationsTimeout time.Duration
	// Concurrency is how many nodes are worked on at a time.
	Concurrency int
}

// retryLimit is the longest time until something that failed is tried again.
const retryLimit = 5 * time.Second

// firstRetry is how soon it is tried again for the first time.
const firstRetry = 50 * time.Millisecond

// lightConcurrency is how many keys of a kind are worked on at a time at most where none of them takes long.
const lightConcurrency = 10

// SetUp adds the controllers and what they remember to the manager, and returns the latter. Those that act, or speak, wait
// for leadership.
func SetUp(ctx context.Context, mgr ctrl.Manager, cfg Config) (*Memory, error) {
	parts, err := setUp(ctx, mgr, cfg)
	return &Memory{parts}, err
}

func setUp(ctx context.Context, mgr ctrl.Manager, cfg Config) (parts, error) {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.Recorder == nil {
		var err error
		if cfg.Recorder, err = newRecorder(mgr, newPatient()); err != nil {
			return parts{}, err
		}
	}
	indexed, err := cluster.NewIndexReader(ctx, mgr.GetCache(), cfg.Driver)
	if err != nil {
		return parts{}, err
	}
	kubelets := cluster.NewKubelets(cfg.Clock, cfg.Driver, cfg.ShutdownTaints)
	if err := kubelets.Follow(ctx, mgr.GetCache()); err != nil {
		return parts{}, err
	}
	parts := assemble(cfg, kubelets, mgr.GetClient(), indexed, mgr.GetAPIReader())
	return parts, parts.addTo(mgr, cfg)
}

// addTo adds them to the manager.
func (p parts) addTo(mgr ctrl.Manager, cfg Config) error {
	for _, part := range []interface {
		setup(ctrl.Manager, controller.Options) error
	}{p.clock, p.volume, p.failover, p.keepAway, p.evacuation} {
		if part == p.keepAway && cfg.DryRun {
			continue // a dry run writes nothing, so it leaves the taints of others alone
		}
		if part == p.evacuation && cfg.Evacuation == nil {
			continue
		}
		options := controllerOptions(cfg)
		if part == p.clock || part == p.keepAway {
			options.MaxConcurrentReconciles = min(options.MaxConcurrentReconciles, lightConcurrency) // they write little, and wait for nobody
		}
		if err := part.setup(mgr, options); err != nil {
			return fmt.Errorf("adding %T: %w", part, err)
		}
	}
	runnables := append(p.periodics(), p.protection, p.gauges)
	if cfg.Evacuation != nil && !cfg.DryRun {
		runnables = append(runnables, periodic{
			name: "left-marks", every: evacuation.Interval, onLeader: true, do: p.leftMarks.takeOff,
			failure: "Cannot take off the marks on resource definitions of nodes that are not evacuated any more",
		})
	}
	for _, runnable := range runnables {
		if err := mgr.Add(runnable); err != nil {
			return fmt.Errorf("adding %T: %w", runnable, err)
		}
	}
	return nil
}

// periodics are what is done regularly.
func (p parts) periodics() []manager.Runnable {
	return []manager.Runnable{
		periodic{
			name: "silent-nodes", every: silentInterval, do: p.silent.look,
			failure: "Cannot ask LINSTOR about nodes whose kubelets are silent",
		},
		periodic{
			name: "gone-replicas", every: goneInterval, do: p.gone.forget,
			failure: "Cannot look up who uses replicas that LINSTOR no longer lists",
		},
		periodic{name: "node-agents", every: agentsRetry, do: p.agents.keep, failure: failureOfAgents},
		periodic{name: "linstor-sight", every: sightInterval, do: p.sight.check},
		periodic{
			name: "recovery", every: recoveryInterval, onLeader: true, do: p.recovery.look,
			failure: "Cannot look after the pods of LINSTOR itself",
		},
		periodic{
			name: "attaching", every: attachingInterval, onLeader: true, do: p.attaching.look,
			failure: "Cannot tell what attachments wait for",
		},
	}
}

func controllerOptions(cfg Config) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: cfg.Concurrency,
		ReconciliationTimeout:   cfg.OperationsTimeout,
		EnableWarmup:            new(true),
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
			firstRetry, retryLimit),
	}
}

// Memory is what the controllers remember of fail-overs.
type Memory struct{ parts parts }

// Lines lists it: one line for each volume that something was said of, for each node with a round that another one follows or whose look
// LINSTOR was too slow for, and how many requests are under way. Nothing is left of it when all is well.
func (m *Memory) Lines() []string {
	failover := m.parts.failover
	lines := failover.reporter.reports.remembered()
	for _, wait := range failover.reporter.waits.remembered() {
		lines = append(lines, "a wait of "+wait)
	}
	for _, node := range failover.bell.remembered() {
		lines = append(lines, "a round on node "+node)
	}
	failover.late.Range(func(node, _ any) bool {
		lines = append(lines, fmt.Sprintf("a late word of LINSTOR's on node %s", node))
		return true
	})
	if n := failover.requests.remembered(); n > 0 {
		lines = append(lines, fmt.Sprintf("%d requests", n))
	}
	return lines
}

// parts are the reconcilers and runnables, wired.
type parts struct {
	clock      *ClockReconciler
	volume     *VolumeReconciler
	failover   *FailoverReconciler
	keepAway   *KeepAwayReconciler
	protection *Protection
	silent     *silentNodes
	gone       *goneReplicas
	recovery   *Recovery
	sight      *linstorSight
	attaching  *Attaching
	gauges     *Gauges
	agents     *nodeAgents
	evacuation *EvacuationReconciler
	leftMarks  *leftMarks
}

func assemble(cfg Config, kubelets *cluster.Kubelets, c client.Client, cache, live client.Reader) parts {
	kubelets.OnRenewal(func(node string, at time.Time) { cfg.Linstor.Alive(kubelets.Satellite(node), at) })
	reports := newReports(cfg.Metrics, cfg.Clock.Now)
	reading := cluster.Config{
		Cache: cache, Live: live, Driver: cfg.Driver, Selector: cfg.Selector, Settings: cfg.Settings, Linstor: cfg.Linstor, Kubelets: kubelets,
		Clock: cfg.Clock, ServerTime: cfg.ServerTime, Renewed: cfg.Renewed, Begun: reports.begun,
	}
	if cfg.FastDetach {
		reading.Lingering = reports.lingering
	}
	of := cluster.NewReaders(reading)
	gather := gather{
		watch:  volumeWatch{volumes: of.Volumes, attachments: of.Attachments, linstor: cfg.Linstor},
		inputs: of.Inputs, clock: cfg.Clock, metrics: cfg.Metrics, memory: newSettingsMemory(cfg.Linstor), losses: newLosses(),
	}
	clockGather := gather
	clockGather.watch.after, clockGather.watch.afterPods = clockDelay, clockPodDelay
	reporter := &reporter{
		linstor: cfg.Linstor, inputs: of.Inputs, recorder: cfg.Recorder, reports: reports, waits: newWaits(), verdicts: newVerdicts(),
	}
	bell := newBell()
	keepAway := &KeepAway{
		client: c, live: live, volumes: of.Volumes, attachments: of.Attachments, inputs: of.Inputs, recorder: cfg.Recorder, metrics: cfg.Metrics,
		owner: cfg.Owner, disabled: cfg.DisableNodeTaints,
	}
	agents := &nodeAgents{live: live, clock: cfg.Clock}
	var leaving evacuation.Settings
	spared := func() map[string]bool { return nil }
	if cfg.Evacuation != nil {
		leaving, spared = *cfg.Evacuation, kubelets.Spared
	}
	halt := &haltSwitch{
		linstor: cfg.Linstor, live: live, clock: cfg.Clock, metrics: cfg.Metrics, recorder: cfg.Recorder,
		lost:   func() map[string]bool { return satelliteNames(kubelets, gather.losses.lostNodes()) },
		spared: spared,
		limit:  cfg.MaxLostNodes, deployment: cfg.PauseDeployment, pod: cfg.Pod, dryRun: cfg.DryRun,
		agents: agents.halts,
	}
	marks := newMarker(cfg.Linstor, cfg.Metrics)
	left := &leftMarks{cache: cache, live: live, linstor: cfg.Linstor, marker: marks, kubelets: kubelets, halt: halt, clock: cfg.Clock}
	sight := &linstorSight{
		inputs: of.Inputs, live: of.Live, kubelets: kubelets, linstor: cfg.Linstor, clock: cfg.Clock, settings: cfg.Settings, metrics: cfg.Metrics,
	}
	return parts{
		clock: &ClockReconciler{gather: clockGather},
		volume: &VolumeReconciler{
			gather: gather, client: c, live: of.Live, kubelets: kubelets, settings: cfg.Settings, reporter: reporter, bell: bell, dryRun: cfg.DryRun,
			reconcileInterval: cfg.ReconcileInterval,
		},
		failover: &FailoverReconciler{
			client: c, linstor: cfg.Linstor, clock: cfg.Clock, settings: cfg.Settings, driver: cfg.Driver, kubelets: kubelets,
			pods: of.Pods, live: of.Live, gather: gather, keepAway: keepAway, inUse: &volumesInUse{client: c, live: live}, reporter: reporter, halt: halt,
			bell: bell, requests: newRequests(cfg.OperationsTimeout), fastDetach: cfg.FastDetach,
			backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, retryLimit),
		},
		keepAway: &KeepAwayReconciler{
			keepAway: keepAway, linstor: cfg.Linstor, clock: cfg.Clock, settings: cfg.Settings, begun: reports.begun, agents: agents.halts,
		},
		agents: agents,
		evacuation: &EvacuationReconciler{
			client: c, cache: cache, live: live, linstor: cfg.Linstor, marker: marks, left: left, clock: cfg.Clock, reader: cluster.NewEvacuations(reading), pods: of.Pods, volumes: of.Volumes,
			halt: halt, lost: gather.losses.lostNodes, settings: leaving, recorder: cfg.Recorder, metrics: cfg.Metrics,
			timeout: cfg.OperationsTimeout,
		},
		leftMarks: left,
		silent:    &silentNodes{volumes: of.Volumes, attachments: of.Attachments, kubelets: kubelets, linstor: cfg.Linstor, halt: halt},
		gone:      &goneReplicas{volumes: of.Volumes, attachments: of.Attachments, kubelets: kubelets, linstor: cfg.Linstor},
		sight:     sight,
		protection: &Protection{
			survey: cluster.NewSurvey(reading), clock: cfg.Clock, halt: halt, metrics: cfg.Metrics,
			helpers: &helpers{
				live: live, volumes: of.Volumes, pods: of.Pods, selector: cfg.Selector, recorder: cfg.Recorder, told: make(map[types.UID]bool),
			},
		},
		gauges: &Gauges{
			cache: cache, live: live, volumes: of.Volumes, kubelets: kubelets, selector: cfg.Selector, silence: cfg.Settings.KubeletSilence,
			reporter: reporter, halt: halt, agents: agents, metrics: cfg.Metrics,
		},
		attaching: &Attaching{
			volumes: of.Volumes, pods: of.Pods, attachments: of.Attachments, inputs: of.Inputs, live: of.Live, kubelets: kubelets,
			linstor: cfg.Linstor, clock: cfg.Clock, serverTime: cfg.ServerTime,
			recorder: cfg.Recorder, metrics: cfg.Metrics, arrivals: reports.takeArrivals, told: make(map[telling]bool),
		},
		recovery: &Recovery{
			client: c, cache: cache, live: live, leases: of.Live, volumes: of.Volumes, inputs: of.Inputs, kubelets: kubelets, linstor: cfg.Linstor,
			clock: cfg.Clock, serverTime: cfg.ServerTime, settings: cfg.Settings, spared: spared,
			recorder: cfg.Recorder, metrics: cfg.Metrics, halt: halt, selector: cfg.RecoverSelector,
			limit: cfg.MaxLostNodes, timeout: cfg.OperationsTimeout, sight: sight,
			taints: silenceTaints{
				client: c, live: live, kubelets: kubelets, clock: cfg.Clock, silence: cfg.Settings.KubeletSilence,
				disabled: cfg.DisableNodeTaints, confirmed: make(map[string]time.Time),
			},
			told: make(map[types.UID]failover.Reason), replaced: make(map[types.UID]time.Time), restarted: make(map[types.UID]time.Time),
			tried: make(map[types.UID]time.Time),
		},
	}
}

// satelliteNames returns a set of nodes by their names in LINSTOR.
func satelliteNames(kubelets *cluster.Kubelets, nodes map[string]bool) map[string]bool {
	named := make(map[string]bool, len(nodes))
	for node, is := range nodes {
		named[kubelets.Satellite(node)] = is
	}
	return named
}
