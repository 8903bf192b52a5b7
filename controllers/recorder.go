package controllers

import (
	"context"
	"fmt"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

const (
	// eventsPerSecond and eventsAtOnce bound how fast Events are written: what is done comes before what is said of it, and
	// three Events for each volume of a lost node would keep the API server from the former. None is dropped.
	eventsPerSecond = 10
	eventsAtOnce    = 10
)

// eventRecorder is the name by which the Events are reported.
const eventRecorder = "piraeus-ha-controller"

// newRecorder returns a recorder of Events with limits of its own.
func newRecorder(mgr ctrl.Manager) (events.EventRecorder, error) {
	config := rest.CopyConfig(mgr.GetConfig())
	config.RateLimiter, config.QPS, config.Burst = nil, eventsPerSecond, eventsAtOnce
	clients, err := kubernetes.NewForConfigAndClient(config, mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("connecting to the Kubernetes API for Events: %w", err)
	}
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: clients.EventsV1()})
	if err := mgr.Add(sink{broadcaster}); err != nil {
		return nil, fmt.Errorf("adding the writer of Events: %w", err)
	}
	return broadcaster.NewRecorder(mgr.GetScheme(), eventRecorder), nil
}

// sink writes Events for as long as the process runs, leading or not.
type sink struct{ events.EventBroadcaster }

var _ manager.LeaderElectionRunnable = sink{}

func (sink) NeedLeaderElection() bool { return false }

func (s sink) Start(ctx context.Context) error {
	if err := s.StartRecordingToSinkWithContext(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("writing Events: %w", err)
	}
	<-ctx.Done()
	s.Shutdown()
	return nil
}
