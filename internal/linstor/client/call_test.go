package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// calls are all calls, as tests make them.
func calls(t *testing.T) map[string]func(*Client) (Answer, error) {
	t.Helper()
	ctx := t.Context()
	return map[string]func(*Client) (Answer, error){
		"autoplace":         func(c *Client) (Answer, error) { return c.Autoplace(ctx, "pvc/1", []string{"b", "c"}) },
		"evacuate":          func(c *Client) (Answer, error) { return c.Evacuate(ctx, "a", []string{"b"}) },
		"evacuate, no body": func(c *Client) (Answer, error) { return c.Evacuate(ctx, "a", nil) },
		"restore":           func(c *Client) (Answer, error) { return c.Restore(ctx, "a") },
		"set properties": func(c *Client) (Answer, error) {
			return c.ChangeDefinition(ctx, "pvc-1", map[string]string{"k": "v"}, nil)
		},
		"set properties of a node": func(c *Client) (Answer, error) { return c.ChangeNode(ctx, "a", map[string]string{"k": "v"}, nil) },
		"removed properties":       func(c *Client) (Answer, error) { return c.ChangeDefinition(ctx, "pvc-1", nil, []string{"k"}) },
	}
}

func TestWhatACallSends(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"autoplace":                `POST /v1/resource-definitions/pvc%2F1/autoplace {"select_filter":{"additional_place_count":1,"node_name_list":["b","c"]}}`,
		"evacuate":                 `PUT /v1/nodes/a/evacuate {"do_not_target":["b"]}`,
		"evacuate, no body":        `PUT /v1/nodes/a/evacuate `,
		"restore":                  `PUT /v1/nodes/a/restore {}`,
		"set properties":           `PUT /v1/resource-definitions/pvc-1 {"override_props":{"k":"v"}}`,
		"set properties of a node": `PUT /v1/nodes/a {"override_props":{"k":"v"}}`,
		"removed properties":       `PUT /v1/resource-definitions/pvc-1 {"delete_props":["k"]}`,
	}
	for name, call := range calls(t) {
		sent := ""
		client, _ := recordingClient(t, map[string]string{envControllers: "a,b"}, func(req *http.Request) *http.Response {
			body := []byte(nil)
			if req.Body != nil {
				body, _ = io.ReadAll(req.Body)
			}
			sent += fmt.Sprintf("%s %s %s", req.Method, req.URL.EscapedPath(), body)
			return response(200, "application/json", `[{"ret_code":20447233,"message":"done"}]`)
		})
		answer, err := call(client)
		if err != nil || len(answer.Errors()) > 0 || answer.Code != 200 {
			t.Errorf("%s: %+v, %v", name, answer, err)
		}
		if sent != want[name] {
			t.Errorf("%s: sent %s, want %s", name, sent, want[name])
		}
	}
}

func TestNoCopyIsPlacedAnywhere(t *testing.T) {
	t.Parallel()
	client, seen := recordingClient(t, map[string]string{envControllers: "a"}, emptyList)
	if _, err := client.Autoplace(t.Context(), "pvc-1", nil); err == nil || len(seen.seen) > 0 {
		t.Errorf("LINSTOR takes an empty list for no filter, and was asked %v: %v", seen.seen, err)
	}
}

// The codes as LINSTOR sends them, with a sign: of a replica that was deleted, one that is in use, one that has no target, and one for which
// there are not enough nodes.
const (
	deletedEntry  = `{"ret_code":53739521,"message":"pvc-1 deleted","obj_refs":{"Node":"a","RscDfn":"pvc-1"}}`
	inUseEntry    = `{"ret_code":-4611686018427386907,"message":"pvc-2 in use"}`
	noTargetEntry = `{"ret_code":-9223372036854774788,"message":"pvc-3 is not evacuated","cause":"no pool"}`
	tooFewEntry   = `{"ret_code":-4611686018407201820,"message":"Not enough available nodes","details":"all\nfull"}`
)

func TestAnAnswerIsReadEntryByEntry(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		status   int
		body     string
		errors   []string
		notMoved []string
	}{
		"all has happened":  {200, "[" + deletedEntry + "]", nil, nil},
		"nothing is said":   {200, "[]", nil, nil},
		"there is no body":  {200, "", nil, nil},
		"one is in use":     {500, "[" + deletedEntry + "," + inUseEntry + "]", []string{"pvc-2 in use"}, []string{"pvc-2 in use"}},
		"one has no target": {200, "[" + deletedEntry + "," + noTargetEntry + "]", nil, []string{"pvc-3 is not evacuated no pool"}},
		"no node is free": {
			500, "[" + tooFewEntry + "]", []string{"Not enough available nodes all full"}, []string{"Not enough available nodes all full"},
		},
		"it does not exist":      {404, `[{"ret_code":-4611686018427387594,"message":"Node 'a' not found."}]`, []string{"Node 'a' not found."}, []string{"Node 'a' not found."}},
		"an error without entry": {500, "[]", []string{"answered 500 Internal Server Error"}, nil},
		"an error beside a no":   {403, "[" + deletedEntry + "]", []string{"answered 403 Forbidden"}, nil},
	} {
		client, _ := recordingClient(t, map[string]string{envControllers: "a"}, func(*http.Request) *http.Response {
			return response(tc.status, "application/json", tc.body)
		})
		answer, err := client.Evacuate(t.Context(), "a", nil)
		if err != nil || answer.Code != tc.status {
			t.Fatalf("%s: %+v, %v", name, answer, err)
		}
		if !slices.Equal(answer.Errors(), tc.errors) || !slices.Equal(answer.NotMoved(), tc.notMoved) {
			t.Errorf("%s: errors %q, not moved %q", name, answer.Errors(), answer.NotMoved())
		}
	}
}

func TestACallIsMadeOnce(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(*http.Request) (*http.Response, error){
		"a page of somebody else": func(*http.Request) (*http.Response, error) { return response(503, "text/html", "<html>\n</html>"), nil },
		"no answer":               func(*http.Request) (*http.Response, error) { return nil, errors.New("reset") },
	} {
		calls := 0
		client, err := New(configOf(t, "a,b"), Options{RoundTripper: roundTripper(func(r *http.Request) (*http.Response, error) {
			if calls++; calls > 1 {
				t.Errorf("%s: the call is made again, and LINSTOR may be at work on it", name)
			}
			return answer(r)
		})})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Evacuate(t.Context(), "node", nil); err == nil || strings.Contains(err.Error(), "\n") ||
			!strings.Contains(err.Error(), "a:3370") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func configOf(t *testing.T, controllers string) Config {
	t.Helper()
	cfg, err := ConfigFromEnv(env(map[string]string{envControllers: controllers}))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// A call that could not be sent is told apart from one that LINSTOR may be at work on.
func TestACallThatWasNotSent(t *testing.T) {
	t.Parallel()
	refusing := func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	breaking := func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			_, _ = far.Read(make([]byte, 1))
			_ = far.Close()
		}()
		return near, nil
	}
	for name, test := range map[string]struct {
		dial    func(context.Context, string, string) (net.Conn, error)
		notSent bool
	}{"no connection": {refusing, true}, "a connection that breaks": {breaking, false}} {
		client, err := New(configOf(t, "a"), Options{DialContext: test.dial})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Evacuate(t.Context(), "a", nil); err == nil || errors.Is(err, ErrNotSent) != test.notSent {
			t.Errorf("%s: %v", name, err)
		}
	}
}
