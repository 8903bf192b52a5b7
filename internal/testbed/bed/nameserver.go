package bed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	// linstorName is what the shipped manifest calls LINSTOR, which is at 127.0.0.1. The API server has no name: pods find it by the
	// address in their environment.
	linstorName = "linstor-controller.piraeus-datastore.svc"

	clusterDomain = ".cluster.local."
	// resolvConf is that of a pod in ControllerNamespace.
	resolvConf = "search " + ControllerNamespace + ".svc.cluster.local svc.cluster.local cluster.local\nnameserver %s\noptions ndots:5\n"
)

// nameServer is the cluster's name server.
type nameServer struct {
	conn   net.PacketConn
	config string // path of the resolv.conf that leads to it
	silent atomic.Bool
}

// CanServeNames returns why a bed cannot have Options.NameServer here, nil if it can: the port of a name server is 53, and a process
// gets a resolv.conf of its own by a mount that only it sees.
func CanServeNames() error {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		return errors.New("a name server of its own needs root on Linux")
	}
	if out, err := exec.Command("unshare", "--mount", "true").CombinedOutput(); err != nil {
		return fmt.Errorf("a name server of its own needs mounts of its own: unshare: %w: %s", err, out)
	}
	return nil
}

// startNameServer starts the name server, and writes the resolv.conf.
func (b *Bed) startNameServer(ctx context.Context) error {
	if err := CanServeNames(); err != nil {
		return err
	}
	conn, err := listenDNS(ctx)
	if err != nil {
		return err
	}
	host, _, err := net.SplitHostPort(conn.LocalAddr().String())
	if err != nil {
		return fmt.Errorf("name server: %w", err)
	}
	s := &nameServer{conn: conn, config: filepath.Join(b.dir, "resolv.conf")}
	if err := os.WriteFile(s.config, fmt.Appendf(nil, resolvConf, host), 0o644); err != nil {
		return fmt.Errorf("name server: %w", err)
	}
	b.serve(func(ctx context.Context) error {
		context.AfterFunc(ctx, func() { _ = conn.Close() })
		return s.serve()
	})
	b.names = s
	return nil
}

// listenDNS takes an address of the loopback interface that no other bed has.
func listenDNS(ctx context.Context) (net.PacketConn, error) {
	const tries = 100
	var failure error
	for range tries {
		address := fmt.Sprintf("127.53.%d.%d:53", rand.IntN(256), 1+rand.IntN(254))
		conn, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp4", address)
		if err == nil {
			return conn, nil
		}
		failure = err
	}
	return nil, fmt.Errorf("name server: %w", failure)
}

// SilenceNameServer lets the name server swallow all queries, as when its node has lost its power, or answer again.
func (b *Bed) SilenceNameServer(silent bool) { b.names.silent.Store(silent) }

// namedLINSTOR returns an address host:port of LINSTOR with its name in place of the host where the controller finds it by name.
func (b *Bed) namedLINSTOR(address string) string {
	_, port, err := net.SplitHostPort(address)
	if b.names == nil || err != nil {
		return address
	}
	return net.JoinHostPort(linstorName, port)
}

// resolvedBy returns a command that does the same with this name server.
func (s *nameServer) resolvedBy(cmd *exec.Cmd) (*exec.Cmd, error) {
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		return nil, fmt.Errorf("name server: %w", err)
	}
	// Each of the three becomes the next one: the process is the one that was started.
	const mounted = `mount --bind "$0" /etc/resolv.conf && exec "$@"`
	args := append([]string{"--mount", "sh", "-c", mounted, s.config, cmd.Path}, cmd.Args[1:]...)
	resolved := exec.Command(unshare, args...)
	resolved.Env = cmd.Env
	return resolved, nil
}

// serve answers queries until the connection is closed.
func (s *nameServer) serve() error {
	query := make([]byte, 512)
	for {
		n, from, err := s.conn.ReadFrom(query)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("name server: %w", err)
		}
		if s.silent.Load() {
			continue
		}
		if answer, err := answerTo(query[:n]); err == nil {
			_, _ = s.conn.WriteTo(answer, from)
		}
	}
}

// answerTo returns the answer to a query: the address of LINSTOR, and that there is no other name.
func answerTo(query []byte) ([]byte, error) {
	var parser dnsmessage.Parser
	header, err := parser.Start(query)
	if err != nil {
		return nil, err //nolint:wrapcheck // nobody reads it
	}
	question, err := parser.Question()
	if err != nil {
		return nil, err //nolint:wrapcheck // nobody reads it
	}
	message := dnsmessage.Message{
		Header: dnsmessage.Header{
			ID: header.ID, Response: true, Authoritative: true, RecursionDesired: header.RecursionDesired, RecursionAvailable: true,
		},
		Questions: []dnsmessage.Question{question},
	}
	name, found := strings.CutSuffix(question.Name.String(), clusterDomain)
	switch {
	case !found || name != linstorName:
		message.RCode = dnsmessage.RCodeNameError
	case question.Type == dnsmessage.TypeA:
		message.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: 5},
			Body:   &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}},
		}}
	}
	return message.Pack() //nolint:wrapcheck // nobody reads it
}
