package linstor

import (
	"cmp"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

// These types make a client.
type (
	// Config has the addresses of the LINSTOR controllers and the credentials.
	Config = client.Config
	// ClientOptions are the settings of a Client.
	ClientOptions = client.Options
	// Variable is an environment variable that ConfigFromEnv reads.
	Variable = client.Variable
)

// Variables returns every variable that ConfigFromEnv reads.
func Variables() []Variable { return client.Variables() }

// ErrNotFound is what LINSTOR's own "not found" matches with errors.Is.
var ErrNotFound = client.ErrNotFound

// ConfigFromEnv reads the Variables by lookup, which is os.LookupEnv outside of tests.
func ConfigFromEnv(lookup func(string) (string, bool)) (Config, error) {
	return client.ConfigFromEnv(lookup)
}

// Client sends requests to LINSTOR controllers, and counts them.
type Client struct {
	*client.Client
	metrics *Metrics
}

// NewClient returns a client for the controllers of cfg. It connects to none of them yet. Without metrics it counts by its own.
func NewClient(cfg Config, metrics *Metrics, opts ClientOptions) (*Client, error) {
	metrics = cmp.Or(metrics, NewMetrics())
	opts.Observe = metrics.request
	c, err := client.New(cfg, opts)
	if err != nil {
		return nil, err
	}
	return &Client{Client: c, metrics: metrics}, nil
}
