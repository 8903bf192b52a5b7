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
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/piraeusdatastore/piraeus-ha-controller/controllers"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// selectedLabel is the label of pods that ask for fail-over.
const selectedLabel = "linstor.csi.linbit.com/on-storage-lost"

// podSelector selects them.
var podSelector = labels.SelectorFromSet(labels.Set{selectedLabel: "remove"})

// actorPrefix begins the names under which the processes write to the API.
const actorPrefix = "controller/"

// grace are the grace periods and silences of all runs: those of a command line without options.
var grace = failover.Settings{
	ConfirmedGrace: 5 * time.Second, UnanimousGrace: time.Second, KnownGrace: 45 * time.Second, NewGrace: 45 * time.Second,
	KubeletSilence: 20 * time.Second, DeletionGrace: 10 * time.Second,
}

// process is one replica of the Deployment: feed, store, policy and reconcilers are the real ones.
type process struct {
	world   *world
	name    string
	config  controllers.Config
	manager *virtual.Manager
	memory  *controllers.Memory
	feed    *linstor.Feed
	store   *linstor.Store
	view    *apimodel.View
	network *gate
	api     *auditedClient
	freezer freezer
	// deciding is the node on which an act is about to decide, and moments counts those at which the process may stall.
	deciding atomic.Pointer[string]
	moments  atomic.Int64
	log      logr.Logger
	// begun is when it was started, synced since when it knows LINSTOR.
	begun   time.Time
	synced  time.Time
	leading time.Time // since when it leads; zero while it does not

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
		world: w, name: name, begun: time.Now(), store: linstor.NewStore(), again: make(map[string]time.Duration), lead: func() {},
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
	p.view = w.nextView()
	if time.Since(w.started) > 0 && w.history.World.Late > 0 {
		p.view.StartLate(w.history.World.Late)
	}
	p.api = &auditedClient{Client: w.API.Client(actorPrefix + name), process: p}
	p.manager = virtual.NewManager(p.ctx, p.api, p.view, p.log)
	p.manager.Wrap = func(controller string, r reconcile.Reconciler) reconcile.Reconciler { return &noted{r, p, controller} }
	p.feed = linstor.NewFeed(linstorClient, p.store, logr.Discard(), linstor.Options{Elected: p.manager.Elected()})

	p.config = controllers.Config{
		Driver: virtual.Driver, Selector: podSelector, RecoverSelector: recoverSelector, Settings: grace,
		Linstor: &witness{memory: memory{p.store, p.feed}, process: p}, Metrics: metrics.New(), Owner: name,
		ShutdownTaints: []string{shutdownTaint}, FastDetach: true, MaxLostNodes: failover.Limit{Percent: true, Value: 50},
		DryRun: w.history.World.DryRun, ReconcileInterval: 10 * time.Second, OperationsTimeout: 30 * time.Second, Concurrency: 100,
		PauseDeployment: deployment, Evacuation: w.history.World.Planned.settings(),
	}
	p.config.Settings.RemoveUnsafePods = w.history.World.Reckless
	if w.history.World.Patient {
		p.config.Settings.UnanimousGrace = grace.ConfirmedGrace
	}
	p.config.Renewed, p.config.Recorder = p.lastRenewed, &recorder{world: w, process: p}
	if !w.history.recovers() {
		p.config.RecoverSelector = nil
	}
	p.memory, err = controllers.SetUp(p.ctx, p.manager, p.config)
	w.must(err)
	p.tasks.Go(func() { _ = p.feed.Start(p.ctx) })
	p.manager.Begin(p.ctx)
	return p
}

// leads lets the process lead until it resigns or stops.
func (p *process) leads() {
	ctx, cancel := context.WithCancel(p.ctx)
	p.lead, p.leading = cancel, time.Now()
	p.tasks.Go(func() { p.renew(ctx) })
	p.manager.Lead(ctx)
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
	p.manager.Wait()
	p.network.close()
}

// work is which object a reconciler works on.
type work struct{ controller, name string }

type workKey struct{}

// workOf returns what a request is sent for.
func workOf(ctx context.Context) work {
	of, _ := ctx.Value(workKey{}).(work)
	return of
}

// noted notes what a reconciler asks for.
type noted struct {
	reconcile.Reconciler
	process *process
	name    string
}

func (n *noted) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	result, err := n.Reconciler.Reconcile(context.WithValue(ctx, workKey{}, work{n.name, req.Name}), req)
	after := result.RequeueAfter
	if err != nil {
		after = -1
	}
	n.process.mu.Lock()
	defer n.process.mu.Unlock()
	n.process.again[n.name+" "+req.Name] = after
	return result, err
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
