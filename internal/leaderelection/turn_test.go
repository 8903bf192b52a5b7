package leaderelection

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestReplicasThatEndByThemselvesDoSoOneAfterTheOther(t *testing.T) {
	t.Parallel()
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			var l lease
			var mu sync.Mutex
			var ended []time.Time
			begun := time.Now()
			var all sync.WaitGroup
			for i := range 3 {
				all.Go(func() {
					<-time.After(rand.N(10 * time.Second))
					if err := TurnBy(&client{lease: &l, identity: strconv.Itoa(i)})(t.Context()); err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					ended = append(ended, time.Now())
				})
			}
			all.Wait()
			slices.SortFunc(ended, time.Time.Compare)
			for i, at := range ended[1:] {
				if apart := at.Sub(ended[i]); apart < 10*time.Second {
					t.Errorf("two replicas end %s apart", apart)
				}
			}
			if took := ended[2].Sub(begun); took > 90*time.Second {
				t.Errorf("the last one ended after %s", took)
			}
		})
	}
}
