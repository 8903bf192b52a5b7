package csidriver

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/kubelet"
)

// ControllerPublishVolume makes a volume available on a node. It fails with NotFound for nodes that are not
// ONLINE and for volumes that LINSTOR does not know, and with Internal while two other replicas are in use.
// A volume that is exported over NFS needs no replica on the node.
func (d *Driver) ControllerPublishVolume(_ context.Context, req *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	volume, node := req.GetVolumeId(), req.GetNodeId()
	if volume == "" || node == "" || req.GetVolumeCapability() == nil {
		return nil, status.Error(codes.InvalidArgument, "ControllerPublishVolume: volume ID, node ID and capability are required")
	}
	if !d.backend.NodeOnline(node) {
		return nil, status.Errorf(codes.NotFound, "publish volume %s: node %s is not ONLINE in LINSTOR", volume, node)
	}
	if _, nfs := req.GetVolumeContext()[kubelet.NFSExportKey]; nfs {
		return &csi.ControllerPublishVolumeResponse{}, nil
	}
	if err := d.attach(volume, node, rwxBlock(req.GetVolumeCapability())); err != nil {
		return nil, err
	}
	return &csi.ControllerPublishVolumeResponse{}, nil
}

// attach makes sure that there is a replica on the node.
func (d *Driver) attach(volume, node string, rwxBlock bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	resource := kubelet.Resource(volume)
	replicas, err := d.backend.Replicas(resource)
	if err != nil {
		return failed("publish", volume, node, err)
	}
	here, elsewhere := onNode(replicas, node), inUseExcept(replicas, node)
	switch {
	case elsewhere >= 2:
		return status.Errorf(codes.Internal, "publish volume %s on node %s: two other replicas are in use already", volume, node)
	case here != nil && here.Deleting:
		return status.Errorf(codes.Internal, "publish volume %s on node %s: its replica there is being deleted", volume, node)
	}
	if elsewhere > 0 && rwxBlock {
		if err := d.backend.SetAllowTwoPrimaries(resource, true); err != nil {
			return failed("publish", volume, node, err)
		}
	}
	place := placement{resource, node}
	if here == nil {
		if err := d.backend.AddDiskless(resource, node); err != nil {
			return failed("publish", volume, node, err)
		}
		d.published[place] = sets.New[string]()
	}
	if d.published[place] != nil {
		d.published[place].Insert(volume)
	}
	return nil
}

// ControllerUnpublishVolume removes the temporary replica that publishing made, unless another volume of
// the same resource still needs it. That works for dead nodes as well. A replica that is still in use stays,
// and so does one that was not made by publishing: success proves nothing about the node having stopped.
func (d *Driver) ControllerUnpublishVolume(_ context.Context, req *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	volume, node := req.GetVolumeId(), req.GetNodeId()
	if volume == "" || node == "" {
		return nil, status.Error(codes.InvalidArgument, "ControllerUnpublishVolume: volume ID and node ID are required")
	}
	if err := d.detach(volume, node); err != nil {
		return nil, err
	}
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

// detach undoes attach.
func (d *Driver) detach(volume, node string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	resource := kubelet.Resource(volume)
	replicas, err := d.backend.Replicas(resource)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return failed("unpublish", volume, node, err)
	}
	if inUseExcept(replicas, "") <= 1 {
		if err := d.backend.SetAllowTwoPrimaries(resource, false); err != nil {
			return failed("unpublish", volume, node, err)
		}
	}
	place := placement{resource, node}
	volumes, temporary := d.published[place]
	if !temporary {
		return nil
	}
	if volumes.Delete(volume); volumes.Len() > 0 {
		return nil
	}
	err = d.backend.RemoveDiskless(resource, node)
	switch {
	case errors.Is(err, ErrInUse):
		return nil // the replica stays, and stays temporary: the next call removes it
	case err != nil:
		return failed("unpublish", volume, node, err)
	}
	delete(d.published, place)
	return nil
}

// failed returns what the caller learns of an error of the backend.
func failed(action, volume, node string, err error) error {
	code := codes.Internal
	if errors.Is(err, ErrNotFound) {
		code = codes.NotFound
	}
	return status.Errorf(code, "%s volume %s on node %s: %v", action, volume, node, err)
}

// onNode returns the replica on a node, nil if there is none. LINSTOR compares names without regard to case.
func onNode(replicas []Replica, node string) *Replica {
	i := slices.IndexFunc(replicas, func(r Replica) bool { return strings.EqualFold(r.Node, node) })
	if i < 0 {
		return nil
	}
	return &replicas[i]
}

// inUseExcept counts the replicas in use on other nodes than the given one.
func inUseExcept(replicas []Replica, node string) int {
	n := 0
	for _, r := range replicas {
		if r.InUse && !strings.EqualFold(r.Node, node) {
			n++
		}
	}
	return n
}

// rwxBlock tells whether several nodes may write a raw block volume, as live migration needs.
func rwxBlock(capability *csi.VolumeCapability) bool {
	return capability.GetBlock() != nil &&
		capability.GetAccessMode().GetMode() == csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
}
