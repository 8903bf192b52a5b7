// Command bench measures what docs/benchmarks.md claims, and writes the figures there and into
// docs/benchmarks.json. Rows that are not measured keep their figures.
//
// It ends with status 0 only if everything could be measured and reached its target.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bench"
)

func main() {
	var all []string
	for _, row := range bench.Rows() {
		all = append(all, row.Key)
	}
	s := bench.Settings{Log: os.Stderr}
	flag.IntVar(&s.Runs, "runs", 10, "how often a single loss is played, and each baseline of it")
	flag.IntVar(&s.Attachments, "attachments", 50, "how many single losses the attachments of which are timed")
	flag.IntVar(&s.MassRuns, "mass-runs", 9, "how often the loss of 110 pods is played, and handled by hand; the further baselines a third as often")
	flag.IntVar(&s.MassStockRuns, "mass-stock-runs", 1, "the same with stock flags of attacher and controller-manager")
	flag.IntVar(&s.Parallel, "parallel", 3, "how many beds with single losses may run at the same time")
	flag.StringVar(&s.ProfileDir, "profile", "", "folder for profiles of the controller: of the processor under 1,000 pods and 2,000 events, of processor and memory while idle; none if empty")
	rows := flag.String("rows", strings.Join(all, ","), "which rows to measure, separated by commas; none if empty, which only writes the table anew")
	write := flag.Bool("write", true, "write docs/benchmarks.md and docs/benchmarks.json")
	before := flag.Bool("before", false, "keep the figures that are replaced as those of before, beside which the rows then stand")
	flag.Parse()
	if err := run(s, strings.FieldsFunc(*rows, func(r rune) bool { return r == ',' }), *write, *before); err != nil {
		fmt.Fprintln(os.Stderr, "\nbench:", err)
		os.Exit(1)
	}
}

// run measures and reports.
func run(s bench.Settings, keys []string, write, before bool) error {
	// The libraries' own words belong into logs.
	klog.SetLogger(logr.Discard())
	ctrllog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	for _, key := range keys {
		if !known(key) {
			return fmt.Errorf("there is no row %q", key)
		}
	}
	info := bench.ThisRun()
	results, err := bench.Run(ctx, s, keys)
	records := bench.Records(results, info)
	fmt.Print(bench.Table(records))
	if write {
		err = errors.Join(err, save(records, before))
	}
	if missed := bench.Missed(records); len(missed) > 0 {
		err = errors.Join(err, fmt.Errorf("targets missed:\n  %s", strings.Join(missed, "\n  ")))
	}
	return err
}

// known tells whether there is a row of a key.
func known(key string) bool {
	for _, row := range bench.Rows() {
		if row.Key == key {
			return true
		}
	}
	return false
}

// save replaces what the files say of the rows that were measured.
func save(records []bench.Record, before bool) error {
	root, err := bed.Root()
	if err != nil {
		return err
	}
	data, document := filepath.Join(root, "docs", "benchmarks.json"), filepath.Join(root, "docs", "benchmarks.md")
	old, err := bench.ReadJSON(data)
	if err != nil {
		return err
	}
	merged := bench.Merge(old, records, before)
	return errors.Join(bench.WriteJSON(data, merged), bench.WriteDocument(document, merged))
}
