package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // the first context
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	list := flags.Bool("list", false, "only name the mutants")
	only := flags.String("run", "", "only mutants whose names match this regular expression")
	near := flags.Bool("near", false, "only ask the tests of the package of each mutant, not those above")
	jobs := flags.Int("j", runtime.GOMAXPROCS(0), "how many mutants are tried at a time")
	if err := flags.Parse(args); err != nil {
		return err
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	all, err := allMutants(root, targets, edits, simulated...)
	if err != nil {
		return err
	}
	if err := checkHarmless(all); err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(m mutant) bool { return !pattern.MatchString(m.name) || *near && m.seeds > 0 })
	if *list {
		for _, m := range all {
			fmt.Fprintln(out, m.name)
		}
		return nil
	}
	scratch, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	begin := time.Now()
	outcomes, err := try(ctx, &runner{root: root, scratch: scratch, near: *near, jobs: *jobs}, all, out)
	if err != nil {
		return err
	}
	return conclude(outcomes, time.Since(begin), out)
}

// checkHarmless makes sure that what is declared harmless exists.
func checkHarmless(all []mutant) error {
	var errs []error
	for name := range harmless {
		if !slices.ContainsFunc(all, func(m mutant) bool { return m.name == name }) {
			errs = append(errs, fmt.Errorf("harmless.go names a mutant that does not exist (any more): %s", name))
		}
	}
	return errors.Join(errs...)
}

// try shows all mutants to the tests, several at a time, and says what becomes of each.
func try(ctx context.Context, r *runner, all []mutant, out io.Writer) ([]outcome, error) {
	if err := r.compile(ctx, all); err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var outcomes []outcome
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(r.jobs)
	for id, m := range all {
		group.Go(func() error {
			result, err := r.show(ctx, m, id+1)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			outcomes = append(outcomes, result)
			fmt.Fprintf(out, "%4d/%d %5.1f s  %s\n", len(outcomes), len(all), result.took.Seconds(), result)
			return nil
		})
	}
	return outcomes, group.Wait()
}

// String is the line of the report.
func (o outcome) String() string {
	switch {
	case o.broken != "":
		return "NO GO     " + o.name
	case o.noticed != "":
		return "noticed   " + o.name + "\n" + strings.Repeat(" ", 29) + "by " + o.noticed
	case harmless[o.name] != "":
		return "harmless  " + o.name
	default:
		return "SURVIVES  " + o.name
	}
}

// conclude sums up, and returns an error unless every mutant was noticed or is harmless.
func conclude(outcomes []outcome, took time.Duration, out io.Writer) error {
	var survivors, faults []string
	noticed, by := 0, map[string]int{}
	for _, o := range outcomes {
		switch {
		case o.broken != "":
			faults = append(faults, o.name+"\n"+lastLines(o.broken, 5))
		case o.noticed != "" && harmless[o.name] != "":
			faults = append(faults, o.name+" is declared harmless, and noticed by "+o.noticed)
		case o.noticed != "":
			noticed++
			folder, _, _ := strings.Cut(o.noticed, " ")
			by[folder]++
		case harmless[o.name] == "":
			survivors = append(survivors, o.name)
		}
	}
	fmt.Fprintf(out, "\n%d mutants in %s: %d noticed, %d harmless, %d survive\n", len(outcomes), took.Round(time.Second),
		noticed, len(outcomes)-noticed-len(survivors)-len(faults), len(survivors))
	for _, folder := range slices.Sorted(maps.Keys(by)) {
		fmt.Fprintf(out, "%5d noticed by the tests of %s\n", by[folder], folder)
	}
	if len(survivors)+len(faults) == 0 {
		fmt.Fprintln(out, "no survivor")
	}
	var errs []error
	if len(survivors) > 0 {
		slices.Sort(survivors)
		errs = append(errs, fmt.Errorf("no test notices:\n  %s", strings.Join(survivors, "\n  ")))
	}
	if len(faults) > 0 {
		slices.Sort(faults)
		errs = append(errs, fmt.Errorf("the declarations need care:\n  %s", strings.Join(faults, "\n  ")))
	}
	return errors.Join(errs...)
}
