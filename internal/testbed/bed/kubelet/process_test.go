package kubelet

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// fakeRunner runs pods named "process".
type fakeRunner struct {
	mu       sync.Mutex
	broken   bool
	deaf     bool // processes ignore Terminate
	current  *fakeProcess
	starts   int
	setReady func(bool)
}

// fakeProcess is a process that ends when it is told to.
type fakeProcess struct {
	deaf bool
	once sync.Once
	end  chan int
	how  atomic.Pointer[string]
}

func (r *fakeRunner) Runs(pod *corev1.Pod) bool { return pod.Name == "process" }

func (r *fakeRunner) Start(_ context.Context, _ *corev1.Pod, ready func(bool)) (Process, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.starts++
	if r.broken {
		return nil, errors.New("no such binary")
	}
	r.current, r.setReady = &fakeProcess{deaf: r.deaf, end: make(chan int, 1)}, ready
	return r.current, nil
}

// process returns the last process and how many were started.
func (r *fakeRunner) process() (*fakeProcess, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current, r.starts
}

// report reports the last process ready or not.
func (r *fakeRunner) report(ready bool) {
	r.mu.Lock()
	report := r.setReady
	r.mu.Unlock()
	report(ready)
}

// exit ends the process.
func (p *fakeProcess) exit(how string, code int) {
	p.once.Do(func() {
		p.how.Store(&how)
		p.end <- code
	})
}

func (p *fakeProcess) Terminate() error {
	if !p.deaf {
		p.exit("terminated", 0)
	}
	return nil
}

func (p *fakeProcess) Kill() error {
	p.exit("killed", 137)
	return nil
}

func (p *fakeProcess) Wait() int { return <-p.end }

func TestProcessDecidesWhetherItsPodIsReady(t *testing.T) {
	r := &fakeRunner{}
	onBench(t, Config{Runner: r}, func(b *bench) {
		b.createPod("process", "", nil)
		b.pass(time.Second)
		b.wantReady("process", false)
		if b.pod("process").Status.Phase != corev1.PodRunning {
			t.Errorf("status: %+v", b.pod("process").Status)
		}
		r.report(true)
		b.pass(time.Second)
		b.wantReady("process", true)
		r.report(false)
		b.pass(time.Second)
		b.wantReady("process", false)
	})
}

func TestProcessThatEndsIsStartedAgainWithBackoff(t *testing.T) {
	r := &fakeRunner{}
	onBench(t, Config{Runner: r}, func(b *bench) {
		b.createPod("process", "", nil)
		b.pass(time.Second)
		for i, pause := range []time.Duration{0, 10 * time.Second, 20 * time.Second, 40 * time.Second} {
			p, _ := r.process()
			p.exit("failed", 1)
			b.pass(pause - pause/10)
			if _, starts := r.process(); pause > 0 && starts != i+1 {
				t.Errorf("started again before %s", pause)
			}
			b.pass(pause / 5)
			if _, starts := r.process(); starts != i+2 {
				t.Errorf("%d starts after the backoff of %s, want %d", starts, pause, i+2)
			}
		}
		b.pass(time.Second)
		if status := b.pod("process").Status.ContainerStatuses[0]; status.RestartCount != 4 || status.State.Running == nil {
			t.Errorf("container: %+v", status)
		}
	})
}

func TestProcessThatDoesNotStartSaysWhy(t *testing.T) {
	r := &fakeRunner{broken: true}
	onBench(t, Config{Runner: r}, func(b *bench) {
		b.createPod("process", "", nil)
		b.pass(5 * time.Second)
		b.wantReady("process", false)
		waiting := b.pod("process").Status.ContainerStatuses[0].State.Waiting
		if waiting == nil || waiting.Message != "no such binary" {
			t.Errorf("waiting: %+v", waiting)
		}
	})
}

func TestProcessIsEndedWithItsPod(t *testing.T) {
	tests := map[string]struct {
		deaf  bool
		end   func(b *bench)
		after time.Duration
		want  string
	}{
		"by SIGTERM":                          {false, func(b *bench) { b.deletePod("process", 30) }, time.Second, "terminated"},
		"by SIGKILL after the grace period":   {true, func(b *bench) { b.deletePod("process", 5) }, 6 * time.Second, "killed"},
		"by SIGTERM when it is force-deleted": {false, func(b *bench) { b.forceDeletePod("process") }, time.Second, "terminated"},
		"by SIGKILL when the node crashes":    {false, func(b *bench) { b.k.Crash() }, 0, "killed"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := &fakeRunner{deaf: test.deaf}
			onBench(t, Config{Runner: r}, func(b *bench) {
				b.createPod("process", "", nil)
				b.pass(time.Second)
				p, _ := r.process()
				test.end(b)
				b.pass(test.after)
				if how := p.how.Load(); how == nil || *how != test.want {
					t.Errorf("the process ended otherwise than %s", test.want)
				}
				if _, starts := r.process(); starts != 1 {
					t.Errorf("%d starts", starts)
				}
				if pod := b.pod("process"); pod != nil && b.k.On() {
					t.Errorf("the pod is still there: %+v", pod.Status)
				}
			})
		})
	}
}
