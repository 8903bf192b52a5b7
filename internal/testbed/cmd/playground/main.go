// Command playground keeps a cluster running on this machine, to watch fail-over by hand.
//
// Without arguments it brings up the cluster of `make demo` and prints what can be done with it. With
// arguments it talks to the playground that runs in the same checkout:
//
//	bin/playground crash node-1      takes the power from a node
//	bin/playground return node-1     boots it again
//	bin/playground isolate node-1    takes the network from a node that goes on running
//	bin/playground rejoin node-1     gives it back
//	bin/playground status            shows nodes, LINSTOR's view of them, and pods
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "playground:", err)
		os.Exit(1)
	}
}

// run serves a playground, or talks to the one that runs.
func run(args []string) error {
	klog.SetLogger(logr.Discard())
	ctrllog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if len(args) > 0 {
		return command(ctx, args)
	}
	return serve(ctx)
}
