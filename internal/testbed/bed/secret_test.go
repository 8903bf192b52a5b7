package bed_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
)

// Lines of a log may be of any length, and what is in them may be anywhere.
func TestNothingInALogIsOverlooked(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20)
	for what, secret := range bed.Secrets() {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			b := &bed.Bed{LogDir: t.TempDir()}
			write := func(name, content string) string {
				path := filepath.Join(b.LogDir, name)
				must(t, os.WriteFile(path, []byte(content), 0o600))
				return path
			}
			write("one.log", "all is well\n")
			told, err := b.ToldInLogs()
			must(t, err)
			if len(told) != 0 {
				t.Errorf("before anything is told: %v", told)
			}
			log := write("two.log", long+"\n"+long+strings.ToUpper(secret)+long+"\nend")
			told, err = b.ToldInLogs()
			must(t, err)
			if want := []string{"two.log tells the " + what}; !slices.Equal(told, want) {
				t.Errorf("told %q, want %q", told, want)
			}
			line, err := bed.LineWith(log, "nowhere", secret)
			must(t, err)
			if !strings.Contains(line, strings.ToUpper(secret)) || len(line) != 2*len(long)+len(secret) {
				t.Errorf("the line has %d characters", len(line))
			}
			if line, err := bed.LineWith(log, "nowhere"); line != "" || err != nil {
				t.Errorf("found %.10q, %v", line, err)
			}
		})
	}
}

func TestLogsThatAreNotThereAreNotWell(t *testing.T) {
	t.Parallel()
	b := &bed.Bed{LogDir: t.TempDir()}
	if told, err := b.ToldInLogs(); err == nil {
		t.Errorf("no logs, and no error: %v", told)
	}
}
