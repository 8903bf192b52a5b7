package options

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// The arguments of a node agent of 1.3, as its chart wrote them, with all that its program took from Kubernetes' own libraries.
func TestTheArgumentsOfANodeAgentAreAccepted(t *testing.T) {
	t.Parallel()
	opts, err := Parse([]string{
		"--v=4", "--drbd-status-interval=5s", "--fail-over-timeout=3s", "--grace-period-seconds=20", "--health-bind-address=:8000",
		"--node-name=node-a", "--operations-timeout=20s", "--reconcile-interval=15s", "--resync-interval=15m", "--fail-over-unsafe-pods",
		"--disable-node-taints", "--insecure-skip-tls-verify", "-n", "piraeus", "--request-timeout", "0",
	})
	if err != nil {
		t.Fatal(err)
	}
	if opts.GracePeriodSeconds != 20 || opts.OperationsTimeout != 20*time.Second || !opts.FailOverUnsafePods || !opts.DisableNodeTaints {
		t.Errorf("what has a meaning still lost it: %+v", opts)
	}
	want := []string{"--drbd-status-interval", "--fail-over-timeout", "--health-bind-address", "--node-name", "--insecure-skip-tls-verify", "--n", "--request-timeout"}
	var got []string
	for _, sentence := range opts.Obsolete {
		name, _, _ := strings.Cut(sentence, " ")
		got = append(got, name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("obsolete: %q, want %q", got, want)
	}
	if !strings.Contains(opts.Obsolete[1], "--confirmed-loss-grace-period") {
		t.Errorf("%q does not name the successor", opts.Obsolete[1])
	}
}

// No option of an earlier release ends the program.
func TestEveryOptionOfAnEarlierReleaseIsAccepted(t *testing.T) {
	t.Parallel()
	first := []string{
		"attacher-name=x", "known-resource-grace-period=1m", "new-resource-grace-period=1m", "reconcile-interval=10s", "pod-label-selector=a=b",
		"kubeconfig=", "leader-election=true", "leader-election-healtz-port=8080", "leader-election-lease-name=x", "leader-election-namespace=x",
	}
	agent := []string{
		"node-name=x", "drbd-status-interval=5s", "fail-over-timeout=5s", "grace-period-seconds=10", "operations-timeout=30s",
		"reconcile-interval=10s", "resync-interval=5m", "health-bind-address=:8000",
	}
	for release, options := range map[string][]string{
		"0.1.0, 0.1.1":   first,
		"0.1.2 to 0.3.0": append(slices.Clone(first), "leader-election-resource-name=x"),
		"1.0.0, 1.0.1":   agent,
		"1.1.0 to 1.1.4": append(slices.Clone(agent), "fail-over-unsafe-pods=true"),
		"1.2.0 to 1.2.3": append(slices.Clone(agent), "fail-over-unsafe-pods=true", "satellite-pod-label=app.kubernetes.io/component=linstor-satellite"),
		"1.3.0 to 1.3.2": append(slices.Clone(agent), "fail-over-unsafe-pods=true", "satellite-pod-label=a=b", "disable-node-taints=true"),
	} {
		var args []string
		for _, option := range options {
			args = append(args, "--"+option)
		}
		if _, err := Parse(args); err != nil {
			t.Errorf("the arguments of %s: %v", release, err)
		}
	}
}

// What means nothing is in no list of options, and names no option that there is none of.
func TestAnObsoleteOptionIsNoOption(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, f := range Flags() {
		known[f.Name] = true
	}
	for name, successor := range obsolete {
		if known[name] {
			t.Errorf("--%s is an option", name)
		}
		for word := range strings.FieldsSeq(strings.NewReplacer(",", "", ";", "").Replace(successor)) {
			if option, ok := strings.CutPrefix(word, "--"); ok && !known[option] {
				t.Errorf("--%s names --%s, which does not exist", name, option)
			}
		}
	}
}
