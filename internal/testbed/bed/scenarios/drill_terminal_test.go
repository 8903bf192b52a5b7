package scenarios_test

import (
	"bufio"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// terminal is a command that runs on, with what it has printed of the drill.
type terminal struct {
	mu    sync.Mutex
	lines []string
}

// open opens a terminal. Of what the command prints, the lines with a name count.
func (d *drill) open(command, name string) *terminal {
	d.T.Helper()
	cmd := exec.CommandContext(d.T.Context(), "sh", "-c", "exec "+command)
	cmd.Env, cmd.Stderr = d.shell, os.Stderr
	out, err := cmd.StdoutPipe()
	d.Must(err)
	d.Must(cmd.Start())
	term, done := &terminal{}, make(chan struct{})
	own := regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`)
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if own.MatchString(lines.Text()) {
				term.mu.Lock()
				term.lines = append(term.lines, lines.Text())
				term.mu.Unlock()
			}
		}
	}()
	d.T.Cleanup(func() {
		<-done
		_ = cmd.Wait() // it was killed
	})
	return term
}

func (t *terminal) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "\n")
}

// first returns which of its lines is the first of such words, and -1 where none is.
func (t *terminal) first(such func(words []string) bool) int {
	return slices.IndexFunc(strings.Split(t.String(), "\n"), func(line string) bool { return such(strings.Fields(line)) })
}

// told tells whether it has lines of such words, the first of each below that of the one before.
func (t *terminal) told(such ...func(words []string) bool) bool {
	above := -1
	for _, words := range such {
		line := t.first(words)
		if line <= above {
			return false
		}
		above = line
	}
	return true
}

// with is a line with all of some words.
func with(some ...string) func(words []string) bool {
	return func(words []string) bool {
		return !slices.ContainsFunc(some, func(word string) bool { return !slices.Contains(words, word) })
	}
}

// elsewhere is a line with the name of another node and all of some words.
func (d *drill) elsewhere(some ...string) func(words []string) bool {
	return func(words []string) bool {
		return with(some...)(words) && slices.ContainsFunc(d.Nodes[1:], func(node string) bool { return slices.Contains(words, node) })
	}
}

// attachedElsewhere tells whether the attachment to the lost node has gone and another one is attached, in any order: after a detach that
// failed once, Kubernetes attaches the volume elsewhere while it tries again.
func (d *drill) attachedElsewhere() bool {
	return d.attachments.told(with("DELETED", d.node)) && d.attachments.told(d.elsewhere("true"))
}

// runsElsewhere tells whether the pod has gone from the lost node, was placed on another one, and then runs there.
func (d *drill) runsElsewhere() bool {
	return d.pods.told(with("DELETED", d.node), d.elsewhere("Pending"), d.elsewhere("Running"))
}
