package forecast

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
)

// Values of DRBD's options.
const (
	suspendIO      = "suspend-io"
	ioError        = "io-error"
	forceSecondary = "force-secondary"
	disconnect     = "disconnect"
	retryConnect   = "retry-connect"
	synchronous    = "C"
)

// advice is what a DRBD option should be, and what happens otherwise on a node that lost its peers or its data.
type advice struct {
	key string
	// byDefault is DRBD's value where no level of LINSTOR sets one.
	byDefault string
	// bad are the values that leave a node in need of help, or data unsafe, good is the one to set instead.
	bad  []string
	good string
	// consequence completes "so that ...".
	consequence string
}

var advices = [...]advice{
	{
		linstor.OptionOnNoQuorum, suspendIO,
		[]string{ioError},
		suspendIO,
		"a short loss of quorum makes file systems read-only, and they stay so under a pod that need not be moved",
	},
	{
		linstor.OptionOnNoDataAccessible, ioError,
		[]string{ioError},
		suspendIO,
		"a short loss of all disks makes file systems read-only, and they stay so under a pod that need not be moved",
	},
	{
		linstor.OptionOnSuspendedPrimaryOutdated, disconnect,
		[]string{disconnect},
		forceSecondary,
		"a node that returns after another one took over keeps its reads and writes suspended, and its old pod never ends until the node restarts",
	},
	{
		linstor.OptionRRConflict, disconnect,
		[]string{disconnect},
		retryConnect,
		"a node that returns after another one took over stays disconnected until somebody connects it by hand",
	},
	{
		linstor.OptionProtocol, synchronous,
		[]string{"A", "B"},
		synchronous,
		"DRBD acknowledges a write before it is on a peer's disk, and a fail-over may lose it",
	},
}

// OptionKeys returns the properties of LINSTOR that the report needs.
func OptionKeys() []string {
	keys := []string{linstor.OptionPingInt} // those of the controller are read whatever their names
	for _, a := range advices {
		keys = append(keys, a.key)
	}
	return keys
}

// classPrefix begins the parameter of a StorageClass that linstor-csi writes into the resource group.
const classPrefix = "property.linstor.csi.linbit.com/"

// place is where a property is set. All resource definitions are one place, or there could be a finding for each.
type place struct {
	level         linstor.Level
	object, value string
}

// optionsFound finds the options that leave a node stuck, one finding for each place where one is set.
type optionsFound struct {
	options linstor.DRBDOptions
	found   [len(advices)]map[place]names
}

// add looks at the options of a resource on each of its nodes.
func (o *optionsFound) add(r failover.Resource) {
	if !o.options.Has(r.Name) {
		return
	}
	for _, replica := range r.Replicas {
		suspends := false
		for i, a := range advices {
			s := o.options.Setting(r.Name, replica.Node, a.key)
			value := cmp.Or(s.Value, a.byDefault)
			suspends = suspends || a.good == suspendIO && value == suspendIO
			if !slices.Contains(a.bad, value) || a.key == linstor.OptionOnSuspendedPrimaryOutdated && !suspends {
				continue
			}
			s.Value = value
			o.note(i, s, r.Name)
		}
	}
}

// note notes that a resource has an option that an advice is about.
func (o *optionsFound) note(advice int, s linstor.Setting, resource string) {
	p := place{s.Level, s.Object, s.Value}
	if s.Level == linstor.LevelDefinition {
		p.object = ""
	}
	if o.found[advice] == nil {
		o.found[advice] = make(map[place]names)
	}
	if o.found[advice][p] == nil {
		o.found[advice][p] = names{}
	}
	o.found[advice][p][resource] = true
}

func (o *optionsFound) findings() (all []Finding) {
	for i, a := range advices {
		for _, p := range slices.SortedFunc(maps.Keys(o.found[i]), comparePlaces) {
			resources := o.found[i][p].sorted()
			all = append(all, Finding{
				Severity: Warning, Code: DRBDOption, Objects: resources,
				Message: fmt.Sprintf("%s is %s %s, so that %s", a.key, p.value, where(p), a.consequence),
				Remedy:  filled(setProperty(p, a.key, a.good)+"; for new volumes, in the StorageClass: "+classPrefix+a.key+": "+a.good, "RESOURCE", resources),
			})
		}
	}
	return all
}

func comparePlaces(a, b place) int {
	return cmp.Or(cmp.Compare(a.level, b.level), cmp.Compare(a.object, b.object), cmp.Compare(a.value, b.value))
}

func where(p place) string {
	switch p.level {
	case linstor.LevelDefault:
		return "by default"
	case linstor.LevelController:
		return "for the whole cluster"
	case linstor.LevelDefinition:
		return "on the resource definitions"
	default:
		return fmt.Sprintf("on %s %s", p.level, p.object)
	}
}

// setProperty returns the command that sets a property where it is set now, or for the whole cluster.
func setProperty(p place, key, value string) string {
	switch p.level {
	case linstor.LevelDefinition:
		return fmt.Sprintf("linstor resource-definition set-property RESOURCE %s %s", key, value)
	case linstor.LevelDefault, linstor.LevelController:
		return fmt.Sprintf("linstor controller set-property %s %s", key, value)
	default:
		return fmt.Sprintf("linstor %s set-property %s %s %s", p.level, p.object, key, value)
	}
}
