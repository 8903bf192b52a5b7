package deploy

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/bedtest"
)

// startTimeout bounds the start of a test bed on a machine that has other things to do.
const startTimeout = 10 * time.Minute

// api is an API server without anything that acts on what it stores, which all tests of manifests share.
var api struct {
	once sync.Once
	bed  *bed.Bed
	err  error
}

func TestMain(m *testing.M) {
	bedtest.Quiet()
	code := m.Run()
	if api.bed != nil {
		api.bed.Stop()
	}
	os.Exit(code)
}

// apiServer returns the shared API server. What is applied there has the names that the manifests give, so that tests that apply
// something take turns, see turn.
func apiServer(t *testing.T) *bed.Bed {
	t.Helper()
	api.once.Do(func() {
		ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
		defer cancel()
		api.bed, api.err = bed.Start(ctx, bed.Options{Bare: true, Direct: true, LogDir: logDir("deploy")})
	})
	if api.err != nil {
		t.Fatal(api.err)
	}
	return api.bed
}

// turn is taken by a test while it applies objects to the shared API server.
var turn sync.Mutex

// takeTurn keeps other tests from the shared API server until this one ends.
func takeTurn(t *testing.T) {
	t.Helper()
	turn.Lock()
	t.Cleanup(turn.Unlock)
}

func logDir(name string) string {
	return filepath.Join("..", ".testbed", fmt.Sprintf("%s-%s-%d", time.Now().Format("2006-01-02T15-04-05"), name, os.Getpid()))
}

// kubectl runs kubectl against a test bed as an administrator and returns what it prints. Words are separated by blanks.
func kubectl(t *testing.T, b *bed.Bed, words string, more ...string) (string, error) {
	t.Helper()
	args := append(strings.Fields(words), more...)
	args = append(args, "--kubeconfig="+b.Kubeconfig, "--cache-dir="+filepath.Join(os.TempDir(), "kubectl-cache"))
	// It may be called when the test has ended.
	out, err := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join("..", "bin", "kubectl"), args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// mustKubectl is kubectl where an error ends the test.
func mustKubectl(t *testing.T, b *bed.Bed, words string, more ...string) string {
	t.Helper()
	out, err := kubectl(t, b, words, more...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// forMaintainers fails a test whose name does not say what it needs: `make test` leaves out by these names what only `make test-all` builds.
func forMaintainers(t *testing.T, prefix string) {
	t.Helper()
	if !strings.HasPrefix(t.Name(), prefix) {
		t.Fatalf("begin the name of %s with %s, or `make test` runs it without what it needs", t.Name(), prefix)
	}
}
