package controllers

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

const (
	// eventsAtOnce is how many Events are written at once, and one more a second: what is done comes before what is said of it, and
	// three Events for each volume of a lost node would keep the API server from the former. The limit drops none; client-go drops those that the
	// API server rejects, and those that wait end with the process.
	eventsAtOnce = 10
	// eventsPause is for how long an Event waits that is beyond that: by then most of what many tell of is done.
	eventsPause = 10 * time.Second
	// eventsPerSecond is how many of these are written then.
	eventsPerSecond = 10
)

// eventRecorder is the name by which the Events are reported.
const eventRecorder = "piraeus-ha-controller"

// newRecorder returns a recorder of Events with a limit of its own.
func newRecorder(mgr ctrl.Manager, limit flowcontrol.RateLimiter) (events.EventRecorder, error) {
	config := rest.CopyConfig(mgr.GetConfig())
	config.RateLimiter = limit
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

// patient limits how fast Events are written: a few at once, and the others later.
type patient struct {
	flowcontrol.RateLimiter // of what has waited

	atOnce flowcontrol.RateLimiter
}

func newPatient() patient {
	return patient{
		flowcontrol.NewTokenBucketRateLimiter(eventsPerSecond, eventsPerSecond),
		flowcontrol.NewTokenBucketRateLimiter(1, eventsAtOnce),
	}
}

// Wait returns when an Event may be written, or with an error if ctx ends before.
func (p patient) Wait(ctx context.Context) error {
	if p.atOnce.TryAccept() {
		return nil
	}
	select {
	case <-time.After(eventsPause):
	case <-ctx.Done():
	}
	return p.RateLimiter.Wait(ctx) //nolint:wrapcheck // client-go says what waits
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
