package linstor

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

// crowdedStore is a store with many resources of three replicas each.
func crowdedStore(many int) *Store {
	s := NewStore()
	var list []client.Resource
	for i := range many {
		for r, node := range []string{"node-a", "node-b", "node-c"} {
			list = append(list, resource(fmt.Sprintf("pvc-%d", i), node, r == 0, 10102, false))
		}
	}
	s.applyView(list, instant(time.Now()))
	return s
}

// From an event to the doorbell that rings for its resource, in a store of 10,000 resources.
func BenchmarkEventToDoorbell(b *testing.B) {
	s := crowdedStore(10_000)
	rung := 0
	s.Subscribe(func(string) { rung++ })
	may := []*bool{new(true), new(false)}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		s.ApplyEvent(client.Event{Resource: fmt.Sprintf("pvc-%d", n%10_000), Node: "node-b", MayPromote: may[n/10_000%2]}, time.Now())
		n++
	}
	if rung != n {
		b.Fatalf("the doorbell rang %d times for %d events", rung, n)
	}
}

// The taking over of the answers on a hundred resources of which none has changed.
func BenchmarkAnswers(b *testing.B) {
	s := crowdedStore(10_000)
	var list []client.Resource
	for i := range 100 {
		for r, node := range []string{"node-a", "node-b", "node-c"} {
			list = append(list, resource(fmt.Sprintf("pvc-%d", i), node, r == 0, 10102, false))
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		for i := range 100 {
			s.applyResources(list[3*i].Name, list[3*i:3*i+3], instant(time.Now()))
		}
	}
}

// The memory that a replica takes in a store, its two connections and its share of the resource included, as B/replica.
func BenchmarkStoreFootprint(b *testing.B) {
	const many = 10_000
	var before, after runtime.MemStats
	for b.Loop() {
		list := make([]client.Resource, 0, 3*many)
		nodes := []string{"node-a", "node-b", "node-c"}
		for i := range many {
			for r, node := range nodes {
				replica := resource(fmt.Sprintf("pvc-%08d-0000-4000-8000-%012d", i, i), node, r == 0, 10102, false)
				replica.LayerObject.DRBD.Connections = map[string]client.Connection{}
				for _, peer := range nodes {
					if peer != node {
						replica.LayerObject.DRBD.Connections[peer] = client.Connection{Connected: new(true)}
					}
				}
				list = append(list, replica)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&before)
		s := NewStore()
		s.applyView(list, instant(time.Now()))
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(list)
		runtime.KeepAlive(s)
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(3*many), "B/replica")
}
