package cluster

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
	readers := NewReaders(Config{
		Cache: c, Linstor: wellOn{}, Kubelets: NewKubelets(clock.RealClock{}, virtual.Driver, nil), Driver: virtual.Driver, Selector: selector,
	})
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		var pv corev1.PersistentVolume
		if err := c.Get(b.Context(), client.ObjectKey{Name: crowdName(n % crowdSize)}, &pv); err != nil {
			b.Fatal(err)
		}
		pods, err := readers.Pods.Of(b.Context(), &pv)
		if err != nil || len(pods) != 1 {
			b.Fatalf("%d pods, %v", len(pods), err)
		}
		attachments, err := readers.Attachments.Of(b.Context(), pv.Name)
		if err != nil {
			b.Fatal(err)
		}
		in, ok, err := readers.Inputs.On(b.Context(), &pv, attachments, pods[0].Spec.NodeName, Remembered{})
		if err != nil || !ok {
			b.Fatalf("%t, %v", ok, err)
		}
		if d := failover.Decide(in); d.Verdict == failover.Lost {
			b.Fatalf("lost: %+v", d)
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
