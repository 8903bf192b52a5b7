// Package docs has no code: it tests what the documentation says of the code.
package docs

import (
	"fmt"
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

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/forecast"
)

// The page has a heading for every reason, with what the tables of reasons say.
func TestReasonsPageIsWhatTheTablesSay(t *testing.T) {
	t.Parallel()

	var parts []string

	for _, group := range []failover.Group{failover.GroupLost, failover.GroupNotLost, failover.GroupBlocked, failover.GroupRecovery} {
		var foreseen []string

		var sections strings.Builder

		for _, e := range failover.Explanations() {
			if e.Group != group {
				continue
			}

			if e.Foreseen {
				foreseen = append(foreseen, "`"+string(e.Reason)+"`")
			}

			sections.WriteString(section(string(e.Reason), e.Meaning, e.Remedy))
		}

		if len(foreseen) > 0 {
			parts = append(parts, "`check` and the metric `piraeus_ha_controller_unprotected_pods` foresee: "+strings.Join(foreseen, ", ")+".\n"+sections.String())
		} else {
			parts = append(parts, sections.String())
		}
	}

	var sections strings.Builder

	for _, e := range evacuation.Explanations() {
		heading := string(e.Reason)
		if slices.Contains(failover.Reasons(), failover.Reason(e.Reason)) {
			heading += " of an evacuation"
		}

		sections.WriteString(section(heading, e.Meaning, e.Remedy))
	}

	compareGenerated(t, "reasons.md", append(parts, sections.String())...)
}

func section(heading, meaning, remedy string) string {
	return fmt.Sprintf("\n### %s\n\n%s\n\n**Remedy:** %s.\n", heading, meaning, remedy)
}

func TestEveryReasonIsExplainedInFewWords(t *testing.T) {
	t.Parallel()

	short := func(reason, meaning, remedy string) {
		words := len(strings.Fields(meaning)) + len(strings.Fields(remedy))
		if meaning == "" || remedy == "" || words > 60 {
			t.Errorf("%s is explained in %d words, at most 60 are allowed", reason, words)
		}

		if !strings.HasSuffix(meaning, ".") || strings.HasSuffix(remedy, ".") {
			t.Errorf("%s: the meaning must end with a full stop, and the remedy without one", reason)
		}
	}

	var decisions, evacuations []string

	for _, e := range failover.Explanations() {
		decisions = append(decisions, string(e.Reason))
		short(string(e.Reason), e.Meaning, e.Remedy)
	}

	for _, e := range evacuation.Explanations() {
		evacuations = append(evacuations, string(e.Reason))
		short(string(e.Reason), e.Meaning, e.Remedy)
	}

	if diff := cmp.Diff(reasons(t, "failover/reason.go"), decisions); diff != "" {
		t.Errorf("reasons of fail-overs, in the order of the source (-declared +explained):\n%s", diff)
	}

	if diff := cmp.Diff(reasons(t, "evacuation/reason.go"), evacuations); diff != "" {
		t.Errorf("reasons of evacuations, in the order of the source (-declared +explained):\n%s", diff)
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

func TestEveryCodeOfTheCheckIsExplained(t *testing.T) {
	t.Parallel()

	page, err := os.ReadFile("reasons.md")
	if err != nil {
		t.Fatal(err)
	}

	_, findings, _ := strings.Cut(string(page), "## Further findings")
	findings, _, _ = strings.Cut(findings, "\n## ")

	var want, documented []string
	for _, code := range forecast.Codes() {
		want = append(want, string(code))
	}

	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Z][A-Za-z]+)` \\|").FindAllStringSubmatch(findings, -1) {
		documented = append(documented, row[1])
	}

	if diff := cmp.Diff(want, documented); diff != "" {
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
