package bed

import "syscall"

// childAttributes puts a child process into its own group and lets the kernel kill it with its parent.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
