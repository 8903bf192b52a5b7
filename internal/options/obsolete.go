package options

import (
	"flag"
	"fmt"
	"slices"
	"strings"
)

// The successors of obsolete options.
const (
	byKubeconfig = "the cluster is found by --kubeconfig, or by the ServiceAccount of the pod"
	byEvents     = "DRBD's state comes from LINSTOR's events; nothing takes its place"
)

// obsolete are options of the node agents, releases 1.x, that mean nothing any more, and what takes their place. They are accepted, so
// that the arguments of an agent can be kept. (https://github.com/piraeusdatastore/piraeus-ha-controller/blob/v1.3.2/cmd/agent/main.go)
var obsolete = map[string]string{
	"drbd-status-interval":  byEvents,
	"fail-over-timeout":     "see --confirmed-loss-grace-period and --unanimous-loss-grace-period",
	"health-bind-address":   "see --leader-election-healtz-port",
	"satellite-pod-label":   "satellites are those that LINSTOR lists; nothing takes its place",
	"node-name":             "one Deployment looks after all nodes; nothing takes its place",
	"vmodule":               "see --v",
	"log-flush-frequency":   "see --v",
	"as":                    byKubeconfig,
	"as-group":              byKubeconfig,
	"as-uid":                byKubeconfig,
	"cache-dir":             byKubeconfig,
	"certificate-authority": byKubeconfig,
	"client-certificate":    byKubeconfig,
	"client-key":            byKubeconfig,
	"cluster":               byKubeconfig,
	"context":               byKubeconfig,
	"namespace":             byKubeconfig,
	"n":                     byKubeconfig,
	"request-timeout":       "see --operations-timeout",
	"server":                byKubeconfig,
	"s":                     byKubeconfig,
	"tls-server-name":       byKubeconfig,
	"token":                 byKubeconfig,
	"user":                  byKubeconfig,
}

// obsoleteSwitches are those of them that need no value.
var obsoleteSwitches = map[string]string{
	"disable-compression":      byKubeconfig,
	"insecure-skip-tls-verify": byKubeconfig,
}

// ObsoleteFlags returns the options that are accepted and mean nothing any more, sorted by name. Usage says what takes their place.
func ObsoleteFlags() []Flag {
	var all []Flag
	for _, options := range []map[string]string{obsolete, obsoleteSwitches} {
		for name, successor := range options {
			all = append(all, Flag{Name: name, Usage: successor})
		}
	}
	slices.SortFunc(all, func(a, b Flag) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// acceptObsolete lets the obsolete options be given, and notes each that is.
func (o *Options) acceptObsolete(fs *flag.FlagSet) {
	note := func(name, successor string) func(string) error {
		return func(string) error {
			o.Obsolete = append(o.Obsolete, fmt.Sprintf("--%s means nothing any more: %s", name, successor))
			return nil
		}
	}
	for name, successor := range obsolete {
		fs.Func(name, "", note(name, successor))
	}
	for name, successor := range obsoleteSwitches {
		fs.BoolFunc(name, "", note(name, successor))
	}
}
