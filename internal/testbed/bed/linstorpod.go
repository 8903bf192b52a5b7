package bed

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/kubelet"
)

const (
	// ComponentLabel is the label by which the Piraeus Operator tells its pods apart.
	ComponentLabel = "app.kubernetes.io/component"
	// LINSTORComponent is its value for the pods of the LINSTOR controller. In the test bed the simulated LINSTOR runs
	// while such a pod does, once there has been one; without any it always runs.
	LINSTORComponent = "linstor-controller"
	// LINSTORStart is how long the LINSTOR controller takes to answer after its container was started.
	LINSTORStart = 10 * time.Second
)

// linstorRunner lets the simulated LINSTOR run in a pod.
type linstorRunner struct{ bed *Bed }

// runs tells whether a pod is one of the LINSTOR controller.
func (linstorRunner) runs(pod *corev1.Pod) bool {
	return pod.Labels[ComponentLabel] == LINSTORComponent
}

// start starts LINSTOR in a pod. Where the pod's node crashes, nobody is told: connections to LINSTOR are silent until
// another one answers at its address, and end then.
func (r linstorRunner) start(ctx context.Context, ready func(bool)) kubelet.Process {
	p := &linstorProcess{bed: r.bed, done: make(chan struct{})}
	starting := time.AfterFunc(LINSTORStart, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.ended {
			return
		}
		r.bed.LINSTOR.Start()
		r.bed.cutAllLINSTOR(false)
		ready(true)
	})
	context.AfterFunc(ctx, func() {
		starting.Stop()
		r.bed.cutAllLINSTOR(true)
		_ = p.Kill()
	})
	r.bed.LINSTOR.Stop()
	return p
}

// linstorProcess is the simulated LINSTOR in the terms of a kubelet.
type linstorProcess struct {
	bed  *Bed
	done chan struct{}

	mu    sync.Mutex
	ended bool
}

// Terminate implements kubelet.Process.
func (p *linstorProcess) Terminate() error { return p.Kill() }

// Kill implements kubelet.Process.
func (p *linstorProcess) Kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.ended = true
		p.bed.LINSTOR.Stop()
		close(p.done)
	}
	return nil
}

// Wait implements kubelet.Process.
func (p *linstorProcess) Wait() int {
	<-p.done
	return 0
}

// cutAllLINSTOR cuts or mends the way to LINSTOR for the processes on all nodes.
func (b *Bed) cutAllLINSTOR(cut bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, network := range b.networks {
		network.linstor.setCut(cut)
	}
}
