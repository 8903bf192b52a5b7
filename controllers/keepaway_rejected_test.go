package controllers

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
)

// A webhook rejects every patch of a node. A fail-over goes on only where something else lets the scheduler place no pod there.
func TestANodeThatCannotBeTainted(t *testing.T) {
	t.Parallel()
	tainted := func(key string, effect corev1.TaintEffect, annotations map[string]string) func(*corev1.Node) {
		return func(node *corev1.Node) {
			node.Annotations = annotations
			node.Spec.Taints = []corev1.Taint{{Key: key, Effect: effect}}
		}
	}
	ours := map[string]string{cluster.AnnotationKeepAway: `{"effect":"NoSchedule"}`}
	for name, tc := range map[string]struct {
		node   func(*corev1.Node)
		goesOn bool
	}{
		"the node takes pods":                       {func(*corev1.Node) {}, false},
		"Kubernetes lets no pod be placed there":    {tainted(corev1.TaintNodeUnreachable, corev1.TaintEffectNoSchedule, nil), true},
		"Kubernetes evicts, and may place pods yet": {tainted(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute, nil), false},
		"another taint of Kubernetes is there":      {tainted(corev1.TaintNodeMemoryPressure, corev1.TaintEffectNoSchedule, nil), false},
		"the node is cordoned":                      {func(node *corev1.Node) { node.Spec.Unschedulable = true }, true},
		"our own softer taint is there":             {tainted(cluster.TaintLostQuorum, corev1.TaintEffectPreferNoSchedule, ours), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSteps(t)
				node := s.node()
				tc.node(node)
				s.must(s.api.Update(s.ctx, node))
				s.model.Fail(func(r apimodel.Request) error {
					if r.Actor == "test" || r.Kind != "Node" || r.Verb != apimodel.VerbPatch {
						return nil
					}
					return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, r.Name, errors.New("nobody taints nodes here"))
				})
				err := s.tryEnsure("pvc-db", failover.Unreachable, 0)
				if goesOn := err == nil; goesOn != tc.goesOn {
					t.Errorf("goes on: %t, want %t: %v", goesOn, tc.goesOn, err)
				}
				if err != nil && !strings.Contains(err.Error(), "nobody taints nodes here") {
					t.Errorf("who has to wait does not see why: %v", err)
				}
			})
		})
	}
}
