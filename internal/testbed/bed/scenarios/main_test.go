// Package scenarios_test plays what happens to clusters against a real control plane and the controller
// as shipped, and looks at what became of pods, attachments, nodes and data.
//
// Two beds run at the same time. Most scenarios share one and run in parallel, each on nodes of its own.
// What everybody would notice is played one after the other on the other bed, see TestDisturbances.
package scenarios_test

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/bedtest"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/csidriver"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

const (
	// promised is the time from a crash to the replacement Running that a scenario accepts: 10 s until
	// DRBD notices, 5 s of grace, the rest for Kubernetes and a machine that has other things to do.
	promised = 40 * time.Second
	// stopping is what a living node may take in addition: the grace for the pod to stop, and then force.
	stopping = 20 * time.Second
	// patience is longer than any grace of the controller, with its default arguments.
	patience = 55 * time.Second
)

// quick are the options of a bed where DRBD and the grace take little time, so that many fail-overs fit into little. Nodes come back
// within the minute that the CSI driver keeps what it knows of them by default.
var quick = bed.Options{
	DRBDDetection: time.Second, LINSTOR: linstorsim.Options{ReconnectInterval: 2 * time.Second}, Driver: csidriver.Options{NodeCache: 5 * time.Second},
	ControllerArgs: []string{"--confirmed-loss-grace-period=2s"},
}

// parallel is how many scenarios run at the same time. They wait most of the time, so that it has nothing
// to do with the number of cores.
const parallel = "16"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", parallel); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	bedtest.Main(m)
}
