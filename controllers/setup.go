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
	// SkipNameValidation lets several managers run in one process, for tests.
	SkipNameValidation bool
}

// retryLimit is the longest time until something that failed is tried again.
const retryLimit = 5 * time.Second

// firstRetry is how soon it is tried again for the first time.
const firstRetry = 50 * time.Millisecond

// few is how many keys of a kind are worked on at a time where none of them takes long.
const few = 10

// SetUp adds the controllers and what they remember to the manager. Those that act, or speak, wait
// for leadership.
func SetUp(ctx context.Context, mgr ctrl.Manager, cfg Config) error {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	indexed, err := newIndexReader(ctx, mgr.GetCache(), cfg.Driver)
	if err != nil {
		return err
	}
	kubelets := NewKubelets(cfg.Clock, cfg.ShutdownTaints)
	if err := kubelets.Follow(ctx, mgr.GetCache()); err != nil {
		return err
	}
	recorder, err := newRecorder(mgr)
	if err != nil {
		return err
	}
	parts := assemble(cfg, kubelets, mgr.GetClient(), indexed, mgr.GetAPIReader(), recorder)
	for _, part := range []interface {
		setup(ctrl.Manager, controller.Options) error
	}{parts.clock, parts.volume, parts.failover, parts.keepAway} {
		if part == parts.keepAway && cfg.DryRun {
			continue // a dry run writes nothing, so it leaves the taints of others alone
		}
		options := controllerOptions(cfg)
		if part == parts.clock || part == parts.keepAway {
			options.MaxConcurrentReconciles = min(options.MaxConcurrentReconciles, few) // they write little, and wait for nobody
		}
		if err := part.setup(mgr, options); err != nil {
			return fmt.Errorf("adding %T: %w", part, err)
		}
	}
	for _, runnable := range []manager.Runnable{
		parts.protection, parts.vigil, parts.burial, parts.lookout, parts.recovery, parts.attaching,
	} {
		if err := mgr.Add(runnable); err != nil {
			return fmt.Errorf("adding %T: %w", runnable, err)
		}
	}
	return nil
}

func controllerOptions(cfg Config) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: cfg.Concurrency,
		ReconciliationTimeout:   cfg.OperationsTimeout,
		EnableWarmup:            new(true),
		SkipNameValidation:      new(cfg.SkipNameValidation),
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
			firstRetry, retryLimit),
	}
}

// parts are the reconcilers and runnables, wired.
type parts struct {
	clock      *ClockReconciler
	volume     *VolumeReconciler
	failover   *FailoverReconciler
	keepAway   *KeepAwayReconciler
	protection *Protection
	vigil      *Vigil
	burial     *Burial
	recovery   *Recovery
	lookout    *Lookout
	attaching  *Attaching
}

func assemble(cfg Config, kubelets *Kubelets, c client.Client, cache, live client.Reader, recorder events.EventRecorder) parts {
	kubelets.onRenewal(func(node string, at time.Time) { cfg.Linstor.Alive(kubelets.Satellite(node, cfg.Driver), at) })
	memory := newSettingsMemory(cfg.Linstor)
	reports, losses := newReports(cfg.Metrics, cfg.Clock.Now), newLosses()
	g := gatherer{
		cache: cache, live: live, linstor: cfg.Linstor, kubelets: kubelets, clock: cfg.Clock,
		driver: cfg.Driver, selector: cfg.Selector, settings: cfg.Settings, metrics: cfg.Metrics, serverTime: cfg.ServerTime,
		renewed: cfg.Renewed, begun: reports.begun,
	}
	if cfg.FastDetach {
		g.lingering = reports.lingering
	}
	reporter := &reporter{gatherer: g, recorder: recorder, reports: reports, waits: newWaits()}
	bell := newBell()
	keepAway := newKeepAway(g, cfg, c, recorder)
	halt := &haltSwitch{
		linstor: cfg.Linstor, live: live, clock: cfg.Clock, metrics: cfg.Metrics, recorder: recorder,
		lost:  func() map[string]bool { return g.satellites(losses.lostNodes()) },
		limit: cfg.MaxLostNodes, deployment: cfg.PauseDeployment, pod: cfg.Pod, dryRun: cfg.DryRun,
	}
	lookout := &Lookout{gatherer: g}
	clockGatherer := g
	clockGatherer.lookAfter, clockGatherer.lookAfterPods = clockDelay, clockPodDelay
	return parts{
		clock: &ClockReconciler{gatherer: clockGatherer, memory: memory, losses: losses},
		volume: &VolumeReconciler{
			gatherer: g, client: c, reporter: reporter, losses: losses, memory: memory, bell: bell, dryRun: cfg.DryRun,
			reconcileInterval: cfg.ReconcileInterval,
		},
		failover: &FailoverReconciler{
			gatherer: g, client: c, keepAway: keepAway, inUse: &volumesInUse{client: c, live: live}, reporter: reporter, halt: halt, bell: bell, memory: memory,
			requests: newRequests(cfg.OperationsTimeout), fastDetach: cfg.FastDetach,
			backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, retryLimit),
		},
		keepAway:   &KeepAwayReconciler{KeepAway: keepAway},
		vigil:      &Vigil{gatherer: g, halt: halt},
		burial:     &Burial{gatherer: g},
		lookout:    lookout,
		protection: &Protection{Survey: NewSurvey(cfg, kubelets, cache), helpers: newHelpers(g, recorder), halt: halt, metrics: cfg.Metrics},
		attaching: &Attaching{
			gatherer: g, recorder: recorder, metrics: cfg.Metrics, arrivals: reports.takeArrivals, told: make(map[told]bool),
		},
		recovery: &Recovery{
			gatherer: g, client: c, recorder: recorder, metrics: cfg.Metrics, halt: halt, selector: cfg.RecoverSelector,
			limit: cfg.MaxLostNodes, timeout: cfg.OperationsTimeout, lookout: lookout,
			taints: silenceTaints{
				client: c, live: live, kubelets: kubelets, clock: cfg.Clock, silence: cfg.Settings.KubeletSilence,
				disabled: cfg.DisableNodeTaints, confirmed: make(map[string]time.Time),
			},
			told: make(map[types.UID]failover.Reason), replaced: make(map[types.UID]time.Time), restarted: make(map[types.UID]time.Time),
		},
	}
}
