package check

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

func TestFaultsOfTheCommandLine(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		args []string
		says string
	}{
		"a format that does not exist":     {[]string{"-o", "xml"}, `-o="xml": must be table, json or yaml`},
		"an option that does not exist":    {[]string{"--force"}, "--help"},
		"an argument that is no option":    {[]string{"default"}, `unexpected argument "default"`},
		"a Deployment without a namespace": {[]string{"--controller=ha"}, "namespace/name"},
		"a duration without a unit":        {[]string{"--timeout=10"}, "a duration has a unit, such as 10s"},
		"all namespaces and one":           {[]string{"-A", "-n", "shop"}, "they contradict each other"},
		"a context that is not there":      {[]string{"--context=none"}, "none"},
		"no time":                          {[]string{"--timeout=0s"}, "greater than zero"},
		"a kubeconfig that is not there":   {[]string{"--kubeconfig=/does/not/exist"}, "/does/not/exist"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := execute(t, c.args...)
			if _, failed := errors.AsType[*CommandError](err); !failed || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want %q in one line", err, c.says)
			}
			if out != "" {
				t.Errorf("a report was printed:\n%s", out)
			}
		})
	}
}

// execute runs the command by itself, and returns what it prints.
func execute(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	var status Status
	cmd := Command(true, &status)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, spelling := range []string{"--help", "-h", "-help"} {
		out, err := execute(t, spelling)
		if err != nil {
			t.Fatal(err)
		}
		for _, option := range []string{
			"  check [-n namespace] [--node name]", "-A, --all-namespaces ", "--context string ", "--kubeconfig string ",
			"-n, --namespace string ", "-o, --output string ", "(default \"table\")", "(default \"ha-controller/piraeus-ha-controller\")", "(default 1m0s)",
		} {
			if !strings.Contains(out, option) {
				t.Errorf("%s does not show %q:\n%s", spelling, option, out)
			}
		}
	}
}

// parseCommandLine parses a command line as the command does.
func parseCommandLine(plugin bool, args []string) (commandLine, error) {
	c := commandLine{plugin: plugin}
	cmd := &cobra.Command{Use: "check", DisableFlagParsing: true}
	c.addFlags(cmd.Flags())
	_, err := c.parse(cmd, args)
	return c, err
}

func TestOneDashOrTwo(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"-namespace", "shop", "-output", "yaml", "-timeout=5s"},
		{"--namespace=shop", "-oyaml", "--timeout", "5s"},
		{"-n", "shop", "-o=yaml", "-timeout", "5s"},
		{"-n=shop", "-o", "yaml", "--timeout=5s"},
	} {
		c, err := parseCommandLine(true, args)
		if err != nil {
			t.Fatal(err)
		}
		if c.namespace != "shop" || c.format != formatYAML || c.timeout != 5*time.Second {
			t.Errorf("%q is read as %+v", args, c)
		}
	}
}
