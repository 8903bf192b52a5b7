package csidriver

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Name is the name of LINSTOR's CSI driver, and of its attacher.
const Name = "linstor.csi.linbit.com"

// NFSExportKey is the attribute by which it marks volumes that it serves over NFS. Pods that mount such a volume have nothing to
// do with its DRBD devices.
const NFSExportKey = Name + "/nfs-export"

// Resource returns the LINSTOR resource of a volume handle, which reads "resource" or "resource/volume number".
func Resource(volumeHandle string) string {
	resource, _, _ := strings.Cut(volumeHandle, "/")
	return resource
}

// Options are what the driver is started with. Zero values mean the defaults of linstor-csi.
type Options struct {
	// URL is that of LINSTOR's REST API. Required.
	URL string
	// Client makes the requests; [http.DefaultClient] where it is nil.
	Client *http.Client
	// NodeCache is --node-cache-timeout, 1 minute by default.
	NodeCache time.Duration
	// ResourceCache is --resource-cache-timeout, 30 s by default.
	ResourceCache time.Duration
	// Old makes it behave as linstor-csi 1.10 instead of 1.12.
	Old bool
}

// Driver is the CSI identity and controller service.
type Driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer

	linstor rest
	options atomic.Pointer[Options]
	caches  atomic.Pointer[caches]
}

// New returns a driver that is not served yet.
func New(options Options) *Driver {
	if options.Client == nil {
		options.Client = http.DefaultClient
	}
	d := &Driver{linstor: rest{options.Client, options.URL}}
	d.Restart(options)
	return d
}

// Restart makes it another process of the driver, which knows nothing yet, with the timeouts and the version of the options.
func (d *Driver) Restart(options Options) {
	options.NodeCache = cmp.Or(options.NodeCache, time.Minute)
	options.ResourceCache = cmp.Or(options.ResourceCache, 30*time.Second)
	d.options.Store(&options)
	d.caches.Store(newCaches(options))
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
