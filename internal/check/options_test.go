package check

import (
	"bytes"
	"strings"
	"testing"
)

func TestFaultsOfTheCommandLine(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		args []string
		says string
	}{
		"a format that does not exist":       {[]string{"-o", "xml"}, `-o="xml": must be table, json or yaml`},
		"an option that does not exist":      {[]string{"--force"}, "--help"},
		"an argument that is no option":      {[]string{"default"}, `unexpected argument "default"`},
		"a Deployment without a namespace":   {[]string{"--controller=ha"}, "namespace/name"},
		"no time":                            {[]string{"--timeout=0s"}, "greater than zero"},
		"a selector that selects everything": {[]string{"--pod-label-selector="}, "--pod-label-selector"},
		"a selector that is none":            {[]string{"--pod-label-selector=a=b=c"}, "--pod-label-selector"},
		"a kubeconfig that is not there":     {[]string{"--kubeconfig=/does/not/exist"}, "/does/not/exist"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, err bytes.Buffer
			status := Run(t.Context(), c.args, &out, &err)
			if status != StatusUnknown || !strings.Contains(err.String(), c.says) || strings.Count(err.String(), "\n") != 1 {
				t.Errorf("status %d, %q, want %d and %q in one line", status, err.String(), StatusUnknown, c.says)
			}
			if out.Len() > 0 {
				t.Errorf("a report was printed:\n%s", out.String())
			}
		})
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	var out, err bytes.Buffer
	status := Run(t.Context(), []string{"--help"}, &out, &err)
	if status != StatusProtected || err.Len() > 0 {
		t.Errorf("status %d, %q", status, err.String())
	}
	for _, option := range []string{"-o=table", "-n\n", "--namespace", "--kubeconfig", "--controller=ha-controller/piraeus-ha-controller", "--timeout=1m0s"} {
		if !strings.Contains(out.String(), "  "+option) {
			t.Errorf("--help does not show %q:\n%s", option, out.String())
		}
	}
}
