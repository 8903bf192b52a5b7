package kubelet

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
)

func TestFleetNeedsAnAPIAndStorage(t *testing.T) {
	for name, cfg := range map[string]Config{
		"an API":  {Storage: &fakeStorage{}},
		"storage": {RestConfig: &rest.Config{}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := NewFleet(cfg); err == nil {
				t.Error("got a fleet without it")
			}
		})
	}
}

func TestNodesAreAddedOnceToAFleetThatHasStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewSimpleClientset()
		f, err := newFleet(Config{Storage: &fakeStorage{}}, client, func(*gate) (kubernetes.Interface, error) { return client, nil })
		if err != nil {
			t.Fatal(err)
		}
		defer f.Stop()
		if _, err := f.AddNode(t.Context(), "a", NodeOptions{}); err == nil {
			t.Error("added a node before the start")
		}
		if err := f.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"b", "a"} {
			if _, err := f.AddNode(t.Context(), name, NodeOptions{}); err != nil {
				t.Errorf("add %s: %v", name, err)
			}
		}
		if _, err := f.AddNode(t.Context(), "a", NodeOptions{}); err == nil {
			t.Error("added a node twice")
		}
		if all := f.Kubelets(); len(all) != 2 || all[0].Node() != "a" || f.Kubelet("b") != all[1] || f.Kubelet("c") != nil {
			t.Errorf("kubelets: %v", all)
		}
	})
}

func TestStopEndsAllNodes(t *testing.T) {
	onBench(t, Config{}, func(b *bench) {
		b.runPod("db", nil)
		b.fleet.Stop()
		before := b.renewed()
		b.pass(time.Minute)
		if b.k.On() || !b.renewed().Equal(before) {
			t.Error("the node goes on")
		}
	})
}
