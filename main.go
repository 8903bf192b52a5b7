// Command piraeus-ha-controller moves stateful workloads away from nodes that have lost their LINSTOR storage.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/piraeusdatastore/piraeus-ha-controller/controllers"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/asking"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cli"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/leaderelection"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	failovermetrics "github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/options"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/permissions"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/version"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/watches"
)

// shutdownTimeout is how long running reconciliations may take to end before the leader's Lease is released. It is
// shorter than the pod's termination grace, or the Lease would not be released at all.
const shutdownTimeout = 8 * time.Second

// readyTimeout is how long a readiness probe waits; by default the kubelet gives up after a second.
const readyTimeout = 500 * time.Millisecond

func main() {
	ctx := ctrl.SetupSignalHandler()
	if err := options.PingAPI(); err != nil { // before anything connects
		fmt.Fprintln(os.Stderr, "piraeus-ha-controller:", err)
		os.Exit(1)
	}
	os.Exit(cli.Main(ctx, os.Args, os.Stdout, os.Stderr, run, quiet))
}

// quiet silences the libraries.
func quiet() {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
}

// warn says what the options do that their giver may not want.
func warn(log logr.Logger, opts options.Options) {
	for _, sentence := range opts.Obsolete {
		log.Info("Obsolete option", "message", sentence)
	}
	if opts.MetricsOpen() {
		log.Info("Metrics are served without encryption to everybody who reaches them", "address", opts.MetricsBindAddress)
	}
}

// run is the program: options, manager, wiring. It returns when ctx ends, or at once with a fault of the settings.
func run(ctx context.Context, args []string, stdout io.Writer) error {
	opts, err := options.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return options.Usage(stdout)
	}
	if err != nil {
		return err
	}
	if opts.Version {
		_, err := fmt.Fprintln(stdout, version.String())
		return err
	}
	log := options.Logger(opts)
	ctrl.SetLogger(log)
	klog.SetLogger(log.WithName("client-go"))
	warn(log, opts)

	linstorClient, err := newLinstorClient(opts)
	if err != nil {
		return err
	}
	config, err := opts.RESTConfig()
	if err != nil {
		return err
	}
	var lease *leaderelection.Lease
	if opts.LeaderElection {
		if lease, err = leaderelection.Lock(opts, config); err != nil {
			return err
		}
	}
	dead := watches.New(watches.Pace{Behind: watchesBehind(config)}, log.WithName("watches"))
	mgr, err := newManager(opts, config, lease, dead, log)
	if err != nil {
		return err
	}
	view := linstorView{Store: linstor.NewStore()}
	view.Feed = linstor.NewFeed(linstorClient, view.Store, log.WithName("linstor"), linstor.Options{
		ResyncInterval: opts.ResyncInterval, Elected: mgr.Elected(),
	})
	if err := mgr.Add(view.Feed); err != nil {
		return fmt.Errorf("adding the LINSTOR feed: %w", err)
	}
	cfg := controllerConfig(opts, view)
	if lease != nil {
		cfg.Renewed = lease.Renewed
	}
	if cfg.Asked, err = asking.New(opts, config, mgr.GetScheme()); err != nil {
		return err
	}
	memory, err := setUp(ctx, mgr, cfg, log)
	if err != nil {
		return err
	}
	dead.Elected, dead.Acting, dead.Dead = mgr.Elected(), memory.Acting, cfg.Metrics.DeadWatch
	if err := endWithDeadWatches(mgr, dead, opts, config); err != nil {
		return err
	}
	review := permissions.NewReview(mgr.GetClient(), permissions.Required(leaderelection.Namespace(opts), opts),
		cfg.Metrics.MissingPermissions, log.WithName("permissions"))
	if err := addProbes(mgr, review); err != nil {
		return err
	}
	go review.Run(ctx) // the manager would not start it if the controller may not list what it caches
	log.Info("Starting", "version", version.String(), "attacher", opts.AttacherName, "podLabelSelector", opts.PodLabelSelector)
	return mgr.Start(ctx)
}

