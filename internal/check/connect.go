package check

import (
	"context"
	"errors"
	"fmt"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/options"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/version"
)

// accountTokenFile is where Kubernetes mounts the token of a pod's ServiceAccount.
const accountTokenFile = "/var/run/secrets/kubernetes.io/serviceaccount/token" //nolint:gosec // a path, not a credential

// connect prepares to read Kubernetes and LINSTOR. It asks neither of them yet.
func connect(c commandLine, lookup func(string) (string, bool)) (sources, error) {
	config, err := c.cluster.ToRESTConfig()
	if err != nil {
		return sources{}, fmt.Errorf("finding the Kubernetes API: %w", err)
	}
	config = rest.CopyConfig(config)
	options.Tune(config)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, storagev1.AddToScheme, coordinationv1.AddToScheme, appsv1.AddToScheme, authorizationv1.AddToScheme,
		eventsv1.AddToScheme, rbacv1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	api, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return sources{}, fmt.Errorf("connecting to the Kubernetes API: %w", err)
	}
	s := sources{api: api, own: config.BearerTokenFile == accountTokenFile}
	s.open = func(ctx context.Context, driver string, kubelets *cluster.Kubelets) (client.Reader, error) {
		return openCache(ctx, config, scheme, driver, kubelets)
	}
	s.linstor, s.linstorError = linstorClient(lookup)
	return s, nil
}

func linstorClient(lookup func(string) (string, bool)) (*linstor.Client, error) {
	config, err := linstor.ConfigFromEnv(lookup)
	if err != nil {
		return nil, err
	}
	return linstor.NewClient(config, nil, linstor.ClientOptions{UserAgent: version.UserAgent()})
}

// openCache fills a cache with all objects that a survey reads, and waits until it is complete.
func openCache(
	ctx context.Context, config *rest.Config, scheme *runtime.Scheme, driver string, kubelets *cluster.Kubelets,
) (client.Reader, error) {
	waiting, refuse := context.WithCancelCause(ctx)
	defer refuse(nil)
	failure := &lastError{}
	c, err := cache.New(config, cache.Options{
		Scheme:                      scheme,
		ReaderFailOnMissingInformer: true,
		DefaultTransform:            cluster.Trim(nil),
		DefaultWatchErrorHandler: func(_ context.Context, _ *toolscache.Reflector, err error) {
			failure.set(err)
			if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
				refuse(err)
			}
		},
		ByObject: map[client.Object]cache.ByObject{
			&coordinationv1.Lease{}: {Namespaces: map[string]cache.Config{cluster.LeaseNamespace: {}}},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("connecting to the Kubernetes API: %w", err)
	}
	if err := cluster.AddIndexes(ctx, c, driver); err != nil {
		return nil, err
	}
	if err := kubelets.Follow(ctx, c); err != nil {
		return nil, err
	}
	go func() { _ = c.Start(ctx) }()
	if c.WaitForCacheSync(waiting) {
		return c, nil
	}
	cause := context.Cause(waiting)
	if last := failure.get(); last != nil && errors.Is(cause, context.DeadlineExceeded) {
		cause = last
	}
	return nil, fmt.Errorf("reading the Kubernetes API: %w", cause)
}

// lastError remembers the newest error of several goroutines.
type lastError struct {
	mu  sync.Mutex
	err error
}

func (l *lastError) set(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

func (l *lastError) get() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}
