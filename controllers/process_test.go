package controllers

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	manners "github.com/piraeusdatastore/piraeus-ha-controller/internal/leaderelection"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// process is one replica of the Deployment: feed, cache and controllers are the real ones, put together without a
// manager.
type process struct {
	world    *world
	name     string
	parts    parts
	feed     *linstor.Feed
	store    *linstor.Store
	view     *apimodel.View
	manager  *virtual.Manager
	kubelets *cluster.Kubelets
	events   *eventLog
	log      logr.Logger
	counters []prometheus.Collector
	// before is what was counted when a fault began.
	before map[string]float64
	// cable is what connects it to LINSTOR.
	cable cable

	ctx   context.Context //nolint:containedctx // of the process
	end   context.CancelFunc
	tasks sync.WaitGroup
	// lease is the one of the election; nil where the process does not stand for it.
	lease atomic.Pointer[manners.Lease]
	// resigns gives up the leadership, and ends the election; nil where the process does not stand for it.
	resigns func()
}

type memory struct {
	*linstor.Store
	*linstor.Feed
}

// defaults are the settings of a command line without options.
func defaults() Config {
	selector, _ := labels.Parse("linstor.csi.linbit.com/on-storage-lost=remove")
	limit, _ := failover.ParseLimit("50%")
	return Config{
		MaxLostNodes: limit,
		Evacuation:   &evacuation.Settings{MaxNodes: 1, MaxCopies: 4},
		Installation: "piraeus-datastore/piraeus-ha-controller",
		Driver:       virtual.Driver,
		Selector:     selector,
		Settings: failover.Settings{
			ConfirmedGrace: 5 * time.Second, UnanimousGrace: time.Second, KnownGrace: 45 * time.Second, NewGrace: 45 * time.Second,
			KubeletSilence: 20 * time.Second, DeletionGrace: 10 * time.Second,
		},
		Clock:             clock.RealClock{},
		ShutdownTaints:    []string{"node.cloudprovider.kubernetes.io/shutdown"},
		FastDetach:        true,
		ReconcileInterval: 10 * time.Second,
		OperationsTimeout: 30 * time.Second,
		Concurrency:       200,
	}
}

// startProcess starts a replica that does not lead. It must come before the objects that it is to know.
func (w *world) startProcess(name string, cfg Config) *process {
	w.Helper()
	return w.startProcessOn(name, cfg, w.newView(cfg))
}

// newView returns what a process sees of the API, from now on, and the nodes that there are.
func (w *world) newView(cfg Config) *apimodel.View {
	view := w.API.View(w.lag, func(o client.Object) bool {
		_, isPod := o.(*corev1.Pod)
		return !isPod || cfg.Selector.Matches(labels.Set(o.GetLabels()))
	})
	view.Transform(cluster.Trim(cfg.Selector))
	var nodes corev1.NodeList
	w.must(w.API.Client("audit").List(w.ctx, &nodes))
	for i := range nodes.Items {
		view.Know(&nodes.Items[i])
	}
	var csiNodes storagev1.CSINodeList
	w.must(w.API.Client("audit").List(w.ctx, &csiNodes))
	for i := range csiNodes.Items {
		view.Know(&csiNodes.Items[i])
	}
	return view
}

// startProcessOn is startProcess for a process that comes later than the objects, of which the view has kept track.
func (w *world) startProcessOn(name string, cfg Config, view *apimodel.View) *process {
	w.Helper()
	p := &process{world: w, name: name, store: linstor.NewStore(), events: &eventLog{}}
	p.ctx, p.end = context.WithCancel(w.ctx)
	p.log = w.logger(name)
	config, err := linstor.ConfigFromEnv(func(key string) (string, bool) { return "http://linstor:3370", key == "LS_CONTROLLERS" })
	if err != nil {
		w.Fatal(err)
	}
	ofLinstor, ofFailovers := linstor.NewMetrics(), metrics.New()
	p.counters = slices.Concat(ofLinstor.Collectors(), ofFailovers.Collectors())
	linstorClient, err := linstor.NewClient(config, ofLinstor, linstor.ClientOptions{DialContext: p.cable.dial(w.Network.DialFrom(name))})
	if err != nil {
		w.Fatal(err)
	}
	p.view = view
	api := w.API.Client(controllerActor + name)
	p.manager = virtual.NewManager(p.ctx, api, view, p.log)
	p.feed = linstor.NewFeed(linstorClient, p.store, p.log.WithName(logOfFeed), linstor.Options{Elected: p.manager.Elected()})
	if cfg.Renewed == nil {
		cfg.Renewed = p.renewed
	}
	cfg.Linstor, cfg.Metrics, cfg.Owner, cfg.Recorder = memory{p.store, p.feed}, ofFailovers, name, p.events
	p.parts, err = setUp(p.ctx, p.manager, cfg)
	w.must(err)
	p.kubelets = p.parts.node.kubelets
	p.tasks.Go(func() { _ = p.feed.Start(p.ctx) })
	p.manager.Begin(p.ctx)
	w.processes = append(w.processes, p)
	return p
}

// renewed is when the process has renewed its Lease of the election; zero where it does not stand for it.
func (p *process) renewed() time.Time {
	if lease := p.lease.Load(); lease != nil {
		return lease.Renewed()
	}
	return time.Time{}
}

// leads lets the process lead until it is stopped.
func (p *process) leads() { p.manager.Lead(p.ctx) }

// stops ends the process as SIGTERM does: it gives up its leadership when it has stopped to act.
func (p *process) stops() {
	p.end()
	p.tasks.Wait()
	p.manager.Wait()
	if p.resigns != nil {
		p.resigns()
	}
}

// recorded is one Event.
type recorded struct {
	reason, kind, name, note string
	uid                      types.UID
	annotations              map[string]string
}

// eventLog is a recorder that remembers.
type eventLog struct {
	mu     sync.Mutex
	events []recorded
}

func (l *eventLog) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	l.AnnotatedEventf(regarding, related, nil, kind, reason, action, note, args...)
}

func (l *eventLog) AnnotatedEventf(regarding, _ runtime.Object, annotations map[string]string, _, reason, _, note string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	accessor, err := meta.Accessor(regarding)
	if err != nil {
		return
	}
	text := note
	if len(args) == 1 {
		text, _ = args[0].(string)
	}
	l.events = append(l.events, recorded{reason, regarding.GetObjectKind().GroupVersionKind().Kind, accessor.GetName(), text, accessor.GetUID(), annotations})
}

// anonymous returns the Events without the UID of their object: "kubectl describe" finds an object's Events by that.
func (l *eventLog) anonymous() []recorded {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.events), func(e recorded) bool { return e.uid != "" })
}

// reasons returns the reasons of all Events regarding an object, in order.
func (l *eventLog) reasons(kind, name string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var reasons []string
	for _, e := range l.events {
		if e.kind == kind && e.name == name {
			reasons = append(reasons, e.reason)
		}
	}
	return reasons
}

func (l *eventLog) has(reason, kind, name string) bool {
	return slices.Contains(l.reasons(kind, name), reason)
}

// logOfFeed is the name of the feed's logger.
const logOfFeed = "linstor"

// logger shows the log of a failed test, with virtual time.
func (w *world) logger(name string) logr.Logger {
	return funcr.New(func(prefix, args string) {
		w.note(prefix + " " + args)
	}, funcr.Options{Verbosity: 0}).WithName(name)
}
