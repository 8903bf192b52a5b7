package controllers

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/forecast"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
)

// Config configures the controllers. Every field is required unless its comment says otherwise.
type Config struct {
	// Driver is the CSI driver's name, which is also the attacher's.
	Driver string
	// Selector selects the pods that may be removed.
	Selector labels.Selector
	// RecoverSelector selects the pods of LINSTOR itself that may be replaced when their node is lost; nil selects none.
	RecoverSelector labels.Selector
	// Settings are the policy's settings.
	Settings failover.Settings
	// Linstor is what is known of LINSTOR.
	Linstor Feed
	// Metrics are counted in.
	Metrics *metrics.Metrics
	// Recorder writes the Events; it defaults to one with limits of its own.
	Recorder events.EventRecorder
	// Clock defaults to the real one.
	Clock clock.PassiveClock
	// Renewed returns when this process began the newest renewal of its Lease of the leader election, by the same clock; zero while it does not
	// lead. It is nil if there is no election: then the unanimous grace never applies.
	Renewed func() time.Time
	// Installation tells this controller, with all of its processes, from others in the cluster.
	Installation string
	// Owner is this process's name in the annotation of a taint.
	Owner string
	// ShutdownTaints are the keys of taints by which a node counts as switched off.
	ShutdownTaints []string
	// FastDetach releases volumes from their lost node: otherwise Kubernetes waits for its kubelet.
	FastDetach bool
	// MaxLostNodes is how much of the cluster may seem lost at once before nothing is removed any more.
	MaxLostNodes failover.Limit
	// Evacuation are the settings of evacuations; nil if nodes with the taint are left alone.
	Evacuation *evacuation.Settings
	// PauseDeployment is the Deployment whose annotation pauses all fail-over. If its name is empty, it is the one that runs Pod.
	PauseDeployment types.NamespacedName
	// Pod is the pod that this process runs in; its name is empty if there is none.
	Pod types.NamespacedName
	// DryRun makes the controllers report what they would do, and do nothing.
	DryRun bool
	// DisableNodeTaints leaves nodes that lost their storage untainted.
	DisableNodeTaints bool
	// ReconcileInterval is how often the node of a volume that is not healthy is reconciled.
	ReconcileInterval time.Duration
	// OperationsTimeout bounds a request to the API.
	OperationsTimeout time.Duration
	// Asked is what a forecast asks of others.
	Asked Asked
	// Concurrency is how many nodes are reconciled at a time.
	Concurrency int
}

// retryLimit is the longest time until something that failed is tried again.
const retryLimit = 10 * time.Second

// firstRetry is how soon it is tried again for the first time.
const firstRetry = 50 * time.Millisecond

// checkInterval is how often that is checked which changes slowly: the causes of our taints, and what the gauges show.
const checkInterval = 5 * time.Second

// guardInterval is how often the guard observes the nodes, on every replica: it compares them with what they were before.
const guardInterval = 2 * time.Second

// SetUp adds the controllers to the manager, and returns what they remember. Those that act, or record Events, wait for leadership.
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
	if err := cluster.AddIndexes(ctx, mgr.GetFieldIndexer(), cfg.Driver); err != nil {
		return parts{}, err
	}
	kubelets := cluster.NewKubelets(cfg.Clock, cfg.Driver, cfg.ShutdownTaints)
	if err := kubelets.Follow(ctx, mgr.GetCache()); err != nil {
		return parts{}, err
	}
	sightings := cluster.NewSightings(cfg.Clock)
	if err := sightings.Follow(ctx, mgr.GetCache()); err != nil {
		return parts{}, err
	}
	parts := assemble(cfg, kubelets, sightings, mgr.GetClient(), mgr.GetCache(), mgr.GetAPIReader())
	parts.forecaster.synced = mgr.GetCache().WaitForCacheSync
	return parts, parts.addTo(mgr, cfg)
}

