// Command benchchart draws where the time of a crash goes, as SVG, from the figures that make bench has measured:
//
//	benchchart < docs/benchmarks.json > docs/benchmarks.svg
//
// The same figures give the same picture, byte for byte.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "benchchart:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	text, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("reading the figures: %w", err)
	}
	var rows []row
	if err := json.Unmarshal(text, &rows); err != nil {
		return fmt.Errorf("reading the figures: %w", err)
	}
	bars, err := barsOf(rows)
	if err != nil {
		return err
	}
	return drawBars(bars, out)
}

// row is a row of the benchmarks, and figure one of its figures.
type row struct {
	Key     string   `json:"key"`
	Figures []figure `json:"figures"`
}

type figure struct {
	What   string  `json:"what"`
	Unit   string  `json:"unit"`
	N      int     `json:"n"`
	Median float64 `json:"median"`
	Worst  float64 `json:"worst"`
}

// Keys of the rows that are drawn.
const (
	keyTotals = "crash"
	keyParts  = "steps"
)

// part is a part of the time from the crash to Running, as the figures call it and as the picture does.
type part struct{ what, name string }

var parts = []part{
	{"DRBD: crash → a survivor may be promoted", "DRBD notices"},
	{"controller: grace, decision, taint → attachment marked", "grace and decision"},
	{"controller: attachment marked → pod gone", "pod removed"},
	{"Kubernetes: pod gone → replacement created and placed", "Kubernetes places another"},
	{"controller, Kubernetes, attacher: placed → volume detached and attached here", "volume attached"},
	{"kubelet: attached → Running", "start"},
}

// total is a total of the same loss, as the figures call it and as the picture does.
type total struct{ what, name string }

// totals are drawn from the top to the bottom. Of all but the first only the whole is measured.
var totals = []total{
	{"crash → Running, as shipped", "as shipped"},
	{"crash → Running, confirmed grace off, that is as long as the others", "confirmed grace off"},
	{"crash → Running, unanimous grace off, that is as long as the confirmed one", "unanimous grace off"},
	{"crash → Running, fast detach off", "fast detach off"},
	{"crash → Running, keep-away off", "keep-away off"},
}

// bar is one bar of the picture.
type bar struct {
	name          string
	median, worst float64
	n             int
	parts         []float64 // medians, in the order of parts; nil where only the whole is known
}

var errMissing = errors.New("the figures have no such row; the names in benchchart are those of internal/testbed/bench")

func barsOf(rows []row) ([]bar, error) {
	var bars []bar
	for i, t := range totals {
		f, err := find(rows, keyTotals, t.what)
		if err != nil {
			return nil, err
		}
		b := bar{name: t.name, median: f.Median, worst: f.Worst, n: f.N}
		if i == 0 {
			for _, p := range parts {
				f, err := find(rows, keyParts, p.what)
				if err != nil {
					return nil, err
				}
				b.parts = append(b.parts, f.Median)
			}
		}
		bars = append(bars, b)
	}
	return bars, nil
}

func find(rows []row, key, what string) (figure, error) {
	for _, r := range rows {
		for _, f := range r.Figures {
			if r.Key == key && f.What == what && f.Unit == "s" {
				return f, nil
			}
		}
	}
	return figure{}, fmt.Errorf("%s, %s: %w", key, what, errMissing)
}
