package bench

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
)

// RunInfo says of a run when, of what and on which machine it was.
type RunInfo struct {
	At         string `json:"at"`     // day, UTC
	Commit     string `json:"commit"` // of this repository; "-dirty" is appended if files had changed
	Kubernetes string `json:"kubernetes"`
	Go         string `json:"go"`
	System     string `json:"system"`
	CPUs       int    `json:"cpus"`
	CPU        string `json:"cpu"`
	MemoryGiB  int    `json:"memoryGiB"`
}

// String implements fmt.Stringer.
func (r RunInfo) String() string {
	return fmt.Sprintf("%s, commit %s, Kubernetes %s, %s on %s, %d × %s, %d GiB of memory.",
		r.At, r.Commit, r.Kubernetes, r.Go, r.System, r.CPUs, r.CPU, r.MemoryGiB)
}

// ThisRun describes a run that begins now. What can not be found out is left empty.
func ThisRun() RunInfo {
	r := RunInfo{
		At: time.Now().UTC().Format(time.DateOnly), Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(),
		CPU: procField("/proc/cpuinfo", "model name"),
	}
	kib, _ := strconv.Atoi(strings.TrimSuffix(procField("/proc/meminfo", "MemTotal"), " kB"))
	r.MemoryGiB = (kib + 1<<19) >> 20
	root, err := bed.Root()
	if err != nil {
		return r
	}
	commit := exec.Command("git", "describe", "--always", "--dirty", "--exclude=*")
	commit.Dir = root
	if out, err := commit.Output(); err == nil {
		r.Commit = strings.TrimSpace(string(out))
	}
	for line := range lines(filepath.Join(root, "internal", "testbed", "bed", "controlplane", "go.mod")) {
		if _, version, ok := strings.Cut(line, "k8s.io/kubernetes v"); ok && r.Kubernetes == "" {
			r.Kubernetes, _, _ = strings.Cut(version, " ")
		}
	}
	return r
}

// procField returns the first value of a field in a file of lines "name: value".
func procField(path, name string) string {
	for line := range lines(path) {
		if field, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(field) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// lines yields the lines of a file, none if it can not be read.
func lines(path string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		file, err := os.Open(path)
		if err != nil {
			return
		}
		defer func() { _ = file.Close() }()
		for scanner := bufio.NewScanner(file); scanner.Scan(); {
			if !yield(scanner.Text()) {
				return
			}
		}
	}
}
