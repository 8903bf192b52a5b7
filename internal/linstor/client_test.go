package linstor

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

func TestClientStaysWithTheEndpointThatAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, fake := newNetwork(), newFakeLinstor()
		fake.pvc1()
		n.silence("silent:3370")
		n.serve(t, "good:3370", fake)
		client := testClient(t, n, "refused,silent,good")
		for _, want := range []time.Duration{10 * time.Second / 3, 0} {
			begin := time.Now()
			if _, err := client.Nodes(t.Context()); err != nil {
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
		its, another := newAuthority(t), newAuthority(t)
		cert, key := pairOf(t, its.issueTo(t, "client", x509.ExtKeyUsageClientAuth, time.Hour))
		n, fake := newNetwork(), newFakeLinstor()
		n.serve(t, "plain", fake)
		n.hosts["linstor:3371"] = func(conn net.Conn) {
			n.hosts["plain"](tls.Server(conn, &tls.Config{
				Certificates: []tls.Certificate{its.issue(t, time.Hour)}, ClientAuth: tls.RequireAnyClientCert,
			}))
		}
		for name, tc := range map[string]struct {
			ca      authority
			trusted bool
		}{
			"its CA":     {its, true},
			"another CA": {another, false},
		} {
			cfg, err := ConfigFromEnv(env(map[string]string{
				envControllers: "linstor", envRootCA: pemOf(tc.ca.cert), envUserCert: cert, envUserKey: key,
			}))
			if err != nil {
				t.Fatal(err)
			}
			client, err := NewClient(cfg, nil, ClientOptions{DialContext: n.dial})
			if err != nil {
				t.Fatal(err)
			}
			_, err = client.Nodes(t.Context())
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
		_, err := testClient(t, n, "refused,silent").Nodes(t.Context())
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
	all, err := decodedList[client.Resource]([]byte(view))
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
	if diff := cmp.Diff(want, r.Replicas, cmpopts.IgnoreFields(Replica{}, "Votes")); diff != "" {
		t.Error(diff)
	}
}
