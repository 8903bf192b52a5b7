package linstor

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

// What those need who have a client made.
type (
	// Config tells where the LINSTOR controllers are and how to authenticate to them.
	Config = client.Config
	// ClientOptions are the settings of a Client.
	ClientOptions = client.Options
)

// ErrNotFound is what LINSTOR's own "not found" matches with errors.Is.
var ErrNotFound = client.ErrNotFound

// ConfigFromEnv reads the LS_* variables by lookup, which is os.LookupEnv outside of tests.
func ConfigFromEnv(lookup func(string) (string, bool)) (Config, error) {
	return client.ConfigFromEnv(lookup)
}

// Certificates returns a collector of when the certificates of a configuration end.
func Certificates(cfg Config) prometheus.Collector { return client.Certificates(cfg) }

// Client asks LINSTOR controllers, and counts what it asks.
type Client struct {
	*client.Client
	metrics *Metrics
}

// NewClient returns a client for the controllers of cfg, which connects to none of them yet. It counts by metrics of its own where it is
// given none.
func NewClient(cfg Config, metrics *Metrics, opts ClientOptions) (*Client, error) {
	metrics = cmp.Or(metrics, NewMetrics())
	opts.Observe = metrics.request
	c, err := client.New(cfg, opts)
	if err != nil {
		return nil, err
	}
	return &Client{Client: c, metrics: metrics}, nil
}
