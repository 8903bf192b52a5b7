package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// testTimeout ends tests that a mutant has made endless.
const testTimeout = 2 * time.Minute

// limited runs a program with 6 GiB of address space: a mutant may well take all that there is.
const limited = `ulimit -v 6291456; exec "$0" "$@"`

// outcome is what became of a mutant.
type outcome struct {
	mutant
	// noticed names the test that failed; empty when none did.
	noticed string
	// broken holds the compiler's words when the mutant is no Go.
	broken string
	took   time.Duration
}

// runner shows mutants to tests.
type runner struct {
	root string
	// scratch is a folder for changed files and compiled tests.
	scratch string
	// near leaves out the tests of the packages above.
	near bool
	// programs are the compiled tests with all switches, by package.
	programs map[string]string
	// slow are the tests that take their time, by package, as a regular expression. They are asked last.
	slow map[string]string
}

// testsOf returns the tests that are asked, the nearest first. Of what is harmless only those are.
func (r *runner) testsOf(m mutant) []tests {
	all := slices.DeleteFunc(testsOf(m.file), func(t tests) bool { return !t.exist(r.root) })
	if r.near || harmless[m.name] != "" {
		all = all[:min(len(all), 1)]
	}
	return all
}

// compile compiles the tests that can notice a change of the files with all switches, and makes sure that they pass
// while all are off.
func (r *runner) compile(ctx context.Context, all []mutant) error {
	overlay, err := writeSwitches(r.root, r.scratch, all)
	if err != nil {
		return err
	}
	r.programs, r.slow = map[string]string{}, map[string]string{}
	for _, m := range all {
		for _, t := range r.testsOf(m) {
			if r.programs[t.folder] != "" {
				continue
			}
			program := filepath.Join(r.scratch, strings.ReplaceAll(t.folder, "/", "_")+".test")
			r.programs[t.folder] = program
			if output, failed, err := r.build(ctx, t, overlay, program); err != nil || failed {
				return fmt.Errorf("compiling the tests of %s: %w\n%s", t.folder, err, output)
			}
			output, failed, err := r.run(ctx, t, program, 0, "-test.v")
			if err != nil {
				return err
			} else if failed {
				return fmt.Errorf("the tests of %s fail by themselves, so that they can show nothing:\n%s", t.folder, lastLines(output, 40))
			}
			r.slow[t.folder] = slowTests(output)
		}
	}
	return nil
}

// show asks one package's tests after the other until one notices the mutant.
func (r *runner) show(ctx context.Context, m mutant, id int) (outcome, error) {
	begin := time.Now()
	result := outcome{mutant: m}
	for _, t := range r.testsOf(m) {
		ask := r.ask
		if !m.isSwitch() {
			ask = func(ctx context.Context, t tests, id int) (string, bool, error) { return r.askReplaced(ctx, t, m, id) }
		}
		output, failed, err := ask(ctx, t, id)
		if err != nil {
			return result, err
		}
		if !failed {
			continue
		}
		if doesNotBuild(output) {
			result.broken = output
			break
		}
		name := failedTest(output)
		if fails, err := r.failsAnyway(ctx, t, name); err != nil {
			return result, err
		} else if fails {
			result.broken = fmt.Sprintf("test %s of %s fails without it too, if not always", name, t.folder)
			continue
		}
		result.noticed, result.broken = t.folder+" "+name, ""
		break
	}
	result.took = time.Since(begin)
	return result, nil
}

// failsAnyway runs the test again while all switches are off.
func (r *runner) failsAnyway(ctx context.Context, t tests, name string) (bool, error) {
	top, _, _ := strings.Cut(name, "/")
	if top == "" {
		return false, nil
	}
	_, failed, err := r.run(ctx, t, r.programs[t.folder], 0, "-test.run=^"+top+"$")
	return failed, err
}

// ask runs the tests with a switch on.
func (r *runner) ask(ctx context.Context, t tests, id int) (output string, failed bool, err error) {
	return r.quickFirst(ctx, t, r.programs[t.folder], id)
}

// askReplaced compiles and runs the tests with a mutant that is no switch.
func (r *runner) askReplaced(ctx context.Context, t tests, m mutant, id int) (output string, failed bool, err error) {
	source, err := os.ReadFile(filepath.Join(r.root, m.file))
	if err != nil {
		return "", false, err
	}
	name := filepath.Join(r.scratch, strconv.Itoa(id))
	if err := os.WriteFile(name+".go", m.replaced(source), 0o600); err != nil {
		return "", false, err
	}
	overlay, err := writeOverlay(r.scratch, strconv.Itoa(id)+".json", map[string]string{filepath.Join(r.root, m.file): name + ".go"})
	if err != nil {
		return "", false, err
	}
	program := name + ".test"
	if output, failed, err = r.build(ctx, t, overlay, program); err != nil || failed {
		return output, failed, err
	}
	output, failed, err = r.quickFirst(ctx, t, program, 0)
	return output, failed, errors.Join(err, os.Remove(program)) // which is large
}

// quickFirst runs compiled tests, and those that take their time only when the others have noticed nothing.
func (r *runner) quickFirst(ctx context.Context, t tests, program string, id int) (output string, failed bool, err error) {
	slow := r.slow[t.folder]
	if slow == "" {
		return r.run(ctx, t, program, id)
	}
	if output, failed, err = r.run(ctx, t, program, id, "-test.skip="+slow); failed || err != nil {
		return output, failed, err
	}
	return r.run(ctx, t, program, id, "-test.run="+slow)
}

func (r *runner) build(ctx context.Context, t tests, overlay, program string) (output string, failed bool, err error) {
	return r.command(ctx, "", nil, "go", "test", "-c", "-overlay", overlay, "-o", program, "./"+t.folder)
}

// run runs compiled tests with a switch on; 0 is none.
func (r *runner) run(ctx context.Context, t tests, program string, id int, args ...string) (output string, failed bool, err error) {
	args = append(args, "-test.failfast", "-test.timeout", testTimeout.String())
	args = append([]string{"-c", limited, program}, args...)
	return r.command(ctx, t.folder, []string{variable + "=" + strconv.Itoa(id)}, "sh", append(args, t.args...)...)
}

// command runs a program in a folder, and tells a program that failed from one that could not be run.
func (r *runner) command(ctx context.Context, folder string, env []string, name string, args ...string) (string, bool, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = filepath.Join(r.root, folder)
	cmd.Env = append(os.Environ(), env...)
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	err := cmd.Run()
	exit, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case !ok || ctx.Err() != nil:
		return text.String(), false, err
	case !exit.Exited() || strings.Contains(text.String(), "signal: killed"):
		return text.String(), false, fmt.Errorf("%s was ended from outside (%w); where memory is short, try fewer at a time (-j 1)", name, err)
	}
	return text.String(), true, nil
}
