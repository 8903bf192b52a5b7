package scenarios_test

import (
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/bedtest"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/csidriver"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

// TestEvacuations takes nodes out of a small cluster of its own and back, one after the other.
//
//nolint:tparallel // each scenario has the whole cluster
func TestEvacuations(t *testing.T) {
	t.Parallel()
	b := bedtest.Own(t, "scenarios-evacuations", bed.Options{
		SyncRate: syncRate, KubeAPIQPS: 50,
		LINSTOR: linstorsim.Options{TieBreakers: true, ReconnectInterval: 2 * time.Second},
		Driver:  csidriver.Options{NodeCache: time.Second, ResourceCache: time.Second},
	})
	calls := noteCalls(b)
	three := &departure{Scenario: bedtest.New(t, b, 3), calls: calls}
	for _, scenario := range []struct {
		name string
		play func(*departure)
	}{
		{"a node with the only copies of three volumes is rebooted", reboot},
	} {
		if !t.Run(scenario.name, func(t *testing.T) { scenario.play(three.on(t)) }) {
			return
		}
	}
	nothingForbidden(t, b)
}
