// Package docs has no code: it tests what the documentation says of the code.
package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// row is a row of the table of reasons.
var row = regexp.MustCompile("(?m)^\\| `([A-Z][A-Za-z]+)` \\| \\S")

func TestEveryReasonIsExplained(t *testing.T) {
	t.Parallel()

	page, err := os.ReadFile("architecture.md")
	if err != nil {
		t.Fatal(err)
	}

	var got []string
	for _, match := range row.FindAllSubmatch(page, -1) {
		got = append(got, string(match[1]))
	}

	if diff := cmp.Diff(reasons(t), got); diff != "" {
		t.Errorf("reasons in architecture.md, in the order of the source (-want +got):\n%s", diff)
	}
}

// reasons returns the constants of type Reason in the order of the source.
func reasons(t *testing.T) []string {
	t.Helper()

	file, err := parser.ParseFile(token.NewFileSet(), "../internal/failover/reason.go", nil, 0)
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
