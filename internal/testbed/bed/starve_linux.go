package bed

import "golang.org/x/sys/unix"

// starve lets a process have no more memory than it has: whatever it asks the kernel for is refused.
func starve(pid int) error {
	return unix.Prlimit(pid, unix.RLIMIT_AS, &unix.Rlimit{}, nil)
}
