package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sample returns the records of a run in which a row was measured as v seconds.
func sample(day string, row Row, v float64) []Record {
	return Records(Results{row.Key: {
		{What: "crash → Running, as shipped", Unit: "s", Values: []float64{v}, Limits: []Limit{{Worst, 18}}},
		{What: "crash → Running, fast detach off", Unit: "s", Values: []float64{4 * v}, Baseline: true},
	}}, RunInfo{At: day})
}

func TestMergeKeepsWhatWasNotMeasured(t *testing.T) {
	t.Parallel()
	old := append(sample("Monday", rowCrash, 16), sample("Monday", rowCut, 15)...)
	merged := Merge(old, sample("Tuesday", rowCut, 20), false)
	var got []string
	for _, r := range merged {
		got = append(got, r.Key+" "+r.Run.At)
	}
	if want := []string{"crash Monday", "cut Tuesday"}; !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
	if missed := Missed(merged); len(missed) != 1 || !strings.HasPrefix(missed[0], rowCut.Scenario) {
		t.Errorf("missed are %q, want the cut only, of which 20 s are too much", missed)
	}
}

// Each later run stands beside the same figures of before.
func TestMergeKeepsWhatWasBefore(t *testing.T) {
	t.Parallel()
	records := Merge(sample("Monday", rowCrash, 16), sample("Tuesday", rowCrash, 12), true)
	records = Merge(records, sample("Wednesday", rowCrash, 11), false)
	table := Table(records)
	for _, want := range []string{"Run 1: Wednesday", "Run 2: Monday", "| 11.0 s | 11.0 s | worst ≤ 18.0 s | yes | 16.0 s, 16.0 s (n 1, run 2) |"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
}

func TestJSONAndBack(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "benchmarks.json")
	if records, err := ReadJSON(path); err != nil || records != nil {
		t.Errorf("without a file: %v, %v; want nothing", records, err)
	}
	want := sample("Monday", rowCrash, 16)
	if err := WriteJSON(path, want); err != nil {
		t.Fatal(err)
	}
	got, err := ReadJSON(path)
	if err != nil || !cmp.Equal(got, want) {
		t.Error(err, cmp.Diff(want, got))
	}
}

func TestWriteDocument(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "benchmarks.md")
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("Before.\n" + beginTable + "\nold\n" + endTable + "\nAfter.\n")
	if err := WriteDocument(path, sample("Monday", rowCrash, 16)); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(content)
	if !strings.HasPrefix(text, "Before.\n"+beginTable) || !strings.HasSuffix(text, endTable+"\nAfter.\n") || strings.Contains(text, "old") {
		t.Errorf("the prose around the table changed, or the old table stays:\n%s", text)
	}
	for _, want := range []string{"| 16.0 s | 16.0 s | worst ≤ 18.0 s | yes |", "fast detach off: **4.00 ×** | 1 | 64.0 s"} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %q:\n%s", want, text)
		}
	}
	write("no marks")
	if err := WriteDocument(path, nil); err == nil {
		t.Error("a document without marks was overwritten")
	}
}

// TestDocumentIsGenerated checks that nobody has typed a figure into the document.
func TestDocumentIsGenerated(t *testing.T) {
	t.Parallel()
	docs := filepath.Join("..", "..", "..", "docs")
	records, err := ReadJSON(filepath.Join(docs, "benchmarks.json"))
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(docs, "benchmarks.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(content), beginTable+"\n"+Table(records)+endTable) {
		t.Error("the table in docs/benchmarks.md is not that of docs/benchmarks.json: run make bench")
	}
}