func (p parts) addTo(mgr ctrl.Manager, cfg Config) error {
	if err := p.node.setup(mgr, controllerOptions(cfg)); err != nil {
		return fmt.Errorf("adding the controller of nodes: %w", err)
	}
	if cfg.Evacuation != nil {
		if err := p.evacuation.setup(mgr, controllerOptions(cfg)); err != nil {
			return fmt.Errorf("adding the controller of evacuations: %w", err)
		}
	}
	runnables := append(p.periodics(), p.node.leader)
	if cfg.Evacuation != nil && !cfg.DryRun {
		runnables = append(runnables, periodic{
			name: "left-marks", every: evacuation.Interval, onLeader: true, do: p.leftMarks.takeBack,
			failure: "Cannot take back what evacuations have left in LINSTOR",
		})
	}
	for _, runnable := range runnables {
		if err := mgr.Add(runnable); err != nil {
			return fmt.Errorf("adding %T: %w", runnable, err)
		}
	}
	return nil
}

func (p parts) periodics() []manager.Runnable {
	return []manager.Runnable{
		periodic{name: "guard", every: guardInterval, do: func(ctx context.Context) error { p.node.halt.observe(ctx); return nil }},
		periodic{
			name: "gone-replicas", every: goneInterval, do: p.gone.forget,
			failure: "Cannot look up who uses replicas that LINSTOR no longer lists",
		},
		periodic{name: "node-agents", every: checkInterval, do: p.agents.keep, failure: "Cannot tell whether node agents of 1.x run"},
		periodic{name: "linstor-sight", every: silenceInterval, do: p.sight.check},
		periodic{
			name: "recovery", every: silenceInterval, onLeader: true, do: p.recovery.look,
			failure: "Cannot look after the pods of LINSTOR itself",
		},
		periodic{
			name: "protection", every: protectionInterval, onLeader: true, do: p.protection.keep, failure: "Cannot tell how many pods are protected",
		},
		periodic{name: "gauges", every: checkInterval, onLeader: true, do: p.gauges.show, failure: "Cannot count tainted nodes"},
	}
}

func controllerOptions(cfg Config) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: cfg.Concurrency,
		ReconciliationTimeout:   cfg.OperationsTimeout,
		EnableWarmup:            new(true),
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
			firstRetry, retryLimit/2), // of a reconcile that panics
	}
}

// Memory is what the controllers remember of fail-overs.
type Memory struct{ parts parts }

// Acting reports whether a volume is lost, or in its grace period.
func (m *Memory) Acting() (acting bool) {
	m.parts.node.reports.each(func(_, _ string, report volumeReport) {
		acting = acting || report.verdict == failover.Lost || report.verdict == failover.Pending
	})
	return acting
}

// Forecast answers a question about what would become of the selected pods.
func (m *Memory) Forecast(ctx context.Context, q forecast.Question) forecast.Report {
	return m.parts.forecaster.Forecast(ctx, q)
}

// Lines lists what is not over, a line for each volume about which something was reported. It is empty when all volumes are healthy.
func (m *Memory) Lines() (lines []string) {
	m.parts.node.reports.each(func(node, volume string, report volumeReport) {
		if report.reported != "" {
			lines = append(lines, fmt.Sprintf("reported of volume %s on node %s: %s %s", volume, node, report.reported, report.reason))
		}
		if report.waits {
			lines = append(lines, fmt.Sprintf("a wait of volume %s on node %s", volume, node))
		}
	})
	slices.Sort(lines)
	return lines
}

// parts are the reconcilers and runnables, wired.
type parts struct {
	node       *NodeReconciler
	protection *Protection
	gone       *goneReplicas
	recovery   *Recovery
	sight      *linstorSight
	gauges     *Gauges
	agents     *nodeAgents
	evacuation *EvacuationReconciler
	leftMarks  *leftMarks
	forecaster *Forecaster
}

// shared is what the parts of the controller have in common. Everything but client only reads.
type shared struct {
	client client.Client
	// cache has the selected pods only. api reads the API server, live that in the terms of the policy.
	cache, api  client.Reader
	live        cluster.Live
	linstor     Linstor
	clock       clock.PassiveClock
	settings    failover.Settings
	kubelets    *cluster.Kubelets
	volumes     cluster.Volumes
	pods        cluster.Pods
	attachments cluster.Attachments
	inputs      cluster.Inputs
	recorder    events.EventRecorder
	metrics     *metrics.Metrics
}

