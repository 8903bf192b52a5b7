package scenarios_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
)

// prepareShell gives the reader what the page expects: kubectl with its plugin, and an account for it.
func (d *drill) prepareShell() {
	d.T.Helper()
	home := d.T.TempDir()
	for name, program := range map[string]string{"kubectl": "kubectl", "kubectl-piraeus_ha": bed.ControllerName, bed.ControllerName: bed.ControllerName} {
		d.Must(os.Symlink(repositoryFile(d.T, filepath.Join("bin", program)), filepath.Join(home, name)))
	}
	common := []string{"HOME=" + home, "PATH=" + home + string(os.PathListSeparator) + os.Getenv("PATH")}
	d.shell = append(slices.Clone(common), "KUBECONFIG="+d.Kubeconfig)
	d.common = common
}

var placeholder = regexp.MustCompile(`\b(NODE|RESOURCE|NAMESPACE|POD)\b`)

// fill puts names in the place of the page's placeholders.
func (d *drill) fill(command string) string {
	names := map[string]string{"NODE": d.node, "RESOURCE": d.resource, "NAMESPACE": d.Name, "POD": d.pod.Name}
	return placeholder.ReplaceAllStringFunc(command, func(name string) string { return names[name] })
}

// shows returns what looks at what a command shows, again and again, until that is what is expected.
func shows(expected func(d *drill, shown string) bool) func(*drill, string) {
	return func(d *drill, command string) {
		d.T.Helper()
		d.Must(d.WaitFor(d.Ctx, "what is expected of "+command, func() (bool, error) {
			out, err := d.show(command)
			if err == nil && !expected(d, out) {
				err = fmt.Errorf("it shows:\n%s", out)
			}
			return err == nil, err
		}))
	}
}

// anything is expected of a command that only has to succeed.
func anything(*drill, string) bool { return true }

// onlyTogether is played by the last of several commands, which do something together.
func onlyTogether(*drill, string) {}

// show runs a command and returns what it prints. What the bed has no program for is asked of the bed.
func (d *drill) show(command string) (string, error) {
	d.T.Helper()
	// No kubelet of the bed can run a program in a container: it is run here, and asks the leader.
	if inside, found := strings.CutPrefix(command, inController); found {
		return d.run(bed.ControllerName+" "+inside, append(slices.Clone(d.common), forecastsOfLeader(d.Scenario)))
	}
	switch words := strings.Fields(command); {
	case words[0] == "kubectl":
		return d.run(command, d.shell)
	case command == "linstor node list":
		return d.nodeList(), nil
	case strings.HasPrefix(command, "linstor resource list"):
		return d.resourceList()
	case strings.HasPrefix(command, "drbdsetup status"):
		return d.drbdStatus(), nil
	}
	d.T.Fatalf("nobody knows the command %q", command)
	return "", nil
}

// run runs a command by a shell.
func (d *drill) run(command string, env []string) (string, error) {
	cmd := exec.CommandContext(d.Ctx, "sh", "-c", command)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	// On a bed that others share, the check finds pods that are not protected.
	if exit, failed := errors.AsType[*exec.ExitError](err); failed && exit.ExitCode() == 1 && strings.Contains(command, " check") {
		return string(out), nil
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", command, err, out)
	}
	return string(out), nil
}

// linesWith returns the words of the lines that have a certain word.
func linesWith(text, word string) (lines [][]string) {
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); slices.Contains(words, word) {
			lines = append(lines, words)
		}
	}
	return lines
}
