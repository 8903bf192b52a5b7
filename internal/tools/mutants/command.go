package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// testTimeout ends tests that a mutant has made endless: it is how much longer than without one they may take.
const testTimeout = 2 * time.Minute

// surveyTimeout ends a test that does not end by itself, without any mutant.
const surveyTimeout = 10 * time.Minute

// limited runs a program with 6 GiB of address space: a mutant may well take all that there is.
const limited = `ulimit -v 6291456; exec "$0" "$@"`

// survey runs each of the compiled tests alone while all switches are off. It makes sure that they pass, and notes by which
// switches they come: no other test can notice the mutant.
func (r *runner) survey(ctx context.Context, t tests, file string) (program, error) {
	p := program{file: file}
	list, failed, err := r.run(ctx, t, file, nil, testTimeout, "-test.list=^(Test|Fuzz|Example)")
	if err != nil || failed {
		return p, fmt.Errorf("listing the tests of %s: %w\n%s", t.folder, err, list)
	}
	names := strings.Fields(list)
	p.tests = make([]surveyed, len(names))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(r.jobs)
	for i, name := range names {
		group.Go(func() error {
			begin := time.Now()
			reached := filepath.Join(r.scratch, strconv.Itoa(i)+".reached")
			output, failed, err := r.run(ctx, t, file, []string{reachedVariable + "=" + reached}, surveyTimeout, pattern([]string{name}))
			if err != nil {
				return err
			} else if failed {
				return fmt.Errorf("%s of %s fails by itself, so that it can show nothing:\n%s", name, t.folder, output)
			}
			p.tests[i] = surveyed{name: name, took: time.Since(begin)}
			p.tests[i].reaches, err = numbersIn(reached)
			return errors.Join(err, os.RemoveAll(reached))
		})
	}
	return p, group.Wait()
}

// numbersIn reads a file with one number a line. There is none when no switch was reached.
func numbersIn(file string) (map[int]bool, error) {
	numbers := map[int]bool{}
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return numbers, nil
	}
	for word := range strings.FieldsSeq(string(text)) {
		number, err := strconv.Atoi(word)
		if err != nil {
			return nil, err
		}
		numbers[number] = true
	}
	return numbers, err
}

// pattern is the argument that runs the tests of these names.
func pattern(names []string) string { return "-test.run=^(" + strings.Join(names, "|") + ")$" }

func (r *runner) build(ctx context.Context, t tests, overlay, file string) (output string, failed bool, err error) {
	return r.command(ctx, "", nil, "go", "test", "-c", "-ldflags=-s -w", "-overlay", overlay, "-o", file, "./"+t.folder)
}

// buildReplaced compiles the tests with a mutant that is no switch.
func (r *runner) buildReplaced(ctx context.Context, t tests, m mutant, file string) (output string, failed bool, err error) {
	source, err := os.ReadFile(filepath.Join(r.root, m.file))
	if err != nil {
		return "", false, err
	}
	if err := os.WriteFile(file+".go", m.replaced(source), 0o600); err != nil {
		return "", false, err
	}
	overlay, err := writeOverlay(r.scratch, filepath.Base(file)+".json", map[string]string{filepath.Join(r.root, m.file): file + ".go"})
	if err != nil {
		return "", false, err
	}
	return r.build(ctx, t, overlay, file)
}

// run runs compiled tests until the first fails, or for as long as the limit.
func (r *runner) run(ctx context.Context, t tests, file string, env []string, limit time.Duration, arg string) (output string, failed bool, err error) {
	args := append([]string{"-c", limited, file, arg, "-test.timeout", limit.String()}, t.args...)
	return r.command(ctx, t.folder, env, "sh", args...)
}

// command runs a program in a folder until it ends or a test of it has failed, and tells a program that failed from one that
// could not be run.
func (r *runner) command(ctx context.Context, folder string, env []string, name string, args ...string) (string, bool, error) {
	ended, end := context.WithCancel(ctx)
	defer end()
	text := &words{failed: end}
	cmd := exec.CommandContext(ended, name, args...)
	cmd.Dir = filepath.Join(r.root, folder)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = text, text
	err := cmd.Run()
	output := text.String()
	exit, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case ctx.Err() != nil:
		return output, false, ctx.Err()
	case ended.Err() != nil:
		return output, true, nil
	case !ok:
		return output, false, err
	case !exit.Exited() || strings.Contains(output, "signal: killed"):
		return output, false, fmt.Errorf("%s was ended from outside (%w); where memory is short, try fewer at a time (-j 1)", name, err)
	}
	return output, true, nil
}

// words are the output of a program. -test.failfast would not do: tests that run in parallel have all begun by then.
type words struct {
	mu   sync.Mutex
	text bytes.Buffer
	// failed is called a moment after the first test has failed, when the names of its parts are there as well.
	failed func()
	told   bool
}

func (w *words) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.told && bytes.Contains(p, []byte("--- FAIL: ")) {
		w.told = true
		time.AfterFunc(100*time.Millisecond, w.failed)
	}
	return w.text.Write(p)
}

func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}