// linstorView is LINSTOR as the controllers see it: the store to look at, the feed to ask.
type linstorView struct {
	*linstor.Store
	*linstor.Feed
}

func newLinstorClient(opts options.Options) (*linstor.Client, error) {
	config, err := linstor.ConfigFromEnv(os.LookupEnv)
	if err != nil {
		return nil, err
	}
	counters := linstor.NewMetrics()
	metrics.Registry.MustRegister(counters.Collectors()...)
	return linstor.NewClient(config, counters,
		linstor.ClientOptions{UserAgent: version.UserAgent(), RequestTimeout: opts.OperationsTimeout})
}

// newManager returns a manager that stands for election by the lease, unless that is nil.
func newManager(
	opts options.Options, config *rest.Config, lease *leaderelection.Lease, dead *watches.Watches, log logr.Logger,
) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(scheme))
	utilruntime.Must(storagev1.AddToScheme(scheme))
	utilruntime.Must(coordinationv1.AddToScheme(scheme))
	utilruntime.Must(authorizationv1.AddToScheme(scheme))
	var lock resourcelock.Interface // a nil one, not one of a nil lease
	if lease != nil {
		lock = lease
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme,
		Logger: log,
		Cache: cache.Options{
			DefaultTransform:            cluster.Trim(opts.PodSelector),
			ReaderFailOnMissingInformer: true,
			NewInformer:                 dead.NewInformer,
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Pod{}:           {Label: opts.PodSelector},
				&coordinationv1.Lease{}: {Namespaces: map[string]cache.Config{cluster.LeaseNamespace: {}}},
			},
		},
		Metrics:                             metricsOptions(opts),
		PprofBindAddress:                    opts.PprofBindAddress,
		HealthProbeBindAddress:              net.JoinHostPort("", strconv.Itoa(opts.LeaderElectionHealthzPort)),
		LeaderElection:                      opts.LeaderElection,
		LeaderElectionResourceLockInterface: lock,
		LeaderElectionID:                    opts.LeaderElectionResourceName, // the name in the metrics
		LeaderElectionReleaseOnCancel:       true,
		LeaseDuration:                       &opts.LeaseDuration,
		RenewDeadline:                       &opts.RenewDeadline,
		RetryPeriod:                         &opts.RetryPeriod,
		GracefulShutdownTimeout:             new(shutdownTimeout),
	})
	if err != nil {
		return nil, fmt.Errorf("connecting to the Kubernetes API: %w", err)
	}
	return mgr, nil
}

// What a watch of a kind that never changes is told of etcd's progress: API servers from 1.31 on ask etcd for it if a list wants it. Others wait for
// etcd's own reports, which come every ten minutes by default.
const (
	asksEtcd     = "1.31"
	etcdReports  = 12 * time.Minute
	askedVersion = 5 * time.Second
)

// watchesBehind returns how long a watch may be behind before it counts as dead; 0 for the default.
func watchesBehind(config *rest.Config) time.Duration {
	config = rest.CopyConfig(config)
	config.Timeout = askedVersion
	asked, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return etcdReports
	}
	server, err := asked.ServerVersion()
	if err != nil {
		return etcdReports
	}
	if version, err := utilversion.ParseGeneric(server.GitVersion); err != nil || version.LessThan(utilversion.MustParseGeneric(asksEtcd)) {
		return etcdReports
	}
	return 0
}

func metricsOptions(opts options.Options) metricsserver.Options {
	result := metricsserver.Options{BindAddress: opts.MetricsBindAddress, SecureServing: opts.MetricsSecure}
	if opts.MetricsSecure {
		result.FilterProvider = reviewedSlowly
	}
	return result
}

// Each token that comes to the metrics port costs a TokenReview: those of strangers must not take the place of a fail-over's requests.
const (
	reviewsPerSecond = 5
	reviewsAtOnce    = 10
)

// reviewedSlowly authenticates and authorizes clients of the metrics server, with a client of its own that is limited. An answer is good for a minute.
func reviewedSlowly(config *rest.Config, _ *http.Client) (metricsserver.Filter, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst, config.RateLimiter = reviewsPerSecond, reviewsAtOnce, nil
	own, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making the client for TokenReviews: %w", err)
	}
	return filters.WithAuthenticationAndAuthorization(config, own)
}

// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;create;update,namespace=ha-controller,roleName=piraeus-ha-controller-manager
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

func controllerConfig(opts options.Options, view linstorView) controllers.Config {
	counters := failovermetrics.New()
	counters.DryRun(opts.DryRun)
	metrics.Registry.MustRegister(append(counters.Collectors(), failovermetrics.BuildInfo())...)
	limit, _ := failover.ParseLimit(opts.MaxLostNodes) // validated with the options
	return controllers.Config{
		Driver:            opts.AttacherName,
		Selector:          opts.PodSelector,
		RecoverSelector:   opts.RecoverSelector,
		Settings:          opts.Settings(),
		Linstor:           view,
		Metrics:           counters,
		Installation:      leaderelection.Namespace(opts) + "/" + opts.LeaderElectionResourceName,
		Owner:             opts.LeaderElectionLeaseName,
		ShutdownTaints:    opts.ShutdownTaints,
		FastDetach:        opts.FastDetach,
		MaxLostNodes:      limit,
		Evacuation:        opts.Evacuations(),
		PauseDeployment:   types.NamespacedName{Namespace: leaderelection.Namespace(opts), Name: opts.PauseDeployment},
		Pod:               ownPod(opts),
		DryRun:            opts.DryRun,
		DisableNodeTaints: opts.DisableNodeTaints,
		ReconcileInterval: opts.ReconcileInterval,
		OperationsTimeout: opts.OperationsTimeout,
		Concurrency:       opts.Concurrency,
	}
}

// setUp adds the controllers to the manager, and serves their forecast.
func setUp(ctx context.Context, mgr ctrl.Manager, cfg controllers.Config, log logr.Logger) (*controllers.Memory, error) {
	memory, err := controllers.SetUp(ctx, mgr, cfg)
	if err != nil {
		return nil, err
	}
	return memory, asking.Serve(ctx, memory, log.WithName("forecast"))
}

// endWithDeadWatches lets this process end when one of its watches is dead. Without a leader election nothing shows that.
func endWithDeadWatches(mgr ctrl.Manager, dead *watches.Watches, opts options.Options, config *rest.Config) (err error) {
	if !opts.LeaderElection {
		return nil
	}
	dead.Live = func(ctx context.Context) (string, error) {
		var lease coordinationv1.Lease
		err := mgr.GetAPIReader().Get(ctx, client.ObjectKey{Namespace: leaderelection.Namespace(opts), Name: opts.LeaderElectionResourceName}, &lease)
		return lease.ResourceVersion, err
	}
	if dead.Turn, err = leaderelection.Turn(opts, config); err != nil {
		return err
	}
	if err := mgr.Add(dead); err != nil {
		return fmt.Errorf("adding the search for dead watches: %w", err)
	}
	return nil
}

// ownPod is the pod that this process runs in, as the manifest tells it by the downward API; its name is empty where it does not.
func ownPod(opts options.Options) types.NamespacedName {
	namespace := os.Getenv("POD_NAMESPACE")
	if namespace == "" {
		namespace = leaderelection.Namespace(opts)
	}
	return types.NamespacedName{Namespace: namespace, Name: os.Getenv("POD_NAME")}
}

// addProbes serves /healthz, which says that the process is alive whatever LINSTOR does, and /readyz.
func addProbes(mgr ctrl.Manager, review *permissions.Review) error {
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("adding /healthz: %w", err)
	}
	ready := func(req *http.Request) error {
		ctx, cancel := context.WithTimeout(req.Context(), readyTimeout)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("the state of the cluster has not been read yet")
		}
		return nil
	}
	if err := mgr.AddReadyzCheck("cache", ready); err != nil {
		return fmt.Errorf("adding /readyz: %w", err)
	}
	if err := mgr.AddReadyzCheck("permissions", review.Passed); err != nil {
		return fmt.Errorf("adding the permissions to /readyz: %w", err)
	}
	return nil
}
