package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// testName is a test in the last column of reliability.md, with the name of its row after a slash.
var testName = regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)(?:/([^`]+))?`")

// Each test that reliability.md names exists, and so does the row of it: each is a literal key of a map in that test. And
// each row of a fault table is named.
func TestEveryFaultHasItsTest(t *testing.T) {
	t.Parallel()

	page, err := os.ReadFile("reliability.md")
	if err != nil {
		t.Fatal(err)
	}

	declared, rows := testsOfTheModule(t)

	var named []string
	faults, _, _ := strings.Cut(string(page), "## Soak")

	for line := range strings.Lines(faults) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| ---") || strings.HasPrefix(line, "| What breaks") {
			continue
		}

		tests := testName.FindAllStringSubmatch(line[strings.LastIndex(strings.TrimRight(line, "| \n"), "|"):], -1)
		if len(tests) == 0 {
			t.Errorf("no test is named for: %s", line)
		}

		for _, test := range tests {
			if !declared[test[1]] {
				t.Errorf("there is no test %s", test[1])
			}

			if test[2] != "" && !slices.Contains(rows[test[1]], test[2]) {
				t.Errorf("test %s has no row %q", test[1], test[2])
			}

			named = append(named, test[1], test[1]+"/"+test[2])
		}
	}

	for test := range declared {
		if !strings.HasPrefix(test, "TestFaultsOf") || test == "TestFaultsOfTheCommandLine" {
			continue
		}

		if !slices.Contains(named, test) {
			t.Errorf("reliability.md does not name %s", test)
		}

		if slices.Contains(named, test+"/") {
			continue // as a whole
		}

		for _, row := range rows[test] {
			if !slices.Contains(named, test+"/"+row) {
				t.Errorf("reliability.md does not name the row %q of %s", row, test)
			}
		}
	}
}

func TestEveryThreatNamesTestsThatExist(t *testing.T) {
	t.Parallel()

	page, err := os.ReadFile("security.md")
	if err != nil {
		t.Fatal(err)
	}

	declared, _ := testsOfTheModule(t)

	_, threats, _ := strings.Cut(string(page), "## Threats")
	for line := range strings.Lines(threats) {
		row := strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| ---") && !strings.HasPrefix(line, "| Threat |")
		if row && !testName.MatchString(line) && !strings.Contains(line, "`make vulncheck`") {
			t.Errorf("no test is named for: %s", line)
		}
	}

	tests := testName.FindAllStringSubmatch(string(page), -1)
	if len(tests) == 0 {
		t.Error("security.md names no test")
	}

	for _, test := range tests {
		if !declared[test[1]] {
			t.Errorf("there is no test %s", test[1])
		}
	}
}

// testsOfTheModule returns the tests and fuzz targets of the module, and the literal keys of the tables of each that have
// blanks, as the names of rows do.
func testsOfTheModule(t *testing.T) (declared map[string]bool, rows map[string][]string) {
	t.Helper()

	declared, rows = map[string]bool{}, map[string][]string{}

	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}

		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}

		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") && !strings.HasPrefix(f.Name.Name, "Fuzz") {
				continue
			}

			declared[f.Name.Name] = true

			for node := range ast.Preorder(f) {
				pair, ok := node.(*ast.KeyValueExpr)
				if !ok {
					continue
				}

				if key, ok := pair.Key.(*ast.BasicLit); ok && key.Kind == token.STRING {
					name, err := strconv.Unquote(key.Value)
					if err != nil {
						return err
					}

					rows[f.Name.Name] = append(rows[f.Name.Name], name)
				}
			}
		}

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	return declared, rows
}
