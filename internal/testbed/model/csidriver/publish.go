package csidriver

import (
	"context"
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

// ControllerPublishVolume makes a volume available on a node. It fails with NotFound for nodes that are not
// ONLINE and for volumes that LINSTOR does not know, and with Internal while two other replicas are in use.
// A volume that is exported over NFS needs no replica on the node.
func (d *Driver) ControllerPublishVolume(ctx context.Context, req *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	volume, node := req.GetVolumeId(), req.GetNodeId()
	if volume == "" || node == "" || req.GetVolumeCapability() == nil {
		return nil, status.Error(codes.InvalidArgument, "ControllerPublishVolume: volume ID, node ID and capability are required")
	}
	_, nfs := req.GetVolumeContext()[NFSExportKey]
	if err := d.Publish(ctx, volume, node, Use{NFS: nfs, SharedBlock: sharedBlock(req.GetVolumeCapability())}); err != nil {
		return nil, failed("publish", volume, node, err)
	}
	return &csi.ControllerPublishVolumeResponse{}, nil
}

// ControllerUnpublishVolume removes the replica of a node that has no disk. That works for dead nodes as well. A replica that
// is still in use stays: success proves nothing about the node having stopped.
func (d *Driver) ControllerUnpublishVolume(ctx context.Context, req *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	volume, node := req.GetVolumeId(), req.GetNodeId()
	if volume == "" || node == "" {
		return nil, status.Error(codes.InvalidArgument, "ControllerUnpublishVolume: volume ID and node ID are required")
	}
	if err := d.Unpublish(ctx, volume, node); err != nil {
		return nil, failed("unpublish", volume, node, err)
	}
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

// Use is how a volume is to be used on a node.
type Use struct {
	// NFS is set for a volume that is exported over NFS.
	NFS bool
	// SharedBlock is set for a raw block volume that several nodes may write, as live migration needs.
	SharedBlock bool
}

// Publish makes a volume available on a node, as LINSTOR names it.
func (d *Driver) Publish(ctx context.Context, volume, node string, use Use) error {
	resource := Resource(volume)
	if err := d.linstor.definition(ctx, resource); err != nil {
		return err
	}
	if use.NFS {
		return nil
	}
	known := d.caches.Load()
	if err := d.wantOnline(ctx, known, node); err != nil {
		return err
	}
	replicas, err := d.replicas(ctx, known, resource)
	if err != nil {
		return err
	}
	here, elsewhere := onNode(replicas, node), inUse(replicas, node)
	if elsewhere >= 2 {
		return status.Error(codes.Internal, "two other replicas are in use already")
	}
	if elsewhere > 0 && use.SharedBlock {
		if err := d.linstor.allowTwoPrimaries(ctx, resource, true); err != nil {
			return err
		}
	}
	if d.options.Load().Old && here != nil {
		return nil
	}
	if err := d.makeAvailable(ctx, known, resource, node); err != nil {
		return err
	}
	replicas, err = d.replicas(ctx, known, resource)
	if err == nil && onNode(replicas, node) == nil {
		err = status.Error(codes.Internal, "LINSTOR does not list the new replica")
	}
	return err
}

// wantOnline fails for a node that was not ONLINE when LINSTOR was asked last.
func (d *Driver) wantOnline(ctx context.Context, known *caches, name string) error {
	nodes, err := known.nodes.get(ctx, d.linstor.nodes)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(nodes, func(n node) bool { return n.Name == name })
	switch {
	case i < 0:
		return status.Error(codes.NotFound, "LINSTOR does not know the node")
	case nodes[i].ConnectionStatus != linstorsim.Online:
		return status.Errorf(codes.NotFound, "node %s", nodes[i].ConnectionStatus)
	}
	return nil
}

// makeAvailable lets LINSTOR make a replica where there is none, and drops what was known of replicas, whatever came of it.
func (d *Driver) makeAvailable(ctx context.Context, known *caches, resource, node string) error {
	defer known.view.drop()
	err := d.linstor.makeAvailable(ctx, resource, node)
	if isNotFound(err) && d.options.Load().Old {
		return d.linstor.createDiskless(ctx, resource, node)
	}
	return err
}

// Unpublish undoes Publish.
func (d *Driver) Unpublish(ctx context.Context, volume, node string) error {
	resource, known := Resource(volume), d.caches.Load()
	replicas, err := d.replicas(ctx, known, resource)
	if err != nil {
		return err
	}
	if inUse(replicas, "") == 1 {
		if err := d.linstor.allowTwoPrimaries(ctx, resource, false); err != nil && !isNotFound(err) {
			return err
		}
	}
	here := onNode(replicas, node)
	if here == nil || !here.diskless() {
		return nil
	}
	defer known.view.drop()
	err = d.linstor.delete(ctx, resource, node)
	switch {
	case isNotFound(err), isInUse(err) && !d.options.Load().Old:
		return nil // what is in use stays, and nobody comes back for it
	case isInUse(err):
		return fmt.Errorf("resource %s on node %s is still in use: %w", resource, node, err)
	}
	return err
}

// replicas returns those of a resource.
func (d *Driver) replicas(ctx context.Context, known *caches, resource string) ([]replica, error) {
	all, err := known.view.get(ctx, d.linstor.view)
	if err != nil {
		return nil, err
	}
	var replicas []replica
	for _, r := range all {
		if r.Name == resource {
			replicas = append(replicas, r)
		}
	}
	return replicas, nil
}

// failed returns what the caller learns of an error.
func failed(action, volume, node string, err error) error {
	code := codes.Internal
	if s, ok := status.FromError(err); ok {
		code, err = s.Code(), fmt.Errorf("%s", s.Message()) //nolint:err113 // the code is kept
	} else if isNotFound(err) {
		code = codes.NotFound
	}
	return status.Errorf(code, "%s volume %s on node %s: %v", action, volume, node, err)
}

// onNode returns the replica on a node, nil if there is none. The driver compares names with their exact case.
func onNode(replicas []replica, node string) *replica {
	i := slices.IndexFunc(replicas, func(r replica) bool { return r.NodeName == node })
	if i < 0 {
		return nil
	}
	return &replicas[i]
}

// inUse counts the replicas in use on other nodes than the given one. What is not known counts as not in use.
func inUse(replicas []replica, node string) int {
	n := 0
	for _, r := range replicas {
		if r.State.InUse && r.NodeName != node {
			n++
		}
	}
	return n
}

// sharedBlock tells whether several nodes may write a raw block volume.
func sharedBlock(capability *csi.VolumeCapability) bool {
	return capability.GetBlock() != nil &&
		capability.GetAccessMode().GetMode() == csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
}
