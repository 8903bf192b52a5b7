package recordings_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/recordings"
)

// The file's own demands end with the loss.
func TestAfterAnEvictionTheNewDiskSurvivesALoss(t *testing.T) {
	t.Parallel()
	transcript := *recordings.Load(t, "22-lost-after-eviction")
	at := func(s float64) recordings.Seconds { return recordings.Seconds(s * float64(time.Second)) }
	transcript.Must = append(slices.Clip(transcript.Must),
		recordings.Demand{From: at(0), To: at(15.5), Of: "node-a", Not: failover.Lost, Why: "the grace runs"},
		recordings.Demand{From: at(16.1), To: at(25), Of: "node-a", Verdict: failover.Lost, Reason: failover.NodeUnreachable, Why: "node-d may be promoted"},
	)
	for _, lease := range leases {
		t.Run(lease.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				result := judge(t, &transcript, lease.last)
				for _, f := range result.failures {
					t.Error(f)
				}
				for _, decision := range result.decisions {
					t.Log(decision)
				}
			})
		})
	}
}

func TestANewVolumeIsConfirmed(t *testing.T) {
	t.Parallel()
	transcript := recordings.Load(t, "02-volume-made")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var tasks sync.WaitGroup
		defer tasks.Wait()
		defer cancel()
		kube := newKubernetes(ctx, t, transcript, "node-a")
		<-time.After(age)
		player := recordings.Play(t, transcript)
		product := startProduct(ctx, t, &tasks, player, kube)
		tasks.Go(func() { kube.keepRenewing(ctx, transcript.Nodes, "", player.At(0), 0) })
		end := transcript.Must[len(transcript.Must)-1].To
		<-time.After(time.Until(player.At(end)))
		uses, _, err := product.survey.Uses(ctx, namespace)
		if err != nil || len(uses) != 1 {
			t.Fatal(uses, err)
		}
		r := uses[0].Input.Resource
		if len(r.Replicas) != 3 || r.Quorum != "majority" {
			t.Errorf("%d replicas with quorum %s", len(r.Replicas), r.Quorum)
		}
		for _, replica := range r.Replicas {
			if !replica.Confirmed || !replica.Proven {
				t.Errorf("%s is confirmed: %t, proven: %t, votes %v", replica.Node, replica.Confirmed, replica.Proven, replica.Votes)
			}
		}
	})
}
