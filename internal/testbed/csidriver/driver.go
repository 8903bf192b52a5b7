package csidriver

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/kubelet"
)

// Name is the name of LINSTOR's CSI driver, and of its attacher.
const Name = kubelet.DriverName

// Driver is the CSI identity and controller service.
type Driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer

	backend Backend

	mu sync.Mutex
	// published has, for each temporary replica that the driver made, the volumes that need it.
	published map[placement]sets.Set[string]
}

// placement is a resource on a node.
type placement struct{ resource, node string }

// New returns a driver that is not served yet.
func New(backend Backend) *Driver {
	return &Driver{backend: backend, published: map[placement]sets.Set[string]{}}
}

// Listen listens on a unix socket, replacing one that an earlier process left behind.
func Listen(socket string) (net.Listener, error) {
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("CSI socket: %w", err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("CSI socket: %w", err)
	}
	return listener, nil
}

// Serve serves the driver until ctx ends, which is no error. It closes the listener.
func (d *Driver) Serve(ctx context.Context, listener net.Listener) error {
	server := grpc.NewServer()
	csi.RegisterIdentityServer(server, d)
	csi.RegisterControllerServer(server, d)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	if err := server.Serve(listener); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve CSI on %s: %w", listener.Addr(), err)
	}
	return nil
}

// GetPluginInfo implements the CSI identity service.
func (d *Driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: Name, VendorVersion: "testbed"}, nil
}

// Probe implements the CSI identity service: the driver is always ready.
func (d *Driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

// GetPluginCapabilities implements the CSI identity service.
func (d *Driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{{
		Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{
			Type: csi.PluginCapability_Service_CONTROLLER_SERVICE,
		}},
	}}}, nil
}

// ControllerGetCapabilities implements the CSI controller service.
func (d *Driver) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	var response csi.ControllerGetCapabilitiesResponse
	for _, capability := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		response.Capabilities = append(response.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: capability}},
		})
	}
	return &response, nil
}
