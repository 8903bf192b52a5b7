package linstor

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
)

// authority issues certificates for the host "linstor".
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{cert, key}
}

// issue returns a certificate for LINSTOR that is good for d.
func (a authority) issue(t *testing.T, d time.Duration) tls.Certificate {
	t.Helper()
	return a.issueTo(t, "linstor", x509.ExtKeyUsageServerAuth, d)
}

// issueTo returns a certificate for a server or a client that is good for d.
func (a authority) issueTo(t *testing.T, name string, usage x509.ExtKeyUsage, d time.Duration) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotAfter: time.Now().Add(d), ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func write(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// pemOf returns a certificate as PEM.
func pemOf(cert *x509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}))
}

// secured serves the fake by TLS with a configuration that is asked for per connection.
func secured(t *testing.T, n *network, fake *fakeLinstor, config func() *tls.Config) {
	t.Helper()
	n.serve(t, "plain", fake)
	n.hosts["linstor:3371"] = func(conn net.Conn) { n.hosts["plain"](tls.Server(conn, config())) }
}

func securedFeed(t *testing.T, n *network, variables map[string]string, lines *logLines) *Feed {
	t.Helper()
	if variables[envControllers] == "" {
		variables[envControllers] = "linstor"
	}
	cfg, err := ConfigFromEnv(env(variables))
	if err != nil {
		t.Fatal(err)
	}
	client, err := NewClient(cfg, nil, ClientOptions{DialContext: n.dial})
	if err != nil {
		t.Fatal(err)
	}
	feed := NewFeed(client, NewStore(), lines.verbose(), Options{})
	runFeed(t, feed)
	return feed
}

func TestAnExpiredCertificateIsRefusedUntilItIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, fake, lines := newNetwork(), newFakeLinstor(), &logLines{}
		fake.pvc1()
		ca := newAuthority(t)
		var cert atomic.Pointer[tls.Certificate]
		cert.Store(new(ca.issue(t, time.Hour)))
		// With TLS 1.3 both ends would write at the same time, which a pipe without a buffer does not stand.
		secured(t, n, fake, func() *tls.Config {
			return &tls.Config{Certificates: []tls.Certificate{*cert.Load()}, MaxVersion: tls.VersionTLS12}
		})
		feed := securedFeed(t, n, map[string]string{envRootCA: pemOf(ca.cert)}, lines)
		settle(streamSettle + 10*time.Millisecond)
		if !feed.Status().Synced {
			t.Fatalf("status: %+v", feed.Status())
		}
		settle(time.Hour)
		fake.cut()
		n.close() // with the connections that were made while the certificate was good
		settle(time.Minute)
		if status := feed.Status(); status.Connected || !strings.Contains(lines.all(), "expired") {
			t.Errorf("status with an expired certificate: %+v", status)
		}
		if err := feed.Answers(t.Context()); err == nil {
			t.Error("a LINSTOR with an expired certificate counts as one that answers")
		}
		cert.Store(new(ca.issue(t, time.Hour)))
		settle(11 * time.Second)
		if !feed.Status().Synced {
			t.Errorf("status with the renewed certificate: %+v", feed.Status())
		}
	})
}

// The file has another authority, and LINSTOR has a certificate of that one: the controller trusts it once it has restarted.
func TestANewAuthorityIsTrustedAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, fake, lines := newNetwork(), newFakeLinstor(), &logLines{}
		fake.pvc1()
		first, second := newAuthority(t), newAuthority(t)
		var cert atomic.Pointer[tls.Certificate]
		cert.Store(new(first.issue(t, 24*time.Hour)))
		secured(t, n, fake, func() *tls.Config {
			return &tls.Config{Certificates: []tls.Certificate{*cert.Load()}, MaxVersion: tls.VersionTLS12}
		})
		dir := t.TempDir()
		variables := map[string]string{envRootCA + fileSuffix: write(t, dir, "ca.crt", pemOf(first.cert))}
		feed := securedFeed(t, n, variables, lines)
		settle(11 * time.Second)
		if status := feed.Status(); !status.Synced || !status.Connected {
			t.Fatalf("at the start: %+v", status)
		}

		write(t, dir, "ca.crt", pemOf(second.cert))
		cert.Store(new(second.issue(t, 24*time.Hour)))
		fake.cut()
		n.close()
		settle(time.Minute)
		if status := feed.Status(); status.Connected || !strings.Contains(lines.all(), "authority") {
			t.Errorf("with a certificate of an authority that was not there at the start: %+v", status)
		}

		restarted := securedFeed(t, n, variables, lines)
		settle(11 * time.Second)
		if status := restarted.Status(); !status.Synced || !status.Connected {
			t.Errorf("after a restart: %+v", status)
		}
	})
}

func TestTLSIsAtLeast12(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for version, works := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
			n, fake := newNetwork(), newFakeLinstor()
			fake.pvc1()
			ca := newAuthority(t)
			cert := ca.issue(t, time.Hour)
			secured(t, n, fake, func() *tls.Config {
				return &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS10, MaxVersion: version}
			})
			cfg, err := ConfigFromEnv(env(map[string]string{envControllers: "linstor", envRootCA: pemOf(ca.cert)}))
			if err != nil {
				t.Fatal(err)
			}
			client, err := NewClient(cfg, nil, ClientOptions{DialContext: n.dial})
			if err != nil {
				t.Fatal(err)
			}
			_, err = client.Nodes(t.Context())
			client.CloseIdleConnections()
			if (err == nil) != works {
				t.Errorf("%s: %v", tls.VersionName(version), err)
			}
		}
	})
}

func TestFeedFollowsTenThousandResources(t *testing.T) {
	atLength(t)
	synctest.Test(t, func(t *testing.T) {
		const count = 10_000
		n, fake := newNetwork(), newFakeLinstor()
		fake.pvc1()
		for i := range count {
			name := fmt.Sprintf("pvc-many-%d", i)
			fake.definitions = append(fake.definitions, definition(name, "majority"))
			fake.resources = append(fake.resources, resource(name, "Node-A", true, 10102, false), resource(name, "node-b", false, 10102, false))
		}
		n.serve(t, host, fake)
		feed := startFeed(t, n, "http://linstor", logr.Discard())
		settle(2 * time.Minute) // each definition that is new is read once, at the limit of the rate
		if got := len(feed.store.Names()); got != count+1 || !feed.Status().Synced {
			t.Fatalf("%d resources, status %+v", got, feed.Status())
		}
		fake.change(func() { fake.resources[1] = resource("PVC-1", "node-b", false, 10101, true) })
		fake.promotion("PVC-1", "node-b", new(true))
		settle(100 * time.Millisecond)
		r, _ := feed.store.Resource("PVC-1")
		if b, _ := r.Replica("node-b"); !isTrue(b.MayPromote) {
			t.Errorf("the change is not known after 100 ms: %+v", b)
		}
	})
}
