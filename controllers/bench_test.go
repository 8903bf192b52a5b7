package controllers

import (
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// From a volume's name to the decision on it, as it is made for each event and each second of doubt, among many volumes.
func BenchmarkGatherAndDecide(b *testing.B) {
	c, selector := crowdCache(b)
	g := gatherer{
		cache: c, linstor: wellOn{}, kubelets: NewKubelets(clock.RealClock{}, nil), clock: clock.RealClock{},
		driver: virtual.Driver, selector: selector,
	}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		var pv corev1.PersistentVolume
		if err := c.Get(b.Context(), client.ObjectKey{Name: crowdName(n % crowdSize)}, &pv); err != nil {
			b.Fatal(err)
		}
		inputs, err := g.candidates(b.Context(), &pv)
		if err != nil || len(inputs) != 1 {
			b.Fatalf("%d inputs, %v", len(inputs), err)
		}
		if d := failover.Decide(inputs[0]); d.Verdict == failover.Lost {
			b.Fatalf("lost: %+v", d)
		}
	}
}

// From LINSTOR's word on a resource to the volumes that have to be looked at.
func BenchmarkDoorbell(b *testing.B) {
	c, selector := crowdCache(b)
	g := gatherer{cache: c, driver: virtual.Driver, selector: selector}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		if requests := g.volumesOfResource(b.Context(), crowdName(n%crowdSize)); len(requests) != 1 {
			b.Fatalf("%d volumes", len(requests))
		}
	}
}

// The memory that a volume with its pod and its attachment takes in the cache, as B/volume.
func BenchmarkCacheFootprint(b *testing.B) {
	var before, after runtime.MemStats
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		c, _ := crowdCache(b)
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(c)
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/crowdSize, "B/volume")
}
