package permissions

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/options"
)

// world answers the questions of a review, and has what it shows and logs.
type world struct {
	*testing.T
	review *Review
	mu     sync.Mutex
	// denied are the permissions that the API server denies, as "verb resource"; refused is its answer to every question otherwise.
	denied  []string
	refused error
	asked   int
	shown   float64
	logged  []string
}

// inWorld starts a review in a world after before, and runs the test in which time does not pass by itself.
func inWorld(t *testing.T, before, test func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t}
		answer := func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			review, ok := o.(*authorizationv1.SelfSubjectAccessReview)
			if !ok {
				return errors.New("no question about oneself")
			}
			a := review.Spec.ResourceAttributes
			w.mu.Lock()
			defer w.mu.Unlock()
			w.asked++
			review.Status.Allowed = !slices.Contains(w.denied, a.Verb+" "+a.Resource)
			return w.refused
		}
		api := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithInterceptorFuncs(interceptor.Funcs{Create: answer}).Build()
		log := funcr.New(func(_, line string) { w.change(func() { w.logged = append(w.logged, line) }) }, funcr.Options{})
		w.review = NewReview(api, Required("ha-controller", options.Default()), func(n float64) { w.change(func() { w.shown = n }) }, log)
		before(w)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); w.review.Run(ctx) }()
		defer func() { cancel(); <-done }()
		synctest.Wait()
		test(w)
	})
}

// change changes what the API server or the review says.
func (w *world) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *world) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// is compares what the review says: whether it has passed, the number that it shows, and the lines that it has logged since the last time.
func (w *world) is(passed bool, shown float64, lines ...string) {
	w.Helper()
	if err := w.review.Passed(nil); (err == nil) != passed {
		w.Errorf("it has passed with %v, want %t", err, passed)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shown != shown && !(math.IsNaN(w.shown) && math.IsNaN(shown)) {
		w.Errorf("it shows %v missing permissions, want %v", w.shown, shown)
	}
	if len(w.logged) != len(lines) {
		w.Fatalf("it logs %q, want lines with %q", w.logged, lines)
	}
	for i, part := range lines {
		if !strings.Contains(w.logged[i], part) {
			w.Errorf("it logs %q, want a line with %q", w.logged[i], part)
		}
	}
	w.logged = nil
}

// deny takes permissions away.
func deny(permissions ...string) func(*world) { return func(w *world) { w.denied = permissions } }

func TestAControllerWithAllPermissionsIsReadyAndAsksOnce(t *testing.T) {
	t.Parallel()
	inWorld(t, deny(), func(w *world) {
		w.is(true, 0)
		asked := w.asked
		w.pass(time.Hour)
		w.is(true, 0)
		if asked == 0 || w.asked != asked {
			t.Errorf("it has asked %d times at its start, and %d times an hour later", asked, w.asked)
		}
	})
}

func TestAControllerThatLacksAPermissionAtItsStartIsReadyOnceItHasIt(t *testing.T) {
	t.Parallel()
	inWorld(t, deny("patch nodes", "delete volumeattachments"), func(w *world) {
		w.is(false, 3, "patch nodes, patch nodes --subresource=status, delete volumeattachments.storage.k8s.io")
		w.pass(time.Hour)
		w.is(false, 3) // it has been logged
		w.change(func() { w.denied = []string{"list pods"} })
		w.pass(interval)
		w.is(false, 1, "list pods")
		w.change(func() { w.denied = nil })
		w.pass(interval)
		w.is(true, 0, "All permissions are granted")
	})
}

func TestWithoutAnAnswerOfTheAPIServerItIsNotReady(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) { w.refused = errors.New("connection refused") }, func(w *world) {
		w.is(false, math.NaN(), "connection refused")
		w.pass(time.Hour)
		w.is(false, math.NaN())
		w.change(func() { w.refused = nil })
		w.pass(interval)
		w.is(true, 0, "All permissions are granted")
	})
}

func TestWhoMayNotAskIsReadyAndSaysSo(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "selfsubjectaccessreviews"}, "", errors.New("not for you"))
	inWorld(t, func(w *world) { w.refused = forbidden }, func(w *world) {
		w.is(true, math.NaN(), "not for you")
	})
}

func TestBeforeTheFirstAnswerItIsNotReady(t *testing.T) {
	t.Parallel()
	r := NewReview(nil, nil, func(float64) {}, funcr.New(func(string, string) {}, funcr.Options{}))
	if r.Passed(nil) == nil {
		t.Error("ready before the first answer")
	}
}

func TestWhatOptionsSwitchOffIsNotAskedFor(t *testing.T) {
	t.Parallel()
	shipped := options.Default()
	shipped.LeaderElection = true
	for name, c := range map[string]struct {
		change  func(*options.Options)
		dropped []string
	}{
		"one replica that elects nobody": {
			func(o *options.Options) { o.LeaderElection = false },
			[]string{
				"create leases.coordination.k8s.io --namespace=own", "get leases.coordination.k8s.io --namespace=own",
				"update leases.coordination.k8s.io --namespace=own",
			},
		},
		"no evacuation":                       {func(o *options.Options) { o.Evacuation = false }, []string{"get namespaces"}},
		"a slow detach":                       {func(o *options.Options) { o.FastDetach = false }, nil},
		"a slow detach without an evacuation": {func(o *options.Options) { o.FastDetach, o.Evacuation = false, false }, []string{"patch nodes --subresource=status", "get namespaces"}},
		"a Deployment by name": {
			func(o *options.Options) { o.PauseDeployment = "ours" }, []string{"get replicasets.apps --namespace=own", "get pods --namespace=own"},
		},
		"metrics for this host": {
			func(o *options.Options) { o.MetricsSecure = false },
			[]string{"create tokenreviews.authentication.k8s.io", "create subjectaccessreviews.authorization.k8s.io"},
		},
		"no metrics": {
			func(o *options.Options) { o.MetricsBindAddress = "0" },
			[]string{"create tokenreviews.authentication.k8s.io", "create subjectaccessreviews.authorization.k8s.io"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := shipped
			c.change(&opts)
			rest := Required("own", opts)
			var dropped []string
			for _, p := range Required("own", shipped) {
				if !slices.Contains(rest, p) {
					dropped = append(dropped, p.String())
				}
			}
			if diff := cmp.Diff(c.dropped, dropped); diff != "" {
				t.Errorf("what is not asked for (-want +got):\n%s", diff)
			}
		})
	}
}
