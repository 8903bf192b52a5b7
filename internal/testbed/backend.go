package testbed

import (
	"errors"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/csidriver"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/drbd"
)

// backend is LINSTOR as the CSI driver sees it.
type backend struct{ cluster *drbd.Cluster }

// NodeOnline implements csidriver.Backend.
func (b backend) NodeOnline(node string) bool { return b.cluster.Up(node) }

// Replicas implements csidriver.Backend.
func (b backend) Replicas(resource string) ([]csidriver.Replica, error) {
	var replicas []csidriver.Replica
	for _, node := range b.cluster.Nodes() {
		if state, ok := b.cluster.Replica(resource, node); ok {
			replicas = append(replicas, csidriver.Replica{Node: node, InUse: state.Role == drbd.Primary})
		}
	}
	if len(replicas) == 0 {
		return nil, csidriver.ErrNotFound
	}
	return replicas, nil
}

// AddDiskless implements csidriver.Backend.
func (b backend) AddDiskless(resource, node string) error {
	return b.cluster.AddReplica(resource, drbd.ReplicaSpec{Node: node, Diskless: true})
}

// RemoveDiskless implements csidriver.Backend.
func (b backend) RemoveDiskless(resource, node string) error {
	if !b.cluster.Up(node) {
		return nil
	}
	err := b.cluster.DeleteReplica(resource, node)
	if errors.Is(err, drbd.ErrInUse) {
		return errors.Join(csidriver.ErrInUse, err)
	}
	return err
}

// SetAllowTwoPrimaries implements csidriver.Backend.
func (b backend) SetAllowTwoPrimaries(resource string, allow bool) error {
	value := "no"
	if allow {
		value = "yes"
	}
	return b.cluster.SetOption(resource, drbd.OptionAllowTwoPrimaries, value)
}
