package testbed_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed"
)

// TestFailover crashes the node of a StatefulSet's pod under the real controller.
func TestFailover(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	b, err := testbed.Start(ctx, testbed.Options{LogDir: filepath.Join("..", "..", ".testbed", "failover")})
	must(t, err)
	t.Cleanup(b.Stop)
	must(t, b.DeployController(ctx))
	nodes, err := b.AddNodes(ctx, "node", 3)
	must(t, err)
	w := testbed.Workload{
		Namespace: "shop", Name: "db", Nodes: nodes, PreferNode: nodes[0],
		Volumes: []testbed.Volume{{Name: "data", Nodes: nodes}},
	}
	must(t, b.Deploy(ctx, w))
	_, err = b.WaitRunning(ctx, w, nodes[0])
	must(t, err)
	crashed := time.Now()
	b.Crash(nodes[0])
	_, err = b.WaitRunning(ctx, w, nodes[1:]...)
	requests, _ := b.ControllerRequests(crashed)
	for _, r := range requests {
		t.Log(r.At.Sub(crashed), r.User, r.Verb, r.Resource, r.Namespace, r.Name, r.Code, string(r.Body))
	}
	must(t, err)
	t.Logf("crash to Running: %s", time.Since(crashed))
}
