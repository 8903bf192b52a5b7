// Package bedtest lets the tests of a package share one test bed with the high availability controller
// on it.
//
// Bringing up a bed takes ten seconds, and scenarios mostly wait: they run in parallel, each with nodes
// and a namespace of its own. What disturbs everybody (a restart of LINSTOR, other arguments for the
// controller, the loss of most nodes) needs a bed of its own.
package bedtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/csidriver"
)

const (
	// startTimeout bounds bringing up a bed with the controller, on a machine that has other things to do.
	startTimeout = 10 * time.Minute
	// ownBeds is how many tests of this user may run a bed of their own at a time on this machine, whatever packages and test
	// runs they belong to. A bed is a whole control plane: many that start together on few cores take longer to become ready than a
	// scenario waits, and each test would be faster after the others.
	ownBeds = 3
)

var shared struct {
	once sync.Once
	bed  *bed.Bed
	err  error
}

// Main runs the tests of a package, stops the shared bed if one of them has started it, and exits. Call
// it from TestMain.
func Main(m *testing.M) {
	Quiet()
	code := m.Run()
	if shared.bed != nil {
		shared.bed.Stop()
		if err := discreet(shared.bed); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// Quiet keeps the Kubernetes libraries from writing to standard error.
func Quiet() {
	klog.SetLogger(logr.Discard())
	ctrllog.SetLogger(logr.Discard())
}

// Shared returns the bed that all tests of the process share, with the controller deployed. The first
// call brings it up. Its logs are in .testbed, in a folder named after the time, the test binary and the process.
func Shared(t *testing.T) *bed.Bed {
	t.Helper()
	shared.once.Do(func() {
		// Each test adds nodes, and the attacher waits longer after each attempt for one that the driver does not know yet.
		shared.bed, shared.err = start(filepath.Base(os.Args[0]), bed.Options{Driver: csidriver.Options{NodeCache: time.Second}})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.bed
}

// Own returns a bed for one test alone, with the controller deployed, and stops it when the test ends.
// Name is part of the name of its folder of logs in .testbed.
//
// Only so many of them run at a time on this machine, see ownBeds: it waits for its turn, which nothing but the timeout of
// the test run bounds. Begin what has a time of its own, such as a Scenario, when it has returned. A test that has a bed of its
// own must not ask for a second one: it might wait for those who wait for it.
func Own(t *testing.T, name string, options bed.Options) *bed.Bed {
	t.Helper()
	return own(t, name, options, start)
}

// Empty is Own without the controller: the test installs it.
func Empty(t *testing.T, name string, options bed.Options) *bed.Bed {
	t.Helper()
	return own(t, name, options, startEmpty)
}

func own(t *testing.T, name string, options bed.Options, start func(string, bed.Options) (*bed.Bed, error)) *bed.Bed {
	t.Helper()
	_, release, err := bed.UserSlots("slots", ownBeds).Take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release) // when the bed has stopped
	b, err := start(name, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.Stop()
		if err := discreet(b); err != nil {
			t.Error(err)
		}
	})
	return b
}

// discreet returns an error if a process of a bed that has ended has told one of the planted credentials.
func discreet(b *bed.Bed) error {
	told, err := b.ToldInLogs()
	if len(told) > 0 {
		err = fmt.Errorf("in %s: %s", b.LogDir, strings.Join(told, ", "))
	}
	return err
}

// startEmpty brings up a bed.
func startEmpty(name string, options bed.Options) (*bed.Bed, error) {
	root, err := bed.Root()
	if err != nil {
		return nil, err
	}
	folder := fmt.Sprintf("%s-%s-%d", time.Now().Format("2006-01-02T15-04-05"), name, os.Getpid())
	options.BearerToken = true
	if options.NodeStatusUpdateFrequency == 0 {
		options.NodeStatusUpdateFrequency = time.Second // scenarios wait for enough
	}
	options.LogDir = filepath.Join(root, ".testbed", folder)
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return bed.Start(ctx, options)
}

// start brings up a bed and the controller on it.
func start(name string, options bed.Options) (*bed.Bed, error) {
	b, err := startEmpty(name, options)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := b.DeployController(ctx); err != nil {
		b.Stop()
		return nil, fmt.Errorf("deploy the controller: %w", err)
	}
	return b, nil
}
