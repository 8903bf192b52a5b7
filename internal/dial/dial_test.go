package dial_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/dial"
)

const host, address = "linstor.example", "linstor.example:3370"

// patient is the timeout of the dialers of these tests.
const patient = 3 * time.Second

var errName = &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}

// world is a name service and the hosts that can be connected to.
type world struct {
	mu      sync.Mutex
	names   []string // addresses of the one host, none for the error
	delay   time.Duration
	reached []string // addresses that answer
	silent  []string // addresses that do not, for as long as one waits
	asked   int
	dialed  []string
}

// LookupNetIP implements dial.Resolver.
func (w *world) LookupNetIP(ctx context.Context, _, _ string) ([]netip.Addr, error) {
	w.mu.Lock()
	w.asked++
	names, delay := w.names, w.delay
	w.mu.Unlock()
	select {
	case <-time.After(delay):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if len(names) == 0 {
		return nil, errName
	}
	var addresses []netip.Addr
	for _, name := range names {
		addresses = append(addresses, netip.MustParseAddr(name))
	}
	return addresses, nil
}

var errRefused = errors.New("refused")

// connect is how connections are made to what the world has.
func (w *world) connect(ctx context.Context, _, address string) (net.Conn, error) {
	host, _, _ := net.SplitHostPort(address)
	w.mu.Lock()
	w.dialed = append(w.dialed, host)
	reached, silent := slices.Contains(w.reached, host), slices.Contains(w.silent, host)
	w.mu.Unlock()
	switch {
	case reached:
		near, far := net.Pipe()
		_ = far.Close()
		return near, nil
	case silent:
		<-ctx.Done()
		return nil, ctx.Err()
	default:
		return nil, errRefused
	}
}

func (w *world) set(change func(*world)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(w)
}

// to returns the address that a dial reaches, and how long it takes.
func to(t *testing.T, w *world, d *dial.Dialer, address string) (reached string, took time.Duration, err error) {
	t.Helper()
	began := time.Now()
	conn, err := d.DialContext(t.Context(), "tcp", address)
	took = time.Since(began)
	if err != nil {
		return "", took, err
	}
	_ = conn.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dialed[len(w.dialed)-1], took, nil
}

// pass lets virtual time pass.
func pass(d time.Duration) { <-time.After(d) }

// in runs a test with a world that has one host, in virtual time.
func in(t *testing.T, test func(t *testing.T, w *world, d *dial.Dialer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{names: []string{"192.0.2.1"}, reached: []string{"192.0.2.1", "192.0.2.2"}}
		test(t, w, dial.With(w, w.connect, patient))
		// What waits for a name server ends before the test does.
		pass(time.Minute)
	})
}

func TestTheLastAddressesAreUsedWhileTheNameServerIsSilent(t *testing.T) {
	in(t, func(t *testing.T, w *world, d *dial.Dialer) {
		if _, _, err := to(t, w, d, address); err != nil {
			t.Fatal(err)
		}
		w.set(func(w *world) { w.delay = time.Hour })
		for range 3 {
			reached, took, err := to(t, w, d, address)
			if err != nil || reached != "192.0.2.1" || took > dial.Patience {
				t.Errorf("a dial reached %q after %s: %v; want the last address within %s", reached, took, err, dial.Patience)
			}
		}
	})
}

func TestTheLastAddressesAreUsedWhereTheNameServerAnswersWithAnError(t *testing.T) {
	in(t, func(t *testing.T, w *world, d *dial.Dialer) {
		if _, _, err := to(t, w, d, address); err != nil {
			t.Fatal(err)
		}
		w.set(func(w *world) { w.names = nil })
		if reached, took, err := to(t, w, d, address); err != nil || reached != "192.0.2.1" || took > 0 {
			t.Errorf("a dial reached %q after %s: %v; want the last address at once", reached, took, err)
		}
	})
}

func TestANameThatWasNeverResolvedGetsItsError(t *testing.T) {
	in(t, func(t *testing.T, w *world, d *dial.Dialer) {
		w.set(func(w *world) { w.names, w.delay = nil, 2*time.Second })
		_, took, err := to(t, w, d, address)
		if dnsError, ok := errors.AsType[*net.DNSError](err); !ok || !dnsError.IsNotFound || took != 2*time.Second {
			t.Errorf("a dial of an unknown name failed after %s: %v; want the name service's own error when that comes", took, err)
		}
		w.set(func(w *world) { w.delay = time.Hour })
		_, took, err = to(t, w, d, address)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), host) || took != patient {
			t.Errorf("a dial without an answer failed after %s: %v; want the deadline with the name", took, err)
		}
		if len(w.dialed) > 0 {
			t.Errorf("connections to %v, want none", w.dialed)
		}
	})
}

