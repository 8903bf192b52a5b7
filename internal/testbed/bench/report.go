package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Record is a row as it was measured: what the machine-readable file holds of it.
type Record struct {
	Key      string    `json:"key"`
	Scenario string    `json:"scenario"`
	Target   string    `json:"target"`
	Run      RunInfo   `json:"run"`
	Figures  []Figures `json:"figures"`
	// Before is what was measured before a change that the row is to be held against; nil if there is none.
	Before *Past `json:"before,omitempty"`
}

// Past is a row as it was measured before a change.
type Past struct {
	Run     RunInfo   `json:"run"`
	Figures []Figures `json:"figures"`
}

// Figures is a measure with its statistics.
type Figures struct {
	Measure
	N       int     `json:"n"`
	Median  float64 `json:"median"`
	Worst   float64 `json:"worst"`
	P99     float64 `json:"p99"`
	Reached *bool   `json:"reached,omitempty"`
}

// Records turns results into records.
func Records(results Results, run RunInfo) []Record {
	var records []Record
	for _, row := range Rows() {
		measures, ok := results[row.Key]
		if !ok {
			continue
		}
		r := Record{Key: row.Key, Scenario: row.Scenario, Target: row.Target, Run: run}
		for _, m := range measures {
			if len(m.Values) == 0 {
				continue
			}
			f := Figures{Measure: m, N: len(m.Values), Median: m.Of(Median), Worst: m.Of(Worst), P99: m.Of(P99)}
			if len(m.Limits) > 0 {
				f.Reached = new(m.Reached())
			}
			r.Figures = append(r.Figures, f)
		}
		records = append(records, r)
	}
	return records
}

// Missed returns what did not reach its target, empty if all did.
func Missed(records []Record) []string {
	var missed []string
	for _, r := range records {
		for _, f := range r.Figures {
			if f.Reached != nil && !*f.Reached {
				missed = append(missed, r.Scenario+": "+f.What)
			}
		}
	}
	return missed
}

// Merge returns the records of both, in the order of the table; those of update replace those of old, but for what was before. asBefore
// makes what is replaced what was before.
func Merge(old, update []Record, asBefore bool) []Record {
	var merged []Record
	for _, row := range Rows() {
		of := func(records []Record) *Record {
			if i := slices.IndexFunc(records, func(r Record) bool { return r.Key == row.Key }); i >= 0 {
				return new(records[i])
			}
			return nil
		}
		was, is := of(old), of(update)
		switch {
		case is == nil && was == nil:
			continue
		case is == nil:
			is = was
		case was != nil && asBefore:
			is.Before = &Past{was.Run, was.Figures}
		case was != nil:
			is.Before = was.Before
		}
		merged = append(merged, *is)
	}
	return merged
}

// ReadJSON reads records from a file; none if there is no file.
func ReadJSON(path string) ([]Record, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the benchmarks: %w", err)
	}
	var records []Record
	if err := json.Unmarshal(content, &records); err != nil {
		return nil, fmt.Errorf("read the benchmarks of %s: %w", path, err)
	}
	return records, nil
}

// WriteJSON writes records to a file.
func WriteJSON(path string, records []Record) error {
	content, err := json.MarshalIndent(records, "", "  ")
	if err != nil {
		return fmt.Errorf("write the benchmarks: %w", err)
	}
	if err := os.WriteFile(path, append(content, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the benchmarks: %w", err)
	}
	return nil
}

// The lines between which the table stands in the document; everything else there is written by hand.
const (
	beginTable = "<!-- make bench: begin -->"
	endTable   = "<!-- make bench: end -->"
)

// WriteDocument puts the table of the records between the marks in a document.
func WriteDocument(path string, records []Record) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("document of the benchmarks: %w", err)
	}
	before, rest, begun := strings.Cut(string(content), beginTable)
	_, after, ended := strings.Cut(rest, endTable)
	if !begun || !ended {
		return fmt.Errorf("document %s lacks the lines %q and %q", path, beginTable, endTable)
	}
	content = []byte(before + beginTable + "\n" + Table(records) + endTable + after)
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return fmt.Errorf("document of the benchmarks: %w", err)
	}
	return nil
}

// Table returns the records as text: the runs they come from, and a table with a line for each figure.
func Table(records []Record) string {
	var out strings.Builder
	var runs []RunInfo
	note := func(run RunInfo) {
		if !slices.Contains(runs, run) {
			runs = append(runs, run)
		}
	}
	for _, r := range records {
		note(r.Run)
	}
	for _, r := range records {
		if r.Before != nil {
			note(r.Before.Run)
		}
	}
	for i, run := range runs {
		fmt.Fprintf(&out, "\nRun %d: %s\n", i+1, run)
	}
	out.WriteString("\n| Scenario | Measured | n | Median | Worst | Must be | Reached | Before: median, worst |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, r := range records {
		scenario := r.Scenario
		if len(runs) > 1 {
			scenario += fmt.Sprintf(" (run %d)", slices.Index(runs, r.Run)+1)
		}
		for i, f := range r.Figures {
			if i > 0 {
				scenario = ""
			}
			fmt.Fprintf(&out, "| %s | %s | %d | %s | %s | %s | %s | %s |\n",
				scenario, f.label(r.Figures), f.N, f.format(f.Median), f.format(f.Worst), f.limits(), f.verdict(), f.before(r.Before, runs))
		}
	}
	out.WriteByte('\n')
	return out.String()
}

// label says what was measured; of a baseline also its ratio to what was compared with it.
func (f *Figures) label(all []Figures) string {
	label := f.What
	if f.Note != "" {
		label += "; " + f.Note
	}
	if !f.Baseline {
		return label
	}
	kind, _, _ := strings.Cut(f.What, ",")
	for _, other := range all {
		if otherKind, _, _ := strings.Cut(other.What, ","); otherKind == kind && !other.Baseline && other.Median > 0 {
			return fmt.Sprintf("*baseline:* %s: **%.2f ×**", label, f.Median/other.Median)
		}
	}
	return "*baseline:* " + label
}

// before says what the same was in the past, and in which run.
func (f *Figures) before(past *Past, runs []RunInfo) string {
	if past == nil {
		return ""
	}
	i := slices.IndexFunc(past.Figures, func(other Figures) bool { return other.What == f.What })
	if i < 0 {
		return ""
	}
	was := past.Figures[i]
	return fmt.Sprintf("%s, %s (n %d, run %d)", was.format(was.Median), was.format(was.Worst), was.N, slices.Index(runs, past.Run)+1)
}

// format writes a value with its unit.
func (f *Figures) format(value float64) string {
	precision := 2
	switch {
	case f.Unit == "":
		precision = 0
	case value >= 100:
		precision = 0
	case value >= 10:
		precision = 1
	}
	return strings.TrimSpace(strconv.FormatFloat(value, 'f', precision, 64) + " " + f.Unit)
}

// limits writes the targets.
func (f *Figures) limits() string {
	var limits []string
	for _, l := range f.Limits {
		text := fmt.Sprintf("%s ≤ %s", l.Of, f.format(l.Max))
		if l.Of == P99 {
			text += " (is " + f.format(f.P99) + ")"
		}
		limits = append(limits, text)
	}
	return strings.Join(limits, ", ")
}

// verdict writes whether the targets are reached.
func (f *Figures) verdict() string {
	switch {
	case f.Reached == nil:
		return ""
	case *f.Reached:
		return "yes"
	default:
		return "**no**"
	}
}
