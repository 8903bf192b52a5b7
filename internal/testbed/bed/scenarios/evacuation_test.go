package scenarios_test

import (
	"fmt"
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
	playDepartures(t, "scenarios-evacuations", []departureRow{
		{"of three nodes, one with the only copies of three volumes is rebooted", 3, reboot},
		{"of three nodes, one cannot leave where each has a replica", 3, noFourthNode},
		{"of three nodes, one leaves and takes the quorum with it until it is back", 3, quorumOff},
		{"of four nodes, one leaves with volumes of one, two and three replicas", 4, leave},
		{"two of five nodes leave at once", 5, twoAtOnce},
		{"two of five nodes leave one after the other", 5, oneAfterTheOther},
	})
}

// TestEvacuationsInTrouble does the same while something goes wrong.
//
//nolint:tparallel // each scenario has the whole cluster
func TestEvacuationsInTrouble(t *testing.T) {
	t.Parallel()
	playDepartures(t, "scenarios-evacuations-in-trouble", []departureRow{
		{"a node leaves although an operator restores it", 4, restoringOperator},
		{"the taint goes while LINSTOR moves disks off the node", 4, takenBackWhileLeaving},
		{"a node crashes while LINSTOR moves disks off it", 4, crashWhileLeaving},
		{"the leader is killed in every state", 4, leaderKilled},
		{"LINSTOR runs on the node that leaves", 4, restartedLinstor}, // and only where such a pod does, from then on
	})
}

// departureRow is a scenario on a cluster of so many nodes.
type departureRow struct {
	name  string
	nodes int
	play  func(*departure)
}

// playDepartures plays scenarios one after the other on a bed that LINSTOR's balancing looks at all the time.
func playDepartures(t *testing.T, name string, rows []departureRow) {
	t.Helper()
	b := bedtest.Own(t, name, bed.Options{
		SyncRate: syncRate, KubeAPIQPS: 50,
		LINSTOR: linstorsim.Options{
			TieBreakers: true, Balancing: true, ReconnectInterval: 2 * time.Second, ControllerProps: eager(),
		},
		Driver: csidriver.Options{NodeCache: time.Second, ResourceCache: time.Second},
	})
	d := &departure{Scenario: bedtest.New(t, b, rows[0].nodes), calls: noteCalls(b)}
	for _, row := range rows {
		for len(d.Nodes) < row.nodes {
			more, err := b.AddNodes(t.Context(), fmt.Sprintf("%s-more%d", d.Name, len(d.Nodes)), 1)
			d.Must(err)
			d.Nodes = append(d.Nodes, more...)
		}
		if !t.Run(row.name, func(t *testing.T) { row.play(d.on(t)) }) {
			t.Fatal("the next ones would not find the cluster as they need it")
		}
	}
	nothingForbidden(t, b)
}

// eager are LINSTOR's properties with which its balancing removes what is too much after seconds instead of an hour.
func eager() map[string]string {
	props := linstorsim.PiraeusProps()
	props[linstorsim.PropBalanceInterval], props[linstorsim.PropBalanceGracePeriod] = "10", "10"
	return props
}
