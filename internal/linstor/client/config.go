package client

import (
	"fmt"
	"os"
	"strings"
)

// The environment variables that every LINSTOR client shares, with the rules of golinstor's client.
const (
	envControllers     = "LS_CONTROLLERS"
	envUsername        = "LS_USERNAME"
	envPassword        = "LS_PASSWORD"
	envBearerTokenFile = "LS_BEARER_TOKEN_FILE" //nolint:gosec // the name of a variable, not a credential
	envUserCert        = "LS_USER_CERTIFICATE"
	envUserKey         = "LS_USER_KEY"
	envRootCA          = "LS_ROOT_CA"
	fileSuffix         = "_FILE"
)

// Config tells where the LINSTOR controllers are and how to authenticate to them. It prints without
// its secrets.
type Config struct {
	endpoints []endpoint
	username  string
	password  string
	tokenFile string
	tls       tlsFiles
}

// ConfigFromEnv reads the LS_* variables by lookup, which is os.LookupEnv outside of tests:
//
//   - LS_CONTROLLERS: comma-separated URLs, or hosts with an optional port; blanks around them do not
//     matter. The schemes are http, https, linstor (https where any of the certificate variables is
//     set, else http) and linstor+ssl. The port defaults to 3370, with TLS to 3371; without the
//     variable the controller is expected on localhost.
//   - LS_USERNAME, LS_PASSWORD: HTTP basic authentication.
//   - LS_BEARER_TOKEN_FILE: a file with the bearer token, raw or as {"token": "..."}. It is read again
//     for each request and wins over basic authentication.
//   - LS_ROOT_CA, LS_USER_CERTIFICATE, LS_USER_KEY: PEM text, or with the suffix _FILE, which wins, the
//     path of a PEM file. The client's certificate and key are read again for each TLS handshake. The
//     authority's certificate is read here only.
//
// All files are read here, so that a fault in them shows at start-up. An error names the variable
// and the fault, and never a secret.
func ConfigFromEnv(lookup func(string) (string, bool)) (Config, error) {
	value := func(name string) string {
		v, _ := lookup(name)
		return v
	}
	cfg := Config{username: value(envUsername), password: value(envPassword)}

	var err error
	if cfg.tls, err = tlsFromEnv(lookup); err != nil {
		return Config{}, err
	}
	if cfg.endpoints, err = parseEndpoints(value(envControllers), cfg.tls.roots != nil || cfg.tls.cert != nil); err != nil {
		return Config{}, fmt.Errorf("environment variable %s: %w", envControllers, err)
	}
	if path, ok := lookup(envBearerTokenFile); ok {
		cfg.tokenFile = path
		if _, err := readToken(path); err != nil {
			return Config{}, fmt.Errorf("environment variable %s: %w", envBearerTokenFile, err)
		}
	}
	return cfg, nil
}

// Endpoints returns the base URLs of the LINSTOR controllers in the order in which they are tried.
func (c Config) Endpoints() []string {
	urls := make([]string, len(c.endpoints))
	for i, e := range c.endpoints {
		urls[i] = e.url.String()
	}
	return urls
}

// String shows the endpoints only.
func (c Config) String() string { return strings.Join(c.Endpoints(), ",") }

// GoString keeps the secrets out of %#v as well.
func (c Config) GoString() string { return "linstor.Config{" + c.String() + "}" }

// MarshalLog keeps the secrets out of structured logs.
func (c Config) MarshalLog() any { return c.Endpoints() }

// readFile returns the content of a file that a variable points to.
func readFile(path string) ([]byte, error) {
	content, err := os.ReadFile(path) //nolint:gosec // reading what the operator names is the purpose
	if err != nil {
		return nil, fmt.Errorf("can not read the file it names: %w", err)
	}
	return content, nil
}
