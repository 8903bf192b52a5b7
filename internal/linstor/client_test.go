package linstor

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// page is an answer of whoever listens where LINSTOR is expected.
type page struct {
	code              int
	contentType, body string
}

func TestClientSaysWhatIsWrongInOneLine(t *testing.T) {
	const secret = "geheim"
	for name, tc := range map[string]struct {
		answer   page
		want     string
		notFound bool
	}{
		"LINSTOR's own 404": {
			page{404, "application/json", `[{"message":"Resource definition 'x' not found."}]`}, "Resource definition 'x' not found.", true,
		},
		"another server's 404":      {page{404, "text/html", "<html>"}, "text/html", false},
		"a 404 without a body":      {page{404, "", ""}, "404 Not Found", false},
		"HTML with a status of 200": {page{200, "text/html; charset=utf-8", "<html>"}, "does LS_CONTROLLERS point to", false},
		"401":                       {page{401, "application/json", `[{"message":"Unauthorized: token invalid"}]`}, "check LS_BEARER_TOKEN_FILE", false},
		"403":                       {page{403, "text/plain", "no"}, "403 Forbidden", false},
		"LINSTOR's own 500 over several lines": {
			page{500, "application/json", `[{"message":"one\ntwo"},{"message":"three"}]`}, "500 Internal Server Error: one two; three", false,
		},
		"503":                   {page{503, "text/html", "<html>\n</html>"}, "503 Service Unavailable", false},
		"JSON that breaks off":  {page{200, "application/json", `[{"name":"a"`}, "can not decode the answer", false},
		"JSON of another shape": {page{200, "application/json", `{"a":1}`}, "can not decode the answer", false},
	} {
		t.Run(name, func(t *testing.T) {
			variables := map[string]string{envControllers: "http://u:" + secret + "@linstor", envPassword: secret}
			client, _ := recordingClient(t, variables, func(*http.Request) *http.Response {
				return response(tc.answer.code, tc.answer.contentType, tc.answer.body)
			})
			_, err := client.nodes(t.Context())
			if err == nil {
				t.Fatal("no error")
			}
			text := err.Error()
			if !strings.Contains(text, tc.want) || !strings.Contains(text, "linstor:3370") {
				t.Errorf("%q and the controller are not in: %s", tc.want, text)
			}
			if strings.Contains(text, "\n") || strings.Contains(text, secret) {
				t.Errorf("not fit for a log: %s", text)
			}
			if got := errors.Is(err, ErrNotFound); got != tc.notFound {
				t.Errorf("is ErrNotFound: %v", got)
			}
		})
	}
}

func TestClientStaysWithTheEndpointThatAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, fake := newNetwork(), newFakeLinstor()
		fake.pvc1()
		n.silence("silent:3370")
		n.serve(t, "good:3370", fake)
		client := testClient(t, n, "refused,silent,good")
		for _, want := range []time.Duration{DefaultRequestTimeout / 3, 0} {
			begin := time.Now()
			if _, err := client.nodes(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := time.Since(begin); got != want {
				t.Errorf("answered after %v, want %v", got, want)
			}
		}
	})
}

func TestClientTrustsTheGivenCAOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cert, key := certificate(t)
		otherCert, _ := certificate(t)
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		n, fake := newNetwork(), newFakeLinstor()
		n.serve(t, "plain", fake)
		n.hosts["linstor:3371"] = func(conn net.Conn) {
			n.hosts["plain"](tls.Server(conn, &tls.Config{
				Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert,
			}))
		}
		for name, tc := range map[string]struct {
			ca      []byte
			trusted bool
		}{
			"its CA":     {cert, true},
			"another CA": {otherCert, false},
		} {
			cfg, err := ConfigFromEnv(env(map[string]string{
				envControllers: "linstor", envRootCA: string(tc.ca), envUserCert: string(cert), envUserKey: string(key),
			}))
			if err != nil {
				t.Fatal(err)
			}
			client, err := NewClient(cfg, WithDialContext(n.dial))
			if err != nil {
				t.Fatal(err)
			}
			_, err = client.nodes(t.Context())
			client.CloseIdleConnections()
			if (err == nil) != tc.trusted {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestClientNamesAllEndpointsWhenNoneAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		n.silence("silent:3370")
		defer n.close()
		_, err := testClient(t, n, "refused,silent").nodes(t.Context())
		for _, want := range []string{"refused:3370", "connection refused", "silent:3370", "no answer within 5s"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q is not in: %v", want, err)
			}
		}
	})
}

// TestWireKeepsAbsenceApart : an absent value is neither false nor 0, and a kind of volume nobody knows yet does not matter.
func TestWireKeepsAbsenceApart(t *testing.T) {
	const view = `[
	 {"name":"r","node_name":"absent","layer_object":{"type":"DRBD","drbd":{"flags":["INITIALIZED"]}},
	  "volumes":[{"layer_data_list":[{"type":"BCACHE","data":{"x":1}}]}]},
	 {"name":"r","node_name":"zero","layer_object":{"type":"DRBD","drbd":{"promotion_score":0,"may_promote":false,
	  "connections":{"absent":{"connected":false,"message":"Connecting"},"odd":{"connected":false,"message":"Unknown"}}}},"state":{"in_use":false}},
	 {"name":"r","node_name":"empty","layer_object":{"type":"STORAGE"},"state":{}}]`
	client, _ := recordingClient(t, nil, func(*http.Request) *http.Response { return response(200, "application/json", view) })
	all, err := client.view(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	store := NewStore()
	now := time.Now()
	store.applyResources("r", all, instant(now))
	r, _ := store.Resource("r")
	unknown, no := Fact[bool]{Since: now, Confirmed: now}, Fact[bool]{Known: true, Since: now, Confirmed: now}
	yes := Fact[bool]{Value: true, Known: true, Since: now, Confirmed: now}
	want := []Replica{
		{
			Node: "absent", Reports: no, MayPromote: unknown, InUse: unknown, Score: Fact[int]{Since: now, Confirmed: now},
			Connections: map[string]Fact[bool]{},
		},
		{
			Node: "empty", Reports: yes, MayPromote: unknown, InUse: unknown, Score: Fact[int]{Since: now, Confirmed: now},
			Connections: map[string]Fact[bool]{},
		},
		{
			Node: "zero", Reports: yes, MayPromote: no, InUse: no, Score: Fact[int]{Known: true, Since: now, Confirmed: now},
			Connections: map[string]Fact[bool]{"absent": no, "odd": unknown}, Heard: now,
		},
	}
	if diff := cmp.Diff(want, r.Replicas); diff != "" {
		t.Error(diff)
	}
}
