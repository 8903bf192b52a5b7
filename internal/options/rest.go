package options

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/version"
)

// RESTConfig returns how to reach the Kubernetes API: the file of --kubeconfig, else the KUBECONFIG environment
// variable, the ServiceAccount of the pod, or the default file of the user, in this order.
//
// The client does not limit its own rate; the API server's priority and fairness does. There is no timeout in it,
// because it would end watches too: callers give each request the deadline of OperationsTimeout. Answers are not compressed.
func (o *Options) RESTConfig() (*rest.Config, error) {
	cfg, err := o.loadRESTConfig()
	if err != nil {
		return nil, err
	}

	Tune(cfg)

	return cfg, nil
}

// Tune sets how this program uses the Kubernetes API, however that was found.
func Tune(cfg *rest.Config) {
	cfg.QPS = -1
	// Long lists would come compressed, which costs both sides more time than it saves on the network.
	cfg.DisableCompression = true
	cfg.UserAgent = version.UserAgent()
}

func (o *Options) loadRESTConfig() (*rest.Config, error) {
	if o.Kubeconfig == "" {
		cfg, err := config.GetConfig()
		if err != nil {
			return nil, fmt.Errorf("finding the Kubernetes API: %w", err)
		}

		return cfg, nil
	}

	cfg, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading --kubeconfig=%q: %w", o.Kubeconfig, err)
	}

	return cfg, nil
}
