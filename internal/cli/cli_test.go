package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/version"
)

const here = "/usr/bin/piraeus-ha-controller"

// call is one call of the program, and what comes of it.
type call struct {
	args    []string
	status  int
	runs    []string // the arguments of the controller; nil where it does not run
	prints  []string
	prompts string // on standard error
}

func TestCalls(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]call{
		"without arguments the controller runs":              {args: []string{here}, runs: []string{}},
		"options of one and two dashes are the controller's": {args: []string{here, "-v=2", "--dry-run"}, runs: []string{"-v=2", "--dry-run"}},
		"a value is no command":                              {args: []string{here, "--leader-election-resource-name", "check"}, runs: []string{"--leader-election-resource-name", "check"}},
		"help tells of the controller and the commands": {
			args: []string{here, "help"}, prints: []string{"Usage: piraeus-ha-controller [--option=value ...]", "piraeus-ha-controller check", "--grace-period-seconds"},
		},
		"help tells of the check":     {args: []string{here, "help", "check"}, prints: []string{"  piraeus-ha-controller check [-n namespace]", "--node"}},
		"version":                     {args: []string{here, "version"}, prints: []string{version.String()}},
		"a command that is not there": {args: []string{here, "chek"}, status: 1, prompts: `piraeus-ha-controller: unknown command "chek" for "piraeus-ha-controller"`},
		"a fault of the check": {
			args: []string{here, "check", "--timeout=10"}, status: 2,
			prompts: "piraeus-ha-controller check: reading the command line: invalid argument \"10\" for \"--timeout\" flag: time: missing unit in duration \"10\": " +
				"a duration has a unit, such as 10s (--help lists the options)",
		},
		"a plugin without arguments tells its commands": {
			args: []string{"/usr/bin/kubectl-piraeus_ha"}, prints: []string{"\n  kubectl piraeus-ha [command]", "check ", "version "},
		},
		"a plugin is called as it was typed": {
			args: []string{"kubectl-piraeus_ha", "check", "--help"}, prints: []string{"Usage:\n  kubectl piraeus-ha check [-n namespace]"},
		},
		"a plugin's faults are told by its name": {
			args: []string{"kubectl-piraeus_ha", "check", "all"}, status: 2, prompts: `kubectl piraeus-ha check: reading the command line: unexpected argument "all"`,
		},
		"a plugin does not run the controller": {
			args: []string{"kubectl-piraeus_ha", "--dry-run"}, status: 1, prompts: "kubectl piraeus-ha: unknown flag: --dry-run",
		},
		"a plugin has a version": {args: []string{"kubectl-piraeus_ha", "--version"}, prints: []string{version.String()}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, faults bytes.Buffer
			var runs []string
			quieted := false
			status := Main(t.Context(), c.args, &out, &faults, func(_ context.Context, args []string, _ io.Writer) error {
				runs = append([]string{}, args...)
				return nil
			}, func() { quieted = true })
			if status != c.status || !slices.Equal(runs, c.runs) || (runs == nil) != (c.runs == nil) || strings.TrimSuffix(faults.String(), "\n") != c.prompts {
				t.Errorf("status %d, the controller runs with %q, faults %q", status, runs, faults.String())
			}
			if runs != nil && quieted {
				t.Error("the controller's libraries are silenced")
			} else if runs == nil && !quieted {
				t.Error("libraries may write between the lines")
			}
			for _, text := range c.prints {
				if !strings.Contains(out.String(), text) {
					t.Errorf("%q is not printed:\n%s", text, out.String())
				}
			}
		})
	}
}

func TestTheFaultOfTheControllerIsTold(t *testing.T) {
	t.Parallel()
	var faults bytes.Buffer
	status := Main(t.Context(), []string{here, "--any"}, io.Discard, &faults, func(context.Context, []string, io.Writer) error { return errors.New("no") }, func() {})
	if status != 1 || faults.String() != "piraeus-ha-controller: no\n" {
		t.Errorf("status %d, %q", status, faults.String())
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/piraeus-ha-controller": "piraeus-ha-controller", "./manager": "piraeus-ha-controller",
		"/usr/local/bin/kubectl-piraeus_ha": "kubectl piraeus-ha", "kubectl-piraeus_ha.exe": "kubectl piraeus-ha", "kubectl-piraeus-ha": "kubectl piraeus ha",
	} {
		if got, _ := nameOf(path); got != want {
			t.Errorf("called as %s it is %q, want %q", path, got, want)
		}
	}
}