func TestAnAddressThatHasChangedIsUsedAtOnce(t *testing.T) {
	in(t, func(t *testing.T, w *world, d *dial.Dialer) {
		if _, _, err := to(t, w, d, address); err != nil {
			t.Fatal(err)
		}
		w.set(func(w *world) { w.names, w.delay = []string{"192.0.2.2"}, 100*time.Millisecond })
		if reached, _, err := to(t, w, d, address); err != nil || reached != "192.0.2.2" {
			t.Errorf("a dial reached %q: %v; want the new address", reached, err)
		}
	})
}

func TestAnAnswerThatComesTooLateServesTheNextDial(t *testing.T) {
	for name, known := range map[string]bool{"of a name that is known": true, "of a name that is not": false} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world, d *dial.Dialer) {
				if known {
					if _, _, err := to(t, w, d, address); err != nil {
						t.Fatal(err)
					}
				}
				w.set(func(w *world) { w.names, w.delay = []string{"192.0.2.2"}, 5*time.Second })
				if reached, _, err := to(t, w, d, address); reached == "192.0.2.2" || known != (err == nil) {
					t.Fatalf("a dial reached %q before there was an answer: %v", reached, err)
				}
				pass(5 * time.Second)
				w.set(func(w *world) { w.delay = time.Hour })
				if reached, took, err := to(t, w, d, address); err != nil || reached != "192.0.2.2" || took > dial.Patience {
					t.Errorf("the next dial reached %q after %s: %v; want the address that came late", reached, took, err)
				}
			})
		})
	}
}

func TestEveryAddressIsTriedInTime(t *testing.T) {
	in(t, func(t *testing.T, w *world, d *dial.Dialer) {
		w.set(func(w *world) {
			w.names, w.silent = []string{"2001:db8::1", "192.0.2.9", "192.0.2.2"}, []string{"2001:db8::1"}
		})
		if reached, took, err := to(t, w, d, address); err != nil || reached != "192.0.2.2" || took >= patient {
			t.Errorf("a dial reached %q after %s: %v; want the last of three, of which one is silent and one refuses", reached, took, err)
		}
		w.set(func(w *world) { w.names, w.silent = []string{"192.0.2.9", "192.0.2.8"}, nil })
		if _, _, err := to(t, w, d, address); !errors.Is(err, errRefused) {
			t.Errorf("a dial of hosts that refuse: %v", err)
		}
	})
}

func TestNobodyIsAskedForTheNameOfAnAddress(t *testing.T) {
	in(t, func(t *testing.T, w *world, d *dial.Dialer) {
		w.set(func(w *world) { w.reached = append(w.reached, "2001:db8::1") })
		for _, address := range []string{"192.0.2.1:3370", "[2001:db8::1]:3370"} {
			if _, _, err := to(t, w, d, address); err != nil {
				t.Error(err)
			}
		}
		if w.asked > 0 {
			t.Errorf("the name service was asked %d times", w.asked)
		}
	})
}

func TestADialEndsInTimeWhereEveryAddressIsDead(t *testing.T) {
	in(t, func(t *testing.T, w *world, d *dial.Dialer) {
		w.set(func(w *world) {
			w.names = []string{"192.0.2.8", "192.0.2.9"}
			w.silent = w.names
		})
		_, took, err := to(t, w, d, address)
		if !errors.Is(err, context.DeadlineExceeded) || took != patient || len(w.dialed) != 2 {
			t.Errorf("a dial of %v failed after %s: %v; want both tried within %s", w.dialed, took, err, patient)
		}
		w.set(func(w *world) { w.names = []string{"192.0.2.1"} })
		if reached, _, err := to(t, w, d, address); err != nil || reached != "192.0.2.1" {
			t.Errorf("the next dial reached %q: %v; want the address that the name has now", reached, err)
		}
	})
}

func TestADialThatIsCancelledEndsAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*world)
		dialed int
	}{
		"while it waits for the name service": {func(w *world) { w.delay = time.Hour }, 0},
		"while it connects":                   {func(w *world) { w.reached, w.silent = nil, w.names }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world, d *dial.Dialer) {
				w.set(c.change)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(100*time.Millisecond, cancel)
				began := time.Now()
				_, err := d.DialContext(ctx, "tcp", address)
				if took := time.Since(began); !errors.Is(err, context.Canceled) || took != 100*time.Millisecond || len(w.dialed) != c.dialed {
					t.Errorf("a dial of %v failed after %s: %v; want it cancelled at once", w.dialed, took, err)
				}
			})
		})
	}
}
