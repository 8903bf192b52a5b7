package bed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// parentVariable names this process to bin/controlplane, which then dies with it.
const parentVariable = "TESTBED_PARENT_PID"

// spawner starts all processes of a bed from one thread of its own.
//
// The kernel can kill a process when the one that started it dies, so that nothing is left behind by a
// test that was itself killed. It means the starting thread, though, and Go ends threads when it likes:
// hence one that is kept until all processes have ended.
type spawner struct {
	calls chan func()
}

// newSpawner starts the thread. Close ends it.
func newSpawner() *spawner {
	s := &spawner{calls: make(chan func())}
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for call := range s.calls {
			call()
		}
	}()
	return s
}

// do runs call on the thread.
func (s *spawner) do(call func()) {
	done := make(chan struct{})
	s.calls <- func() {
		defer close(done)
		call()
	}
	<-done
}

// close ends the thread, and with it every process that still runs.
func (s *spawner) close() { close(s.calls) }

// process is a child process in a process group of its own, whose output goes to a file.
type process struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended and err is set
	err  error
}

// start runs a command with its output appended to the file <name>.log in logDir.
func (s *spawner) start(cmd *exec.Cmd, name, logDir string) (*process, error) {
	p := &process{name: name, log: filepath.Join(logDir, name+".log"), cmd: cmd, done: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", name, err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, parentVariable+"="+strconv.Itoa(os.Getpid()))
	cmd.SysProcAttr = childAttributes()
	s.do(func() { err = cmd.Start() })
	if err != nil {
		_ = log.Close()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer close(p.done)
		p.err = cmd.Wait()
		_ = log.Close()
	}()
	return p, nil
}

// signal sends a signal to the process group, unless the process has ended: its number may belong to
// another one by then.
func (p *process) signal(signal syscall.Signal) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	if err := syscall.Kill(-p.cmd.Process.Pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("%s to %s: %w", signal, p.name, err)
	}
	return nil
}

// stop ends the process group: with SIGTERM, and with SIGKILL if that takes longer than grace.
func (p *process) stop(grace time.Duration) {
	if grace > 0 && p.signal(syscall.SIGTERM) == nil {
		select {
		case <-p.done:
		case <-time.After(grace):
		}
	}
	_ = p.signal(syscall.SIGKILL)
	<-p.done
}

// failed returns an error if the process has ended.
func (p *process) failed() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s ended (%w); read %s", p.name, errors.Join(p.err, errEnded), p.log)
	default:
		return nil
	}
}

// run executes a command to its end and returns what it printed, in the error too if it failed.
func run(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s: %w: %s", filepath.Base(name), err, out)
	}
	return string(out), nil
}
