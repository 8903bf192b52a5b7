package linstor

import (
	"fmt"
	"testing"
	"time"
)

// crowdedStore is a store with many resources of three replicas each.
func crowdedStore(many int) *Store {
	s := NewStore()
	var list []wireResource
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
		s.ApplyEvent(PromotionEvent{Resource: fmt.Sprintf("pvc-%d", n%10_000), Node: "node-b", MayPromote: may[n/10_000%2]}, time.Now())
		n++
	}
	if rung != n {
		b.Fatalf("the doorbell rang %d times for %d events", rung, n)
	}
}

// The taking over of one bulk answer of a hundred resources that nobody knew to have changed.
func BenchmarkBulkAnswer(b *testing.B) {
	s := crowdedStore(10_000)
	var list []wireResource
	for i := range 100 {
		for r, node := range []string{"node-a", "node-b", "node-c"} {
			list = append(list, resource(fmt.Sprintf("pvc-%d", i), node, r == 0, 10102, false))
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if served := s.applySome(list, instant(time.Now())); len(served) != 100 {
			b.Fatalf("%d resources served", len(served))
		}
	}
}
