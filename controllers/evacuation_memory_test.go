package controllers

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A Node object that takes the place of another one of its name is another node, of which nothing is remembered.
func TestANodeOfTheSameNameIsAnother(t *testing.T) {
	t.Parallel()
	var all evacuees
	now := time.Now()
	old := all.of(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeA, UID: "1"}}, now)
	old.told["pvc-db"] = "Copying"
	if again := all.of(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeA, UID: "1"}}, now.Add(time.Hour)); again != old {
		t.Error("the node is not remembered")
	}
	other := all.of(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeA, UID: "2"}}, now.Add(time.Hour))
	if other == old || !other.since.Equal(now.Add(time.Hour)) || len(other.told) > 0 {
		t.Errorf("the other node is %+v", other)
	}
	if !all.forget(nodeA) || all.forget(nodeA) {
		t.Error("it is not forgotten, or twice")
	}
}
