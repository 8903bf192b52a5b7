package sim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/piraeusdatastore/piraeus-ha-controller/controllers"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/servertime"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// selectedLabel is the label of pods that ask for fail-over.
const selectedLabel = "linstor.csi.linbit.com/on-storage-lost"

// podSelector selects them.
var podSelector = labels.SelectorFromSet(labels.Set{selectedLabel: "remove"})

// shutdownTaint says that a node was switched off.
const shutdownTaint = "node.cloudprovider.kubernetes.io/shutdown"

// actorPrefix begins the names under which the processes write to the API.
const actorPrefix = "controller/"

// grace are the grace periods and silences of all runs: those of a command line without options.
var grace = failover.Settings{
	ConfirmedGrace: 5 * time.Second, UnanimousGrace: time.Second, KnownGrace: 45 * time.Second, NewGrace: 45 * time.Second,
	KubeletSilence: 20 * time.Second, DeletionGrace: 10 * time.Second,
}

// process is one replica of the Deployment: feed, store, policy and reconcilers are the real ones.
type process struct {
	world    *world
	name     string
	config   controllers.Config
	assembly *controllers.Assembly
	feed     *linstor.Feed
	store    *linstor.Store
	view     *apimodel.View
	kubelets *cluster.Kubelets
	network  *gate
	api      *auditedClient
	freezer  freezer
	log      logr.Logger
	// begun is when it was started, synced since when it knows LINSTOR.
	begun   time.Time
	synced  time.Time
	leading time.Time // since when it leads; zero while it does not
	// elected is closed when it leads for the first time.
	elected chan struct{}

	ctx   context.Context //nolint:containedctx // of the process
	end   context.CancelFunc
	tasks sync.WaitGroup
	lead  context.CancelFunc
	acts  acts
	// cacheOld is set while the cache sees nothing.
	cacheOld bool

	mu sync.Mutex
	// apiAway is set while the process does not reach the API.
	apiAway bool
	// renewed is when it began the newest renewal of its Lease that the API has answered.
	renewed time.Time
	// again is what the reconcilers asked for last, by reconciler and key.
	again map[string]time.Duration
}

// memory is what the controllers know of LINSTOR.
type memory struct {
	*linstor.Store
	*linstor.Feed
}

// startProcess starts a replica that does not lead.
func (w *world) startProcess(name string) *process {
	p := &process{
		world: w, name: name, begun: time.Now(), store: linstor.NewStore(), again: make(map[string]time.Duration), lead: func() {}, elected: make(chan struct{}),
	}
	p.network = newGate(func(ctx context.Context, network, address string) (net.Conn, error) {
		if err := p.freezer.wait(ctx); err != nil {
			return nil, err
		}
		c, err := w.Network.DialContext(ctx, network, address)
		return conn{c, &p.freezer}, err
	})
	p.ctx, p.end = context.WithCancel(w.ctx)
	p.log = logr.New(&sink{world: w, name: name})
	environment := func(key string) (string, bool) { return "http://linstor:3370", key == "LS_CONTROLLERS" }
	config, err := linstor.ConfigFromEnv(environment)
	w.must(err)
	linstorClient, err := linstor.NewClient(config, nil, linstor.ClientOptions{DialContext: p.network.dial})
	w.must(err)
	p.feed = linstor.NewFeed(linstorClient, p.store, logr.Discard(), linstor.Options{Elected: p.elected})

	p.view = w.nextView()
	if time.Since(w.started) > 0 && w.history.World.Late > 0 {
		p.view.StartLate(w.history.World.Late)
	}
	p.kubelets = cluster.NewKubelets(clock.RealClock{}, virtual.Driver, []string{shutdownTaint})
	p.view.OnUpdate(p.observe)

	p.config = controllers.Config{
		Driver: virtual.Driver, Selector: podSelector, RecoverSelector: recoverSelector, Settings: grace,
		Linstor: &witness{memory: memory{p.store, p.feed}, process: p}, Metrics: metrics.New(), Owner: name,
		ShutdownTaints: []string{shutdownTaint}, FastDetach: true, MaxLostNodes: failover.Limit{Percent: true, Value: 50},
		DryRun: w.history.World.DryRun, ReconcileInterval: 10 * time.Second, OperationsTimeout: 30 * time.Second, Concurrency: 3,
		PauseDeployment: deployment, SkipNameValidation: true, ServerTime: servertime.New(),
	}
	if w.history.World.Patient {
		p.config.Settings.UnanimousGrace = grace.ConfirmedGrace
	}
	p.config.Renewed = p.lastRenewed
	p.api = &auditedClient{Client: w.API.Client(actorPrefix + name), process: p}
	p.assembly = controllers.Assemble(p.config, p.kubelets, p.api, p.view, p.api, &recorder{world: w, process: p})
	p.tasks.Go(func() { _ = p.feed.Start(p.ctx) })
	p.tasks.Go(func() { _ = p.assembly.Vigil().Start(p.ctx) })
	p.tasks.Go(func() { _ = p.assembly.Burial().Start(p.ctx) })
	p.tasks.Go(func() { _ = p.assembly.Lookout().Start(logr.NewContext(p.ctx, p.log)) })
	p.run(p.ctx, "clock", p.assembly.Clock(), p.volumes(p.assembly.ClockDoorbell()))
	return p
}

