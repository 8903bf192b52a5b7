package linstorsim

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

const (
	peerSlots   = 7
	firstMinor  = 1000
	established = "Established"
	replOff     = "Off"
	syncSource  = "SyncSource"
	syncTarget  = "SyncTarget"
)

// uuidOf makes up an object's UUID from what the object is; it is the same in every run.
func uuidOf(kind string, names ...string) string {
	h := sha256.Sum256(fmt.Append(nil, kind, names))
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[0:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

// resource renders one replica, with its volumes as in view/resources or without.
func (s *Server) resource(d *definition, rsc *resource, withVolumes bool) resourceJSON {
	out := resourceJSON{
		Name:            d.name,
		NodeName:        rsc.node.name,
		Props:           maps.Clone(rsc.props),
		Flags:           slices.Clone(rsc.flags),
		UUID:            rsc.uuid,
		CreateTimestamp: rsc.created.UnixMilli(),
		LayerObject:     s.layers(d, rsc),
	}
	if rsc.values != nil {
		out.State = &stateJSON{InUse: rsc.values.inUse}
	}
	if withVolumes {
		out.Volumes = s.volumes(d, rsc)
	}
	return out
}

func (s *Server) layers(d *definition, rsc *resource) *layerJSON {
	storage := layerJSON{Type: LayerStorage, Storage: &storageJSON{}}
	for number := range d.volumes {
		storage.Storage.Volumes = append(storage.Storage.Volumes, storageVolumeJSON{VolumeNumber: number})
	}
	if !d.drbd() {
		return &storage
	}
	out := &drbdJSON{
		NodeID: rsc.id, PeerSlots: peerSlots, ALStripes: 1, ALSize: 32, TCPPorts: []int{d.port},
		Flags:      []string{"INITIALIZED"},
		Definition: d.drbdDefinition(),
	}
	if rsc.client {
		out.Flags = append(out.Flags, "CLIENT")
	}
	if v := rsc.values; v != nil {
		out.PromotionScore, out.MayPromote = v.score, v.mayPromote
		out.Connections = map[string]connectionJSON{}
		for peer, state := range v.connections {
			out.Connections[peer] = connectionJSON{Connected: state == drbd.Connected, Message: state}
		}
	}
	for number := range d.volumes {
		out.Volumes = append(out.Volumes, drbdVolumeJSON{
			DevicePath: d.device(number),
			Definition: drbdVolumeDefinitionJSON{VolumeNumber: number, MinorNumber: d.minor(number)},
		})
	}
	return &layerJSON{Type: LayerDRBD, Children: []layerJSON{storage}, DRBD: out}
}

func (d *definition) drbdDefinition() drbdDefinitionJSON {
	return drbdDefinitionJSON{PeerSlots: peerSlots, TransportType: "IP", Secret: d.secret}
}

// maxVolumes keeps the minor numbers of two definitions apart.
const maxVolumes = 16

func (d *definition) minor(number int) int {
	return firstMinor + (d.port-firstPort)*maxVolumes + number
}

func (d *definition) device(number int) string { return fmt.Sprintf("/dev/drbd%d", d.minor(number)) }

func (s *Server) volumes(d *definition, rsc *resource) []volumeJSON {
	var list []volumeJSON
	for number := range d.volumes {
		out := volumeJSON{VolumeNumber: number, StoragePool: rsc.props["StorPoolName"], ProviderKind: s.provider(rsc)}
		storage := volumeLayerJSON{Type: LayerStorage, Data: volumeLayerDataJSON{VolumeNumber: &number}}
		out.LayerDataList = []volumeLayerJSON{storage}
		if d.drbd() {
			out.DevicePath = d.device(number)
			out.LayerDataList = []volumeLayerJSON{
				{Type: LayerDRBD, Data: volumeLayerDataJSON{DevicePath: out.DevicePath}}, storage,
			}
			out.State = rsc.values.volume(number)
		}
		list = append(list, out)
	}
	return list
}

func (s *Server) provider(rsc *resource) string {
	switch {
	case rsc.has(FlagDiskless):
		return "DISKLESS"
	case s.options.ThickPools:
		return "LVM"
	}
	return "LVM_THIN"
}

// volume renders what is known of one volume, nil when nothing is.
func (v *values) volume(number int) *volumeStateJSON {
	if v == nil || number >= len(v.disks) {
		return nil
	}
	out := &volumeStateJSON{DiskState: v.disks[number], ReplicationStates: map[string]replicationJSON{}}
	for peer, state := range v.connections {
		replication := replicationJSON{ReplicationState: replOff}
		if state == drbd.Connected {
			replication.ReplicationState = established
		}
		if sync, syncing := v.syncs[peer]; syncing && state == drbd.Connected {
			replication.ReplicationState, replication.DonePercentage = syncSource, new(sync.Percent)
			if sync.Target {
				replication.ReplicationState = syncTarget
				out.DiskState = fmt.Sprintf("%s(%.2f%%)", syncTarget, sync.Percent)
			}
		}
		out.ReplicationStates[peer] = replication
	}
	return out
}

func (s *Server) definition(d *definition, withVolumes bool) definitionJSON {
	out := definitionJSON{
		Name: d.name, ExternalName: d.externalName, Props: maps.Clone(d.props), Flags: slices.Clone(d.flags),
		UUID: d.uuid, ResourceGroupName: d.group,
	}
	for _, layer := range d.layers {
		data := definitionLayerJSON{Type: layer}
		if layer == LayerDRBD {
			data.Data = new(d.drbdDefinition())
		}
		out.LayerData = append(out.LayerData, data)
	}
	if withVolumes {
		for number := range d.volumes {
			out.VolumeDefinitions = append(out.VolumeDefinitions, volumeDefinitionJSON{number, d.sizeKiB})
		}
	}
	return out
}

func (s *Server) node(n *node) nodeJSON {
	props := maps.Clone(n.props)
	props["CurStltConnName"], props["NodeUname"] = "default", n.name
	flags := slices.Clone(n.flags)
	if slices.Contains(flags, FlagEvicted) && !slices.Contains(flags, FlagDelete) {
		flags = slices.Insert(flags, 0, FlagDelete)
	}
	return nodeJSON{
		Name: n.name, Type: "SATELLITE", Flags: flags, Props: props,
		NetInterfaces: []netInterfaceJSON{{
			Name: "default", Address: "192.0.2.1", SatellitePort: 3366, EncryptionType: "PLAIN", IsActive: true,
			UUID: uuidOf("interface", n.name),
		}},
		ConnectionStatus: n.status,
		UUID:             n.uuid,
		StorageProviders: []string{"DISKLESS", "LVM", "LVM_THIN"},
		ResourceLayers:   []string{LayerDRBD, LayerStorage},
	}
}

func (s *Server) group(name string) groupJSON {
	placement := s.placementOf(name)
	out := groupJSON{
		Name: name, Props: maps.Clone(s.groups[name]), UUID: uuidOf("group", name),
		SelectFilter: selectFilterJSON{PlaceCount: placement.PlaceCount, NodeNameList: placement.NodeNames},
	}
	if placement.OnDifferent != "" {
		out.SelectFilter.ReplicasOnDifferent = []string{placement.OnDifferent}
	}
	return out
}
