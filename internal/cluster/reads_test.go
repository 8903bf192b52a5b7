package cluster

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

// Whoever only reads can remove nothing: no file of the package names a client that writes.
func TestThePackageOnlyReads(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		name := entry.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			named, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if from, ok := named.X.(*ast.Ident); ok && from.Name == "client" {
				switch named.Sel.Name {
				case "Client", "Writer", "StatusClient", "SubResourceClient", "WithWatch":
					t.Errorf("%s names client.%s, which writes", name, named.Sel.Name)
				}
			}
			return true
		})
	}
}