func assemble(cfg Config, kubelets *cluster.Kubelets, sightings *cluster.Sightings, c client.Client, cache, live client.Reader) parts {
	kubelets.OnRenewal(func(node string, at time.Time) { cfg.Linstor.Alive(kubelets.Satellite(node), at) })
	reading := cluster.Config{
		Cache: cache, Live: live, Driver: cfg.Driver, Selector: cfg.Selector, Settings: cfg.Settings, Linstor: cfg.Linstor, Kubelets: kubelets,
		Clock: cfg.Clock, Sightings: sightings, Renewed: cfg.Renewed,
	}
	of := cluster.NewReaders(reading)
	all := shared{
		client: c, cache: cache, api: live, linstor: cfg.Linstor, clock: cfg.Clock, settings: cfg.Settings,
		kubelets: kubelets, volumes: of.Volumes, pods: of.Pods, attachments: of.Attachments, inputs: of.Inputs, live: of.Live,
		recorder: cfg.Recorder, metrics: cfg.Metrics,
	}
	reports := &nodeReports{}
	agents := &nodeAgents{live: live, clock: cfg.Clock}
	var limits evacuation.Settings
	spared := func() map[string]bool { return nil }
	if cfg.Evacuation != nil {
		limits, spared = *cfg.Evacuation, kubelets.Spared
	}
	halt := &haltSwitch{
		shared: all,
		lost: func() map[string]bool {
			named := make(map[string]bool)
			for node := range reports.lost() {
				named[kubelets.Satellite(node)] = true
			}
			return named
		},
		spared: spared, limit: cfg.MaxLostNodes, deployment: cfg.PauseDeployment, pod: cfg.Pod, dryRun: cfg.DryRun, agents: agents.halts,
	}
	marks := newMarker(cfg.Linstor, cfg.Metrics)
	reader := cluster.NewEvacuations(reading)
	left := &leftMarks{shared: all, places: cfg.Linstor, reader: reader, marker: marks, halt: halt, idle: make(map[string]time.Time)}
	sight := &linstorSight{shared: all, sight: cfg.Linstor}
	taints := &taints{shared: all, owner: cfg.Owner, disabled: cfg.DisableNodeTaints, agents: agents.halts}
	changed := newChangedVolumes()
	leader := &leadership{nodes: all.nodeNames, changed: changed}
	if cfg.Asked.API == nil {
		cfg.Asked.API = live
	}
	return parts{
		node: &NodeReconciler{
			shared: all, driver: cfg.Driver, taints: taints, inUse: &volumesInUse{client: c, live: live}, memory: newQuorumMemory(cfg.Linstor),
			halt: halt, reporter: &reporter{shared: all},
			leader:  leader,
			changed: changed, reports: reports, timeout: cfg.OperationsTimeout, reconcileInterval: cfg.ReconcileInterval,
			fastDetach: cfg.FastDetach, dryRun: cfg.DryRun,
		},
		agents: agents,
		evacuation: &EvacuationReconciler{
			shared: all, places: cfg.Linstor, marker: marks, left: left, reader: reader, halt: halt, failsOver: reports.failsOver, limits: limits,
			timeout: cfg.OperationsTimeout, installation: cfg.Installation,
		},
		leftMarks: left,
		gone:      &goneReplicas{all, cfg.Linstor},
		sight:     sight,
		protection: &Protection{
			shared: all, survey: cluster.NewSurvey(reading), halt: halt,
			helpers: &helpers{shared: all, selector: cfg.Selector, told: make(map[types.UID]bool)},
			waiting: &waiting{shared: all, told: make(map[types.UID]bool)},
		},
		forecaster: &Forecaster{
			shared: all, asked: cfg.Asked, reading: reading, feed: cfg.Linstor, evacuation: reader, halt: halt, reports: reports, leader: leader,
			started: cfg.Clock.Now(), pod: podName(cfg.Pod),
		},
		gauges: &Gauges{shared: all, reports: reports, halt: halt, agents: agents},
		recovery: &Recovery{
			shared: all, spared: spared, halt: halt, selector: cfg.RecoverSelector, limit: cfg.MaxLostNodes, timeout: cfg.OperationsTimeout,
			taints: taints, sight: sight,
			told: make(map[types.UID]failover.Reason), replaced: make(map[types.UID]time.Time), restarted: make(map[types.UID]time.Time),
			tried: make(map[types.UID]time.Time),
		},
	}
}

func (s *shared) nodeNames(ctx context.Context) (names []string) {
	var nodes corev1.NodeList
	if err := s.cache.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot list the nodes in the cache")
	}
	for i := range nodes.Items {
		names = append(names, nodes.Items[i].Name)
	}
	return names
}
