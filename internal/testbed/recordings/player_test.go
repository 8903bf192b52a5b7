package recordings_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/recordings"
)

const (
	listPath = "/v1/resource-definitions/pvc-db/resources"
	viewPath = "/v1/view/resources?resources=pvc-db"
)

// listener is a client of a played transcript.
type listener struct {
	t      *testing.T
	player *recordings.Player
	http   *http.Client
}

// listen plays a recording.
func listen(t *testing.T, name string) *listener {
	t.Helper()
	player := recordings.Play(t, recordings.Load(t, name))
	transport := &http.Transport{DialContext: player.DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return &listener{t: t, player: player, http: &http.Client{Transport: transport}}
}

// until lets time pass until then.
func (l *listener) until(at float64) { <-time.After(time.Until(l.player.At(seconds(at)))) }

// get asks for a path, and tells what came and how long that took.
func (l *listener) get(path string) (status int, body string, took time.Duration, err error) {
	l.t.Helper()
	request, err := http.NewRequestWithContext(l.t.Context(), http.MethodGet, "http://linstor"+path, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	began := time.Now()
	response, err := l.http.Do(request)
	if err != nil {
		return 0, "", time.Since(began), err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	return response.StatusCode, string(raw), time.Since(began), err
}

// mayPromote returns what a list says of a node's replica: "true", "false", or "absent".
func mayPromote(t *testing.T, list, node string) string {
	t.Helper()
	var replicas []struct {
		Node  string `json:"node_name"`
		Layer struct {
			DRBD map[string]json.RawMessage `json:"drbd"`
		} `json:"layer_object"`
	}
	if err := json.Unmarshal([]byte(list), &replicas); err != nil {
		t.Fatalf("%v in %s", err, list)
	}
	for _, r := range replicas {
		if r.Node == node {
			if value, ok := r.Layer.DRBD["may_promote"]; ok {
				return string(value)
			}
			return "absent"
		}
	}
	return "no replica"
}

// events opens the stream and returns its events as they come, each as its data.
func (l *listener) events(ctx context.Context) <-chan string {
	l.t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://linstor/v1/events/drbd/promotion", nil)
	if err != nil {
		l.t.Fatal(err)
	}
	request.Header.Set("Last-Event-ID", "current")
	response, err := l.http.Do(request) //nolint:bodyclose // below, when the stream has ended
	if err != nil {
		l.t.Fatal(err)
	}
	events := make(chan string, 100)
	go func() {
		defer close(events)
		defer response.Body.Close()
		for scanner := bufio.NewScanner(response.Body); scanner.Scan(); {
			if data, ok := strings.CutPrefix(scanner.Text(), "data: "); ok {
				events <- data
			}
		}
	}()
	return events
}

func TestTheViewIsHeldWhileLinstorWaitsForADeadSatellite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := listen(t, "03-power-loss") // recorded: asked at -0.006, answered by 500 at 6.711
		for _, step := range []struct {
			at         float64
			wantStatus int
			wantTook   time.Duration
		}{
			{-1, http.StatusOK, 0},
			{3, http.StatusInternalServerError, 3711 * time.Millisecond},
			{6.8, http.StatusOK, 0},
		} {
			l.until(step.at)
			status, _, took, err := l.get(viewPath)
			if err != nil || status != step.wantStatus || took != step.wantTook {
				t.Errorf("asked at %v s: status %d after %v, %v; want %d after %v", step.at, status, took, err, step.wantStatus, step.wantTook)
			}
		}
	})
}

func TestAListIsNeverOlderThanAnEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := listen(t, "04-real-crash") // recorded: event at 9.057, list at 9.248
		for _, step := range []struct {
			at   float64
			want string
		}{{9.05, "false"}, {9.06, "true"}} {
			l.until(step.at)
			_, list, _, err := l.get(listPath)
			if err != nil || mayPromote(t, list, "node-b") != step.want {
				t.Errorf("at %v s node-b may promote: %s, %v; want %s", step.at, mayPromote(t, list, "node-b"), err, step.want)
			}
		}
	})
}

func TestACallShowsInDefinitionAndListAtTheSameTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := listen(t, "13-adjust-fails") // recorded: list at -17.26, definition at -14.244
		l.until(-17)
		_, list, _, err := l.get(listPath)
		if err != nil || mayPromote(t, list, "node-c") == "no replica" {
			t.Fatalf("the tie-breaker is not there: %v", err)
		}
		_, definition, _, err := l.get("/v1/resource-definitions/pvc-db")
		if err != nil || !strings.Contains(definition, `"DrbdOptions/Resource/quorum":"majority"`) {
			t.Errorf("the definition that came with the tie-breaker is %s, %v; want quorum majority", definition, err)
		}
	})
}

