package deploy

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/bedtest"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/page"
)

// TestRemovalLeavesNothingBehind crashes a node and, while it has the controller's taint, runs the commands by which docs/installation.md
// has users remove the controller.
func TestRemovalLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	b := bedtest.Own(t, "remove", bed.Options{})
	s := bedtest.New(t, b, 3)
	pod := s.Start(s.Workload("db"))
	s.Crash(pod.Spec.NodeName)
	s.Must(s.WaitFor(s.Ctx, "the node to be tainted", func() (bool, error) {
		return len(leftBehind(t, b)) > 0, nil
	}))

	for _, command := range page.Commands(chapterOf(t, "../docs/installation.md", "Remove it").Text) {
		words, found := strings.CutPrefix(strings.ReplaceAll(command, "deploy/all.yaml", "all.yaml"), "kubectl ")
		if !found {
			t.Errorf("nobody knows the command %q", command)
			continue
		}
		// Nodes without the taint are called errors.
		if _, err := kubectl(t, b, words); err != nil && !strings.HasPrefix(words, "taint") {
			t.Error(err)
		}
	}
	for _, o := range readObjects(t, "all.yaml") {
		if err := b.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
			t.Errorf("%s is still there: %v", id(o), err)
		}
	}
	if left := leftBehind(t, b); len(left) > 0 {
		t.Errorf("left behind are %s", strings.Join(left, ", "))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if b.WaitFor(ctx, "something to come back", func() (bool, error) { return len(leftBehind(t, b)) > 0, nil }) == nil {
		t.Errorf("back are %s", strings.Join(leftBehind(t, b), ", "))
	}
}

// leftBehind returns the taints and annotations of the controller that nodes and attachments have.
func leftBehind(t *testing.T, b *bed.Bed) (left []string) {
	t.Helper()
	var nodes corev1.NodeList
	var attachments storagev1.VolumeAttachmentList
	for _, list := range []client.ObjectList{&nodes, &attachments} {
		if err := b.Client.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	for _, node := range nodes.Items {
		for _, taint := range node.Spec.Taints {
			if taint.Key == cluster.TaintLostQuorum || taint.Key == cluster.TaintNodeSilent {
				left = append(left, "taint "+taint.Key+" of "+node.Name)
			}
		}
		left = append(left, marks("node "+node.Name, node.Annotations)...)
	}
	for _, attachment := range attachments.Items {
		left = append(left, marks("attachment "+attachment.Name, attachment.Annotations)...)
	}
	return left
}

// marks returns the annotations of the controller.
func marks(of string, annotations map[string]string) (found []string) {
	for key := range annotations {
		if strings.HasPrefix(key, "drbd.linbit.com/") {
			found = append(found, "annotation "+key+" of "+of)
		}
	}
	return found
}
