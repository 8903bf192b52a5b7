package machine

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/util/uuid"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Annotations of a pod say how its containers behave.
const (
	// AnnotationStopDelay is how long the containers take to stop after SIGTERM, as a Go duration; 200 ms by default.
	AnnotationStopDelay = "testbed.piraeus.io/stop-delay"
	// AnnotationOpenBlock set to "false" lets the containers never open their raw block volumes. Otherwise they open them when they start.
	AnnotationOpenBlock = "testbed.piraeus.io/open-block"
)

// Runner runs chosen containers as processes.
type Runner interface {
	// Start starts the process of a container. It returns nil for a container that is none. The process must not outlive ctx, which ends
	// when the machine loses its power.
	Start(ctx context.Context, c Container) (Process, error)
}

// Container describes a container that starts.
type Container struct {
	// Node is the name of the machine.
	Node string
	// Pod is what the kubelet says of the pod.
	Pod *runtimeapi.PodSandboxConfig
	// IP is the pod's address, where the kubelet sends its probes.
	IP string
	// Config is what the kubelet says of the container.
	Config *runtimeapi.ContainerConfig
}

// Process is a process that runs a container.
type Process interface {
	// Terminate asks the process to end (SIGTERM).
	Terminate()
	// Kill ends the process at once (SIGKILL).
	Kill()
	// Done is closed when the process has ended.
	Done() <-chan struct{}
	// ExitCode is valid when the process has ended.
	ExitCode() int
}

// container is one container.
type container struct {
	status  *runtimeapi.ContainerStatus
	config  *runtimeapi.ContainerConfig
	sandbox *sandbox
	process Process   // nil if it is none
	devices []*volume // raw block volumes that it has opened
	ended   chan struct{}
}

func (c *container) running() bool {
	return c.status.State == runtimeapi.ContainerState_CONTAINER_RUNNING
}

func (c *container) annotation(name string) string { return c.sandbox.Annotations[name] }

// CreateContainer implements the CRI.
func (m *Machine) CreateContainer(_ context.Context, r *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sandboxes[r.PodSandboxId]
	if s == nil {
		return nil, status.Error(codes.NotFound, "no sandbox "+r.PodSandboxId)
	}
	id := string(uuid.NewUUID())
	m.containers[id] = &container{sandbox: s, config: r.Config, ended: make(chan struct{}), status: &runtimeapi.ContainerStatus{
		Id: id, Metadata: r.Config.Metadata, State: runtimeapi.ContainerState_CONTAINER_CREATED, CreatedAt: time.Now().UnixNano(),
		Image: r.Config.Image, ImageRef: r.Config.GetImage().GetImage(), Labels: r.Config.Labels, Annotations: r.Config.Annotations,
	}}
	return &runtimeapi.CreateContainerResponse{ContainerId: id}, nil
}

