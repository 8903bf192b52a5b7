package client

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
)

// authTransport sets the credentials and the user agent of each request.
type authTransport struct {
	base      http.RoundTripper
	userAgent string
	username  string
	password  string
	tokenFile string
	// hosts are the configured endpoints by host name. Credentials go nowhere else, whatever a
	// redirect asks for.
	hosts map[string]endpoint
	token atomic.Pointer[string]
}

func newAuthTransport(base http.RoundTripper, cfg Config, userAgent string) *authTransport {
	t := &authTransport{
		base: base, userAgent: userAgent,
		username: cfg.username, password: cfg.password, tokenFile: cfg.tokenFile,
		hosts: make(map[string]endpoint, len(cfg.endpoints)),
	}
	for _, e := range cfg.endpoints {
		t.hosts[strings.ToLower(e.url.Hostname())] = e
	}
	return t
}

// RoundTrip implements http.RoundTripper.
func (t *authTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("User-Agent", t.userAgent)
	req.Header.Del("Authorization")
	t.authorize(req)
	return t.base.RoundTrip(req)
}

// CloseIdleConnections lets http.Client.CloseIdleConnections through to the base.
func (t *authTransport) CloseIdleConnections() {
	if closer, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}

// authorize sets the header for the request's target: a token wins over LS_USERNAME, which wins
// over credentials in the URL. A plain connection gets none where TLS was configured.
func (t *authTransport) authorize(req *http.Request) {
	e, ok := t.hosts[strings.ToLower(req.URL.Hostname())]
	if !ok || (e.url.Scheme == "https" && req.URL.Scheme != "https") {
		return
	}
	switch token := t.currentToken(); {
	case token != "":
		req.Header.Set("Authorization", "Bearer "+token)
	case t.username != "":
		req.SetBasicAuth(t.username, t.password)
	case e.user != nil:
		password, _ := e.user.Password()
		req.SetBasicAuth(e.user.Username(), password)
	}
}

// currentToken reads the token file again, since tokens are rotated in place. While it is being replaced
// or can not be read, the last good token stands.
func (t *authTransport) currentToken() string {
	if t.tokenFile == "" {
		return ""
	}
	if token, err := readToken(t.tokenFile); err == nil {
		t.token.Store(&token)
		return token
	}
	if token := t.token.Load(); token != nil {
		return *token
	}
	return ""
}

// readToken returns the token of a file in golinstor's two forms: {"token": "..."}, or raw.
func readToken(path string) (string, error) {
	content, err := readFile(path)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(content))
	var parsed struct {
		Token *string `json:"token"`
	}
	if err := json.Unmarshal(content, &parsed); err == nil && parsed.Token != nil {
		token = *parsed.Token
	}
	if token == "" {
		return "", errors.New("the file it names holds no token")
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return "", errors.New("the token in the file it names has blanks or characters that no HTTP header can carry")
	}
	return token, nil
}