func TestLinstorRefusesWhileItRestarts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := listen(t, "10-linstor-restart") // recorded: closed at 0.034, connected at 6.948
		l.until(-1)
		events := l.events(t.Context())
		for range 3 {
			<-events // the present values
		}
		if event, open := <-events; open || time.Since(l.player.At(0)) > 100*time.Millisecond {
			t.Errorf("the stream says %q at %v, want its end when LINSTOR is killed", event, time.Since(l.player.At(0)))
		}
		for _, at := range []float64{0.1, 3, 6.9} {
			l.until(at)
			if _, _, _, err := l.get("/v1/nodes"); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("at %v s: error %v, want connection refused", at, err)
			}
		}
		l.until(7)
		status, list, took, err := l.get(listPath)
		if err != nil || status != http.StatusOK || took != 600*time.Millisecond || mayPromote(t, list, "node-b") != "absent" {
			t.Errorf("the new process answers %d after %v, node-b may promote: %s, %v; want 200 after 600 ms with nothing known",
				status, took, mayPromote(t, list, "node-b"), err)
		}
	})
}

func TestARequestThatIsUnderWayEndsWithLinstor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := listen(t, "11-linstor-restart-in-loss") // recorded: the view of 0.263 is cut off at 2.031
		l.until(1)
		_, _, took, err := l.get(viewPath)
		if err == nil || took < time.Second || took > 1100*time.Millisecond {
			t.Errorf("the view ends with %v after %v, want an error when LINSTOR is killed", err, took)
		}
	})
}

func TestWhoListensLateHearsThePresentValuesAndThenWhatChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := listen(t, "03-power-loss")
		l.until(8)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		events := l.events(ctx)
		for _, want := range []string{
			`{"resource_name":"pvc-db","node_name":"node-a"}`,
			`{"resource_name":"pvc-db","node_name":"node-b","may_promote":false}`,
			`{"resource_name":"pvc-db","node_name":"node-c","may_promote":false}`,
			`{"resource_name":"pvc-db","node_name":"node-b","may_promote":true}`,
		} {
			if got := <-events; got != want {
				t.Errorf("heard %s, want %s", got, want)
			}
		}
		if got, want := time.Now(), l.player.At(seconds(10.735)); !got.Equal(want) {
			t.Errorf("the change comes at %v, want %v", got, want)
		}
	})
}

func TestPathsThatWereNotRecordedFollowFromThoseThatWere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := listen(t, "01-calm")
		l.until(-5)
		same := func(path, recorded string) {
			t.Helper()
			_, want, _, err := l.get(recorded)
			if err != nil {
				t.Fatal(err)
			}
			if status, got, _, err := l.get(path); err != nil || status != http.StatusOK || got != want {
				t.Errorf("%s: %d %.200s, %v; want the body of %s", path, status, got, err, recorded)
			}
		}
		same("/v1/view/resources", viewPath)
		same("/v1/view/resources?resources=PVC-DB&resources=other", viewPath)
		same("/v1/resource-definitions", "/v1/resource-definitions?resource_definitions=pvc-db")
		for path, want := range map[string]string{
			"/v1/nodes/node-b":                `{"name":"node-b",`,
			"/v1/resource-definitions/pvc-db": `{"name":"pvc-db",`,
			"/v1/resource-groups/rg-db":       `{"name":"rg-db",`,
			listPath + "/node-c":              `{"name":"pvc-db","node_name":"node-c",`,
		} {
			if status, got, _, err := l.get(path); err != nil || status != http.StatusOK || !strings.HasPrefix(got, want) {
				t.Errorf("%s: %d %.200s, %v; want it to begin with %s", path, status, got, err, want)
			}
		}
		if status, got, _, err := l.get("/v1/view/resources?resources=other"); err != nil || status != http.StatusOK || got != "[]" {
			t.Errorf("a view of what does not exist: %d %s, %v; want an empty list", status, got, err)
		}
		for _, path := range []string{
			"/v1/nodes/other", "/v1/resource-definitions/other", "/v1/resource-definitions/other/resources",
			"/v1/resource-groups/other", listPath + "/other", "/v1/storage-pool-definitions", "/",
		} {
			if status, got, _, err := l.get(path); err != nil || status != http.StatusNotFound || !strings.HasPrefix(got, `[{"ret_code":-`) {
				t.Errorf("%s: %d %s, %v; want 404 with a list of return codes", path, status, got, err)
			}
		}
	})
}
