// Package docs has no code: it tests what the documentation says of the code.
package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/check"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// row is a row of a table whose first column is one word of code.
var row = regexp.MustCompile("(?m)^\\| `([A-Z][A-Za-z]+)` \\|(.*)\\|$")

// rows returns the rows of reasons.md, those of the reasons, those of the codes of check, those of LINSTOR's own pods and those of evacuations: the
// name and the other columns without marks of code.
func rows(t *testing.T) (reasons, codes, recoveries, evacuations [][]string) {
	t.Helper()

	page, err := os.ReadFile("reasons.md")
	if err != nil {
		t.Fatal(err)
	}

	above, below, found := strings.Cut(string(page), "## Further findings")
	if !found {
		t.Fatal("reasons.md has no section of the further findings of check")
	}

	below, recovery, found := strings.Cut(below, "## LINSTOR's own pods")
	if !found {
		t.Fatal("reasons.md has no section of LINSTOR's own pods")
	}

	recovery, leaving, found := strings.Cut(recovery, "## Nodes that are evacuated")
	if !found {
		t.Fatal("reasons.md has no section of nodes that are evacuated")
	}

	parse := func(text string) (all [][]string) {
		for _, match := range row.FindAllStringSubmatch(text, -1) {
			columns := []string{match[1]}
			for column := range strings.SplitSeq(match[2], "|") {
				columns = append(columns, strings.ReplaceAll(strings.TrimSpace(column), "`", ""))
			}

			all = append(all, columns)
		}

		return all
	}

	return parse(above), parse(below), parse(recovery), parse(leaving)
}

func names(rows [][]string) []string {
	all := make([]string, len(rows))
	for i, columns := range rows {
		all[i] = columns[0]
	}

	return all
}

func TestEveryReasonIsExplained(t *testing.T) {
	t.Parallel()

	documented, _, recoveries, leaving := rows(t)
	if diff := cmp.Diff(reasons(t, "failover/reason.go"), names(documented)); diff != "" {
		t.Errorf("reasons in reasons.md, in the order of the source (-want +got):\n%s", diff)
	}

	if diff := cmp.Diff(reasons(t, "failover/recover.go"), names(recoveries)); diff != "" {
		t.Errorf("reasons of LINSTOR's own pods in reasons.md, in the order of the source (-want +got):\n%s", diff)
	}

	var listed []string
	for _, reason := range failover.Reasons() {
		listed = append(listed, string(reason))
	}

	if diff := cmp.Diff(reasons(t, "failover/reason.go"), listed); diff != "" {
		t.Errorf("reasons that metrics know, in the order of the source (-want +got):\n%s", diff)
	}

	if diff := cmp.Diff(reasons(t, "evacuation/reason.go"), names(leaving)); diff != "" {
		t.Errorf("reasons of evacuations in reasons.md, in the order of the source (-want +got):\n%s", diff)
	}

	listed = nil
	for _, reason := range evacuation.Reasons() {
		listed = append(listed, string(reason))
	}

	if diff := cmp.Diff(reasons(t, "evacuation/reason.go"), listed); diff != "" {
		t.Errorf("reasons of evacuations that are listed, in the order of the source (-want +got):\n%s", diff)
	}

	for _, columns := range slices.Concat(documented, recoveries, leaving) {
		if len(columns) != 4 || slices.Contains(columns, "") {
			t.Errorf("%s has no meaning, effect or remedy: %q", columns[0], columns)
		}
	}
}

// An Event whose reason is none of a decision is told of, too.
func TestEveryEventIsExplained(t *testing.T) {
	t.Parallel()

	var source []byte

	for _, name := range []string{"report.go", "evacuation_tell.go"} {
		file, err := os.ReadFile("../controllers/" + name)
		if err != nil {
			t.Fatal(err)
		}

		source = append(source, file...)
	}

	page, err := os.ReadFile("reasons.md")
	if err != nil {
		t.Fatal(err)
	}

	events := regexp.MustCompile(`(?m)^\tEvent[A-Za-z]+ += "([A-Za-z]+)"$`).FindAllStringSubmatch(string(source), -1)
	if len(events) < 10 {
		t.Fatalf("found only the Events %q", events)
	}

	for _, event := range events {
		if !strings.Contains(string(page), "`"+event[1]+"`") {
			t.Errorf("reasons.md does not tell of the Event %s", event[1])
		}
	}
}

func TestTheCheckGivesTheSameRemedies(t *testing.T) {
	t.Parallel()

	documented, _, _, _ := rows(t)
	for _, columns := range documented {
		if remedy := check.Remedy(failover.Reason(columns[0])); remedy != "" && remedy != columns[3] {
			t.Errorf("remedy of %s in reasons.md and in the check differ:\n%s\n%s", columns[0], columns[3], remedy)
		}
	}
}

func TestEveryCodeOfTheCheckIsExplained(t *testing.T) {
	t.Parallel()

	var want []string
	for _, code := range check.Codes() {
		want = append(want, string(code))
	}

	_, documented, _, _ := rows(t)
	if diff := cmp.Diff(want, names(documented)); diff != "" {
		t.Errorf("codes in reasons.md, in the order of the source (-want +got):\n%s", diff)
	}
}

// reasons returns the constants of type Reason of a file of the policy, in the order of the source.
func reasons(t *testing.T, name string) []string {
	t.Helper()

	file, err := parser.ParseFile(token.NewFileSet(), "../internal/"+name, nil, 0)
	if err != nil {
		t.Fatal(err)
	}

	var all []string

	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}

		if kind, ok := spec.Type.(*ast.Ident); !ok || kind.Name != "Reason" {
			return true
		}

		for _, value := range spec.Values {
			if literal, ok := value.(*ast.BasicLit); ok {
				reason, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}

				all = append(all, reason)
			}
		}

		return true
	})

	return all
}
