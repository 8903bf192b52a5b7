package failover

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Every reason that is documented can be reached from the tables, but for those that only the acting side can find: the
// stories of the controllers reach these, and for the one that is only foreseen.
func TestEveryReasonIsReached(t *testing.T) {
	t.Parallel()

	reached := map[Reason]bool{KeepAwayFailed: true, StepFailed: true, StuckOnNode: true, HeldByFinalizer: true, NoReadyNode: true}
	for _, table := range []map[string]scenario{verdictScenarios(), gateScenarios()} {
		for _, s := range table {
			reached[Decide(s.input()).Reason] = true
		}
	}
	got := slices.Sorted(maps.Keys(reached))
	if diff := cmp.Diff(declaredReasons(t), got); diff != "" {
		t.Errorf("reasons (-declared +reached):\n%s", diff)
	}
	if diff := cmp.Diff(got, slices.Sorted(slices.Values(Reasons()))); diff != "" {
		t.Errorf("reasons (-reached +explained):\n%s", diff)
	}
}

func TestEveryReasonIsExplainedInFewWords(t *testing.T) {
	t.Parallel()
	for _, e := range Explanations() {
		words := len(strings.Fields(e.Meaning)) + len(strings.Fields(e.Remedy))
		if e.Meaning == "" || e.Remedy == "" || words > 60 {
			t.Errorf("%s is explained in %d words", e.Reason, words)
		}
		if !strings.HasSuffix(e.Meaning, ".") || strings.HasSuffix(e.Remedy, ".") {
			t.Errorf("%s has no sentence, or one too many", e.Reason)
		}
	}
}

// declaredReasons reads the Reason constants from the source, so that none is forgotten.
func declaredReasons(t *testing.T) []Reason {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "reason.go", nil, 0)
	if err != nil {
		t.Fatalf("parse reason.go: %v", err)
	}
	var reasons []Reason
	for node := range ast.Preorder(file) {
		spec, ok := node.(*ast.ValueSpec)
		if !ok {
			continue
		}
		if kind, ok := spec.Type.(*ast.Ident); !ok || kind.Name != "Reason" {
			continue
		}
		value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatalf("the value of %s: %v", spec.Names[0].Name, err)
		}
		reasons = append(reasons, Reason(value))
	}
	slices.Sort(reasons)
	return reasons
}
