package linstorsim_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/pipenet"
)

const (
	pvc  = "pvc-1"
	base = "http://linstor:3370"
)

// bed is a LINSTOR with nodes node-a, node-b and node-c and a client.
type bed struct {
	t       *testing.T
	cluster *drbd.Cluster
	linstor *linstorsim.Server
	client  *http.Client
}

// inBubble runs a test in a synctest bubble, with everything closed at its end.
func inBubble(t *testing.T, options linstorsim.Options, test func(*testing.T, *bed)) {
	t.Helper()
	inBubbleOver(t, drbd.Options{}, options, test, "node-a", "node-b", "node-c")
}

// inBubbleOver is inBubble over a DRBD with options and with other nodes.
func inBubbleOver(t *testing.T, below drbd.Options, options linstorsim.Options, test func(*testing.T, *bed), nodes ...string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cluster := drbd.NewCluster(below)
		linstor := linstorsim.New(cluster, options)
		for _, node := range nodes {
			linstor.AddNode(node)
		}
		listener := pipenet.Listen()
		served := make(chan error, 1)
		go func() { served <- linstor.Serve(listener) }()
		synctest.Wait()
		transport := &http.Transport{DialContext: listener.DialContext}
		defer func() {
			transport.CloseIdleConnections()
			linstor.Close()
			cluster.Stop()
			if err := <-served; err != nil {
				t.Errorf("Serve = %v", err)
			}
		}()
		test(t, &bed{t, cluster, linstor, &http.Client{Transport: transport}})
	})
}

// standard is a resource with disks on node-a and node-b and a tie-breaker on node-c.
func standard() linstorsim.ResourceSpec {
	return linstorsim.ResourceSpec{Spec: drbd.Spec{Name: pvc, Replicas: []drbd.ReplicaSpec{
		{Node: "node-a"}, {Node: "node-b"}, {Node: "node-c", TieBreaker: true},
	}}}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// get returns an answer's status and body.
func (b *bed) get(path string) (int, string) {
	b.t.Helper()
	response, err := b.client.Get(base + path)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// decode returns the answer to a successful GET.
func decode[T any](b *bed, path string) T {
	b.t.Helper()
	status, body := b.get(path)
	if status != http.StatusOK {
		b.t.Fatalf("GET %s = %d %s", path, status, body)
	}
	var out T
	if err := json.Unmarshal([]byte(body), &out); err != nil {
		b.t.Fatalf("GET %s: %v in %s", path, err, body)
	}
	return out
}

// replica is what a consumer reads of a resource.
type replica struct {
	Name        string   `json:"name"`
	NodeName    string   `json:"node_name"`
	Flags       []string `json:"flags"`
	LayerObject struct {
		Type string `json:"type"`
		DRBD *struct {
			Score       *int                                        `json:"promotion_score"`
			MayPromote  *bool                                       `json:"may_promote"`
			Connections map[string]struct{ Message, Connected any } `json:"connections"`
		} `json:"drbd"`
	} `json:"layer_object"`
	State *struct {
		InUse *bool `json:"in_use"`
	} `json:"state"`
	Volumes []struct {
		State *struct {
			DiskState string `json:"disk_state"`
		} `json:"state"`
	} `json:"volumes"`
}

func (b *bed) replica(node string) replica {
	b.t.Helper()
	return decode[replica](b, "/v1/resource-definitions/"+pvc+"/resources/"+node)
}

// stream is an open event stream whose text is collected while it comes.
type stream struct {
	cancel context.CancelFunc
	header chan http.Header
	lines  chan string
	done   chan error
}

// subscribe opens the promotion events; lastEventID is sent if it is not empty.
func (b *bed) subscribe(lastEventID string) *stream {
	ctx, cancel := context.WithCancel(b.t.Context())
	s := &stream{cancel, make(chan http.Header, 1), make(chan string, 1000), make(chan error, 1)}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/v1/events/drbd/promotion", nil)
	must(b.t, err)
	if lastEventID != "" {
		request.Header.Set("Last-Event-ID", lastEventID)
	}
	go func() {
		response, err := b.client.Do(request)
		if err != nil {
			s.done <- err
			return
		}
		defer func() { _ = response.Body.Close() }()
		s.header <- response.Header
		scanner := bufio.NewReader(response.Body)
		for {
			line, err := scanner.ReadString('\n')
			if line != "" {
				s.lines <- line
			}
			if err != nil {
				s.done <- err
				return
			}
		}
	}()
	synctest.Wait()
	return s
}

// text returns all that came since the last call.
func (s *stream) text() string {
	synctest.Wait()
	var text string
	for {
		select {
		case line := <-s.lines:
			text += line
		default:
			return text
		}
	}
}

// event is the wire text of one event; may is true, false or empty for unknown.
func event(node, may string) string {
	data := `{"resource_name":"pvc-1","node_name":"` + node + `"`
	if may != "" {
		data += `,"may_promote":` + may
	}
	return "event: may-promote-change\ndata: " + data + "}\n\n"
}

// pass lets virtual time go by.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
