package cluster_test

import (
	"encoding/json"
	"io"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/forecast"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// asked is for how many selected pods a forecast may take mostMemory.
const (
	asked      = 5000
	mostMemory = 20 << 20
)

// A replica that is asked must not run out of memory for that: of thousands of pods it retains little.
func TestAForecastOfManyPodsTakesLittleMemory(t *testing.T) { //nolint:paralleltest // it measures what all allocate
	cache, selector, linstor := cluster.Crowd(t)
	survey := cluster.NewSurvey(cluster.Config{
		Cache: cluster.WithPods(cache, nil), Linstor: linstor, Kubelets: cluster.NewKubelets(clock.RealClock{}, virtual.Driver, nil), Driver: virtual.Driver, Selector: selector,
	})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	evaluation := forecast.Evaluate(forecast.Facts{Selector: selector.String(), Driver: virtual.Driver})
	err := survey.Each(t.Context(), "", func(pod *corev1.Pod, uses []cluster.Use) { evaluation.Add(pod.Namespace, pod.Name, uses) })
	if err != nil {
		t.Fatal(err)
	}
	report := evaluation.Report()
	runtime.ReadMemStats(&after)
	gathered := after.TotalAlloc - before.TotalAlloc
	if err := json.NewEncoder(io.Discard).Encode(report); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	all := after.TotalAlloc - before.TotalAlloc
	runtime.GC()
	runtime.ReadMemStats(&after)
	retained := after.HeapAlloc - before.HeapAlloc
	runtime.KeepAlive(report)
	t.Logf("for %d pods: %d kB retained, %d kB allocated, %d kB of them to gather", asked, retained*asked/cluster.CrowdSize>>10,
		all*asked/cluster.CrowdSize>>10, gathered*asked/cluster.CrowdSize>>10)
	if len(report.Volumes) != cluster.CrowdSize {
		t.Fatalf("%d rows", len(report.Volumes))
	}
	if retained*asked/cluster.CrowdSize > mostMemory {
		t.Errorf("%d bytes are retained", retained)
	}
}
