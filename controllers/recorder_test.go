package controllers

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
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
			recorder, err := newRecorder(m)
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

// forbidden is why something is.
type forbidden string

func (f forbidden) Error() string { return string(f) }
