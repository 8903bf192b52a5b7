package kubelet

import (
	corev1 "k8s.io/api/core/v1"
)

// containerStatuses returns the status of a pod's containers.
func (s podState) containerStatuses(pod *corev1.Pod, containers []corev1.Container) []corev1.ContainerStatus {
	statuses := make([]corev1.ContainerStatus, 0, len(containers))
	for i := range containers {
		status := s.containerStatus(pod, &containers[i])
		status.State = s.containerState()
		status.Ready = s.ready
		status.Started = new(s.running)
		status.RestartCount = s.restarts
		statuses = append(statuses, status)
	}
	return statuses
}

// initStatuses returns the status of a pod's init containers: those with restart policy Always run
// beside the containers, the others have completed before.
func (s podState) initStatuses(pod *corev1.Pod) []corev1.ContainerStatus {
	var statuses []corev1.ContainerStatus
	for i := range pod.Spec.InitContainers {
		container := &pod.Spec.InitContainers[i]
		if container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			statuses = append(statuses, s.containerStatuses(pod, pod.Spec.InitContainers[i:i+1])...)
			continue
		}
		status := s.containerStatus(pod, container)
		status.State = s.containerState()
		if !s.startedAt.IsZero() {
			status.Ready = true
			status.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				Reason: "Completed", StartedAt: s.startedAt, FinishedAt: s.startedAt, ContainerID: status.ContainerID,
			}}
		}
		statuses = append(statuses, status)
	}
	return statuses
}

// containerStatus returns what is the same in every state of a container.
func (s podState) containerStatus(pod *corev1.Pod, container *corev1.Container) corev1.ContainerStatus {
	status := corev1.ContainerStatus{
		Name:    container.Name,
		Image:   container.Image,
		ImageID: "simulated://" + container.Image,
		Started: new(false),
	}
	if !s.startedAt.IsZero() {
		status.ContainerID = "simulated://" + string(pod.UID) + "-" + container.Name
	}
	return status
}

// containerState returns the state that all containers of the pod are in.
func (s podState) containerState() corev1.ContainerState {
	switch {
	case s.running:
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: s.startedAt}}
	case s.over && !s.startedAt.IsZero():
		reason := "Completed"
		if s.exitCode != 0 {
			reason = "Error"
		}
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: s.exitCode, Reason: reason, StartedAt: s.startedAt, FinishedAt: s.endedAt,
		}}
	case s.waiting != "":
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: s.waiting, Message: s.message}}
	default:
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}
	}
}
