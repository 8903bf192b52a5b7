package csidriver

import (
	"context"
	"net"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve serves a driver and returns a connection to it.
func serve(t *testing.T) *grpc.ClientConn {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- New(Options{URL: "http://127.0.0.1:1"}).Serve(ctx, listener) }()
	conn, err := grpc.NewClient("passthrough:///driver",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return conn
}

func TestIdentity(t *testing.T) {
	conn := serve(t)
	identity := csi.NewIdentityClient(conn)
	info, err := identity.GetPluginInfo(t.Context(), &csi.GetPluginInfoRequest{})
	if err != nil || info.GetName() != "linstor.csi.linbit.com" {
		t.Errorf("GetPluginInfo = %v, %v", info, err)
	}
	probe, err := identity.Probe(t.Context(), &csi.ProbeRequest{})
	if err != nil || !probe.GetReady().GetValue() {
		t.Errorf("Probe = %v, %v", probe, err)
	}
	plugin, err := identity.GetPluginCapabilities(t.Context(), &csi.GetPluginCapabilitiesRequest{})
	if err != nil || plugin.GetCapabilities()[0].GetService().GetType() != csi.PluginCapability_Service_CONTROLLER_SERVICE {
		t.Errorf("GetPluginCapabilities = %v, %v", plugin, err)
	}
	controller, err := csi.NewControllerClient(conn).ControllerGetCapabilities(t.Context(), &csi.ControllerGetCapabilitiesRequest{})
	if err != nil || controller.GetCapabilities()[0].GetRpc().GetType() != csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME {
		t.Errorf("ControllerGetCapabilities = %v, %v", controller, err)
	}
}

func TestACallSaysWhyItFails(t *testing.T) {
	client := csi.NewControllerClient(serve(t)) // whose LINSTOR is not there
	mount := &csi.VolumeCapability{AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}}}
	publish := func(volume, node string) error {
		_, err := client.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{
			VolumeId: volume, NodeId: node, VolumeCapability: mount, VolumeContext: map[string]string{NFSExportKey: "true"},
		})
		return err
	}
	unpublish := func(volume, node string) error {
		_, err := client.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: volume, NodeId: node})
		return err
	}
	for name, test := range map[string]struct {
		err  error
		want codes.Code
	}{
		"publish without a node":   {publish("data", ""), codes.InvalidArgument},
		"publish no volume":        {publish("", "a"), codes.InvalidArgument},
		"unpublish without a node": {unpublish("data", ""), codes.InvalidArgument},
		"publish without LINSTOR":  {publish("data", "a"), codes.Internal},
		"unpublish, never asked":   {unpublish("data", "a"), codes.Internal},
	} {
		if got := status.Code(test.err); got != test.want {
			t.Errorf("%s answered %s, want %s: %v", name, got, test.want, test.err)
		}
	}
}
