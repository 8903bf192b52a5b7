package pipenet_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/pipenet"
)

func TestHTTPInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener := pipenet.Listen()
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "hello")
		})}
		go func() { _ = server.Serve(listener) }()
		transport := &http.Transport{DialContext: listener.DialContext}
		response, err := (&http.Client{Transport: transport}).Get("http://linstor/")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		if err != nil || string(body) != "hello" {
			t.Errorf("body = %q, %v", body, err)
		}
		_ = response.Body.Close()
		transport.CloseIdleConnections()
		_ = server.Close()
	})
}

func TestDialEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener := pipenet.Listen()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := listener.DialContext(ctx, "tcp", "linstor:3370"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error = %v, want deadline exceeded", err)
		}
	})
}

func TestClosedListenerRefuses(t *testing.T) {
	listener := pipenet.Listen()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := listener.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept error = %v, want closed", err)
	}
	if _, err := listener.DialContext(t.Context(), "tcp", "linstor:3370"); !errors.Is(err, net.ErrClosed) {
		t.Errorf("dial error = %v, want closed", err)
	}
}

func TestDisconnectEndsConnectionsButNotTheListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener := pipenet.Listen()
		accepted := make(chan net.Conn, 2)
		go func() {
			for {
				c, err := listener.Accept()
				if err != nil {
					return
				}
				accepted <- c
			}
		}()
		first, err := listener.DialContext(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		<-accepted
		listener.Disconnect()
		if _, err := first.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("read error = %v, want EOF", err)
		}
		second, err := listener.DialContext(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		_ = second.Close()
		_ = (<-accepted).Close()
		_ = listener.Close()
	})
}
