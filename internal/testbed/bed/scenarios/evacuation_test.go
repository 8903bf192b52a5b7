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
	b := bedtest.Own(t, "scenarios-evacuations", bed.Options{
		SyncRate: syncRate, KubeAPIQPS: 50,
		LINSTOR: linstorsim.Options{
			TieBreakers: true, Balancing: true, ReconnectInterval: 2 * time.Second, ControllerProps: eager(),
		},
		Driver: csidriver.Options{NodeCache: time.Second, ResourceCache: time.Second},
	})
	d := &departure{Scenario: bedtest.New(t, b, 3), calls: noteCalls(b)}
	for _, scenario := range []struct {
		name  string
		nodes int
		play  func(*departure)
	}{
		{"of three nodes, one with the only copies of three volumes is rebooted", 3, reboot},
		{"of three nodes, one cannot leave where each has a replica", 3, noFourthNode},
		{"of three nodes, one leaves and takes the quorum with it until it is back", 3, quorumOff},
		{"of four nodes, one leaves with volumes of one, two and three replicas", 4, leave},
		{"a node leaves although an operator restores it", 4, restoringOperator},
		{"the taint goes while LINSTOR moves disks off the node", 4, takenBackWhileLeaving},
		{"a node crashes while LINSTOR moves disks off it", 4, crashWhileLeaving},
		{"the leader is killed in every state", 4, leaderKilled},
		{"two of five nodes leave at once", 5, twoAtOnce},
		{"two of five nodes leave one after the other", 5, oneAfterTheOther},
		{"LINSTOR runs on the node that leaves", 5, restartedLinstor},
	} {
		for len(d.Nodes) < scenario.nodes {
			more, err := b.AddNodes(t.Context(), fmt.Sprintf("%s-more%d", d.Name, len(d.Nodes)), 1)
			d.Must(err)
			d.Nodes = append(d.Nodes, more...)
		}
		if !t.Run(scenario.name, func(t *testing.T) { scenario.play(d.on(t)) }) {
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
