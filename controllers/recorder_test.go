package controllers

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// recorderManager is what a recorder takes of a manager.
type recorderManager struct {
	manager.Manager
	server *httptest.Server
	sink   manager.Runnable
}

func (m *recorderManager) GetConfig() *rest.Config         { return &rest.Config{Host: m.server.URL} }
func (m *recorderManager) GetHTTPClient() *http.Client     { return m.server.Client() }
func (m *recorderManager) GetScheme() *runtime.Scheme      { return scheme.Scheme }
func (m *recorderManager) Add(sink manager.Runnable) error { m.sink = sink; return nil }

// Events cannot be written. Who tells something does not wait for that, and the log says why.
func TestEventsThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	refused := func(verb string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost && verb != "create" {
				w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
				_, _ = io.Copy(w, r.Body)
				return
			}
			err := apierrors.NewForbidden(schema.GroupResource{Group: "events.k8s.io", Resource: "events"}, "x",
				forbidden("User \"ha-controller\" cannot "+verb+" resource \"events\""))
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			status := err.Status()
			status.Kind, status.APIVersion = "Status", "v1"
			_ = json.NewEncoder(w).Encode(status)
		}
	}
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"without the permission to create them": {refused("create"), "cannot create resource"},
		"without the permission to patch them":  {refused("patch"), "cannot patch resource"},
		"with an API that does not answer": {func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &recorderManager{server: httptest.NewServer(tc.answer)}
			defer m.server.CloseClientConnections()
			recorder, err := newRecorder(m, newPatient())
			if err != nil {
				t.Fatal(err)
			}
			said := make(chan struct{}, 1)
			log := funcr.New(func(_, line string) {
				if tc.want != "" && strings.Contains(line, tc.want) {
					select {
					case said <- struct{}{}:
					default:
					}
				}
			}, funcr.Options{})
			go func() { _ = m.sink.Start(logr.NewContext(t.Context(), log)) }()
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db-0", UID: "1"}}
			told := make(chan struct{})
			go func() {
				defer close(told)
				for range 3000 {
					recorder.Eventf(pod, nil, corev1.EventTypeWarning, "ForceDeleted", actionDelete, "%s", "lost")
				}
			}()
			select {
			case <-told:
			case <-time.After(time.Minute):
				t.Fatal("who tells something waits until it is written")
			}
			limit, again := time.After(time.Minute), time.NewTicker(100*time.Millisecond)
			defer again.Stop()
			for waits := tc.want != ""; waits; {
				select {
				case <-said:
					waits = false
				case <-again.C: // what was told before the sink was there is lost
					recorder.Eventf(pod, nil, corev1.EventTypeWarning, "ForceDeleted", actionDelete, "%s", "lost")
				case <-limit:
					t.Fatalf("the log does not say %q", tc.want)
				}
			}
		})
	}
}

// gate is a limit that holds everything up until it is opened.
type gate struct {
	flowcontrol.RateLimiter

	asked *atomic.Int32
	open  chan struct{}
}

func (g gate) Wait(context.Context) error {
	g.asked.Add(1)
	<-g.open
	return nil
}

// No Event is written that its limit has not let through.
func TestEventsWaitForTheirLimit(t *testing.T) {
	t.Parallel()
	const pods = 5
	var written atomic.Int32
	all := make(chan struct{})
	m := &recorderManager{server: httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		_, _ = io.Copy(w, r.Body)
		if written.Add(1) == pods {
			close(all)
		}
	}))}
	defer m.server.CloseClientConnections()
	limit := gate{asked: &atomic.Int32{}, open: make(chan struct{})}
	recorder, err := newRecorder(m, limit)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = m.sink.Start(t.Context()) }()
	deadline, again := time.After(time.Minute), time.NewTicker(10*time.Millisecond)
	defer again.Stop()
	for told := 0; limit.asked.Load() < pods; told++ { // what is told before the sink is there is lost
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db-" + strconv.Itoa(told), UID: "1"}}
		recorder.Eventf(pod, nil, corev1.EventTypeWarning, "ForceDeleted", actionDelete, "%s", "lost")
		select {
		case <-again.C:
		case <-deadline:
			t.Fatalf("%d Events have asked the limit, want %d", limit.asked.Load(), pods)
		}
	}
	if n := written.Load(); n != 0 {
		t.Errorf("%d Events were written that wait for their limit", n)
	}
	close(limit.open)
	select {
	case <-all:
	case <-deadline:
		t.Errorf("%d Events were written, want %d", written.Load(), pods)
	}
}

// forbidden is why something is.
type forbidden string

func (f forbidden) Error() string { return string(f) }

// Of many Events that come at a time a few are written at once, and the others when most of what they tell of is done.
func TestManyEventsGiveWayToWhatTheyTellOf(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limit, began := newPatient(), time.Now()
		var soon, paused, written atomic.Int32
		var all sync.WaitGroup
		for range 330 {
			all.Go(func() {
				if err := limit.Wait(t.Context()); err != nil {
					t.Error(err)
				}
				switch took := time.Since(began); {
				case took < time.Second:
					soon.Add(1)
				case took < eventsPause:
					paused.Add(1)
				}
				written.Add(1)
			})
		}
		all.Wait()
		if soon.Load() != eventsAtOnce || paused.Load() != 0 || written.Load() != 330 {
			t.Errorf("of 330 Events %d are written at once, %d in the next seconds, %d in all; want %d, none and all",
				soon.Load(), paused.Load(), written.Load(), eventsAtOnce)
		}
		if took := time.Since(began); took > eventsPause+35*time.Second {
			t.Errorf("330 Events take %s", took)
		}
		<-time.After(time.Minute)
		began = time.Now()
		for range 3 {
			if err := limit.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("three Events later wait for %s, want none", took)
		}
	})
}

// An Event that waits does not hold up the end of who writes it.
func TestAnEventThatWaitsEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limit := newPatient()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var all sync.WaitGroup
		for range 30 {
			all.Go(func() { _ = limit.Wait(ctx) })
		}
		began := time.Now()
		all.Wait()
		if took := time.Since(began); took > time.Second {
			t.Errorf("they end after %s, want 1 s", took)
		}
	})
}