// StartContainer implements the CRI.
func (m *Machine) StartContainer(_ context.Context, r *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	m.mu.Lock()
	c, ctx := m.containers[r.ContainerId], m.ctx
	m.mu.Unlock()
	if c == nil {
		return nil, status.Error(codes.NotFound, "no container "+r.ContainerId)
	}
	var process Process
	if m.Runner != nil {
		var err error
		if process, err = m.Runner.Start(ctx, Container{Node: m.Name, Pod: c.sandbox.config, IP: c.sandbox.ip, Config: c.config}); err != nil {
			return nil, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.openDevices(c); err != nil {
		return nil, err
	}
	c.status.State, c.status.StartedAt = runtimeapi.ContainerState_CONTAINER_RUNNING, time.Now().UnixNano()
	m.Log.Info("container started", "pod", c.sandbox.pod())
	if process != nil {
		c.process = process
		go func() {
			<-process.Done()
			m.mu.Lock()
			defer m.mu.Unlock()
			m.end(c, process.ExitCode())
		}()
	}
	return &runtimeapi.StartContainerResponse{}, nil
}

// openDevices opens the raw block volumes of a container. With mu held.
func (m *Machine) openDevices(c *container) error {
	if c.annotation(AnnotationOpenBlock) == "false" {
		return nil
	}
	for target, v := range m.volumes {
		if !v.block || podOf(m.Root, target) != c.sandbox.Metadata.GetUid() {
			continue
		}
		if err := m.Storage.Open(v.resource, m.Name, v.readOnly); err != nil {
			return status.Error(codes.Internal, err.Error())
		}
		c.devices = append(c.devices, v)
	}
	return nil
}

// end ends a container. With mu held.
func (m *Machine) end(c *container, code int) {
	if !c.running() || m.ctx.Err() != nil {
		return
	}
	c.status.State, c.status.FinishedAt = runtimeapi.ContainerState_CONTAINER_EXITED, time.Now().UnixNano()
	c.status.ExitCode, c.status.Reason = int32(code), "Completed"
	if code != 0 {
		c.status.Reason = "Error"
	}
	for _, v := range c.devices {
		m.Storage.Close(v.resource, m.Name)
	}
	close(c.ended)
	m.Log.Info("container ended", "pod", c.sandbox.pod(), "code", code)
}

// StopContainer implements the CRI.
func (m *Machine) StopContainer(ctx context.Context, r *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	return &runtimeapi.StopContainerResponse{}, m.stop(ctx, r.ContainerId, time.Duration(r.Timeout)*time.Second)
}

// The exit codes of processes that ended by SIGTERM and SIGKILL.
const (
	terminated = 143
	killed     = 137
)

// stop sends SIGTERM, and SIGKILL after a while. Processes that wait for IO end by neither.
func (m *Machine) stop(ctx context.Context, id string, grace time.Duration) error {
	m.mu.Lock()
	c, on := m.containers[id], m.ctx
	if c == nil || !c.running() {
		m.mu.Unlock()
		return nil
	}
	m.Log.Info("stop container", "pod", c.sandbox.pod(), "grace", grace.String())
	m.mu.Unlock()
	if c.process != nil {
		c.process.Terminate()
	}
	delay, code := 200*time.Millisecond, terminated
	if d, err := time.ParseDuration(c.annotation(AnnotationStopDelay)); err == nil {
		delay = d
	}
	if c.process != nil || delay > grace {
		delay, code = grace, killed
	}
	const period = 100 * time.Millisecond
	for deadline := time.Now().Add(delay); ; {
		left := time.Until(deadline)
		if left <= 0 && !m.hangs(c) {
			break
		}
		if left <= 0 || left > period {
			left = period
		}
		select {
		case <-time.After(left):
		case <-c.ended:
			return nil
		case <-on.Done():
			return status.Error(codes.Unavailable, "the power is off")
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
	if c.process != nil {
		c.process.Kill()
		<-c.process.Done()
		code = c.process.ExitCode()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.end(c, code)
	return nil
}

// hangs reports whether the processes of a container wait for IO.
func (m *Machine) hangs(c *container) bool {
	m.mu.Lock()
	var open []*volume
	open = append(open, c.devices...)
	for target, v := range m.volumes {
		if v.open && podOf(m.Root, target) == c.sandbox.Metadata.GetUid() {
			open = append(open, v)
		}
	}
	m.mu.Unlock()
	for _, v := range open {
		if m.Storage.IOHangs(v.resource, m.Name) {
			return true
		}
	}
	return false
}

// RemoveContainer implements the CRI.
func (m *Machine) RemoveContainer(_ context.Context, r *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.containers, r.ContainerId)
	return &runtimeapi.RemoveContainerResponse{}, nil
}

// ListContainers implements the CRI.
func (m *Machine) ListContainers(_ context.Context, r *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out runtimeapi.ListContainersResponse
	f := r.GetFilter()
	for id, c := range m.containers {
		s := c.status
		if f.GetId() != "" && f.GetId() != id || f.GetPodSandboxId() != "" && f.GetPodSandboxId() != c.sandbox.Id ||
			f.GetState() != nil && f.GetState().State != s.State || !selects(f.GetLabelSelector(), s.Labels) {
			continue
		}
		out.Containers = append(out.Containers, &runtimeapi.Container{
			Id: id, PodSandboxId: c.sandbox.Id, Metadata: s.Metadata, Image: s.Image, ImageRef: s.ImageRef, State: s.State,
			CreatedAt: s.CreatedAt, Labels: s.Labels, Annotations: s.Annotations,
		})
	}
	return &out, nil
}

// ContainerStatus implements the CRI.
func (m *Machine) ContainerStatus(_ context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.containers[r.ContainerId]
	if c == nil {
		return nil, status.Error(codes.NotFound, "no container "+r.ContainerId)
	}
	return &runtimeapi.ContainerStatusResponse{Status: proto.CloneOf(c.status)}, nil
}

// podOf returns the UID of the pod that a path below the kubelet's root belongs to.
func podOf(root, path string) string {
	rest, _ := strings.CutPrefix(path, filepath.Join(root, "pods")+"/")
	uid, _, _ := strings.Cut(rest, "/")
	return uid
}
