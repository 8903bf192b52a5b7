package linstor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
)

// foreignNames are what other people's objects may have in place of the name of a resource.
var foreignNames = []string{
	"pvc-1", "..", ".", "a/b", "../../nodes", "a/../b", "a?resources=b", "a&resources=b", "a#b", "%2e%2e", "a%2fb", "100%", "%s%d%!n",
	"a\nb", "a\r\nHost: evil", "a b", "a;b=c", "a\x00b", "\\..\\", "//evil/", "http://evil/", "ä€", "\xff\xfe", "?", "a+b",
}

// recordedServer answers everything with an empty list or object, and records what was asked for as it was on the wire.
type recordedServer struct {
	mu    sync.Mutex
	asked []string
	other []string
}

func (s *recordedServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, r.RequestURI)
	if r.Method != http.MethodGet || !strings.HasPrefix(r.Host, "127.0.0.1:") {
		s.other = append(s.other, r.Method+" "+r.Host)
	}
	w.Header().Set("Content-Type", "application/json")
	if strings.HasSuffix(r.URL.Path, "/resources") || r.URL.RawQuery != "" {
		_, _ = io.WriteString(w, "[]")
		return
	}
	_, _ = io.WriteString(w, "{}")
}

// take returns what was asked for since it was called last.
func (s *recordedServer) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = nil
	return asked
}

func recordedClient(tb testing.TB) (*Client, *recordedServer) {
	tb.Helper()
	recorded := &recordedServer{}
	server := httptest.NewServer(recorded)
	tb.Cleanup(server.Close)
	cfg, err := ConfigFromEnv(env(map[string]string{envControllers: server.URL}))
	if err != nil {
		tb.Fatal(err)
	}
	client, err := NewClient(cfg, nil, ClientOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(client.CloseIdleConnections)
	return client, recorded
}

// wantsEscaped asks a server for everything that has a name, and tells of each request that is not for that name.
func wantsEscaped(t *testing.T, client *Client, recorded *recordedServer, name string) {
	t.Helper()
	ctx := t.Context()
	ask := map[string]func(context.Context) error{
		"/v1/resource-definitions/*":           func(ctx context.Context) error { _, err := client.Definition(ctx, name); return err },
		"/v1/resource-definitions/*/resources": func(ctx context.Context) error { _, err := client.Resources(ctx, name); return err },
	}
	for pattern, do := range ask {
		recorded.take()
		err := do(ctx)
		asked := recorded.take()
		if name == "" || name == "." || name == ".." {
			if !errors.Is(err, ErrNotFound) || len(asked) > 0 {
				t.Errorf("%s of %q: asked for %q, %v; want nothing to be asked", pattern, name, asked, err)
			}
			continue
		}
		want := strings.Split(pattern, "/")
		if err != nil || len(asked) != 1 {
			t.Errorf("%s of %q: asked for %q, %v", pattern, name, asked, err)
			continue
		}
		got := strings.Split(asked[0], "/")
		if len(got) != len(want) {
			t.Errorf("%s of %q: asked for %q", pattern, name, asked[0])
			continue
		}
		for i, segment := range got {
			text, err := url.PathUnescape(segment)
			if expected := strings.ReplaceAll(want[i], "*", name); err != nil || text != expected || strings.ContainsAny(segment, "?#;") {
				t.Errorf("%s of %q: asked for %q", pattern, name, asked[0])
			}
		}
	}
	names := []string{"first", name, "last"}
	for path, do := range map[string]func() error{
		"/v1/resource-definitions?resource_definitions=": func() error { _, err := client.Definitions(ctx, names...); return err },
	} {
		recorded.take()
		err := do()
		asked := recorded.take()
		if err != nil || len(asked) != 1 || !strings.HasPrefix(asked[0], path+"first&") {
			t.Errorf("%s of %q: asked for %q, %v", path, name, asked, err)
			continue
		}
		_, query, _ := strings.Cut(asked[0], "?")
		values, err := url.ParseQuery(query)
		key := strings.TrimSuffix(path[strings.Index(path, "?")+1:], "=")
		if err != nil || len(values) != 1 || !slices.Equal(values[key], names) {
			t.Errorf("%s of %q: asked for %q", path, name, asked[0])
		}
	}
	if len(recorded.other) > 0 {
		t.Errorf("%q led to %q", name, recorded.other)
	}
}

// Names come from other people's objects. On the wire each is one segment of the path, or one value of the query.
func TestNamesAreEscapedOnTheWire(t *testing.T) {
	t.Parallel()
	client, recorded := recordedClient(t)
	for _, name := range foreignNames {
		wantsEscaped(t, client, recorded, name)
	}
}

// FuzzNames asks for anything at all.
func FuzzNames(f *testing.F) {
	for _, name := range foreignNames {
		f.Add(name)
	}
	client, recorded := recordedClient(f)
	f.Fuzz(func(t *testing.T, name string) { wantsEscaped(t, client, recorded, name) })
}

// What LINSTOR cannot have is not there, and does not end in requests for something else.
func TestANameOfDotsIsNotFound(t *testing.T) {
	t.Parallel()
	client, recorded := recordedClient(t)
	for _, name := range []string{".", "..", ""} {
		_, err := client.Resources(t.Context(), name)
		if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), fmt.Sprintf("%q", name)) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if asked := recorded.take(); len(asked) > 0 {
		t.Errorf("asked for %q", asked)
	}
}
