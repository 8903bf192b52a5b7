package controllers

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	manners "github.com/piraeusdatastore/piraeus-ha-controller/internal/leaderelection"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// The durations of the election by default.
const (
	leaseDuration = 10 * time.Second
	renewDeadline = 5 * time.Second
	retryPeriod   = 2 * time.Second
)

// apiLock is the Lease of the election in the modelled API.
type apiLock struct {
	client   client.Client
	identity string
	last     coordinationv1.Lease
}

func (l *apiLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	var lease coordinationv1.Lease
	if err := waits(ctx, func() error {
		return l.client.Get(ctx, client.ObjectKey{Namespace: "ha-controller", Name: "piraeus-ha-controller"}, &lease)
	}); err != nil {
		return nil, nil, err
	}
	l.last = lease
	record := resourcelock.LeaseSpecToLeaderElectionRecord(&lease.Spec)
	raw, err := json.Marshal(record)
	return record, raw, err
}

func (l *apiLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.last = coordinationv1.Lease{Spec: resourcelock.LeaderElectionRecordToLeaseSpec(&record)}
	l.last.Namespace, l.last.Name = "ha-controller", "piraeus-ha-controller"
	return l.client.Create(ctx, &l.last)
}

func (l *apiLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	lease := l.last.DeepCopy()
	lease.Spec = resourcelock.LeaderElectionRecordToLeaseSpec(&record)
	if err := waits(ctx, func() error { return l.client.Update(ctx, lease) }); err != nil {
		return err
	}
	l.last = *lease
	return nil
}

// waits for a request as long as the client of the election does.
func waits(ctx context.Context, request func() error) error {
	ctx, cancel := context.WithTimeout(ctx, renewDeadline/2)
	defer cancel()
	answer := make(chan error, 1)
	go func() { answer <- request() }()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (*apiLock) RecordEvent(string) {}
func (l *apiLock) Identity() string { return l.identity }
func (*apiLock) Describe() string   { return "the Lease" }

// stands lets a process stand for election. As the program does, it ends when it has lost its leadership, and gives it up
// when it has ended. The channel is closed when it begins to lead.
func (p *process) stands() (leads <-chan struct{}) {
	p.world.Helper()
	began := make(chan struct{})
	lock := manners.Wrap(&apiLock{client: p.world.API.Client(controllerActor + p.name), identity: p.name})
	p.lease.Store(lock)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          lock,
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { p.leads(); close(began) },
			OnStoppedLeading: p.end,
		},
	})
	if err != nil {
		p.world.Fatal(err)
	}
	standing, resign := context.WithCancel(p.world.ctx)
	var election sync.WaitGroup
	election.Go(func() { elector.Run(standing) })
	p.resigns = func() { resign(); election.Wait() }
	return began
}

// holder is who holds the Lease; nobody does where it was released.
func (w *world) holder() string {
	w.Helper()
	synctest.Wait() // until it shows what has been written
	lease := read[coordinationv1.Lease](w, "ha-controller", "piraeus-ha-controller")
	if lease == nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// electedPair is a pair whose replicas stand for election, the first of which was elected.
func electedPair(t *testing.T, tell func(w *world, first, second *process, secondLeads <-chan struct{})) {
	t.Helper()
	inWorld(t, virtual.Options{}, func(w *world) {
		first, second := w.startProcess("one", defaults()), w.startProcess("two", defaults())
		firstLeads := first.stands()
		w.pass(time.Second)
		secondLeads := second.stands()
		w.volume("db")
		w.workload("db", selected)
		w.volume("other")
		w.workload("other", nil)
		w.pass(time.Minute)
		<-firstLeads
		w.wantRunning("db-0", nodeA)
		tell(w, first, second, secondLeads)
	})
}

// The leader is told to end (SIGTERM) at each step of a fail-over. It stops, then gives its leadership up, and the next one
// goes on without waiting for the Lease to expire.
func TestTheLeaderIsToldToEndAtEachStep(t *testing.T) {
	for name, at := range moments() {
		t.Run(name, func(t *testing.T) {
			electedPair(t, func(w *world, first, second *process, secondLeads <-chan struct{}) {
				w.detachesSlowly()
				var told sync.Once
				ended := make(chan struct{})
				w.API.Fail(func(r apimodel.Request) (err error) {
					if r.Actor == controllerActor+first.name && needs(r) == writes[at.number] {
						told.Do(func() {
							first.end()
							go func() { first.stops(); close(ended) }()
							if at.before {
								err = context.Canceled
							}
						})
					}
					return err
				})
				w.Crash(nodeA)
				<-ended
				w.wantWrote(first, at.done())
				if holder := w.holder(); holder != "" {
					t.Errorf("%s holds the Lease when the leader has ended", holder)
				}
				select {
				case <-secondLeads:
					t.Error("two lead at the same time")
				default:
				}
				waited := w.until(5*time.Second, "the next one leads", func() bool {
					select {
					case <-secondLeads:
						return true
					default:
						return false
					}
				})
				t.Logf("the next one leads %s after the leader has ended", waited)
				w.wantMovedCleanly(20*time.Second, second)
				w.wantWrote(first, at.done())
			})
		})
	}
}

// The API leaves a leader in the act, and LINSTOR does not: what it sends hangs. It has stopped to act before the next one
// begins. And what it had sent arrives in the end, when everything is done: that harms nobody.
func TestALeaderThatTheAPIHasLeftStopsBeforeTheNextOneBegins(t *testing.T) {
	for name, during := range map[string]time.Duration{
		"before it decides": 5 * time.Second, "while it decides": 14 * time.Second, "in the act": 15*time.Second + 500*time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			electedPair(t, func(w *world, first, second *process, secondLeads <-chan struct{}) {
				w.Crash(nodeA)
				w.pass(during)
				left := time.Now()
				w.API.Fail(func(r apimodel.Request) error {
					if strings.HasSuffix(r.Actor, "/one") {
						<-time.After(time.Minute)
					}
					return nil
				})
				first.view.Pause()
				<-first.ctx.Done()
				stopped := time.Since(left)
				select {
				case <-secondLeads:
					t.Error("two lead at the same time")
				default:
				}
				if limit := retryPeriod + renewDeadline + renewDeadline/2; stopped > limit { // the last request releases the Lease
					t.Errorf("the leader stopped %s after it lost the API, want at most %s", stopped, limit)
				}
				<-secondLeads
				t.Logf("stopped %s after it lost the API, before the next one began", stopped)
				w.wantMovedCleanly(40*time.Second, second)
			})
		})
	}
}
