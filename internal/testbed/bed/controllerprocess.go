package bed

import (
	"fmt"
	"maps"
	"slices"
	"syscall"
)

// ControllerProcess is the newest process of a pod of the high availability controller.
type ControllerProcess struct {
	// Pod is the pod's name.
	Pod string
	// PID is the number of the process.
	PID int
	// MetricsURL is where it serves metrics, without TLS if it was told so.
	MetricsURL string
	// ProbesURL is where it answers the kubelet's probes, without a path.
	ProbesURL string
	// ForecastPort is where it answers the command check.
	ForecastPort int
	// Starts is how often a process of the pod was started.
	Starts int
}

// ControllerProcesses returns the newest process of each pod that there has been, sorted by pod.
func (b *Bed) ControllerProcesses() []ControllerProcess {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []ControllerProcess
	for _, pod := range slices.Sorted(maps.Keys(b.controllers)) {
		all = append(all, b.controllers[pod])
	}
	return all
}

// KillController ends the process of a pod by a signal. Its kubelet starts another one.
func (b *Bed) KillController(pod string, signal syscall.Signal) error {
	return b.onController(pod, "kill", func(pid int) error { return syscall.Kill(pid, signal) })
}

// StarveController lets the process of a pod have no more memory than it has, as a limit does that it has reached: when it
// needs more it ends. Its kubelet starts another one, without that limit. The error is [errors.ErrUnsupported] on systems
// that cannot do this.
func (b *Bed) StarveController(pod string) error { return b.onController(pod, "starve", starve) }

// onController does something to the process of a pod.
func (b *Bed) onController(pod, what string, do func(pid int) error) error {
	b.mu.Lock()
	p, ok := b.controllers[pod]
	b.mu.Unlock()
	if !ok {
		return fmt.Errorf("%s the controller: pod %s has no process", what, pod)
	}
	if err := do(p.PID); err != nil {
		return fmt.Errorf("%s the controller of pod %s: %w", what, pod, err)
	}
	return nil
}

// noteProcess notes that a process was started.
func (b *Bed) noteProcess(p ControllerProcess) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.controllers == nil {
		b.controllers = make(map[string]ControllerProcess)
	}
	p.Starts = b.controllers[p.Pod].Starts + 1
	b.controllers[p.Pod] = p
}
