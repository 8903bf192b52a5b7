package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Variables of the environment that the changed sources read.
const (
	// variable holds the number of the mutant that is on.
	variable = "MUTANT"
	// reachedVariable holds the name of a file for the numbers of the switches that the program comes by; empty is none.
	reachedVariable = "MUTANTS_REACHED"
)

// switchFile is the file that is added to each package with switches.
const switchFile = "zz_mutants.go"

// switchSource is its text but for the statements.
const switchSource = `package %[1]s

import (
	"os"
	"reflect"
	"strconv"
	"sync"
	"time"
)

var (
	mutantOn, _    = strconv.Atoi(os.Getenv(%[2]q))
	mutantsReached = os.Getenv(%[3]q)
	mutantsSeen    sync.Map
)

func mutantIs(id int) bool {
	if mutantsReached != "" {
		mutantReached(id)
	}
	return id == mutantOn
}

func mutantReached(id int) {
	if _, seen := mutantsSeen.LoadOrStore(id, true); seen {
		return
	}
	file, err := os.OpenFile(mutantsReached, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer file.Close()
	if _, err := file.WriteString(strconv.Itoa(id) + "\n"); err != nil {
		panic(err)
	}
}

// mutantOther returns a value that is none of the program's.
func mutantOther[T any](id int, value T) T {
	if mutantIs(id) {
		switch v := reflect.ValueOf(&value).Elem(); v.Kind() {
		case reflect.String:
			v.SetString(v.String() + "?")
		default:
			v.SetInt(-1 - int64(id))
		}
	}
	return value
}

func mutantInstead[T any](id int, instead, value T) T {
	if mutantIs(id) {
		return instead
	}
	return value
}

func mutantYears(id, years int, value time.Time) time.Time {
	if mutantIs(id) {
		return value.AddDate(years, 0, 0)
	}
	return value
}

func init() {
	switch mutantOn {
%[4]s	}
}
`

// writeSwitches writes the changed sources of all switches into folder, and returns the name of the file that has the
// Go tool take them. A mutant's number is its index plus one.
func writeSwitches(root, folder string, all []mutant) (string, error) {
	replace := map[string]string{}
	statements := map[string]string{} // by package
	wraps := map[string][]wrap{}
	for i, m := range all {
		id := strconv.Itoa(i + 1)
		switch {
		case m.open != "":
			wraps[m.file] = append(wraps[m.file], wrap{
				m.start, m.end, strings.ReplaceAll(m.open, "§", id), strings.ReplaceAll(m.close, "§", id),
			})
		case m.statement != "":
			statements[path.Dir(m.file)] += fmt.Sprintf("\tcase %s:\n\t\t%s\n", id, m.statement)
		}
	}
	for file, w := range wraps {
		source, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return "", err
		}
		if err := put(replace, root, folder, file, wrapped(source, w)); err != nil {
			return "", err
		}
		pkg := path.Dir(file)
		if replace[filepath.Join(root, pkg, switchFile)] != "" {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, source, parser.PackageClauseOnly)
		if err != nil {
			return "", err
		}
		text := fmt.Sprintf(switchSource, tree.Name.Name, variable, reachedVariable, statements[pkg])
		if err := put(replace, root, folder, path.Join(pkg, switchFile), []byte(text)); err != nil {
			return "", err
		}
	}
	return writeOverlay(folder, "switches.json", replace)
}

// put writes a file into folder that takes the place of one of the tree.
func put(replace map[string]string, root, folder, file string, text []byte) error {
	changed := filepath.Join(folder, strings.ReplaceAll(file, "/", "_"))
	replace[filepath.Join(root, file)] = changed
	return os.WriteFile(changed, text, 0o600)
}

func writeOverlay(folder, name string, replace map[string]string) (string, error) {
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(folder, name)
	return file, os.WriteFile(file, overlay, 0o600)
}

// wrap is a text around a range of the source.
type wrap struct {
	start, end  int
	open, close string
}

// wrapped puts all wraps around their ranges, each of which lies within, around or beside the others.
func wrapped(source []byte, wraps []wrap) []byte {
	type insertion struct {
		offset int
		text   string
	}
	// Outer ones come first, of those with the same range the earlier.
	slices.SortStableFunc(wraps, func(a, b wrap) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end))
	})
	var insertions []insertion
	for _, w := range slices.Backward(wraps) {
		insertions = append(insertions, insertion{w.end, w.close})
	}
	// What begins later ends earlier, unless it lies beside.
	slices.SortStableFunc(insertions, func(a, b insertion) int { return cmp.Compare(a.offset, b.offset) })
	for _, w := range wraps {
		insertions = append(insertions, insertion{w.start, w.open})
	}
	slices.SortStableFunc(insertions, func(a, b insertion) int { return cmp.Compare(a.offset, b.offset) })
	var text []byte
	done := 0
	for _, i := range insertions {
		text = append(append(text, source[done:i.offset]...), i.text...)
		done = i.offset
	}
	return append(text, source[done:]...)
}
