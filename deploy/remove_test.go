package deploy

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// agentTaints are those of the node agents of 1.x.
var agentTaints = []string{"drbd.linbit.com/lost-quorum", "drbd.linbit.com/force-io-error"}

// TestTheTaintsOfTheAgentsAreTakenOff runs the commands of docs/migrating.md on nodes with both taints, with either and with none.
func TestTheTaintsOfTheAgentsAreTakenOff(t *testing.T) {
	t.Parallel()
	b := bedtest.Own(t, "agent-taints", bed.Options{})
	for i := range 4 {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i)}}
		for bit, key := range agentTaints {
			if i&(1<<bit) != 0 {
				node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
			}
		}
		if err := b.Client.Create(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile("../docs/migrating.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range regexp.MustCompile(`(?m)^ *kubectl (taint nodes .*)$`).FindAllStringSubmatch(string(text), -1) {
		_, _ = kubectl(t, b, line[1]) // nodes without the taint are called errors
	}
	var nodes corev1.NodeList
	if err := b.Client.List(t.Context(), &nodes); err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes.Items {
		for _, taint := range node.Spec.Taints {
			if slices.Contains(agentTaints, taint.Key) {
				t.Errorf("node %s still has the taint %s", node.Name, taint.Key)
			}
		}
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
