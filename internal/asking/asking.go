// Package asking makes the clients by which a forecast asks, and serves forecasts.
package asking

import (
	"context"
	"fmt"
	"os"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/controllers"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/forecast"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/leaderelection"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/options"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/permissions"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/version"
)

// What a forecast asks the API server must not take the place of a fail-over's requests.
const (
	askedPerSecond = 50
	askedAtOnce    = 50
)

// New returns what a forecast asks of others, with clients of its own. It returns an error if the settings of LINSTOR or of the API server are invalid.
func New(opts options.Options, config *rest.Config, scheme *runtime.Scheme) (controllers.Asked, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = askedPerSecond, askedAtOnce
	api, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return controllers.Asked{}, fmt.Errorf("connecting to the Kubernetes API: %w", err)
	}
	environment, err := linstor.ConfigFromEnv(os.LookupEnv)
	if err != nil {
		return controllers.Asked{}, err
	}
	ofLinstor, err := linstor.NewClient(environment, nil, linstor.ClientOptions{UserAgent: version.UserAgent(), RequestTimeout: opts.OperationsTimeout})
	if err != nil {
		return controllers.Asked{}, err
	}
	namespace := leaderelection.Namespace(opts)
	result := controllers.Asked{
		API: api, Options: ofLinstor.DRBDOptions, Takeover: opts.LeaseDuration + opts.RetryPeriod,
		Denied: func(ctx context.Context) ([]string, error) {
			denied, err := permissions.Denied(ctx, api, "", permissions.Required(namespace, opts))
			names := make([]string, len(denied))
			for i, p := range denied {
				names[i] = p.String()
			}
			return names, err
		},
	}
	if opts.LeaderElection {
		result.Leader = func(ctx context.Context) (string, error) {
			var lease coordinationv1.Lease
			err := api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: opts.LeaderElectionResourceName}, &lease)
			if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
				return "", err
			}
			return cluster.Key(namespace, leaderelection.PodOf(*lease.Spec.HolderIdentity)), nil
		}
	}
	return result, nil
}

// Serve serves forecasts from now on until ctx ends, also while the state of the cluster has not been read: then that is the answer. It returns an error
// if FORECAST_PORT is no port.
func Serve(ctx context.Context, memory *controllers.Memory, log logr.Logger) error {
	port, err := forecast.Port(os.LookupEnv)
	if err != nil {
		return err
	}
	go forecast.Serve(ctx, port, memory.Forecast, log)
	return nil
}
