//go:build !linux

package bed

import "syscall"

// childAttributes puts a child process into its own group. Only Linux can also kill it with its parent.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
