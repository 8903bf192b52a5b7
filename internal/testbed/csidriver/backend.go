package csidriver

import "errors"

// Backend is what the driver asks of LINSTOR. Resource and node names are LINSTOR's, which for nodes are
// those of Kubernetes. Methods may be called concurrently.
type Backend interface {
	// NodeOnline tells whether LINSTOR calls the node's satellite ONLINE.
	NodeOnline(node string) bool
	// Replicas returns the replicas of a resource in any order. The error wraps ErrNotFound if there
	// is no such resource definition.
	Replicas(resource string) ([]Replica, error)
	// AddDiskless makes the resource available on a node without a replica by a diskless one.
	AddDiskless(resource, node string) error
	// RemoveDiskless removes a replica that AddDiskless made, if it is still there. On a node that is
	// not ONLINE it succeeds at once. The error wraps ErrInUse while the node is ONLINE and has the device open.
	RemoveDiskless(resource, node string) error
	// SetAllowTwoPrimaries sets or removes DrbdOptions/Net/allow-two-primaries of a resource definition.
	SetAllowTwoPrimaries(resource string, allow bool) error
}

// Replica is one replica of a resource as LINSTOR shows it.
type Replica struct {
	// Node has the replica.
	Node string
	// InUse is set if LINSTOR knows that the device is open for writing; unknown counts as false.
	InUse bool
	// Deleting is set if LINSTOR is removing the replica.
	Deleting bool
}

var (
	// ErrNotFound says that LINSTOR does not know a resource definition.
	ErrNotFound = errors.New("resource definition not found")
	// ErrInUse says that LINSTOR does not remove a replica because it is Primary.
	ErrInUse = errors.New("resource is in use")
)
