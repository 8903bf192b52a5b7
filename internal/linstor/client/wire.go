package client

import (
	"slices"
	"strings"

	golinstor "github.com/LINBIT/golinstor"
	lapi "github.com/LINBIT/golinstor/client"
)

// Names of LINSTOR that the answers use.
const (
	LayerDRBD = "DRBD"

	StatusOnline          = "ONLINE"
	StatusVersionMismatch = "VERSION_MISMATCH"

	FlagDelete       = "DELETE"
	FlagDRBDDelete   = "DRBD_DELETE"
	FlagEvicted      = "EVICTED"
	FlagInactive     = "INACTIVE"
	FlagDiskless     = "DISKLESS"
	FlagDRBDDiskless = "DRBD_DISKLESS"
	// FlagClient is set on the DRBD layer of a replica without a disk that has no vote. LINSTOR 1.34 and newer give it to those that a CSI driver
	// has placed for a pod.
	FlagClient = "CLIENT"

	// connectionUnknown is the message of a DRBD connection whose state the satellite could not read; LINSTOR
	// sends "connected": false along with it.
	connectionUnknown = "Unknown"

	PropQuorum          = "DrbdOptions/Resource/quorum"
	PropOnNoQuorum      = "DrbdOptions/Resource/on-no-quorum"
	PropProtocol        = "DrbdOptions/Net/protocol"
	PropTwoPrimaries    = "DrbdOptions/Net/allow-two-primaries"
	PropAutoplaceTarget = "AutoplaceTarget"
	PropQuorumSetBy     = "Internal/Drbd/QuorumSetBy"
)

// Resource is a resource of /v1/view/resources and /v1/resource-definitions/{rd}/resources. LINSTOR
// drops every key that it has no value for, so each value that may be missing is a pointer. Volumes are
// left out on purpose: nothing here needs them, and new kinds of layers in them must not matter.
type Resource struct {
	Name        string            `json:"name"`
	NodeName    string            `json:"node_name"`
	Flags       []string          `json:"flags"`
	Props       map[string]string `json:"props"`
	LayerObject struct {
		Type string `json:"type"`
		DRBD *DRBD  `json:"drbd"`
	} `json:"layer_object"`
	State *State `json:"state"`
}

// name is empty unless both the resource and its node have one.
func (w Resource) name() string {
	if w.NodeName == "" {
		return ""
	}
	return w.Name
}

// State is what a satellite says of a resource as a whole.
type State struct {
	InUse *bool `json:"in_use"`
}

// DRBD is what a satellite says of a resource's DRBD, and the flags of that layer.
type DRBD struct {
	Flags          []string              `json:"flags"`
	PromotionScore *int                  `json:"promotion_score"`
	MayPromote     *bool                 `json:"may_promote"`
	Connections    map[string]Connection `json:"connections"`
	// Volumes are only counted.
	Volumes []struct{} `json:"drbd_volumes"`
}

// Connection is one end of a DRBD connection.
type Connection struct {
	Connected *bool  `json:"connected"`
	Message   string `json:"message"`
}

// Node is a node of /v1/nodes; golinstor's type loses nothing of it.
type Node = lapi.Node

// HasSatellite reports whether a node has a satellite: it is neither a controller nor an auxiliary node.
func HasSatellite(n Node) bool {
	return !strings.EqualFold(n.Type, golinstor.ValNodeTypeCtrl) && !strings.EqualFold(n.Type, golinstor.ValNodeTypeAux)
}

// Definition is a resource definition of /v1/resource-definitions. It is not golinstor's, which fails on the
// whole list when one definition has a kind of layer that it does not know.
type Definition struct {
	Name              string            `json:"name"`
	Props             map[string]string `json:"props"`
	ResourceGroupName string            `json:"resource_group_name"`
	LayerData         []struct {
		Type string `json:"type"`
	} `json:"layer_data"`
}

func (w Definition) name() string { return w.Name }

// Group is a resource group of /v1/resource-groups; golinstor's type loses nothing of it.
type Group = lapi.ResourceGroup

// AnyFlag reports whether one of the wanted flags is set.
func AnyFlag(flags []string, wanted ...string) bool {
	return slices.ContainsFunc(flags, func(flag string) bool { return slices.Contains(wanted, flag) })
}

// IsDRBD reports whether the top layer is DRBD.
func (w Resource) IsDRBD() bool { return w.LayerObject.Type == LayerDRBD }

// Values returns the DRBD values, of which all are absent while LINSTOR has none.
func (w Resource) Values() DRBD {
	if w.LayerObject.DRBD == nil {
		return DRBD{}
	}
	return *w.LayerObject.DRBD
}

// IsInUse returns whether the resource is Primary, nil when that is unknown.
func (w Resource) IsInUse() *bool {
	if w.State == nil {
		return nil
	}
	return w.State.InUse
}

// Reports reports whether LINSTOR has any dynamic state of the resource.
func (w Resource) Reports() bool {
	v := w.Values()
	return w.State != nil || v.MayPromote != nil || v.PromotionScore != nil || len(v.Connections) > 0
}

// IsConnected returns whether the connection is Connected, nil when that is unknown.
func (c Connection) IsConnected() *bool {
	if c.Message == connectionUnknown {
		return nil
	}
	return c.Connected
}
