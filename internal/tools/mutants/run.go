package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

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
	// jobs is how many programs run at a time.
	jobs int
	// programs are the compiled tests with all switches, by the name of the tests.
	programs map[string]program
}

// testsOf returns the tests that are asked, the nearest first. Of what is harmless only those are.
func (r *runner) testsOf(m mutant) []tests {
	if m.seeds > 0 {
		return []tests{simulation(m.seeds, m.file)}
	}
	all := slices.DeleteFunc(testsOf(m.file), func(t tests) bool { return !t.exist(r.root) })
	if r.near || harmless[m.name] != "" {
		all = all[:min(len(all), 1)]
	}
	return all
}

// compile compiles the tests that can notice a change of the files with all switches, and looks at each while all
// are off.
func (r *runner) compile(ctx context.Context, all []mutant) error {
	overlay, err := writeSwitches(r.root, r.scratch, all)
	if err != nil {
		return err
	}
	r.programs = map[string]program{}
	for _, m := range all {
		for _, t := range r.testsOf(m) {
			if r.programs[t.name()].file != "" {
				continue
			}
			file := filepath.Join(r.scratch, strings.ReplaceAll(t.name(), "/", "_")+".test")
			switch output, failed, err := r.build(ctx, t, overlay, file); {
			case err != nil:
				return fmt.Errorf("compiling the tests of %s: %w\n%s", t.folder, err, output)
			case failed:
				return fmt.Errorf("the tests of %s do not compile:\n%s", t.folder, output)
			}
			if t.only != "" {
				r.programs[t.name()] = program{file: file, tests: []surveyed{{name: t.only}}, all: true}
				continue // what it does without a mutant is shown by itself
			}
			if r.programs[t.name()], err = r.survey(ctx, t, file); err != nil {
				return err
			}
		}
	}
	return nil
}

// show asks one package's tests after the other until one notices the mutant.
func (r *runner) show(ctx context.Context, m mutant, id int) (outcome, error) {
	begin := time.Now()
	result := outcome{mutant: m}
	for _, t := range r.testsOf(m) {
		output, failed, err := r.ask(ctx, t, m, id)
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
		name, history := failedTest(output), ""
		if seed := failingSeed.FindStringSubmatch(output); t.only != "" && seed != nil {
			history, t.args = " by seed "+seed[1], []string{"-sim.seed=" + seed[1]} // which is shown alone
		}
		if fails, err := r.failsAnyway(ctx, t, name); err != nil {
			return result, err
		} else if fails {
			result.broken = fmt.Sprintf("test %s of %s fails without it too, if not always", name, t.folder)
			continue
		}
		result.noticed, result.broken = t.folder+" "+name+history, ""
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
	_, failed, err := r.run(ctx, t, r.programs[t.name()].file, nil, surveyTimeout, pattern([]string{top}))
	return failed, err
}

// ask runs the tests of one package with a mutant, those that are done soonest first.
func (r *runner) ask(ctx context.Context, t tests, m mutant, id int) (output string, failed bool, err error) {
	p := r.programs[t.name()]
	file, env := p.file, []string{variable + "=" + strconv.Itoa(id)}
	if !m.isSwitch() {
		file, env = filepath.Join(r.scratch, strconv.Itoa(id)+".test"), nil
		if output, failed, err = r.buildReplaced(ctx, t, m, file); err != nil || failed {
			return output, failed, err
		}
		defer func() { err = errors.Join(err, os.Remove(file)) }() // which is large
	}
	for _, b := range p.batches(m, id) {
		if output, failed, err = r.run(ctx, t, file, env, testTimeout+b.took, pattern(b.names)); failed || err != nil {
			return output, failed, err
		}
	}
	return "", false, nil
}

// program is compiled tests with all switches.
type program struct {
	file  string
	tests []surveyed
	// all is set where nobody has looked by which switches the tests come.
	all bool
}

// surveyed is a test, and what was seen of it while all switches were off.
type surveyed struct {
	name string
	took time.Duration
	// reaches are the numbers of the mutants whose switches it comes by.
	reaches map[int]bool
}

// batch is tests that are run at once. Together they take as long as they took one after the other, at most.
type batch struct {
	names []string
	took  time.Duration
}

// batches returns the tests that can notice a mutant: few that are done soon, then more, then all others.
func (p program) batches(m mutant, id int) []batch {
	able := slices.Clone(p.tests)
	if m.open != "" && !p.all {
		able = slices.DeleteFunc(able, func(s surveyed) bool { return !s.reaches[id] })
	}
	slices.SortStableFunc(able, func(a, b surveyed) int { return cmp.Compare(a.took, b.took) })
	var total, begun time.Duration
	for _, s := range able {
		total += s.took
	}
	shares := []time.Duration{total / 20, total / 4, total}
	batches := make([]batch, len(shares))
	for _, s := range able {
		begun += s.took
		b := &batches[slices.IndexFunc(shares, func(share time.Duration) bool { return begun <= share })]
		b.names, b.took = append(b.names, s.name), b.took+s.took
	}
	return slices.DeleteFunc(batches, func(b batch) bool { return len(b.names) == 0 })
}
