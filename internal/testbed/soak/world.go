package soak

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

// Annotations by which the controller marks what it works on.
const (
	markOfNode       = "drbd.linbit.com/keep-away"
	markOfAttachment = "drbd.linbit.com/fail-over"
)

// settle waits until everything is well again, and notes what is not.
func (r *runner) settle(ctx context.Context, what string) error {
	settling, cancel := context.WithTimeout(ctx, healing)
	defer cancel()
	last := ""
	err := r.bed.WaitFor(settling, "everything to be well again", func() (bool, error) {
		left, err := r.left(settling)
		if err == nil {
			last = left
		}
		return left == "" && err == nil, err
	})
	if err != nil && ctx.Err() == nil {
		if bedErr := r.bed.Err(); bedErr != nil {
			return bedErr
		}
		r.note(func(report *Report) {
			report.Leftover = append(report.Leftover, fmt.Sprintf("%s: %s (%v)", what, last, err))
		})
	}
	return ctx.Err()
}

// left says what is not well, empty if everything is.
func (r *runner) left(ctx context.Context) (string, error) {
	for _, look := range []func(context.Context) (string, error){r.leftOnNodes, r.leftOfVolumes, r.leftOfPods, r.leftOfController} {
		if left, err := look(ctx); left != "" || err != nil {
			return left, err
		}
	}
	return "", nil
}

func (r *runner) leftOnNodes(ctx context.Context) (string, error) {
	var nodes corev1.NodeList
	if err := r.bed.Client.List(ctx, &nodes); err != nil {
		return "", fmt.Errorf("list nodes: %w", err)
	}
	for _, node := range nodes.Items {
		for _, taint := range node.Spec.Taints {
			if taint.Key != "node-role.kubernetes.io/control-plane" {
				return "taint " + taint.Key + " on " + node.Name, nil
			}
		}
		if node.Annotations[markOfNode] != "" {
			return "a mark on " + node.Name, nil
		}
	}
	return "", nil
}

func (r *runner) leftOfVolumes(ctx context.Context) (string, error) {
	for _, w := range r.workloads {
		for _, node := range w.Nodes {
			state, _ := r.bed.DRBD.Replica(w.Volumes[0].Name, node)
			if state.DiskState != drbd.UpToDate || r.bed.LINSTOR.ConnectionStatus(node) != "ONLINE" {
				return "the replica of " + w.Name + " on " + node, nil
			}
		}
	}
	var attachments storagev1.VolumeAttachmentList
	if err := r.bed.Client.List(ctx, &attachments); err != nil {
		return "", fmt.Errorf("list attachments: %w", err)
	}
	seen := map[string]string{}
	for _, a := range attachments.Items {
		volume := *a.Spec.Source.PersistentVolumeName
		if a.Annotations[markOfAttachment] != "" {
			return "a mark on the attachment of " + volume + " to " + a.Spec.NodeName, nil
		}
		if other := seen[volume]; other != "" {
			return volume + " is attached to " + other + " and " + a.Spec.NodeName, nil
		}
		seen[volume] = a.Spec.NodeName
	}
	return "", nil
}

func (r *runner) leftOfPods(ctx context.Context) (string, error) {
	for _, w := range r.workloads {
		pod, err := r.onlyPod(ctx, w)
		if err != nil || pod == nil {
			return "the pods of " + w.Name, err
		}
	}
	return "", nil
}

// onlyPod returns the pod of a workload, nil if there are several or it is not ready.
func (r *runner) onlyPod(ctx context.Context, w bed.Workload) (*corev1.Pod, error) {
	pods, err := r.bed.Pods(ctx, w)
	if err != nil || len(pods) != 1 || pods[0].DeletionTimestamp != nil {
		return nil, err
	}
	for _, c := range pods[0].Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return &pods[0], nil
		}
	}
	return nil, nil
}

func (r *runner) leftOfController(ctx context.Context) (string, error) {
	leader, err := r.bed.Leader(ctx)
	if err != nil || leader == "" {
		return "no leader", err
	}
	var pods corev1.PodList
	if err := r.bed.Client.List(ctx, &pods); err != nil {
		return "", fmt.Errorf("list pods: %w", err)
	}
	for _, pod := range pods.Items {
		if pod.Namespace != bed.ControllerNamespace {
			continue
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status != corev1.ConditionTrue {
				return "pod " + pod.Name + " is not ready", nil
			}
		}
	}
	return "", nil
}
