package main

import (
	"os"
	"strconv"
	"syscall"
)

// dieWithParent asks the kernel to kill this process when the thread that started it ends, provided
// that the environment variable TESTBED_PARENT_PID names that process.
//
// A test that is killed cannot clean up, and a control plane left behind costs a gigabyte and two
// cores. envtest starts etcd and the API server itself and offers no hook for it, so they do it here.
func dieWithParent() {
	parent, err := strconv.Atoi(os.Getenv("TESTBED_PARENT_PID"))
	if err != nil {
		return
	}
	syscall.Syscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0)
	if os.Getppid() != parent {
		os.Exit(1) // the parent died before the kernel knew what to do then
	}
}
