package forecast

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr"
)

// A replica answers the question that it is asked, in the pod and nowhere else.
func TestAReplicaAnswersOnItsLoopbackInterface(t *testing.T) {
	t.Parallel()
	free, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort(free.Addr().String())
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Serve(ctx, int(at.Port()), func(_ context.Context, q Question) Report {
			return Report{Version: Version, Message: q.Namespace + "/" + q.Node}
		}, logr.Discard())
	}()
	for {
		report, err := Ask(t.Context(), int(at.Port()), Question{Namespace: "shop", Node: "node-a"})
		if err != nil {
			continue // it does not listen yet
		}
		if report.Message != "shop/node-a" {
			t.Errorf("it was asked about %q", report.Message)
		}
		break
	}
	stop()
	<-ended
	if host, _, _ := net.SplitHostPort(address(defaultPort)); !netip.MustParseAddr(host).IsLoopback() {
		t.Errorf("it listens on %s", host)
	}
}

func TestNothingElseIsServed(t *testing.T) {
	t.Parallel()
	handler := Handler(func(context.Context, Question) Report { return Report{} })
	for request, code := range map[*http.Request]int{
		httptest.NewRequest(http.MethodGet, Path, http.NoBody):  http.StatusOK,
		httptest.NewRequest(http.MethodPost, Path, http.NoBody): http.StatusMethodNotAllowed,
		httptest.NewRequest(http.MethodGet, "/", http.NoBody):   http.StatusNotFound,
	} {
		w := httptest.NewRecorder()
		if handler.ServeHTTP(w, request); w.Code != code {
			t.Errorf("%s %s is answered %d, want %d", request.Method, request.URL, w.Code, code)
		}
	}
}

// One question is answered at a time: a second one that is given up meanwhile costs nothing.
func TestOneQuestionIsAnsweredAtATime(t *testing.T) {
	t.Parallel()
	asked, release := make(chan struct{}, 2), make(chan struct{})
	handler := Handler(func(context.Context, Question) Report {
		asked <- struct{}{}
		<-release
		return Report{}
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, Path, http.NoBody))
	}()
	<-asked
	ctx, giveUp := context.WithCancel(t.Context())
	giveUp()
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, Path, http.NoBody).WithContext(ctx))
	close(release)
	<-done
	if len(asked) > 0 {
		t.Error("the second question was answered, too")
	}
}

func TestThePortIsThatOfTheEnvironment(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]int{"": defaultPort, "9000": 9000, "0": 0, "70000": 0, "web": 0} {
		port, err := Port(func(string) (string, bool) { return value, true })
		if port != want || (err == nil) != (want != 0) || err != nil && !strings.Contains(err.Error(), strconv.Quote(value)) {
			t.Errorf("%q is port %d, %v", value, port, err)
		}
	}
}
