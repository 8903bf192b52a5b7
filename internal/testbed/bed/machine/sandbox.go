package machine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/uuid"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sandbox is what the containers of a pod share.
type sandbox struct {
	*runtimeapi.PodSandbox
	config *runtimeapi.PodSandboxConfig
	// ip is an address of the loopback interface that no other pod of the machine has.
	ip string
}

// pod names the pod.
func (s *sandbox) pod() string {
	return fmt.Sprintf("%s/%s (%.8s)", s.Metadata.GetNamespace(), s.Metadata.GetName(), s.Metadata.GetUid())
}

// RunPodSandbox implements the CRI.
func (m *Machine) RunPodSandbox(_ context.Context, r *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	id := string(uuid.NewUUID())
	m.sandboxes[id] = &sandbox{config: r.GetConfig(), ip: newIP(), PodSandbox: &runtimeapi.PodSandbox{
		Id: id, Metadata: r.Config.Metadata, State: runtimeapi.PodSandboxState_SANDBOX_READY, CreatedAt: time.Now().UnixNano(),
		Labels: r.Config.Labels, Annotations: r.Config.Annotations, RuntimeHandler: r.RuntimeHandler,
	}}
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: id}, nil
}

// newIP draws one of 16 million addresses, so that pods of other test beds have others.
func newIP() string {
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
}

// StopPodSandbox implements the CRI.
func (m *Machine) StopPodSandbox(ctx context.Context, r *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	m.mu.Lock()
	s := m.sandboxes[r.PodSandboxId]
	var running []string
	for id, c := range m.containers {
		if c.sandbox == s && c.running() {
			running = append(running, id)
		}
	}
	m.mu.Unlock()
	if s == nil {
		return &runtimeapi.StopPodSandboxResponse{}, nil
	}
	for _, id := range running {
		if err := m.stop(ctx, id, 0); err != nil {
			return nil, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

// RemovePodSandbox implements the CRI.
func (m *Machine) RemovePodSandbox(_ context.Context, r *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, c := range m.containers {
		if c.sandbox == m.sandboxes[r.PodSandboxId] {
			delete(m.containers, id)
		}
	}
	delete(m.sandboxes, r.PodSandboxId)
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

// PodSandboxStatus implements the CRI.
func (m *Machine) PodSandboxStatus(_ context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sandboxes[r.PodSandboxId]
	if s == nil {
		return nil, status.Error(codes.NotFound, "no sandbox "+r.PodSandboxId)
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
		Id: s.Id, Metadata: s.Metadata, State: s.State, CreatedAt: s.CreatedAt, Labels: s.Labels, Annotations: s.Annotations,
		RuntimeHandler: s.RuntimeHandler, Network: &runtimeapi.PodSandboxNetworkStatus{Ip: s.ip},
		// Without these the kubelet makes the sandbox again and again.
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{
			Options: s.config.GetLinux().GetSecurityContext().GetNamespaceOptions(),
		}},
	}}, nil
}

// ListPodSandbox implements the CRI.
func (m *Machine) ListPodSandbox(_ context.Context, r *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out runtimeapi.ListPodSandboxResponse
	f := r.GetFilter()
	for id, s := range m.sandboxes {
		if f.GetId() != "" && f.GetId() != id || f.GetState() != nil && f.GetState().State != s.State || !selects(f.GetLabelSelector(), s.Labels) {
			continue
		}
		out.Items = append(out.Items, proto.CloneOf(s.PodSandbox))
	}
	return &out, nil
}

// selects reports whether labels have all of a selector's.
func selects(selector, all map[string]string) bool {
	return labels.SelectorFromSet(selector).Matches(labels.Set(all))
}
