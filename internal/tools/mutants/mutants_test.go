package main

import (
	"go/parser"
	"go/token"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const root = "../../.."

// What is declared must fit the source, so that a change of the source can not silently take a rule out.
func TestTheDeclarationsFitTheSource(t *testing.T) {
	all, err := allMutants(root, targets, edits, simulated...)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkHarmless(all); err != nil {
		t.Error(err)
	}
	for name, reason := range harmless {
		if reason == "" {
			t.Errorf("why is it harmless? %s", name)
		}
	}
}

// The tables of rules and gates are found by their shape; a new table or a new shape should be noticed here.
func TestEveryRuleAndEveryGateIsTakenOutOnce(t *testing.T) {
	all, err := allMutants(root, targets, nil)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, m := range all {
		if table, _, ok := strings.Cut(m.statement, " = "); ok {
			found[table]++
		}
	}
	if found["rules"] < 10 || found["gates"] < 8 {
		t.Errorf("entries found: %v", found)
	}
}

func TestDerivedMutants(t *testing.T) {
	const header = "package p\n\n"
	for name, tc := range map[string]struct {
		source string
		want   map[string]string // the changed source by the mutant's name, with its switch on
	}{
		"an operand of && and of ||": {
			"func f(a, b, c bool) bool { return a && b || c }",
			map[string]string{
				"f: without a":      "func f(a, b, c bool) bool { return (a || mutantIs(§)) && b || c }",
				"f: without b":      "func f(a, b, c bool) bool { return a && (b || mutantIs(§)) || c }",
				"f: without a && b": "func f(a, b, c bool) bool { return (a && b && !mutantIs(§)) || c }",
				"f: without c":      "func f(a, b, c bool) bool { return a && b || (c && !mutantIs(§)) }",
			},
		},
		"a condition, unless it is about an error": {
			"func f(a bool, err error) { if a { }; if err != nil { } }",
			map[string]string{"f: never a": "func f(a bool, err error) { if ((a) && !mutantIs(§)) { }; if err != nil { } }"},
		},
		"a limit": {
			"func f(a, b int) bool { return a < b }",
			map[string]string{"f: a < b with <=": "func f(a, b int) bool { return ((a < b) != (mutantIs(§) && (a) == (b))) }"},
		},
		"the cases of a switch": {
			"func f(a bool, b int) { switch { case a: }; switch b { case 1, 2: case 3: default: } }",
			map[string]string{
				"f: never a":   "func f(a bool, b int) { switch { case ((a) && !mutantIs(§)): }; switch b { case 1, 2: case 3: default: } }",
				"f: no case 1": "func f(a bool, b int) { switch { case a: }; switch b { case mutantOther(§, 1), 2: case 3: default: } }",
				"f: no case 2": "func f(a bool, b int) { switch { case a: }; switch b { case 1, mutantOther(§, 2): case 3: default: } }",
				"f: no case 3": "func f(a bool, b int) { switch { case a: }; switch b { case 1, 2: case mutantOther(§, 3): default: } }",
			},
		},
		"a case that says that nothing follows": {"func f(b int) { switch b { case 1: } }", map[string]string{}},
		"the times that a clock starts at": {
			"func f() { latest(a, b); max(c, d) }",
			map[string]string{
				"f: latest without a": "func f() { latest(mutantYears(§, -1000, a), b); max(c, d) }",
				"f: latest without b": "func f() { latest(a, mutantYears(§, -1000, b)); max(c, d) }",
				"f: max without c":    "func f() { latest(a, b); max(mutantInstead(§, d, c), d) }",
				"f: max without d":    "func f() { latest(a, b); max(c, mutantInstead(§, c, d)) }",
			},
		},
		"the condition of a gate": {
			"func f(a bool) string { return when(a, x) }",
			map[string]string{"f: never a": "func f(a bool) string { return when(((a) && !mutantIs(§)), x) }"},
		},
		"the flags that are asked for": {
			"func f() bool { return r.has(a, b) || r.has(all...) }",
			map[string]string{
				"f: without r.has(a, b)":   "func f() bool { return (r.has(a, b) && !mutantIs(§)) || r.has(all...) }",
				"f: without r.has(all...)": "func f() bool { return r.has(a, b) || (r.has(all...) && !mutantIs(§)) }",
				"f: r.has(a, b) without a": "func f() bool { return r.has(mutantOther(§, a), b) || r.has(all...) }",
				"f: r.has(a, b) without b": "func f() bool { return r.has(a, mutantOther(§, b)) || r.has(all...) }",
			},
		},
		"the words of a list": {
			`var x, y = []string{"c"}, 1; var words = []string{"a", b}; var numbers = []int{1}`,
			map[string]string{
				`words without "a"`: `var x, y = []string{"c"}, 1; var words = []string{mutantOther(§, "a"), b}; var numbers = []int{1}`,
				"words without b":   `var x, y = []string{"c"}, 1; var words = []string{"a", mutantOther(§, b)}; var numbers = []int{1}`,
			},
		},
		"a constant duration": {
			"const x = 3 * time.Second",
			map[string]string{
				"x is twice as long": "const x = 2 * (3 * time.Second)",
				"x is half as long":  "const x = (3 * time.Second) / 2",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := derived("p.go", []byte(header+tc.source), nil)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, m := range found {
				text := m.replaced([]byte(header + tc.source))
				if m.open != "" {
					text = wrapped([]byte(header+tc.source), []wrap{{m.start, m.end, m.open, m.close}})
				}
				got[strings.TrimPrefix(m.name, "p.go: ")] = strings.TrimPrefix(string(text), header)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// All switches of a source together are still Go, however they lie in each other.
func TestWrapsLieInEachOther(t *testing.T) {
	const source = "package p\n\nfunc f() { if a < b && (c || !d) || latest(a, b) > c { } }"
	found, err := derived("p.go", []byte(source), nil)
	if err != nil {
		t.Fatal(err)
	}
	var wraps []wrap
	for _, m := range found {
		wraps = append(wraps, wrap{m.start, m.end, strings.ReplaceAll(m.open, "§", "1"), strings.ReplaceAll(m.close, "§", "1")})
	}
	text := wrapped([]byte(source), wraps)
	if _, err := parser.ParseFile(token.NewFileSet(), "p.go", text, 0); err != nil {
		t.Errorf("%v in %s", err, text)
	}
}

func TestFailedTest(t *testing.T) {
	for name, tc := range map[string]struct{ output, want string }{
		"the innermost of the first": {
			"--- FAIL: TestA (0.01s)\n    --- FAIL: TestA/b (0.00s)\n        --- FAIL: TestA/b/c (0.00s)\n    --- FAIL: TestA/d (0s)\n--- FAIL: TestB (0s)", "TestA/b/c",
		},
		"the one that did not end": {"panic: test timed out after 2m\n\trunning tests:\n\t\tTestA/b (2m0s)\n", "TestA/b"},
		"the one that crashed":     {"fatal error: all goroutines are asleep\n\nx/controllers.TestA(0xc000)\n", "TestA"},
		"none":                     {"exit status 2", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := failedTest(tc.output); got != tc.want {
				t.Errorf("failedTest = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestBatches(t *testing.T) {
	p := program{tests: []surveyed{
		{"TestSlow", 100 * time.Millisecond, map[int]bool{1: true}},
		{"TestQuick", time.Millisecond, map[int]bool{1: true}},
		{"TestElsewhere", time.Millisecond, map[int]bool{2: true}},
		{"TestMiddling", 10 * time.Millisecond, map[int]bool{1: true, 2: true}},
	}}
	for name, tc := range map[string]struct {
		m    mutant
		want []batch
	}{
		"only what comes by a switch, the quick ones first": {mutant{open: "("}, []batch{
			{[]string{"TestQuick"}, time.Millisecond}, {[]string{"TestMiddling"}, 10 * time.Millisecond}, {[]string{"TestSlow"}, 100 * time.Millisecond},
		}},
		"all where there is no switch": {mutant{text: "x"}, []batch{
			{[]string{"TestQuick", "TestElsewhere"}, 2 * time.Millisecond},
			{[]string{"TestMiddling"}, 10 * time.Millisecond},
			{[]string{"TestSlow"}, 100 * time.Millisecond},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, p.batches(tc.m, 1), cmp.AllowUnexported(batch{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}
