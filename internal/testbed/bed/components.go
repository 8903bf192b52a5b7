package bed

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"sync"
	"time"
)

// Component is a process of the control plane that [Bed.Kill] can end.
type Component string

// The components. LINSTOR and the controller have their own ways to end: [linstorsim.Server.Restart] and
// [Bed.KillController].
const (
	Etcd              Component = "etcd"
	APIServer         Component = "kube-apiserver"
	ControllerManager Component = "kube-controller-manager"
	Scheduler         Component = "kube-scheduler"
	Attacher          Component = "csi-attacher"
)

// restartDelay is the time from the end of a component to its next start. A kubelet starts a static pod again at once
// and, if that happens again, after ten seconds and more.
const restartDelay = time.Second

// component is how a process is started and killed.
type component struct {
	// start starts the process and returns a channel that is closed when it has ended.
	start func() (ended <-chan struct{}, err error)
	// kill ends the process at once. It may have ended already.
	kill func()
	// ended is that of the first start.
	ended <-chan struct{}

	mu      sync.Mutex
	retired bool
}

// Kill ends a component at once (SIGKILL), as a bug or a memory limit does. It is started again a second later, until
// that succeeds. From the first Kill on, so are all components that end by themselves: some do when they start while the
// API is away. Before, such an end is an error of [Bed.Err], unless Options.RestartComponents is set or it is the attacher's.
func (b *Bed) Kill(name Component) error {
	b.mu.Lock()
	c := b.components[name]
	b.mayEnd = true
	b.mu.Unlock()
	if c == nil {
		return fmt.Errorf("kill %s: there is none in this test bed", name)
	}
	c.kill()
	return nil
}

// run starts a component that is a process of the bed, and keeps it running until Stop.
func (b *Bed) run(name Component, start func() (*process, error)) error {
	var (
		mu      sync.Mutex
		current *process
	)
	end := func(grace time.Duration) {
		mu.Lock()
		p := current
		mu.Unlock()
		p.stop(grace)
	}
	c := &component{kill: func() { end(0) }, start: func() (<-chan struct{}, error) {
		p, err := start()
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		current = p
		return p.done, nil
	}}
	var err error
	if c.ended, err = c.start(); err != nil {
		return err
	}
	b.cleanup(func() { end(stopGrace) })
	b.keep(name, c)
	return nil
}

// keep starts a component again when it has ended, until Stop.
func (b *Bed) keep(name Component, c *component) {
	b.mu.Lock()
	b.components[name] = c
	b.mu.Unlock()
	b.serve(func(ctx context.Context) error {
		for ended := c.ended; ; {
			select {
			case <-ended:
			case <-ctx.Done():
				return nil
			}
			if c.isRetired() {
				return nil
			}
			if !b.mayRestart(name) {
				return fmt.Errorf("%s: %w; read its log in %s", name, errEnded, b.LogDir)
			}
			if ended = c.restart(ctx); ended == nil {
				return nil
			}
		}
	})
}

// mayRestart tells whether a component may end, and counts that it did. The attacher always may: while it starts it asks the CSI
// driver three things, ends itself where an answer takes longer than a second, and leaves it to its kubelet to start it again.
func (b *Bed) mayRestart(name Component) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.restarts[name]++
	return b.mayEnd || name == Attacher
}

// Restarts returns how often each component has ended since Start, none if it never did.
func (b *Bed) Restarts() map[Component]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.restarts)
}

// restart starts the component again, as often as it takes. It returns nil if ctx ended first.
func (c *component) restart(ctx context.Context) <-chan struct{} {
	for {
		select {
		case <-time.After(restartDelay):
		case <-ctx.Done():
			return nil
		}
		if ended, err := c.start(); err == nil {
			return ended
		}
	}
}

// retire ends the component for good.
func (c *component) retire() {
	c.mu.Lock()
	c.retired = true
	c.mu.Unlock()
	c.kill()
}

func (c *component) isRetired() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.retired
}

// errEnded stands for the end of a process that should have gone on running.
var errEnded = errors.New("it ended, and should run as long as the test bed")

// etcd returns how etcd is killed and started again.
func (c *controlPlane) etcd() *component {
	etcd := c.plane.Etcd
	return c.component(etcd.Stop, etcd.Start, func() string { return etcd.URL.Host })
}

// apiServer returns how the API server is killed and started again.
func (c *controlPlane) apiServer() *component {
	api := c.plane.GetAPIServer()
	return c.component(api.Stop, api.Start, api.SecureServing.HostPort)
}

// component returns a process that envtest has started and can stop, start again, and serves at an address.
func (c *controlPlane) component(stop, start func() error, address func() string) *component {
	var mu sync.Mutex
	ended := make(chan struct{})
	result := &component{ended: ended}
	result.kill = func() {
		mu.Lock()
		defer mu.Unlock()
		select {
		case <-ended:
			return
		default:
		}
		_ = stop() // it does not wait, and says so by an error
		for {
			conn, err := net.DialTimeout("tcp", address(), time.Second)
			if err != nil {
				break // its port is free again
			}
			_ = conn.Close()
			time.Sleep(10 * time.Millisecond)
		}
		close(ended)
	}
	result.start = func() (<-chan struct{}, error) {
		mu.Lock()
		defer mu.Unlock()
		var err error
		c.spawn.do(func() { err = start() })
		if err != nil {
			_ = stop()
			return nil, err
		}
		ended = make(chan struct{})
		return ended, nil
	}
	return result
}
