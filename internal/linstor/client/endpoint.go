package client

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// LINSTOR's default ports.
const (
	defaultHost     = "localhost"
	defaultPort     = "3370"
	defaultPortTLS  = "3371"
	redactedUser    = "***"
	maxPort         = 65535
	schemeSeparator = "://"
)

// endpoint is one LINSTOR controller: its base URL, and the credentials that were part of it. These are
// kept apart so that no error can print them.
type endpoint struct {
	url  *url.URL
	user *url.Userinfo
}

// parseEndpoints reads the value of LS_CONTROLLERS. Empty elements are skipped; without any element the
// controller is expected on localhost.
func parseEndpoints(value string, tls bool) ([]endpoint, error) {
	var endpoints []endpoint
	for raw := range strings.SplitSeq(value, ",") {
		raw = strings.TrimSpace(raw)
		if raw == "" {
			continue
		}
		e, err := parseEndpoint(raw, tls)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", redact(raw), err)
		}
		endpoints = append(endpoints, e)
	}
	if len(endpoints) == 0 {
		return parseEndpoints(defaultHost, tls)
	}
	return endpoints, nil
}

func parseEndpoint(raw string, tls bool) (endpoint, error) {
	scheme, rest, found := strings.Cut(raw, schemeSeparator)
	if !found {
		scheme, rest = "", raw
	}
	scheme, err := transportScheme(scheme, tls)
	if err != nil {
		return endpoint{}, err
	}
	if ip, err := netip.ParseAddr(rest); err == nil && ip.Is6() {
		rest = "[" + rest + "]"
	}
	u, err := url.Parse(scheme + schemeSeparator + rest)
	if err != nil {
		// The parser's own words can hold parts of a password.
		return endpoint{}, errors.New("not a valid URL; expected scheme://host:port")
	}
	if u.Hostname() == "" {
		return endpoint{}, errors.New("no host; expected scheme://host:port")
	}
	port := u.Port()
	switch n, err := strconv.Atoi(port); {
	case port == "" && scheme == "https":
		port = defaultPortTLS
	case port == "":
		port = defaultPort
	case err != nil || n < 1 || n > maxPort:
		return endpoint{}, fmt.Errorf("port %s is not between 1 and %d", port, maxPort)
	}
	// A path is dropped as golinstor does: LINSTOR's API always starts at the root.
	return endpoint{
		url:  &url.URL{Scheme: scheme, Host: net.JoinHostPort(u.Hostname(), port)},
		user: u.User,
	}, nil
}

// transportScheme maps LINSTOR's own schemes to those of HTTP.
func transportScheme(scheme string, tls bool) (string, error) {
	switch scheme = strings.ToLower(scheme); scheme {
	case "http", "https":
		return scheme, nil
	case "linstor+ssl":
		return "https", nil
	case "", "linstor":
		if tls {
			return "https", nil
		}
		return "http", nil
	default:
		return "", errors.New("unknown scheme; expected http, https, linstor or linstor+ssl")
	}
}

// redact removes credentials from a URL that may be malformed.
func redact(raw string) string {
	at := strings.LastIndex(raw, "@")
	if at < 0 {
		return raw
	}
	if scheme, _, found := strings.Cut(raw, schemeSeparator); found && len(scheme) < at {
		return scheme + schemeSeparator + redactedUser + raw[at:]
	}
	return redactedUser + raw[at:]
}