// leads lets the process lead until it resigns or stops.
func (p *process) leads() {
	ctx, cancel := context.WithCancel(p.ctx)
	p.lead, p.leading = cancel, time.Now()
	select {
	case <-p.elected: // before
	default:
		close(p.elected)
	}
	p.tasks.Go(func() { p.renew(ctx) })
	p.run(ctx, "volume", p.assembly.Volume(), p.volumes(p.assembly.Doorbell()), p.assembly.Silence())
	p.run(ctx, "failover", p.assembly.Failover(), p.changes(p.assembly.Node, p.assembly.Bell()))
	p.tasks.Go(func() { _ = p.assembly.Attaching().Start(logr.NewContext(ctx, p.log)) })
	if p.world.history.recovers() {
		p.tasks.Go(func() { _ = p.assembly.Recovery().Start(logr.NewContext(ctx, p.log)) })
	}
	if !p.config.DryRun {
		p.run(ctx, "keepaway", p.assembly.KeepAway(), source.Func(p.markedNodes))
	}
}

func (p *process) resigns() {
	p.lead()
	p.leading = time.Time{}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.renewed = time.Time{}
}

// retryPeriod is how often a leader renews its Lease.
const retryPeriod = 2 * time.Second

// renew lets the process renew its Lease while it leads. That is a request like any other, which changes nothing that a history is about.
func (p *process) renew(ctx context.Context) {
	own := client.ObjectKey{Namespace: cluster.LeaseNamespace, Name: p.world.kube(p.world.history.World.Nodes[0])}
	for {
		began := time.Now()
		if err := p.api.Get(ctx, own, &coordinationv1.Lease{}); err == nil && ctx.Err() == nil {
			p.mu.Lock()
			p.renewed = began
			p.mu.Unlock()
		}
		select {
		case <-time.After(retryPeriod):
		case <-ctx.Done():
			return
		}
	}
}

// lastRenewed is when the process began the newest renewal of its Lease that the API has answered; zero while it does not lead.
func (p *process) lastRenewed() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.renewed
}

// stops ends the process.
func (p *process) stops() {
	p.resigns()
	p.end()
	p.tasks.Wait()
	p.network.close()
}

