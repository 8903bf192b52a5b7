// Command demo shows one fail-over from beginning to end: it brings up a cluster on this machine, runs
// a database with a LINSTOR volume on it, takes the power from the database's node, and prints who does
// what while it happens, with the seconds since the crash, until the database runs again.
//
// With -evacuate it shows a planned loss instead: a node with the only copy of a volume is made safe by a taint, drained, switched off and
// taken back.
//
// It ends with status 0 only if the replacement runs on another node and nothing was touched that was
// not selected for fail-over; of a planned loss, if LINSTOR was asked for one copy and nothing is left of it. Ctrl-C ends it early and leaves nothing behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
)

func main() {
	compare := flag.Bool("compare", false, "also run the same loss with --fast-detach=false, which takes up to 90 seconds more")
	planned := flag.Bool("evacuate", false, "show a node that is taken out by taint, rebooted and taken back instead")
	flag.Parse()
	story := func(ctx context.Context) error { return run(ctx, *compare) }
	if *planned {
		story = evacuate
	}
	if err := demo(story); err != nil {
		fmt.Fprintln(os.Stderr, "\ndemo:", err)
		os.Exit(1)
	}
}

// demo runs the demo and translates the end by a signal.
func demo(story func(context.Context) error) error {
	// The libraries' own words belong into logs; what matters is printed here.
	klog.SetLogger(logr.Discard())
	ctrllog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := story(ctx)
	if ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

// errInterrupted takes the place of whatever Ctrl-C broke off.
var errInterrupted = errors.New("interrupted; everything it started has been stopped")

// run runs the demo.
func run(ctx context.Context, compare bool) error {
	fast, err := show(ctx, "The controller as shipped", nil)
	if err != nil {
		return err
	}
	var slow time.Duration
	if compare {
		if slow, err = show(ctx, "The same without --fast-detach", []string{"--fast-detach=false"}); err != nil {
			return err
		}
	}
	printComparison(fast, slow)
	return nil
}

// show brings up a cluster, crashes a node in it and returns the time from the crash to the replacement
// running.
func show(ctx context.Context, title string, args []string) (time.Duration, error) {
	fmt.Println(title)
	t := newTeller()
	defer t.stop()
	t.begin("Starting a cluster on this machine")
	b, err := bed.Start(ctx, bed.Options{ControllerArgs: args, Progress: t.step})
	if err != nil {
		return 0, err
	}
	defer b.Stop()
	s := scenario{bed: b, teller: t}
	if err := s.deploy(ctx); err != nil {
		return 0, err
	}
	if err := s.check(ctx, "What check says while all is well"); err != nil {
		return 0, err
	}
	took, err := s.crash(ctx)
	fmt.Printf("\nLogs of all parts: %s\n\n", b.LogDir)
	return took, err
}

// printComparison puts the figure beside those of others.
func printComparison(fast, slow time.Duration) {
	fmt.Println("From the crash to the replacement Running:")
	row := func(seconds, what string) { fmt.Printf("  %12s   %s\n", seconds, what) }
	row(fmt.Sprintf("%.1f s", fast.Seconds()), "this run")
	if slow > 0 {
		row(fmt.Sprintf("%.1f s", slow.Seconds()), "this run, deleting attachments only (--fast-detach=false): Kubernetes looks once a minute")
	}
	row("46 - 57 s", "the node agents of version 1.x, as measured on such a bed")
	row("105 s", "the first central controller, up to 0.3.0, as measured on such a bed")
	row("never", "Kubernetes alone: a StatefulSet's pod stays Terminating until somebody helps")
	fmt.Println()
}
