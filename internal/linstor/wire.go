package linstor

import (
	"slices"
	"strings"

	lapi "github.com/LINBIT/golinstor/client"
)

// Names of LINSTOR that the answers use.
const (
	layerDRBD = "DRBD"

	statusOnline = "ONLINE"

	flagDelete       = "DELETE"
	flagDRBDDelete   = "DRBD_DELETE"
	flagEvicted      = "EVICTED"
	flagInactive     = "INACTIVE"
	flagDiskless     = "DISKLESS"
	flagDRBDDiskless = "DRBD_DISKLESS"

	// connectionUnknown is the message of a DRBD connection whose state the satellite could not read; LINSTOR
	// sends "connected": false along with it.
	connectionUnknown = "Unknown"

	propQuorum          = "DrbdOptions/Resource/quorum"
	propAutoplaceTarget = "AutoplaceTarget"
	propQuorumSetBy     = "Internal/Drbd/QuorumSetBy"
)

// wireResource is a resource of /v1/view/resources and /v1/resource-definitions/{rd}/resources. LINSTOR
// drops every key that it has no value for, so each value that may be missing is a pointer. Volumes are
// left out on purpose: nothing here needs them, and new kinds of layers in them must not matter.
type wireResource struct {
	Name        string            `json:"name"`
	NodeName    string            `json:"node_name"`
	Flags       []string          `json:"flags"`
	Props       map[string]string `json:"props"`
	LayerObject struct {
		Type string    `json:"type"`
		DRBD *wireDRBD `json:"drbd"`
	} `json:"layer_object"`
	State *wireState `json:"state"`
}

type wireState struct {
	InUse *bool `json:"in_use"`
}

type wireDRBD struct {
	PromotionScore *int                      `json:"promotion_score"`
	MayPromote     *bool                     `json:"may_promote"`
	Connections    map[string]wireConnection `json:"connections"`
	// Volumes are only counted.
	Volumes []struct{} `json:"drbd_volumes"`
}

type wireConnection struct {
	Connected *bool  `json:"connected"`
	Message   string `json:"message"`
}

// wireNode is a node of /v1/nodes; golinstor loses nothing of it.
type wireNode = lapi.Node

// wireDefinition is a resource definition of /v1/resource-definitions. It is not golinstor's, which fails on the
// whole list when one definition has a kind of layer that it does not know.
type wireDefinition struct {
	Name              string            `json:"name"`
	Props             map[string]string `json:"props"`
	ResourceGroupName string            `json:"resource_group_name"`
	LayerData         []struct {
		Type string `json:"type"`
	} `json:"layer_data"`
}

// wireGroup is a resource group of /v1/resource-groups; golinstor loses nothing of it.
type wireGroup = lapi.ResourceGroup

// fold makes a LINSTOR name comparable: LINSTOR compares names without regard to case.
func fold(name string) string { return strings.ToLower(name) }

func anyFlag(flags []string, wanted ...string) bool {
	return slices.ContainsFunc(flags, func(flag string) bool { return slices.Contains(wanted, flag) })
}

func (w wireResource) drbd() bool { return w.LayerObject.Type == layerDRBD }

// values returns the DRBD values, of which all are absent while LINSTOR has none.
func (w wireResource) values() wireDRBD {
	if w.LayerObject.DRBD == nil {
		return wireDRBD{}
	}
	return *w.LayerObject.DRBD
}

func (w wireResource) inUse() *bool {
	if w.State == nil {
		return nil
	}
	return w.State.InUse
}

// reports tells whether LINSTOR has any dynamic state of the resource.
func (w wireResource) reports() bool {
	v := w.values()
	return w.State != nil || v.MayPromote != nil || v.PromotionScore != nil || len(v.Connections) > 0
}

// connected returns whether the connection is Connected, nil when that is unknown.
func (c wireConnection) connected() *bool {
	if c.Message == connectionUnknown {
		return nil
	}
	return c.Connected
}
