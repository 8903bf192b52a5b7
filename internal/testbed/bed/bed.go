package bed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/csidriver"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

// Bed is a running cluster. Its methods may be called from several tests at a time.
type Bed struct {
	// Config reaches the API server as an administrator, without a client-side rate limit.
	Config *rest.Config
	// Client reads and writes the API as an administrator, without a cache.
	Client client.Client
	// Kubeconfig is the path of a kubeconfig for an administrator.
	Kubeconfig string
	// LogDir is the folder with the logs of all processes.
	LogDir string
	// DRBD is the model of DRBD: the oracle for who could write, and the place for faults of its own.
	DRBD *drbd.Cluster
	// LINSTOR is the simulated LINSTOR controller with its satellites.
	LINSTOR *linstorsim.Server
	// Driver is the controller service of the CSI driver.
	Driver *csidriver.Driver

	binDir  string
	dir     string // temporary: etcd's data, keys, kubeconfigs, sockets
	options Options
	spawn   *spawner
	control *controlPlane

	firstPort          int    // of the block of ports that nobody else uses
	linstorAddr        string // host and port of the simulated LINSTOR
	csiSocket          string // of the CSI driver's controller service
	attacherKubeconfig string
	names              *nameServer // nil without

	mu          sync.Mutex
	nodes       map[string]*Node
	networks    map[string]nodeNetwork   // by node
	profilers   map[string]int           // ports of Go's profiler, by pod of the controller
	components  map[Component]*component // of the control plane, which have to run as long as the bed
	mayEnd      bool                     // components, without that being an error
	restarts    map[Component]int
	controllers map[string]ControllerProcess // by pod
	failures    []error                      // of servers in this process
	cleanups    []func()                     // undo what Start did, in the order it was done
	stop        sync.Once
}

// step is a step of Start.
type step struct {
	what string
	do   func(context.Context) error
}

// Start brings up a bed, and cleans up behind itself if that fails. The bed runs until Stop; ctx bounds
// only the start.
func Start(ctx context.Context, options Options) (*Bed, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	b := &Bed{
		LogDir: options.LogDir, binDir: options.BinDir, options: options,
		nodes: map[string]*Node{}, networks: map[string]nodeNetwork{}, profilers: map[string]int{}, components: map[Component]*component{},
		mayEnd: options.RestartComponents, restarts: map[Component]int{},
	}
	if err := b.reservePorts(ctx); err != nil {
		return nil, fmt.Errorf("test bed: %w", err)
	}
	if err := b.startSpawner(); err != nil {
		b.Stop()
		return nil, err
	}
	steps := []step{
		{"etcd and kube-apiserver", b.startControlPlane},
		{"simulated LINSTOR and DRBD", b.startStorage},
	}
	if options.NameServer {
		steps = append(steps, step{"name server", b.startNameServer})
	}
	if !options.Bare {
		steps = append(steps,
			step{"kube-controller-manager and kube-scheduler", b.startControllers},
			step{"CSI attacher", b.startAttacher},
			step{"nodes", b.startNodes})
	}
	for _, step := range steps {
		options.Progress(step.what)
		if err := errors.Join(ctx.Err(), step.do(ctx)); err != nil {
			b.Stop()
			return nil, fmt.Errorf("test bed: start %s: %w", step.what, err)
		}
	}
	return b, nil
}

// Stop ends every process of the bed, waits for them and removes all files but the logs.
func (b *Bed) Stop() {
	b.stop.Do(func() {
		b.mu.Lock()
		cleanups := slices.Clone(b.cleanups)
		b.mu.Unlock()
		for _, cleanup := range slices.Backward(cleanups) {
			cleanup()
		}
	})
}

// Err tells whether a process that the bed can not do without has ended.
func (b *Bed) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return errors.Join(b.failures...)
}

// note lets Err tell of an error, if it is one.
func (b *Bed) note(err error) {
	if err == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures = append(b.failures, err)
}

// cleanup registers what Stop has to do, before everything registered earlier.
func (b *Bed) cleanup(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cleanups = append(b.cleanups, f)
}

// serve runs a server until Stop, which waits for it. Err tells of its error.
func (b *Bed) serve(serve func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.note(serve(ctx))
	}()
	b.cleanup(func() { cancel(); <-done })
}

// clientset returns an administrator's client of the kind that knows subresources by name.
func (b *Bed) clientset() (*kubernetes.Clientset, error) {
	client, err := kubernetes.NewForConfig(b.Config)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return client, nil
}

// stopGrace is how long a process may take to end by itself.
const stopGrace = 2 * time.Second

// startSpawner prepares the folder and the thread that all processes come from.
func (b *Bed) startSpawner() error {
	var err error
	if b.dir, err = os.MkdirTemp("", "piraeus-ha-testbed-"); err != nil {
		return fmt.Errorf("test bed: %w", err)
	}
	b.cleanup(func() { _ = os.RemoveAll(b.dir) })
	b.spawn = newSpawner()
	b.cleanup(b.spawn.close)
	return nil
}

// startControlPlane starts the real etcd and API server.
func (b *Bed) startControlPlane(ctx context.Context) error {
	var err error
	if b.control, err = startControlPlane(b.spawn, b.binDir, b.dir, b.LogDir); err != nil {
		return err
	}
	etcd, api := b.control.etcd(), b.control.apiServer()
	b.cleanup(func() { api.kill(); etcd.kill(); b.control.stop() })
	b.keep(Etcd, etcd)
	b.keep(APIServer, api)
	b.Config = b.control.admin
	if b.Client, err = client.New(b.Config, client.Options{}); err != nil {
		return fmt.Errorf("client: %w", err)
	}
	if b.Kubeconfig, err = b.control.kubeconfig("admin", "system:masters"); err != nil {
		return err
	}
	// The API server creates it a moment later, and Events about nodes need it.
	return wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		return b.Client.Get(ctx, client.ObjectKey{Name: metav1.NamespaceDefault}, &corev1.Namespace{}) == nil, nil
	})
}

// startControllers starts the rest of the real Kubernetes.
func (b *Bed) startControllers(context.Context) error {
	starts, err := b.control.controllers(b.binDir, b.options)
	for name, start := range starts {
		err = errors.Join(err, b.run(name, start))
	}
	return err
}
