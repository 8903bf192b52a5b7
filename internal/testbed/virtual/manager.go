package virtual

import (
	"context"
	"reflect"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
)

// Manager runs what is added to it as that of controller-runtime does, over a View of the modelled API: what needs no leader when it
// starts, and the rest when it leads. Its election is the caller's.
type Manager struct {
	manager.Manager // nil: nothing else of it is asked for

	// Wrap, where it is not nil, puts a reconciler in the place of that of a controller.
	Wrap func(controller string, r reconcile.Reconciler) reconcile.Reconciler

	client  client.Client
	cache   viewCache
	log     logr.Logger
	elected chan struct{}
	tasks   sync.WaitGroup

	follows, leads []manager.Runnable
}

// NewManager returns a Manager that has a client of the API, and the View in the place of its cache.
func NewManager(ctx context.Context, api client.Client, view *apimodel.View, log logr.Logger) *Manager {
	return &Manager{client: api, cache: viewCache{ctx: ctx, View: view}, log: log, elected: make(chan struct{})}
}

// Add implements manager.Manager. It must come before Start.
func (m *Manager) Add(r manager.Runnable) error {
	if c := reflect.Indirect(reflect.ValueOf(r)); m.Wrap != nil && c.Kind() == reflect.Struct {
		if do := c.FieldByName("Do"); do.IsValid() { // a controller's reconciler
			do.Set(reflect.ValueOf(m.Wrap(c.FieldByName("Name").String(), do.Interface().(reconcile.Reconciler))))
		}
	}
	if leads, ok := r.(manager.LeaderElectionRunnable); ok && !leads.NeedLeaderElection() {
		m.follows = append(m.follows, r)
	} else {
		m.leads = append(m.leads, r)
	}
	return nil
}

// Begin starts what needs no leader, until the context ends.
func (m *Manager) Begin(ctx context.Context) { m.run(ctx, m.follows) }

// Lead starts the rest, until the context ends. It is called once.
func (m *Manager) Lead(ctx context.Context) {
	close(m.elected)
	m.run(ctx, m.leads)
}

// Wait waits for the end of all that was started.
func (m *Manager) Wait() { m.tasks.Wait() }

func (m *Manager) run(ctx context.Context, all []manager.Runnable) {
	ctx = logr.NewContext(ctx, m.log)
	for _, r := range all {
		m.tasks.Go(func() {
			if m.cache.WaitForCacheSync(ctx) {
				_ = r.Start(ctx)
			}
		})
	}
}

// Elected implements manager.Manager.
func (m *Manager) Elected() <-chan struct{} { return m.elected }

// GetClient implements cluster.Cluster.
func (m *Manager) GetClient() client.Client { return m.client }

// GetAPIReader implements cluster.Cluster.
func (m *Manager) GetAPIReader() client.Reader { return m.client }

// GetCache implements cluster.Cluster.
func (m *Manager) GetCache() cache.Cache { return m.cache }

// GetFieldIndexer implements cluster.Cluster.
func (m *Manager) GetFieldIndexer() client.FieldIndexer { return m.cache }

// GetScheme implements cluster.Cluster.
func (m *Manager) GetScheme() *runtime.Scheme { return scheme.Scheme }

// GetLogger implements manager.Manager.
func (m *Manager) GetLogger() logr.Logger { return m.log }

// GetControllerOptions implements manager.Manager. Many managers of one process have controllers of the same names.
func (m *Manager) GetControllerOptions() config.Controller {
	return config.Controller{SkipNameValidation: new(true)}
}
