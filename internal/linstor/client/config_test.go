package client

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestConfigFromEnvFindsTheControllers(t *testing.T) {
	cert, _ := certificate(t)
	for name, tc := range map[string]struct {
		controllers string
		tls         bool
		want        []string
	}{
		"nothing set is localhost":                 {"", false, []string{"http://localhost:3370"}},
		"nothing set but TLS is localhost by TLS":  {"", true, []string{"https://localhost:3371"}},
		"only blanks and commas are nothing":       {" , ,", false, []string{"http://localhost:3370"}},
		"a host alone gets scheme and port":        {"linstor", false, []string{"http://linstor:3370"}},
		"a host alone with TLS":                    {"linstor", true, []string{"https://linstor:3371"}},
		"a host with a port":                       {"linstor:8080", false, []string{"http://linstor:8080"}},
		"an IPv4 address with a port":              {"10.0.0.1:8080", false, []string{"http://10.0.0.1:8080"}},
		"blanks around the elements":               {" http://a , linstor+ssl://b ", false, []string{"http://a:3370", "https://b:3371"}},
		"LINSTOR's own scheme":                     {"linstor://a", false, []string{"http://a:3370"}},
		"LINSTOR's own scheme with TLS":            {"linstor://a", true, []string{"https://a:3371"}},
		"plain HTTP stays plain with TLS set":      {"http://a", true, []string{"http://a:3370"}},
		"HTTPS defaults to LINSTOR's port":         {"https://a", false, []string{"https://a:3371"}},
		"a path is dropped":                        {"http://a:3370/", false, []string{"http://a:3370"}},
		"an IPv6 address alone":                    {"fd00::1", false, []string{"http://[fd00::1]:3370"}},
		"an IPv6 address in brackets":              {"[fd00::1]", false, []string{"http://[fd00::1]:3370"}},
		"an IPv6 address with scheme and no port":  {"https://[fd00::1]", false, []string{"https://[fd00::1]:3371"}},
		"an IPv6 address with a port":              {"http://[fd00::1]:8080", false, []string{"http://[fd00::1]:8080"}},
		"credentials are not part of the endpoint": {"http://admin:geheim@a", false, []string{"http://a:3370"}},
	} {
		t.Run(name, func(t *testing.T) {
			variables := map[string]string{envControllers: tc.controllers}
			if tc.tls {
				variables[envRootCA] = string(cert)
			}
			cfg, err := ConfigFromEnv(env(variables))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, cfg.Endpoints()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestConfigFromEnvNamesTheFault(t *testing.T) {
	const secret = "geheim"
	dir := t.TempDir()
	empty := write(t, dir, "empty", "")
	cert, key := certificate(t)
	otherCert, _ := certificate(t)
	for name, tc := range map[string]struct {
		variables map[string]string
		want      []string
	}{
		"an unknown scheme":            {map[string]string{envControllers: "ftp://a"}, []string{envControllers, "unknown scheme"}},
		"no host":                      {map[string]string{envControllers: "http://:3370"}, []string{envControllers, "no host"}},
		"a port that is no number":     {map[string]string{envControllers: "http://a:b"}, []string{envControllers, "not a valid URL"}},
		"a port out of range":          {map[string]string{envControllers: "http://a:70000"}, []string{envControllers, "70000"}},
		"one bad of two":               {map[string]string{envControllers: "http://a,http://b:0"}, []string{envControllers, `"http://b:0"`}},
		"credentials in a bad URL":     {map[string]string{envControllers: "ftp://admin:" + secret + "@a"}, []string{"ftp://***@a"}},
		"credentials that break a URL": {map[string]string{envControllers: "http://admin:" + secret + "/x@a"}, []string{"http://***@a"}},
		"credentials without a scheme": {map[string]string{envControllers: "admin:" + secret + "@a:b"}, []string{`"***@a:b"`}},
		"no token file":                {map[string]string{envBearerTokenFile: dir + "/none"}, []string{envBearerTokenFile, "no such file"}},
		"an empty token file":          {map[string]string{envBearerTokenFile: empty}, []string{envBearerTokenFile, "no token"}},
		"a token in two lines": {
			map[string]string{envBearerTokenFile: write(t, dir, "lines", secret+"\n"+secret)}, []string{envBearerTokenFile, "blanks"},
		},
		"a CA that is none":      {map[string]string{envRootCA: secret}, []string{envRootCA, "no PEM certificate"}},
		"an empty path for a CA": {map[string]string{envRootCA + "_FILE": ""}, []string{envRootCA + "_FILE", "empty"}},
		"no CA file":             {map[string]string{envRootCA + "_FILE": dir + "/none"}, []string{envRootCA + "_FILE", "no such file"}},
		"a certificate alone":    {map[string]string{envUserCert: string(cert)}, []string{envUserCert, envUserKey, "both or none"}},
		"a key of another certificate": {
			map[string]string{envUserCert: string(otherCert), envUserKey: string(key)}, []string{envUserCert, "does not match"},
		},
		"a key that is none": {map[string]string{envUserCert: string(cert), envUserKey: secret}, []string{envUserKey, "PEM"}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.variables[envPassword] = secret
			_, err := ConfigFromEnv(env(tc.variables))
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in: %v", want, err)
				}
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("a secret is in: %v", err)
			}
		})
	}
}

func TestConfigPrintsNoSecret(t *testing.T) {
	const secret = "geheim"
	cfg, err := ConfigFromEnv(env(map[string]string{
		envControllers: "http://admin:" + secret + "@a", envUsername: "admin", envPassword: secret,
	}))
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if got := fmt.Sprintf(verb, cfg); strings.Contains(got, secret) {
			t.Errorf("%s: %s", verb, got)
		}
	}
}

func TestClientCertificateIsReadPerHandshake(t *testing.T) {
	dir := t.TempDir()
	cert, key := certificate(t)
	certFile, keyFile := write(t, dir, "tls.crt", string(cert)), write(t, dir, "tls.key", string(key))
	cfg, err := ConfigFromEnv(env(map[string]string{envUserCert + "_FILE": certFile, envUserKey + "_FILE": keyFile}))
	if err != nil {
		t.Fatal(err)
	}
	newCert, newKey := certificate(t)
	write(t, dir, "tls.crt", string(newCert))
	write(t, dir, "tls.key", string(newKey))
	pair, err := cfg.tls.config().GetClientCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(newCert)
	if !bytes.Equal(pair.Certificate[0], block.Bytes) {
		t.Error("the handshake uses the old certificate")
	}
}

func write(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// certificate makes a self-signed certificate and its key as PEM.
func certificate(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "test"}, DNSNames: []string{"linstor"},
		NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}
