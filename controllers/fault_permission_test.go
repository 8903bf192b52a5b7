package controllers

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// reads are what a fail-over reads past the cache.
var reads = []permission{
	{"get", "apps", "deployments"}, {"get", "", "nodes"}, {"list", "", "pods"}, {"get", "storage.k8s.io", "volumeattachments"},
}

// revoke takes a permission away from the controller.
func (w *world) revoke(missing permission) {
	w.ofController(func(r apimodel.Request) error {
		if needs(r) != missing {
			return nil
		}
		return apierrors.NewForbidden(schema.GroupResource{Group: missing.group, Resource: missing.resource}, r.Name,
			fmt.Errorf("User \"ha-controller\" cannot %s resource %q", missing.verb, missing.resource))
	})
}

// pausable are settings by which a Deployment can pause fail-over, which addDeployment adds.
func pausable(cfg *Config) {
	cfg.PauseDeployment = types.NamespacedName{Namespace: "ha-controller", Name: "piraeus-ha-controller"}
}

// hideDeployment lets no Deployment be read.
func (w *world) hideDeployment() {
	w.API.Fail(func(r apimodel.Request) error {
		if r.Kind == "Deployment" {
			return errors.New("no")
		}
		return nil
	})
}

func (w *world) addDeployment() {
	w.Helper()
	w.must(w.Client().Create(w.ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ha-controller", Name: "piraeus-ha-controller"},
	}))
}

// Each permission that the fail-over itself needs is missing, by itself: the controller says which, by verb and resource,
// in the log or in an Event, removes nothing that it could not finish safely, and goes on as soon as it has it.
func TestFaultsOfPermissions(t *testing.T) {
	for _, missing := range slices.Concat(reads, writes) {
		// Without these the fail-over goes on: the condition is a courtesy, and Kubernetes detaches what was released or what
		// has no attachment any more by itself, if slowly. Without a taint of ours it waits for that of Kubernetes.
		goesOn := strings.HasSuffix(missing.resource, "/status") || missing.verb == "delete" && missing.resource == "volumeattachments" ||
			missing == permission{"patch", "", "nodes"}
		limit := 30 * time.Second
		if missing.verb == "patch" && strings.HasPrefix(missing.resource, "nodes") {
			limit = 90 * time.Second
		}
		t.Run(missing.String(), fault{
			cfg:   pausable,
			begin: func(w *world, _ *process) { w.addDeployment(); w.revoke(missing) },
			end:   func(w *world, _ *process) { w.API.Fail(nil) },
			stops: !goesOn, limit: limit, lasts: time.Minute,
			seen: func(w *world, p *process) bool { return w.told(p, missing.verb, missing.resource) },
		}.befalls)
	}
}

// Each permission is missing, and what it is not needed for goes on: to take a taint off, to bring back LINSTOR's own pods, and
// to finish a fail-over whose pods are gone.
func TestWhatGoesOnWithoutAPermission(t *testing.T) {
	const nodes, pods, attachments = "nodes", "pods", "volumeattachments"
	without := func(all []permission, but ...string) (kept []permission) {
		for _, p := range all {
			if !slices.Contains(but, p.verb+" "+p.resource) {
				kept = append(kept, p)
			}
		}
		return kept
	}
	all := slices.Concat(reads, writes)
	cfg := recovering()
	pausable(&cfg)
	shown := map[permission]bool{}
	for _, missing := range without(all, "get "+nodes, "patch "+nodes) {
		shown[missing] = true
		t.Run("a taint is taken off without "+missing.String(), func(t *testing.T) {
			sceneWith(t, virtual.Options{}, cfg, func(w *world, p *process) {
				w.addDeployment()
				w.Crash(nodeA)
				w.until(time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
				w.until(30*time.Second, "the attachment is gone", func() bool { return w.attachment("db", nodeA) == nil })
				w.revoke(missing)
				w.Return(nodeA)
				w.until(2*time.Minute, "the taint is off", func() bool { return len(w.node(nodeA).Spec.Taints) == 0 })
				w.pass(time.Minute)
				w.wantNothingLeft(p)
			})
		})
	}
	for _, missing := range without(all, "get deployments", "get "+nodes, "list "+pods, "patch "+nodes, "delete "+pods) {
		t.Run("LINSTOR's pod is replaced without "+missing.String(), func(t *testing.T) {
			linstorOnA(t, cfg, func(w *world, _ *process) {
				w.addDeployment()
				w.revoke(missing)
				w.crashWithLinstor()
				w.until(30*time.Second, "LINSTOR's pod is deleted", func() bool { return len(w.removed("linstor-1")) > 0 })
			})
		})
	}
	for _, missing := range without(all, "get deployments", "get "+nodes, "list "+pods, "get "+attachments) {
		shown[missing] = true
		t.Run("a fail-over is finished without "+missing.String(), func(t *testing.T) {
			sceneWith(t, virtual.Options{}, cfg, func(w *world, p *process) {
				w.addDeployment()
				w.API.OnChange(func(c apimodel.Change) {
					if c.Verb == apimodel.VerbDelete && c.Kind == "Pod" && c.Name == "db-0" {
						w.revoke(missing)
					}
				})
				w.Crash(nodeA)
				// Kubernetes takes up to a minute longer where it has to notice by itself.
				w.until(2*time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
				if got := len(w.removed("db-0")); got != 1 {
					t.Errorf("pods of that name were deleted %d times", got)
				}
				w.API.Fail(nil)
				w.Return(nodeA)
				w.pass(3 * time.Minute)
				w.wantNothingLeft(p)
			})
		})
	}
	toReadNodes := permission{"get", "", "nodes"}
	shown[toReadNodes] = true
	t.Run("nothing is removed without "+toReadNodes.String(), func(t *testing.T) {
		sceneWith(t, virtual.Options{}, cfg, func(w *world, _ *process) {
			w.addDeployment()
			pod := w.pod("db-0")
			w.revoke(toReadNodes)
			w.Crash(nodeA)
			w.pass(2 * time.Minute)
			w.wantStill(pod)
			w.API.Fail(nil)
			w.until(30*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		})
	})
	for _, p := range all {
		if !shown[p] {
			t.Errorf("nothing shows what goes on without %s", p)
		}
	}
}

// Without the Leases of kubelets LINSTOR's own pods stay, as nobody can see past the cache whether their node lives. Every
// other fail-over goes on.
func TestWithoutTheLeasesOfKubelets(t *testing.T) {
	leases := permission{"get", "coordination.k8s.io", "leases"}
	t.Run("LINSTOR's pod stays", func(t *testing.T) {
		linstorOnA(t, recovering(), func(w *world, p *process) {
			w.revoke(leases)
			w.crashWithLinstor()
			w.pass(time.Minute)
			w.wantUntouched()
			if !w.told(p, leases.verb, leases.resource) {
				t.Error("neither the log nor an Event names what is missing")
			}
			w.API.Fail(nil)
			w.until(10*time.Second, "LINSTOR's pod is deleted", func() bool { return len(w.removed("linstor-1")) > 0 })
		})
	})
	t.Run("the workload moves", func(t *testing.T) {
		scene(t, func(w *world, _ *process) {
			w.revoke(leases)
			w.Crash(nodeA)
			w.until(20*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		})
	})
}
