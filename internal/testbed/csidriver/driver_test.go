package csidriver

import (
	"context"
	"fmt"
	"net"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/kubelet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is a LINSTOR of one resource, "data", with replicas on a and b.
type cluster struct {
	replicas     map[string]Replica
	offline      map[string]bool
	twoPrimaries bool
}

func newCluster() *cluster {
	return &cluster{
		replicas: map[string]Replica{"a": {Node: "a"}, "b": {Node: "b"}},
		offline:  map[string]bool{},
	}
}

func (c *cluster) NodeOnline(node string) bool { return !c.offline[node] }

func (c *cluster) Replicas(resource string) ([]Replica, error) {
	if resource != "data" {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, resource)
	}
	var all []Replica
	for _, r := range c.replicas {
		all = append(all, r)
	}
	return all, nil
}

func (c *cluster) AddDiskless(_, node string) error {
	c.replicas[node] = Replica{Node: node}
	return nil
}

func (c *cluster) RemoveDiskless(resource, node string) error {
	if c.replicas[node].InUse && !c.offline[node] {
		return fmt.Errorf("%w: %s on %s", ErrInUse, resource, node)
	}
	delete(c.replicas, node)
	return nil
}

func (c *cluster) SetAllowTwoPrimaries(_ string, allow bool) error {
	c.twoPrimaries = allow
	return nil
}

// use changes one replica.
func (c *cluster) use(node string, inUse bool) { c.replicas[node] = Replica{Node: node, InUse: inUse} }

// serve serves a driver and returns a connection to it.
func serve(t *testing.T, backend Backend) *grpc.ClientConn {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- New(backend).Serve(ctx, listener) }()
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
	conn := serve(t, newCluster())
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

// step is one call, and what it must answer.
type step struct {
	before    func(*cluster)
	publish   bool // or unpublish
	volume    string
	node      string
	block     bool
	context   map[string]string
	want      codes.Code
	replicas  []string // nodes with a replica afterwards
	primaries bool     // allow-two-primaries afterwards
}

func TestPublishAndUnpublish(t *testing.T) {
	two := []string{"a", "b"}
	tests := map[string][]step{
		"a node with a replica keeps it": {
			{publish: true, volume: "data", node: "a", replicas: two},
			{volume: "data", node: "a", replicas: two},
		},
		"a node without a replica gets a diskless one for as long as the volume is published": {
			{publish: true, volume: "data", node: "c", replicas: []string{"a", "b", "c"}},
			{publish: true, volume: "data", node: "c", replicas: []string{"a", "b", "c"}},
			{volume: "data", node: "c", replicas: two},
			{volume: "data", node: "c", replicas: two},
		},
		"volumes of one resource share the diskless replica": {
			{publish: true, volume: "data", node: "c", replicas: []string{"a", "b", "c"}},
			{publish: true, volume: "data/1", node: "c", replicas: []string{"a", "b", "c"}},
			{volume: "data", node: "c", replicas: []string{"a", "b", "c"}},
			{volume: "data/1", node: "c", replicas: two},
		},
		"a node that is not ONLINE is not found": {
			{before: func(c *cluster) { c.offline["a"] = true }, publish: true, volume: "data", node: "a", want: codes.NotFound, replicas: two},
		},
		"a volume without a resource is not found, and unpublished already": {
			{publish: true, volume: "gone", node: "a", want: codes.NotFound, replicas: two},
			{volume: "gone", node: "a", replicas: two},
		},
		"a third user is refused": {
			{before: func(c *cluster) { c.use("a", true); c.use("b", true) }, publish: true, volume: "data", node: "c", want: codes.Internal, replicas: two},
		},
		"a replica that is being deleted can not be published": {
			{before: func(c *cluster) { c.replicas["a"] = Replica{Node: "a", Deleting: true} }, publish: true, volume: "data", node: "a", want: codes.Internal, replicas: two},
		},
		"a dead node is unpublished at once": {
			{publish: true, volume: "data", node: "c", replicas: []string{"a", "b", "c"}},
			{before: func(c *cluster) { c.use("c", true); c.offline["c"] = true }, volume: "data", node: "c", replicas: two},
		},
		"a replica in use survives being unpublished until it is idle": {
			{publish: true, volume: "data", node: "c", replicas: []string{"a", "b", "c"}},
			{before: func(c *cluster) { c.use("c", true) }, volume: "data", node: "c", replicas: []string{"a", "b", "c"}},
			{before: func(c *cluster) { c.use("c", false) }, volume: "data", node: "c", replicas: two},
		},
		"a block volume on a second node allows two primaries until one is left": {
			{before: func(c *cluster) { c.use("a", true) }, publish: true, volume: "data", node: "b", block: true, replicas: two, primaries: true},
			{before: func(c *cluster) { c.use("a", false) }, volume: "data", node: "a", replicas: two},
		},
		"a filesystem volume on a second node does not": {
			{before: func(c *cluster) { c.use("a", true) }, publish: true, volume: "data", node: "b", replicas: two},
		},
		"an NFS export touches nothing": {
			{publish: true, volume: "data", node: "c", context: map[string]string{kubelet.NFSExportKey: "true"}, replicas: two},
			{volume: "data", node: "c", replicas: two},
		},
		"a call without a node is invalid": {
			{publish: true, volume: "data", want: codes.InvalidArgument, replicas: two},
			{volume: "data", want: codes.InvalidArgument, replicas: two},
		},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCluster()
			client := csi.NewControllerClient(serve(t, c))
			for i, s := range steps {
				if s.before != nil {
					s.before(c)
				}
				if got := status.Code(s.call(t.Context(), client)); got != s.want {
					t.Errorf("step %d answered %s, want %s", i, got, s.want)
				}
				want := map[string]bool{}
				for _, node := range s.replicas {
					want[node] = true
				}
				got := map[string]bool{}
				for node := range c.replicas {
					got[node] = true
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("replicas after step %d (-want +got):\n%s", i, diff)
				}
				if c.twoPrimaries != s.primaries {
					t.Errorf("two primaries after step %d: %v, want %v", i, c.twoPrimaries, s.primaries)
				}
			}
		})
	}
}

// call makes the step's call.
func (s step) call(ctx context.Context, client csi.ControllerClient) error {
	if !s.publish {
		_, err := client.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: s.volume, NodeId: s.node})
		return err
	}
	capability := &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
	}
	if s.block {
		capability.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	}
	_, err := client.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
		VolumeId: s.volume, NodeId: s.node, VolumeCapability: capability, VolumeContext: s.context,
	})
	return err
}
