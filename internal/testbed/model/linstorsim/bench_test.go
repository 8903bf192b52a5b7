package linstorsim_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

const (
	manyResources = 1000
	manyNodes     = 40
	// together is how many resources the controller asks for in one request.
	together = 70
)

// crowded is a LINSTOR with many resources of two disks and a tie-breaker each, one replica of each in use. It is
// closed when the benchmark ends.
func crowded(b *testing.B) *linstorsim.Server {
	b.Helper()
	cluster := drbd.NewCluster(drbd.Options{})
	linstor := linstorsim.New(cluster, linstorsim.Options{})
	b.Cleanup(func() {
		linstor.Close()
		cluster.Stop()
	})
	node := func(i int) string { return fmt.Sprintf("node-%02d", i%manyNodes) }
	for i := range manyNodes {
		linstor.AddNode(node(i))
	}
	for i := range manyResources {
		name := manyName(i)
		err := linstor.CreateResource(linstorsim.ResourceSpec{Spec: drbd.Spec{Name: name, Replicas: []drbd.ReplicaSpec{
			{Node: node(i)}, {Node: node(i + 1)}, {Node: node(i + 2), TieBreaker: true},
		}}})
		if err == nil {
			err = cluster.Open(name, node(i), false)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	return linstor
}

func manyName(i int) string { return fmt.Sprintf("pvc-%04d", i) }

// inParts returns the requests that ask for all resources, each for as many as the controller asks for together.
func inParts(b *testing.B, path, filter string) []*http.Request {
	b.Helper()
	var list []*http.Request
	for first := 0; first < manyResources; first += together {
		var names []string
		for i := first; i < min(first+together, manyResources); i++ {
			names = append(names, filter+"="+manyName(i))
		}
		request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, base+path+"?"+strings.Join(names, "&"), nil)
		if err != nil {
			b.Fatal(err)
		}
		list = append(list, request)
	}
	return list
}

// sink takes an answer and counts its bytes.
type sink struct {
	header http.Header
	bytes  int
}

func (s *sink) Header() http.Header { return s.header }

func (s *sink) WriteHeader(int) {}

func (s *sink) Write(p []byte) (int, error) {
	s.bytes += len(p)
	return len(p), nil
}

// answerAll answers requests and returns the number of bytes of the answers.
func answerAll(linstor *linstorsim.Server, requests []*http.Request) int {
	out := sink{header: http.Header{}}
	for _, request := range requests {
		linstor.ServeHTTP(&out, request)
	}
	return out.bytes
}

// One look at every replica, of which none has changed.
func BenchmarkView(b *testing.B) {
	linstor := crowded(b)
	requests := inParts(b, "/v1/view/resources", "resources")
	size := answerAll(linstor, requests)
	b.ReportAllocs()
	for b.Loop() {
		if got := answerAll(linstor, requests); got != size {
			b.Fatalf("%d bytes, before %d", got, size)
		}
	}
}

// One look at every definition, of which none has changed.
func BenchmarkDefinitions(b *testing.B) {
	linstor := crowded(b)
	requests := inParts(b, "/v1/resource-definitions", "resource_definitions")
	size := answerAll(linstor, requests)
	b.ReportAllocs()
	for b.Loop() {
		if got := answerAll(linstor, requests); got != size {
			b.Fatalf("%d bytes, before %d", got, size)
		}
	}
}

// The change of a property of one definition, to and fro, that DRBD hears of.
func BenchmarkSetProperty(b *testing.B) {
	linstor := crowded(b)
	values := []string{"yes", ""}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		linstor.SetDefinitionProperty(manyName(n/2%manyResources), linstorsim.PropAllowTwoPrimaries, values[n%2])
		n++
	}
}
