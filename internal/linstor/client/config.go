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

// Variable is an environment variable that ConfigFromEnv reads, for docs/configuration.md.
type Variable struct {
	Name string
	// File is set if the name with _FILE is another variable: the path of a file with the value.
	File    bool
	Meaning string
}

// Variables returns every variable.
func Variables() []Variable {
	return []Variable{
		{envControllers, false, "URLs of the LINSTOR controllers, separated by commas. The port is 3370, with TLS 3371, unless given. All are tried."},
		{envUsername, false, "Name of a LINSTOR user."},
		{envPassword, false, "Password of that user."},
		{envBearerTokenFile, false, "File with a bearer token, used instead of name and password."},
		{envRootCA, true, "Certificate of the authority that signed LINSTOR's: path of a file, or the PEM text itself."},
		{envUserCert, true, "Certificate with which the controller authenticates."},
		{envUserKey, true, "Key of that certificate."},
	}
}

// Config tells where the LINSTOR controllers are and how to authenticate to them. It prints without
// its secrets.
type Config struct {
	endpoints []endpoint
	username  string
	password  string
	tokenFile string
	tls       tlsFiles
}

// ConfigFromEnv reads the [Variables] by lookup, which is os.LookupEnv outside of tests.
//
// LS_CONTROLLERS may have hosts instead of URLs, and the schemes http, https, linstor (https if any of the certificate variables is set, else
// http) and linstor+ssl; without it the controller is expected on localhost. A token file has the token raw or as {"token": "..."}.
//
// All files are read here, so that a fault in them shows at start-up; the token again for each request, and the client's certificate and key
// for each TLS handshake. An error names the variable and the fault, and never a secret.
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
