package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
)

// Values of DRBD's options.
const (
	suspendIO      = "suspend-io"
	ioError        = "io-error"
	forceSecondary = "force-secondary"
	disconnect     = "disconnect"
	retryConnect   = "retry-connect"
)

// advice is what a DRBD option should be, and what happens otherwise on a node that lost its peers or its data.
type advice struct {
	key string
	// byDefault is DRBD's value where no level of LINSTOR sets one.
	byDefault string
	// bad are the values that leave a node in need of help, good is the one to set instead.
	bad, good string
	// consequence completes "so that ...".
	consequence string
}

var advices = []advice{
	{
		linstor.OptionOnNoQuorum, suspendIO, ioError, suspendIO,
		"a short loss of quorum makes file systems read-only, and they stay so under a pod that need not be moved",
	},
	{
		linstor.OptionOnNoDataAccessible, ioError, ioError, suspendIO,
		"a short loss of all disks makes file systems read-only, and they stay so under a pod that need not be moved",
	},
	{
		linstor.OptionOnSuspendedPrimaryOutdated, disconnect, disconnect, forceSecondary,
		"a node that returns after another one took over keeps its reads and writes suspended, and its old pod never ends until the node restarts",
	},
	{
		linstor.OptionRRConflict, disconnect, disconnect, retryConnect,
		"a node that returns after another one took over stays disconnected until somebody connects it by hand",
	},
}

// optionKeys returns the properties to read.
func optionKeys() []string {
	keys := []string{linstor.OptionPingInt}
	for _, a := range advices {
		keys = append(keys, a.key)
	}
	return keys
}

// place is where a property is set. All resource definitions are one place, or there could be a finding for each.
type place struct {
	level  linstor.Level
	object string
}

// drbdOptions finds the options that leave a node stuck, one finding for each place where one is set.
func drbdOptions(settings []linstor.Setting) []Finding {
	suspending := suspendingReplicas(settings)
	var all []Finding
	for _, a := range advices {
		found := map[place][]string{}
		for _, s := range settings {
			if s.Key != a.key || cmp.Or(s.Value, a.byDefault) != a.bad {
				continue
			}
			if a.key == linstor.OptionOnSuspendedPrimaryOutdated && !suspending[replica{s.Resource, s.Node}] {
				continue
			}
			p := place{s.Level, s.Object}
			if s.Level == linstor.LevelDefinition {
				p.object = ""
			}
			found[p] = appendNew(found[p], s.Resource)
		}
		for _, p := range slices.SortedFunc(maps.Keys(found), comparePlaces) {
			resources := found[p]
			slices.Sort(resources)
			all = append(all, Finding{
				Severity: Warning, Code: DRBDOption, Objects: resources,
				Message: fmt.Sprintf("%s is %s %s, so that %s", a.key, a.bad, where(p), a.consequence),
				Remedy:  filled(setProperty(p, a.key, a.good), "RESOURCE", resources),
			})
		}
	}
	return all
}

func comparePlaces(a, b place) int {
	return cmp.Or(cmp.Compare(a.level, b.level), cmp.Compare(a.object, b.object))
}

// replica is a resource on one node.
type replica struct{ resource, node string }

// suspendingReplicas returns those on which DRBD suspends reads and writes rather than fails them.
func suspendingReplicas(settings []linstor.Setting) map[replica]bool {
	suspending := map[replica]bool{}
	for _, s := range settings {
		for _, a := range advices {
			if a.key == s.Key && a.good == suspendIO && cmp.Or(s.Value, a.byDefault) == suspendIO {
				suspending[replica{s.Resource, s.Node}] = true
			}
		}
	}
	return suspending
}

func where(p place) string {
	switch p.level {
	case linstor.LevelDefault:
		return "by default"
	case linstor.LevelController:
		return "for the whole cluster"
	case linstor.LevelDefinition:
		return "on the resource definitions"
	case linstor.LevelResource:
		return "on the replicas of node " + p.object
	default:
		return fmt.Sprintf("on %s %s", p.level, p.object)
	}
}

// setProperty returns the command that sets a property where it is set now, or for the whole cluster.
func setProperty(p place, key, value string) string {
	switch p.level {
	case linstor.LevelResource:
		return fmt.Sprintf("linstor resource set-property %s RESOURCE %s %s", p.object, key, value)
	case linstor.LevelDefinition:
		return fmt.Sprintf("linstor resource-definition set-property RESOURCE %s %s", key, value)
	case linstor.LevelDefault, linstor.LevelController:
		return fmt.Sprintf("linstor controller set-property %s %s", key, value)
	default:
		return fmt.Sprintf("linstor %s set-property %s %s %s", p.level, p.object, key, value)
	}
}
