package cluster

import (
	"context"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// hanging is an API server that answers nobody.
type hanging struct {
	client.Reader

	asked chan struct{}
}

func (h hanging) Get(ctx context.Context, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	h.asked <- struct{}{}
	<-ctx.Done()
	return ctx.Err()
}

func TestWhoAsksWhichClusterThisIsWaitsForNobodyElse(t *testing.T) {
	t.Parallel()
	api := hanging{asked: make(chan struct{}, 2)}
	of := NewEvacuations(Config{Live: api})
	patient, end := context.WithCancel(t.Context())
	defer end()
	go func() { _, _ = of.Cluster(patient) }()
	<-api.asked
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	answered := make(chan error, 1)
	go func() {
		_, err := of.Cluster(impatient)
		answered <- err
	}()
	select {
	case err := <-answered:
		if err == nil {
			t.Error("an API server that does not answer has said which cluster this is")
		}
	case <-time.After(time.Minute):
		t.Error("a request that hangs delays a caller whose context has ended")
	}
}
