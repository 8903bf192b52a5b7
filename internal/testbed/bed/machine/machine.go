// Package machine simulates what a kubelet needs of its machine: a container runtime (CRI), and the node service of LINSTOR's CSI driver,
// whose mounts open devices of the DRBD model. The process of the bed serves both on unix sockets. So they outlive the kubelet, and lose
// everything but the disk when the power goes.
package machine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Storage is the block storage of the machines.
type Storage interface {
	// Open opens the device of a resource on a node. An error refuses: the kubelet tries again.
	Open(resource, node string, readOnly bool) error
	// Close undoes one successful Open.
	Close(resource, node string)
	// IOHangs reports whether a process that uses the device waits for IO. Such a process ends by no signal.
	IOHangs(resource, node string) bool
}

// Machine is a machine that is off until PowerOn.
type Machine struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer

	// Name is that of the node.
	Name string
	// Root is the root directory of the kubelet. It outlives a power loss.
	Root string
	// Storage is the block storage.
	Storage Storage
	// Runner runs chosen containers as processes; nil runs none.
	Runner Runner
	// Log hears of containers and mounts.
	Log logr.Logger

	mu         sync.Mutex
	ctx        context.Context //nolint:containedctx // ends with the power
	off        context.CancelFunc
	servers    []*grpc.Server
	sandboxes  map[string]*sandbox
	containers map[string]*container
	volumes    map[string]*volume // by target path
	mountDelay time.Duration
}

// CRISocket is where the container runtime listens.
func (m *Machine) CRISocket() string { return filepath.Join(m.Root, "cri.sock") }

func (m *Machine) csiSocket() string { return filepath.Join(m.Root, "plugins", "linstor-csi.sock") }

func (m *Machine) registrationSocket() string {
	return filepath.Join(m.Root, "plugins_registry", "linstor.sock")
}

// PowerOn starts the container runtime, and the CSI driver after a delay: in a cluster the kubelet starts its pod first.
func (m *Machine) PowerOn(csiDelay time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	ctx, off := context.WithCancel(context.Background())
	m.ctx, m.off = ctx, off
	m.sandboxes, m.containers, m.volumes = map[string]*sandbox{}, map[string]*container{}, map[string]*volume{}
	for _, socket := range []string{m.csiSocket(), m.registrationSocket(), m.CRISocket()} {
		if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
			return fmt.Errorf("machine %s: %w", m.Name, err)
		}
		if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("machine %s: %w", m.Name, err)
		}
	}
	if err := m.serve(m.CRISocket(), func(s *grpc.Server) {
		runtimeapi.RegisterRuntimeServiceServer(s, m)
		runtimeapi.RegisterImageServiceServer(s, m)
	}); err != nil {
		return err
	}
	if csiDelay == 0 {
		return m.startDriver()
	}
	m.after(csiDelay, func() {
		if err := m.startDriver(); err != nil {
			m.Log.Error(err, "cannot start the CSI driver")
		}
	})
	return nil
}

// after calls f with mu held, unless the power goes before.
func (m *Machine) after(delay time.Duration, f func()) {
	ctx := m.ctx
	timer := time.AfterFunc(delay, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if ctx.Err() == nil {
			f()
		}
	})
	context.AfterFunc(ctx, func() { timer.Stop() })
}

// PowerOff forgets everything but the disk.
func (m *Machine) PowerOff() {
	m.mu.Lock()
	if m.off != nil {
		m.off()
	}
	servers := m.servers
	m.servers = nil
	// A tmpfs or a bind mount does not survive; here folders stand for them.
	for target := range m.volumes {
		_ = os.Remove(target)
	}
	var processes []Process
	for _, c := range m.containers {
		if c.process != nil && c.status.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			processes = append(processes, c.process)
		}
	}
	m.mu.Unlock()
	for _, s := range servers {
		s.Stop()
	}
	for _, p := range processes {
		<-p.Done()
	}
}

// On reports whether the machine has power.
func (m *Machine) On() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ctx != nil && m.ctx.Err() == nil
}

// Idle reports whether no container runs and nothing is mounted.
func (m *Machine) Idle() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.containers {
		if c.status.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			return false
		}
	}
	return len(m.volumes) == 0
}

// DelayMounts lets each mount take so long.
func (m *Machine) DelayMounts(delay time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mountDelay = delay
}

// serve serves on a socket until PowerOff. With mu held.
func (m *Machine) serve(socket string, register func(*grpc.Server)) error {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("machine %s: %w", m.Name, err)
	}
	s := grpc.NewServer()
	register(s)
	m.servers = append(m.servers, s)
	go func() { _ = s.Serve(l) }()
	return nil
}