// run runs a controller as its setup would have the manager do.
func (p *process) run(ctx context.Context, name string, r reconcile.Reconciler, sources ...source.Source) {
	options := p.config.Options()
	options.Reconciler = &noted{Reconciler: r, process: p, name: name}
	options.LogConstructor = func(*reconcile.Request) logr.Logger { return p.log }
	c, err := controller.NewUnmanaged(name, options)
	p.world.must(err)
	for _, s := range sources {
		p.world.must(c.Watch(s))
	}
	p.tasks.Go(func() { _ = c.Start(ctx) })
}

// noted notes what a reconciler asks for.
type noted struct {
	reconcile.Reconciler
	process *process
	name    string
}

func (n *noted) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	result, err := n.Reconciler.Reconcile(ctx, req)
	after := result.RequeueAfter
	if err != nil {
		after = -1
	}
	n.process.mu.Lock()
	defer n.process.mu.Unlock()
	n.process.again[n.name+" "+req.Name] = after
	return result, err
}

type requestQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// volumes is what the reconcilers of volumes watch, beside the doorbell.
func (p *process) volumes(doorbell source.Source) source.Source {
	return p.changes(p.assembly.Volumes, doorbell)
}

// changes rings for what has to be looked at when an object of the API has changed, beside another bell.
func (p *process) changes(requests func(context.Context, client.Object) []reconcile.Request, bell source.Source) source.Source {
	return source.Func(func(ctx context.Context, queue requestQueue) error {
		context.AfterFunc(ctx, p.view.OnUpdate(func(u apimodel.Update) {
			for _, o := range []client.Object{u.Old, u.New} {
				if o == nil {
					continue
				}
				for _, request := range requests(ctx, o) {
					queue.Add(request)
				}
			}
		}))
		return bell.Start(ctx, queue)
	})
}

// markedNodes is what the reconciler of taints watches.
func (p *process) markedNodes(ctx context.Context, queue requestQueue) error {
	context.AfterFunc(ctx, p.view.OnUpdate(func(u apimodel.Update) {
		if node, ok := u.New.(*corev1.Node); ok && node.Annotations[cluster.AnnotationKeepAway] != "" {
			queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(node)})
		}
	}))
	return nil
}

// observe is what the Kubelets follow.
func (p *process) observe(u apimodel.Update) {
	if u.New == nil {
		p.kubelets.Forget(u.Old)
		return
	}
	switch o := u.New.(type) {
	case *coordinationv1.Lease:
		p.kubelets.ObserveLease(o)
	case *storagev1.CSINode:
		p.kubelets.ObserveCSINode(o)
	case *corev1.Node:
		p.kubelets.ObserveNode(o)
	}
}

// freeze stops what the process sends and hears, or lets it go on.
func (p *process) freeze(frozen bool) {
	if frozen {
		p.freezer.freeze()
		p.view.Pause()
		return
	}
	p.freezer.thaw()
	if p.reachesAPI() && !p.cacheOld {
		p.view.Resume()
	}
}

// cutAPI takes the API away from the process, or gives it back.
func (p *process) cutAPI(away bool) {
	p.mu.Lock()
	p.apiAway = away
	p.mu.Unlock()
	if away {
		p.view.Pause()
	} else {
		p.view.Resume()
	}
}

func (p *process) reachesAPI() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.apiAway
}

// errAway is what a request to an API server ends with that is not there.
var errAway = errors.New("connection refused")

// gate is a network that can be cut: connections that are open then are reset, and new ones are refused.
type gate struct {
	through func(ctx context.Context, network, address string) (net.Conn, error)
	cut     atomic.Bool

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

func newGate(through func(ctx context.Context, network, address string) (net.Conn, error)) *gate {
	return &gate{through: through, conns: make(map[net.Conn]struct{})}
}

func (g *gate) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if g.cut.Load() {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errAway}
	}
	c, err := g.through(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("through the gate: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.conns[c] = struct{}{}
	return c, nil
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.conns {
		_ = c.Close()
	}
	clear(g.conns)
}

func (g *gate) shut() {
	g.cut.Store(true)
	g.close()
}

func (g *gate) open() { g.cut.Store(false) }
