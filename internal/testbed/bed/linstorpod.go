package bed

import (
	"context"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/machine"
)

const (
	// ComponentLabel is the label by which the Piraeus Operator tells its pods apart.
	ComponentLabel = "app.kubernetes.io/component"
	// LINSTORComponent is its value for the pods of the LINSTOR controller. In the test bed the simulated LINSTOR runs
	// while such a pod does, once there has been one; without any it always runs.
	LINSTORComponent = "linstor-controller"
	// LINSTORStart is how long the LINSTOR controller takes to answer after its container was started.
	LINSTORStart = 10 * time.Second
	// LINSTORPort is where the simulated LINSTOR answers at the address of its pod.
	LINSTORPort = 3370
)

// startLINSTOR starts the simulated LINSTOR in a container. If the container's node crashes, nobody is told: connections to LINSTOR are
// silent until another one answers at its address, and end then.
func (b *Bed) startLINSTOR(ctx context.Context, c machine.Container) (machine.Process, error) {
	p := &linstorProcess{bed: b, done: make(chan struct{})}
	starting := time.AfterFunc(LINSTORStart, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if closed(p.done) {
			return
		}
		b.LINSTOR.Start()
		b.cutAllLINSTOR(false)
		var err error
		p.port, err = newRelay(net.JoinHostPort(c.IP, strconv.Itoa(LINSTORPort)), b.linstorAddr) // for the probes of the kubelet
		b.note(err)
	})
	context.AfterFunc(ctx, func() {
		starting.Stop()
		b.cutAllLINSTOR(true)
		p.Kill()
	})
	b.LINSTOR.Stop()
	return p, nil
}

// linstorProcess is the simulated LINSTOR in the terms of a machine.
type linstorProcess struct {
	bed  *Bed
	done chan struct{}

	mu   sync.Mutex
	port *relay // nil until LINSTOR answers
}

// Terminate implements machine.Process.
func (p *linstorProcess) Terminate() { p.Kill() }

// Kill implements machine.Process.
func (p *linstorProcess) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if closed(p.done) {
		return
	}
	p.bed.LINSTOR.Stop()
	if p.port != nil {
		p.port.close()
	}
	close(p.done)
}

// Done implements machine.Process.
func (p *linstorProcess) Done() <-chan struct{} { return p.done }

// ExitCode implements machine.Process.
func (p *linstorProcess) ExitCode() int { return 0 }

// cutAllLINSTOR cuts or mends the way to LINSTOR for the processes on all nodes.
func (b *Bed) cutAllLINSTOR(cut bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, network := range b.networks {
		network.linstor.setCut(cut)
	}
}
