package kubelet

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Runner runs chosen pods as processes of this machine. All containers of such a pod count as one.
type Runner interface {
	// Runs tells whether the pod is one of those.
	Runs(pod *corev1.Pod) bool
	// Start starts the pod's process. It may report readiness at any time and from any goroutine
	// until the process has ended; a process that never does stays unready. The process must not
	// outlive ctx, which ends when the node crashes.
	Start(ctx context.Context, pod *corev1.Pod, ready func(bool)) (Process, error)
}

// Process is a process that a Runner started.
type Process interface {
	// Terminate asks the process to end (SIGTERM).
	Terminate() error
	// Kill ends the process at once (SIGKILL).
	Kill() error
	// Wait returns the process's exit code when it has ended. It is called once.
	Wait() (exitCode int)
}

// crashLoopReset is how long a process must run for the restart backoff to begin anew.
const crashLoopReset = 10 * time.Minute

// runProcesses runs the pod's process, again and again if its restart policy says so, until alive ends.
func (w *podWorker) runProcesses(ctx, alive context.Context) {
	t := w.l.cfg.Timings
	delay := time.Duration(0) // like the real kubelet, the first restart comes at once
	for alive.Err() == nil {
		begin := time.Now()
		if !w.runProcess(ctx, alive) || alive.Err() != nil {
			return
		}
		if time.Since(begin) > crashLoopReset {
			delay = 0
		}
		if delay > 0 {
			w.setState(func(s *podState) { s.waiting = "CrashLoopBackOff" })
		}
		pause, cancel := context.WithTimeout(alive, delay)
		w.serve(pause, nil)
		cancel()
		delay = min(max(2*delay, t.CrashLoopMin), t.CrashLoopMax)
	}
}

// runProcess runs the pod's process once and tells whether it has to be restarted.
func (w *podWorker) runProcess(ctx, alive context.Context) bool {
	pod, _ := w.current()
	w.setState(func(s *podState) { s.started(time.Now()); s.ready = false })
	process, err := w.l.cfg.Runner.Start(ctx, pod, func(ready bool) {
		w.setState(func(s *podState) { s.ready = ready && s.running })
	})
	if err != nil {
		w.l.log.Info("can not start the pod's process, will retry", "pod", w.name, "error", err.Error())
		w.setState(func(s *podState) {
			s.running, s.ready, s.waiting, s.message = false, false, "RunContainerError", err.Error()
		})
		return true
	}
	ended := make(chan int, 1)
	served, stopServing := context.WithCancel(alive)
	defer stopServing()
	w.l.start(func(context.Context) {
		ended <- process.Wait()
		stopServing()
	})
	w.serve(served, nil)
	if alive.Err() != nil {
		w.endProcess(ctx, process, ended)
		return false
	}
	return w.processEnded(pod, <-ended)
}

// processEnded records that the process ended by itself, and tells whether it has to be restarted.
func (w *podWorker) processEnded(pod *corev1.Pod, exitCode int) bool {
	policy := pod.Spec.RestartPolicy
	restart := policy != corev1.RestartPolicyNever && (policy != corev1.RestartPolicyOnFailure || exitCode != 0)
	w.setState(func(s *podState) {
		s.running, s.ready, s.exitCode = false, false, int32(exitCode)
		if restart {
			s.restarts++
			s.waiting, s.message = "Error", "the process ended"
		}
	})
	return restart
}

// endProcess stops the process: it is asked to end and killed after the grace period, or killed at once
// when the node crashes.
func (w *podWorker) endProcess(ctx context.Context, process Process, ended <-chan int) {
	begin := time.Now()
	if ctx.Err() == nil {
		w.logProcess("terminate", process.Terminate())
	}
	for ctx.Err() == nil {
		pod, _ := w.current()
		left := time.Until(begin.Add(w.gracePeriod(pod)))
		if left <= 0 {
			break
		}
		timer := time.NewTimer(left)
		select {
		case exitCode := <-ended:
			timer.Stop()
			w.setState(func(s *podState) { s.exitCode = int32(exitCode) })
			return
		case <-ctx.Done():
		case <-timer.C:
		case <-w.changed:
		}
		timer.Stop()
	}
	w.logProcess("kill", process.Kill())
	exitCode := <-ended
	w.setState(func(s *podState) { s.exitCode = int32(exitCode) })
}

// logProcess logs an error of a signal. A process that has ended meanwhile is the usual one.
func (w *podWorker) logProcess(action string, err error) {
	if err != nil {
		w.l.log.Info("can not signal the pod's process", "pod", w.name, "action", action, "error", err.Error())
	}
}
