package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/csidriver"
)

// Names of what the demo deploys.
const (
	namespace  = "shop"
	orders     = "orders"  // selected for fail-over
	archive    = "archive" // not selected, on the same node
	bedTimeout = 3 * time.Minute
	failover   = 2 * time.Minute
)

// scenario is the crash of a node with two databases of which one is selected for fail-over.
type scenario struct {
	bed      *bed.Bed
	progress func(string)

	nodes               []string
	selected, bystander bed.Workload
	bystanderPod        corev1.Pod
}

// deploy starts the controller, three nodes and the two databases, both on the first node.
func (s *scenario) deploy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bedTimeout)
	defer cancel()
	s.progress("the high availability controller from deploy/all.yaml, 3 replicas")
	if err := s.bed.DeployController(ctx); err != nil {
		return err
	}
	s.progress("nodes node-1, node-2, node-3")
	var err error
	if s.nodes, err = s.bed.AddNodes(ctx, "node", 3); err != nil {
		return err
	}
	s.selected = s.workload(orders)
	s.bystander = s.workload(archive)
	s.bystander.Unselected = true
	s.progress(fmt.Sprintf("two StatefulSets on node-1: %s (labelled %s=%s) and %s (not labelled)",
		orders, bed.SelectedLabel, bed.SelectedValue, archive))
	for _, w := range []bed.Workload{s.selected, s.bystander} {
		if err := s.bed.Deploy(ctx, w); err != nil {
			return err
		}
	}
	if _, err = s.bed.WaitRunning(ctx, s.selected, s.nodes[0]); err != nil {
		return err
	}
	s.bystanderPod, err = s.bed.WaitRunning(ctx, s.bystander, s.nodes[0])
	return err
}

// workload returns a database with a volume that has two replicas and a tie-breaker.
func (s *scenario) workload(name string) bed.Workload {
	return bed.Workload{
		Namespace: namespace, Name: name, Nodes: s.nodes, PreferNode: s.nodes[0],
		Volumes: []bed.Volume{{Name: name + "-data", Nodes: s.nodes}},
	}
}

// crash takes the power from the first node, prints the timeline and returns the time until the
// selected database runs again.
func (s *scenario) crash(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, failover)
	defer cancel()
	timeline, err := s.bed.Record(ctx, namespace)
	if err != nil {
		return 0, err
	}
	fmt.Printf("\nTaking the power from %s ...\n\n", s.nodes[0])
	crashed := time.Now()
	timeline.Note("you", "power loss on "+s.nodes[0])
	s.bed.Crash(s.nodes[0])
	_, runErr := s.bed.WaitRunning(ctx, s.selected, s.nodes[1:]...)
	took := time.Since(crashed)
	steps, err := timeline.Steps(crashed)
	if err := errors.Join(err, bed.PrintSteps(os.Stdout, crashed, steps)); err != nil {
		return 0, err
	}
	if runErr != nil {
		return 0, fmt.Errorf("the replacement does not run: %w", runErr)
	}
	fmt.Printf("\n  crash -> Running: %.1f s\n", took.Seconds())
	if err := s.checkUntouched(ctx, crashed); err != nil {
		return 0, fmt.Errorf("something was touched that was not selected: %w", err)
	}
	fmt.Printf("  %s, which is not labelled, was left alone: its pod, its attachment, its entry in volumesInUse\n", archive)
	return took, nil
}

// checkUntouched fails if anything was done to the bystander, or by the controller to anything but the
// selected pod, its attachment and the crashed node.
func (s *scenario) checkUntouched(ctx context.Context, since time.Time) error {
	attachment := func(volume string) string {
		return csidriver.AttachmentName(volume, s.nodes[0])
	}
	requests, err := s.bed.ControllerRequests(since)
	if err != nil {
		return err
	}
	for _, r := range requests {
		resource, _, _ := strings.Cut(r.Resource, "/")
		allowed := map[string]string{"pods": orders + "-0", "volumeattachments": attachment(orders + "-data"), "nodes": s.nodes[0]}
		if allowed[resource] != r.Name {
			return fmt.Errorf("the controller sent %s of %s %s/%s", r.Verb, r.Resource, r.Namespace, r.Name)
		}
	}
	var pod corev1.Pod
	if err := s.bed.Client.Get(ctx, client.ObjectKeyFromObject(&s.bystanderPod), &pod); err != nil {
		return err
	}
	if pod.UID != s.bystanderPod.UID || pod.DeletionTimestamp != nil {
		return fmt.Errorf("pod %s was deleted", pod.Name)
	}
	if err := s.bed.Client.Get(ctx, client.ObjectKey{Name: attachment(archive + "-data")}, &storagev1.VolumeAttachment{}); err != nil {
		return err
	}
	var node corev1.Node
	if err := s.bed.Client.Get(ctx, client.ObjectKey{Name: s.nodes[0]}, &node); err != nil {
		return err
	}
	if !slices.Contains(node.Status.VolumesInUse, csidriver.UniqueVolumeName(archive+"-data")) {
		return fmt.Errorf("the volume of %s is missing in volumesInUse of %s", archive, s.nodes[0])
	}
	return nil
}
