// Package progress_test tries progress.sh, which shows how far a build or a test run is.
package progress_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// shows runs progress.sh with a program in place of another one, and fails unless it prints the lines, in their order, and ends as it
// should. The program can wait until the line of a number was printed: `seen 1`.
func shows(t *testing.T, name, program string, succeeds bool, args []string, want ...string) {
	t.Helper()
	dir := t.TempDir()
	text := "#!/usr/bin/env bash\nseen() { until [[ -e " + dir + "/$1.seen ]]; do sleep 0.1; done; }\n" + program
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	script, err := filepath.Abs("progress.sh")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, script, args...)
	cmd.Env = append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"), "PROGRESS_PAUSE=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var printed strings.Builder
	found := 0
	for scanner := bufio.NewScanner(out); scanner.Scan(); {
		printed.WriteString(scanner.Text() + "\n")
		if found == len(want) || !strings.HasSuffix(scanner.Text(), want[found]) {
			continue
		}
		found++
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(found)+".seen"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Wait(); (err == nil) != succeeds {
		t.Errorf("it ends with %v, want success: %t", err, succeeds)
	}
	if found < len(want) {
		t.Errorf("it does not print %q, or not in its place:\n%s", want[found], printed.String())
	}
}

func TestABuildShowsHowFarItIs(t *testing.T) {
	t.Parallel()
	shows(t, "go", `
if [[ $2 == -n ]]; then
	echo "go: downloading example.com/module v1.0.0" >&2
	seen 2
	for i in {1..40}; do printf '#\n# example.com/%d\n#\n\n# import config\ncompile\n' $i; done
	exit
fi
for i in {1..10}; do echo example.com/$i; done
seen 4
for i in {11..40}; do echo example.com/$i; done
seen 5
`, true, []string{"build", "the program", "-o", "program", "."},
		"building the program", "1 modules downloaded", "40 packages to compile", "10 of 40 packages, less than a minute left", "the last packages, and linking")
}

func TestABuildThatFailsSaysWhy(t *testing.T) {
	t.Parallel()
	shows(t, "go", "echo example.com/broken\necho 'broken.go:3:1: syntax error' >&2\nexit 1\n", false,
		[]string{"build", "the program", "."}, "broken.go:3:1: syntax error")
}

func TestATestRunCountsPackagesAndTests(t *testing.T) {
	t.Parallel()
	shows(t, "gotestsum", `
echo "PASS a.TestOne/a_part (0.50s)"
echo "PASS a.TestOne (0.60s)"
echo "PASS a"
seen 3
echo "    b_test.go:7: got 1, want 2"
echo "FAIL b.TestTwo (0.00s)"
echo "FAIL b (-test.shuffle 17)"
exit 1
`, false, []string{"test", "2", "gotestsum"},
		"testing 2 packages", "[1/2] PASS a", "1 of 2 packages, 2 tests; the last: PASS a.TestOne (0.60s)", "b_test.go:7: got 1, want 2", "FAIL b.TestTwo (0.00s)", "[2/2] FAIL b (-test.shuffle 17)")
}
