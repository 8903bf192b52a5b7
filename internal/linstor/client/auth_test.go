package client

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// recorder answers every request by what the test says, and keeps what it was asked.
type recorder struct {
	seen   []string // "<host> <authorization>"
	answer func(*http.Request) *http.Response
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	r.seen = append(r.seen, strings.TrimSpace(req.URL.Host+" "+req.Header.Get("Authorization")))
	return r.answer(req), nil
}

func response(code int, contentType, body string, header ...string) *http.Response {
	resp := &http.Response{StatusCode: code, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
	if contentType != "" {
		resp.Header.Set("Content-Type", contentType)
	}
	for i := 0; i < len(header); i += 2 {
		resp.Header.Set(header[i], header[i+1])
	}
	return resp
}

func recordingClient(t *testing.T, variables map[string]string, answer func(*http.Request) *http.Response) (*Client, *recorder) {
	t.Helper()
	cfg, err := ConfigFromEnv(env(variables))
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{answer: answer}
	client, err := New(cfg, Options{RoundTripper: r})
	if err != nil {
		t.Fatal(err)
	}
	return client, r
}

func emptyList(*http.Request) *http.Response { return response(200, "application/json", "[]") }

func TestClientAuthenticates(t *testing.T) {
	token := write(t, t.TempDir(), "token", "t0ken\n")
	for name, tc := range map[string]struct {
		variables map[string]string
		want      string
	}{
		"nothing is set":                  {map[string]string{envControllers: "a"}, "a:3370"},
		"basic":                           {map[string]string{envControllers: "a", envUsername: "u", envPassword: "p"}, "a:3370 Basic dTpw"},
		"credentials in the URL":          {map[string]string{envControllers: "http://u:p@a"}, "a:3370 Basic dTpw"},
		"LS_USERNAME wins over the URL":   {map[string]string{envControllers: "http://x:y@a", envUsername: "u", envPassword: "p"}, "a:3370 Basic dTpw"},
		"the token wins over LS_USERNAME": {map[string]string{envControllers: "a", envUsername: "u", envBearerTokenFile: token}, "a:3370 Bearer t0ken"},
	} {
		t.Run(name, func(t *testing.T) {
			client, r := recordingClient(t, tc.variables, emptyList)
			if _, err := client.Nodes(t.Context()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{tc.want}, r.seen); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestClientFollowsTheTokenFile(t *testing.T) {
	dir := t.TempDir()
	path := write(t, dir, "auth.json", `{"token":"one"}`)
	client, r := recordingClient(t, map[string]string{envControllers: "a", envBearerTokenFile: path}, emptyList)
	for _, content := range []string{`{"token":"one"}`, "two", "", `{"token":"three"}`} {
		write(t, dir, "auth.json", content)
		if _, err := client.Nodes(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"a:3370 Bearer one", "a:3370 Bearer two", "a:3370 Bearer two", "a:3370 Bearer three"}
	if diff := cmp.Diff(want, r.seen); diff != "" {
		t.Error(diff)
	}
}

func TestCredentialsDoNotFollowARedirect(t *testing.T) {
	for name, tc := range map[string]struct {
		controllers string
		location    string
		want        []string
	}{
		"to another host":            {"http://a", "http://evil/v1/nodes", []string{"a:3370 Basic dTpw", "evil"}},
		"from TLS to plain":          {"https://a", "http://a:3370/v1/nodes", []string{"a:3371 Basic dTpw", "a:3370"}},
		"but do to the host's HTTPS": {"http://a", "https://a:3371/v1/nodes", []string{"a:3370 Basic dTpw", "a:3371 Basic dTpw"}},
	} {
		t.Run(name, func(t *testing.T) {
			variables := map[string]string{envControllers: tc.controllers, envUsername: "u", envPassword: "p"}
			redirected := false
			client, r := recordingClient(t, variables, func(req *http.Request) *http.Response {
				if redirected {
					return emptyList(req)
				}
				redirected = true
				return response(http.StatusTemporaryRedirect, "", "", "Location", tc.location)
			})
			if _, err := client.Nodes(t.Context()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, r.seen); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func env(variables map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := variables[name]
		return value, ok
	}
}
