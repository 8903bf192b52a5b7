package client

import (
	"context"
	"strings"
)

// PropMigrateFrom on a resource names the node from which LINSTOR moves it; on the source it is the source itself, and stays when the move
// is done or given up.
const PropMigrateFrom = "MigrateFrom"

// FlagEvacuate is the flag of a node, and of its resources, that LINSTOR was told to evacuate.
const FlagEvacuate = "EVACUATE"

// PlacedResource is a resource with the states of its disks.
type PlacedResource struct {
	Resource

	Volumes []PlacedVolume `json:"volumes"`
}

// PlacedVolume is a volume of a resource.
type PlacedVolume struct {
	Number int `json:"volume_number"`
	State  *struct {
		// DiskState is DRBD's word, in a sync with what is done of it: "SyncTarget(12.34%)".
		DiskState string `json:"disk_state"`
		// Replication is what DRBD says of the volume on its connection to each peer.
		Replication map[string]Replication `json:"replication_states"`
	} `json:"state"`
}

// Replication is what DRBD says of a volume on a connection.
type Replication struct {
	State string   `json:"replication_state"`
	Done  *float64 `json:"done_percentage"`
}

// established and off are the replication states in which nothing is copied.
const (
	established = "Established"
	off         = "Off"
	verifying   = "Verify"
)

// Copies reports whether data is copied by the connection, or is about to be.
func (r Replication) Copies() bool {
	return r.State != "" && r.State != established && r.State != off && !strings.HasPrefix(r.State, verifying)
}

// Snapshot is a snapshot of /v1/view/snapshots.
type Snapshot struct {
	Name  string   `json:"name"`
	Nodes []string `json:"nodes"`
}

// Placed reads all resources with the states of their disks. LINSTOR asks its satellites for that, and waits
// for those that hang; ctx limits how long.
func (c *Client) Placed(ctx context.Context) ([]PlacedResource, error) {
	return list(ctx, c, kindPlaced, satelliteTimeout, "/v1/view/resources", func(r PlacedResource) string { return r.name() })
}

// Migrating reads the resources that have the property MigrateFrom.
func (c *Client) Migrating(ctx context.Context) ([]Resource, error) {
	return list(ctx, c, kindPlaced, satelliteTimeout, filtered("/v1/view/resources", "props", []string{PropMigrateFrom}), Resource.name)
}

// Marked reads the resource definitions that have a property of that name.
func (c *Client) Marked(ctx context.Context, property string) ([]Definition, error) {
	return list(ctx, c, kindMarked, c.requestTimeout, filtered("/v1/resource-definitions", "props", []string{property}), Definition.name)
}

// Snapshots reads all snapshots.
func (c *Client) Snapshots(ctx context.Context) ([]Snapshot, error) {
	return list(ctx, c, kindSnapshots, c.requestTimeout, "/v1/view/snapshots", func(s Snapshot) string { return s.Name })
}

// Version is what LINSTOR says of itself.
type Version struct {
	// Version is its release, such as "1.33.1".
	Version string `json:"version"`
}

// Version reads which LINSTOR it is.
func (c *Client) Version(ctx context.Context) (Version, error) {
	return document[Version](ctx, c, kindVersion, "/v1/controller/version")
}
