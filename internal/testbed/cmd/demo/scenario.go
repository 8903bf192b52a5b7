package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	bed    *bed.Bed
	teller *teller

	nodes               []string
	selected, bystander bed.Workload
	bystanderPod        corev1.Pod
}

// deploy starts the controller, three nodes and the two databases, both on the first node.
func (s *scenario) deploy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bedTimeout)
	defer cancel()
	s.teller.say("the high availability controller from deploy/all.yaml, 3 replicas")
	if err := s.bed.DeployController(ctx); err != nil {
		return err
	}
	s.teller.say("nodes node-1, node-2, node-3")
	var err error
	if s.nodes, err = s.bed.AddNodes(ctx, "node", 3); err != nil {
		return err
	}
	s.selected = s.workload(orders)
	s.bystander = s.workload(archive)
	s.bystander.Unselected = true
	s.teller.say("two StatefulSets on node-1: %s (labelled %s=%s) and %s (not labelled)",
		orders, bed.SelectedLabel, bed.SelectedValue, archive)
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

// crash takes the power from the first node, tells what happens, and returns the time until the selected database runs again.
func (s *scenario) crash(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, failover)
	defer cancel()
	timeline, err := s.bed.Record(ctx, namespace)
	if err != nil {
		return 0, err
	}
	crashed := s.teller.begin("Taking the power from " + s.nodes[0])
	story := follow(ctx, timeline, crashed, s.teller)
	timeline.Note("you", "power loss on "+s.nodes[0])
	s.bed.Crash(s.nodes[0])
	_, runErr := s.bed.WaitRunning(ctx, s.selected, s.nodes[1:]...)
	took := time.Since(crashed)
	steps, err := story()
	if err := errors.Join(err, runErr); err != nil {
		return 0, fmt.Errorf("the replacement does not run: %w", err)
	}
	fmt.Printf("\nWhere the %.1f seconds from the crash to the replacement Running went:\n", took.Seconds())
	for _, p := range parts(steps, crashed, orders+"-0", orders+"-data") {
		fmt.Printf("  %5.1f s  %s\n", p.took.Seconds(), p.what)
	}
	fmt.Println()
	if err := s.checkUntouched(ctx, crashed); err != nil {
		return 0, fmt.Errorf("something was touched that was not selected: %w", err)
	}
	fmt.Printf("%s, which is not labelled, was left alone: its pod, its attachment, its entry in volumesInUse.\n", archive)
	return took, s.show(ctx, "What the Events of the pod say", "kubectl", "events", "--namespace="+namespace, "--for=pod/"+orders+"-0")
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

// show prints a command that you could give, and what it prints.
func (s *scenario) show(ctx context.Context, title, program string, args ...string) error {
	fmt.Printf("\n%s:\n\n$ %s %s\n", title, program, strings.Join(args, " "))
	return s.run(ctx, program, args...)
}

// check prints what the controller's command answers to whether the databases would survive now.
func (s *scenario) check(ctx context.Context, title string) error {
	fmt.Printf("\n%s:\n\n$ kubectl -n %s exec deploy/%s -- /%[3]s check\n", title, bed.ControllerNamespace, bed.ControllerName)
	err := s.run(ctx, bed.ControllerName, "check", "--namespace="+namespace) // no container runs here
	if exit, failed := errors.AsType[*exec.ExitError](err); failed && exit.ExitCode() > 0 {
		return nil // so it ends if a pod is unprotected
	}
	return err
}

// run runs a program of the test bed as an administrator of the cluster and passes on what it prints.
func (s *scenario) run(ctx context.Context, program string, args ...string) error {
	root, err := bed.Root()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(root, "bin", program), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.bed.Kubeconfig, "LS_CONTROLLERS="+s.bed.LINSTORURL())
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	return nil
}
