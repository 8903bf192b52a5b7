package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
)

func TestASecondPlaygroundIsRefusedBeforeItTouchesAnything(t *testing.T) {
	root, err := bed.Root()
	must(t, err)
	module, err := os.ReadFile(filepath.Join(root, "go.mod"))
	must(t, err)
	checkout := t.TempDir()
	must(t, os.WriteFile(filepath.Join(checkout, "go.mod"), module, 0o600))
	t.Chdir(checkout)
	unlock, err := bed.Lock(filepath.Join(checkout, ".testbed", "playground.lock")) // as one that runs
	must(t, err)
	socket, log := filepath.Join(checkout, ".testbed", controlSocket), filepath.Join(checkout, ".testbed", "playground", "etcd.log")
	must(t, os.MkdirAll(filepath.Dir(log), 0o700))
	for _, file := range []string{socket, log} {
		must(t, os.WriteFile(file, nil, 0o600))
	}

	if err := serve(t.Context()); err == nil || !strings.Contains(err.Error(), "one is running already") {
		t.Errorf("got %v, want a refusal", err)
	}
	for _, file := range []string{socket, log} {
		if _, err := os.Stat(file); err != nil {
			t.Errorf("it touched what the first one has: %v", err)
		}
	}

	unlock()
	if err := serve(t.Context()); err == nil || errors.Is(err, bed.ErrLocked) || !strings.Contains(err.Error(), "make testbed") {
		t.Errorf("after the first one ended: %v, want it to look for what `make testbed` builds", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
