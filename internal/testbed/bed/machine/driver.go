package machine

import (
	"context"
	"os"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/csidriver"
)

// blockAttribute is the volume attribute with which the bed's kubelets show raw block volumes as file systems.
const blockAttribute = "testbed.piraeus.io/block"

// driver is the node service of LINSTOR's CSI driver, with the sidecar that registers it.
type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer
	registerapi.UnimplementedRegistrationServer
	m *Machine
}

// volume is a mount.
type volume struct {
	resource        string
	block, readOnly bool
	open            bool // by the mount
}

// startDriver serves the driver and registers it with the kubelet. With mu held.
func (m *Machine) startDriver() error {
	d := &driver{m: m}
	if err := m.serve(m.csiSocket(), func(s *grpc.Server) {
		csi.RegisterIdentityServer(s, d)
		csi.RegisterNodeServer(s, d)
	}); err != nil {
		return err
	}
	return m.serve(m.registrationSocket(), func(s *grpc.Server) { registerapi.RegisterRegistrationServer(s, d) })
}

func (d *driver) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{Type: registerapi.CSIPlugin, Name: csidriver.Name, Endpoint: d.m.csiSocket(), SupportedVersions: []string{"1.0.0"}}, nil
}

func (d *driver) NotifyRegistrationStatus(_ context.Context, s *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	d.m.Log.Info("CSI driver registered", "ok", s.GetPluginRegistered(), "error", s.GetError())
	return &registerapi.RegistrationStatusResponse{}, nil
}

func (d *driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: csidriver.Name, VendorVersion: "testbed"}, nil
}

func (d *driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

func (d *driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{}, nil
}

// NodeGetCapabilities returns none: linstor-csi does not stage.
func (d *driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{}, nil
}

func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{
		NodeId: d.m.Name, MaxVolumesPerNode: 1000,
		AccessibleTopology: &csi.Topology{Segments: map[string]string{"linbit.com/hostname": d.m.Name}},
	}, nil
}

func (d *driver) NodePublishVolume(ctx context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	m, target := d.m, r.GetTargetPath()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mountDelay > 0 {
		delay := m.mountDelay
		m.mu.Unlock()
		select {
		case <-time.After(delay):
		case <-ctx.Done():
		}
		m.mu.Lock()
	}
	if err := ctx.Err(); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	if m.volumes[target] != nil {
		return &csi.NodePublishVolumeResponse{}, nil
	}
	attributes := r.GetVolumeContext()
	v := &volume{
		resource: csidriver.Resource(r.GetVolumeId()), block: attributes[blockAttribute] != "",
		readOnly: r.GetReadonly() || r.GetVolumeCapability().GetAccessMode().GetMode() == csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
	}
	if _, nfs := attributes[csidriver.NFSExportKey]; !nfs && !v.block {
		if err := m.Storage.Open(v.resource, m.Name, v.readOnly); err != nil {
			m.Log.Info("mount refused", "resource", v.resource, "error", err.Error())
			return nil, status.Error(codes.Internal, err.Error())
		}
		v.open = true
	}
	if err := os.MkdirAll(target, 0o755); err != nil {
		return nil, err
	}
	m.volumes[target] = v
	m.Log.Info("mounted", "resource", v.resource, "pod", podOf(m.Root, target))
	return &csi.NodePublishVolumeResponse{}, nil
}

func (d *driver) NodeUnpublishVolume(_ context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	m, target := d.m, r.GetTargetPath()
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.volumes[target]
	if v != nil && v.open {
		m.close(v.resource, podOf(m.Root, target))
	}
	delete(m.volumes, target)
	if err := os.Remove(target); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	m.Log.Info("unmounted", "resource", csidriver.Resource(r.GetVolumeId()), "was mounted", v != nil, "pod", podOf(m.Root, target))
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// close closes a device when the last container of a pod has ended. Each container has mounts of its own, and a kubelet that was started
// again unmounts before it stops the containers of a pod that was deleted meanwhile. With mu held.
func (m *Machine) close(resource, uid string) {
	var running []*container
	for _, c := range m.containers {
		if c.sandbox.Metadata.GetUid() == uid && c.running() {
			running = append(running, c)
		}
	}
	if len(running) == 0 {
		m.Storage.Close(resource, m.Name)
		return
	}
	m.Log.Info("unmounted while containers run", "resource", resource, "pod", uid)
	on := m.ctx
	go func() {
		for _, c := range running {
			select {
			case <-c.ended:
			case <-on.Done():
				return
			}
		}
		m.Storage.Close(resource, m.Name)
	}()
}
