package bed

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// echo listens and answers each line with itself until the test ends.
func echo(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				for lines := bufio.NewScanner(conn); lines.Scan(); {
					_, _ = fmt.Fprintln(conn, lines.Text())
				}
			}()
		}
	}()
	return listener
}

func TestRelay(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	target := echo(t)
	defer func() { _ = target.Close() }()
	r, err := newRelay(anyPort, target.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	conn, err := net.Dial("tcp", r.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	answers := bufio.NewReader(conn)
	ask := func(line string, patience time.Duration) (string, error) {
		_, _ = fmt.Fprint(conn, line)
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		return answers.ReadString('\n')
	}

	if answer, err := ask("hello\n", 10*time.Second); answer != "hello\n" {
		t.Fatalf("a whole cable passed %q, %v", answer, err)
	}
	r.setCut(true)
	if answer, err := ask("lost?\n", 100*time.Millisecond); err == nil {
		t.Fatalf("a cut cable passed %q", answer)
	}
	r.setCut(false)
	if answer, err := ask("", 10*time.Second); answer != "lost?\n" {
		t.Fatalf("the mended cable did not deliver what was sent: %q, %v", answer, err)
	}
}

func TestConnectionsThatAreStrandedStaySilentAndNewOnesDoNot(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	target := echo(t)
	defer func() { _ = target.Close() }()
	r, err := newRelay(anyPort, target.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	dial := func() (conn net.Conn, ask func(line string, patience time.Duration) (string, error)) {
		conn, err := net.Dial("tcp", r.addr())
		if err != nil {
			t.Fatal(err)
		}
		answers := bufio.NewReader(conn)
		return conn, func(line string, patience time.Duration) (string, error) {
			if _, err := fmt.Fprint(conn, line); err != nil {
				t.Errorf("write: %v", err)
			}
			_ = conn.SetReadDeadline(time.Now().Add(patience))
			return answers.ReadString('\n')
		}
	}
	old, askOld := dial()
	defer func() { _ = old.Close() }()
	if answer, err := askOld("hello\n", 10*time.Second); answer != "hello\n" {
		t.Fatalf("a connection passed %q, %v", answer, err)
	}
	r.strand()
	for range 3 {
		answer, err := askOld("lost\n", 100*time.Millisecond)
		if netErr, ok := errors.AsType[net.Error](err); answer != "" || !ok || !netErr.Timeout() {
			t.Fatalf("a stranded connection passed %q, %v; want silence", answer, err)
		}
	}
	young, askYoung := dial()
	defer func() { _ = young.Close() }()
	if answer, err := askYoung("hello\n", 10*time.Second); answer != "hello\n" {
		t.Fatalf("a new connection passed %q, %v", answer, err)
	}
}
