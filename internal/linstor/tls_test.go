package linstor

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// pairOf returns a certificate and its key as PEM.
func pairOf(t *testing.T, pair tls.Certificate) (cert, key string) {
	t.Helper()
	pkcs8, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}))
}

func poolOf(a authority) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// LINSTOR demands a certificate of its clients, and begins to take those of another authority only. The files follow later,
// and the next handshake goes by them.
func TestAClientIsKnownByTheCertificateOfItsFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, fake, lines := newNetwork(), newFakeLinstor(), &logLines{}
		fake.pvc1()
		first, second := newAuthority(t), newAuthority(t)
		cert := first.issue(t, 24*time.Hour)
		var trusted atomic.Pointer[x509.CertPool]
		trusted.Store(poolOf(first))
		var client atomic.Value
		client.Store("")
		// With TLS 1.3 both ends would write at the same time, which a pipe without a buffer does not stand.
		secured(t, n, fake, func() *tls.Config {
			return &tls.Config{
				Certificates: []tls.Certificate{cert}, MaxVersion: tls.VersionTLS12,
				ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: trusted.Load(),
				VerifyConnection: func(state tls.ConnectionState) error {
					client.Store(state.PeerCertificates[0].Subject.CommonName)
					return nil
				},
			}
		})
		dir := t.TempDir()
		rotate := func(a authority, name string) (certFile, keyFile string) {
			pem, key := pairOf(t, a.issueTo(t, name, x509.ExtKeyUsageClientAuth, 24*time.Hour))
			return write(t, dir, "tls.crt", pem), write(t, dir, "tls.key", key)
		}
		certFile, keyFile := rotate(first, "old")
		feed := securedFeed(t, n, map[string]string{
			envRootCA: pemOf(first.cert), envUserCert + fileSuffix: certFile, envUserKey + fileSuffix: keyFile,
		}, lines)
		settle(11 * time.Second)
		if status := feed.Status(); !status.Synced || client.Load() != "old" {
			t.Fatalf("LINSTOR knows the client as %q, status %+v", client.Load(), status)
		}

		trusted.Store(poolOf(second))
		fake.cut()
		n.close()
		settle(time.Minute)
		if status := feed.Status(); status.Connected {
			t.Errorf("LINSTOR takes the old certificate: %+v", status)
		}

		rotate(second, "new")
		settle(11 * time.Second)
		if status := feed.Status(); !status.Synced || client.Load() != "new" {
			t.Errorf("LINSTOR knows the client as %q, status %+v", client.Load(), status)
		}
	})
}

func TestLinstorThatDemandsACertificateRefusesAClientWithoutOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, fake, lines := newNetwork(), newFakeLinstor(), &logLines{}
		fake.pvc1()
		ca := newAuthority(t)
		cert := ca.issue(t, 24*time.Hour)
		secured(t, n, fake, func() *tls.Config {
			return &tls.Config{
				Certificates: []tls.Certificate{cert}, MaxVersion: tls.VersionTLS12,
				ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: poolOf(ca),
			}
		})
		feed := securedFeed(t, n, map[string]string{envRootCA: pemOf(ca.cert)}, lines)
		settle(time.Minute)
		if status := feed.Status(); status.Connected || !strings.Contains(lines.all(), "check "+envUserCert) {
			t.Errorf("status without a certificate: %+v, log:\n%s", status, lines.all())
		}
	})
}

// Where LINSTOR has TLS, its plain port sends everybody there: requests and the event stream, with the credentials.
func TestFeedFollowsARedirectToTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, fake, lines := newNetwork(), newFakeLinstor(), &logLines{}
		fake.pvc1()
		ca := newAuthority(t)
		cert := ca.issue(t, 24*time.Hour)
		var without atomic.Int32 // requests without the credentials
		fake.change(func() {
			fake.intercept = func(_ http.ResponseWriter, r *http.Request) bool {
				if user, password, _ := r.BasicAuth(); user != "u" || password != "p" {
					without.Add(1)
				}
				return false
			}
		})
		secured(t, n, fake, func() *tls.Config {
			return &tls.Config{Certificates: []tls.Certificate{cert}, MaxVersion: tls.VersionTLS12}
		})
		n.serve(t, host, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://linstor:3371"+r.URL.RequestURI(), http.StatusFound)
		}))
		feed := securedFeed(t, n, map[string]string{
			envControllers: "http://linstor", envRootCA: pemOf(ca.cert), envUsername: "u", envPassword: "p",
		}, lines)
		settle(11 * time.Second)
		if status := feed.Status(); !status.Synced || !status.Connected || fake.streamsOpened() != 1 {
			t.Fatalf("status: %+v, %d streams", status, fake.streamsOpened())
		}
		fake.change(func() { fake.resources[1] = resource("PVC-1", "node-b", false, 10101, true) })
		fake.promotion("PVC-1", "node-b", new(true))
		settle(time.Second)
		r, _ := feed.store.Resource("PVC-1")
		if b, _ := r.Replica("node-b"); !isTrue(b.MayPromote) {
			t.Errorf("the event is not known: %+v", b)
		}
		if _, err := feed.Refresh(t.Context(), "PVC-1", 0); err != nil {
			t.Error(err)
		}
		if count := without.Load(); count > 0 {
			t.Errorf("%d requests came without the credentials", count)
		}
	})
}

// initialize-token-auth of LINSTOR 1.34 turns HTTPS on with a certificate that names no host.
func TestErrorsOfTLSNameTheWayOut(t *testing.T) {
	for name, tc := range map[string]struct {
		cert func(ca authority) tls.Certificate
		env  func(ca authority) map[string]string
		want string
	}{
		"a certificate that names no host": {
			cert: func(ca authority) tls.Certificate {
				return tls.Certificate{Certificate: [][]byte{ca.cert.Raw}, PrivateKey: ca.key}
			},
			env: func(ca authority) map[string]string { return map[string]string{envRootCA: pemOf(ca.cert)} }, want: "no_https",
		},
		"a certificate of an unknown authority": {
			cert: func(ca authority) tls.Certificate { return ca.issue(t, time.Hour) },
			env:  func(authority) map[string]string { return map[string]string{envControllers: "https://linstor:3371"} }, want: envRootCA,
		},
		"HTTP is spoken to HTTPS": {
			cert: func(ca authority) tls.Certificate { return ca.issue(t, time.Hour) },
			env:  func(authority) map[string]string { return map[string]string{envControllers: "http://linstor:3371"} }, want: envControllers,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, fake, lines := newNetwork(), newFakeLinstor(), &logLines{}
				ca := newAuthority(t)
				cert := tc.cert(ca)
				secured(t, n, fake, func() *tls.Config {
					return &tls.Config{Certificates: []tls.Certificate{cert}, MaxVersion: tls.VersionTLS12}
				})
				feed := securedFeed(t, n, tc.env(ca), lines)
				settle(10 * time.Second)
				if feed.Status().Connected || !strings.Contains(lines.all(), tc.want) {
					t.Errorf("the log does not name %s:\n%s", tc.want, lines.all())
				}
			})
		})
	}
}
