package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mutant is one change of one source file. Most are switches: they are compiled all at once, and a variable of the
// environment says which of them is on.
type mutant struct {
	// name says what is broken, and where. It is unique, and stays the same while code elsewhere changes.
	name string
	// file is the changed file, relative to the root of the module.
	file string
	// start and end are the offsets of what is changed.
	start, end int
	// open and close are put around it by a switch. They hold the mutant's number where they say §.
	open, close string
	// statement is what another kind of switch does when the program starts.
	statement string
	// text takes the place of what is changed where that needs a compilation of its own.
	text string
	// seeds is within how many of its histories the simulation alone must notice it; 0 asks the tests.
	seeds int
}

func (m mutant) isSwitch() bool { return m.open != "" || m.statement != "" }

// replaced returns the source with the change of a mutant that is no switch.
func (m mutant) replaced(source []byte) []byte {
	return slices.Concat(source[:m.start], []byte(m.text), source[m.end:])
}

// allMutants returns the mutants of all targets and edits below root, in the order of the files. Those that are simulated are shown
// to the simulation alone.
func allMutants(root string, targets []target, edits []edit, simulated ...edit) ([]mutant, error) {
	var all []mutant
	for _, t := range targets {
		files, err := t.files(root)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			source, err := os.ReadFile(filepath.Join(root, file))
			if err != nil {
				return nil, err
			}
			found, err := derived(file, source, t.skip)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
	}
	for i, e := range slices.Concat(edits, simulated) {
		m, err := e.mutant(root)
		if err != nil {
			return nil, err
		}
		if i >= len(edits) {
			m.name, m.seeds = m.name+", in the simulation", simulationSeeds
		}
		all = append(all, m)
	}
	slices.SortStableFunc(all, func(a, b mutant) int { return cmp.Compare(a.file, b.file) })
	number(all)
	return all, nil
}

// number tells mutants of the same name apart.
func number(all []mutant) {
	seen := map[string]int{}
	for i := range all {
		seen[all[i].name]++
		if n := seen[all[i].name]; n > 1 {
			all[i].name = fmt.Sprintf("%s (%d)", all[i].name, n)
		}
	}
}

// edit is a change that is written down.
type edit struct {
	// name says what is broken.
	name string
	// file is relative to the root of the module.
	file string
	// old occurs in the file exactly once. What stands in it between « and », or else all of it, is changed.
	old string
	// text takes the place of that. It is a switch when it holds … for what was there, and § for the mutant's number.
	text string
}

func (e edit) mutant(root string) (mutant, error) {
	source, err := os.ReadFile(filepath.Join(root, e.file))
	if err != nil {
		return mutant{}, err
	}
	before, changed, after := "", e.old, ""
	if head, rest, ok := strings.Cut(e.old, "«"); ok {
		before = head
		changed, after, _ = strings.Cut(rest, "»")
	}
	old := []byte(before + changed + after)
	if n := bytes.Count(source, old); n != 1 {
		return mutant{}, fmt.Errorf("%s: the text of the edit %q occurs %d times, not once; adapt edits.go:\n\t%s",
			e.file, e.name, n, oneLine(string(old)))
	}
	start := bytes.Index(source, old) + len(before)
	m := mutant{name: e.file + ": " + e.name, file: e.file, start: start, end: start + len(changed)}
	var isSwitch bool
	if m.open, m.close, isSwitch = strings.Cut(e.text, "…"); !isSwitch {
		m.open, m.text = "", e.text
	}
	return m, nil
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
