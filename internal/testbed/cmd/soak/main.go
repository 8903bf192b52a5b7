// Command soak breaks things at random on a test bed for as long as it is told, and reports what came of it. It ends with
// status 0 only if nothing was removed wrongly, nothing missed, and nothing left behind.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/soak"
)

func main() {
	duration := flag.Duration("duration", 30*time.Minute, "how long new rounds begin")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "what chooses the faults")
	flag.Parse()
	if !run(*duration, *seed) {
		os.Exit(1)
	}
}

// run runs the soak, tells what came of it, and whether all is well.
func run(duration time.Duration, seed uint64) bool {
	// The libraries' own words belong into logs.
	klog.SetLogger(logr.Discard())
	ctrllog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	fmt.Printf("seed %d\n", seed)
	report, err := soak.Run(ctx, soak.Options{Duration: duration, Seed: seed, Out: os.Stdout})
	report.Write(os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
	}
	return err == nil && report.OK()
}
