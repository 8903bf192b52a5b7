package linstorsim

// The types of LINSTOR's REST answers. LINSTOR drops every key whose value is null, an empty string or an empty
// collection, and keeps 0 and false: numbers and booleans that may be unknown are pointers here.

type resourceJSON struct {
	Name            string            `json:"name,omitempty"`
	NodeName        string            `json:"node_name,omitempty"`
	Props           map[string]string `json:"props,omitempty"`
	Flags           []string          `json:"flags,omitempty"`
	UUID            string            `json:"uuid,omitempty"`
	CreateTimestamp int64             `json:"create_timestamp"`
	LayerObject     *layerJSON        `json:"layer_object,omitempty"`
	State           *stateJSON        `json:"state,omitempty"`
	Volumes         []volumeJSON      `json:"volumes,omitempty"`
}

type stateJSON struct {
	InUse *bool `json:"in_use,omitempty"`
}

type layerJSON struct {
	Type     string       `json:"type,omitempty"`
	Children []layerJSON  `json:"children,omitempty"`
	DRBD     *drbdJSON    `json:"drbd,omitempty"`
	Storage  *storageJSON `json:"storage,omitempty"`
}

type drbdJSON struct {
	NodeID         int                       `json:"node_id"`
	PeerSlots      int                       `json:"peer_slots"`
	ALStripes      int                       `json:"al_stripes"`
	ALSize         int                       `json:"al_size"`
	TCPPorts       []int                     `json:"tcp_ports,omitempty"`
	Flags          []string                  `json:"flags,omitempty"`
	PromotionScore *int                      `json:"promotion_score,omitempty"`
	MayPromote     *bool                     `json:"may_promote,omitempty"`
	Connections    map[string]connectionJSON `json:"connections,omitempty"`
	Definition     drbdDefinitionJSON        `json:"drbd_resource_definition"`
	Volumes        []drbdVolumeJSON          `json:"drbd_volumes,omitempty"`
}

type connectionJSON struct {
	Connected bool   `json:"connected"`
	Message   string `json:"message,omitempty"`
}

type drbdDefinitionJSON struct {
	PeerSlots     int    `json:"peer_slots"`
	TransportType string `json:"transport_type,omitempty"`
	Secret        string `json:"secret,omitempty"`
	Down          bool   `json:"down"`
}

type drbdVolumeJSON struct {
	DevicePath string                   `json:"device_path,omitempty"`
	Definition drbdVolumeDefinitionJSON `json:"drbd_volume_definition"`
}

type drbdVolumeDefinitionJSON struct {
	VolumeNumber int `json:"volume_number"`
	MinorNumber  int `json:"minor_number"`
}

type storageJSON struct {
	Volumes []storageVolumeJSON `json:"storage_volumes,omitempty"`
}

type storageVolumeJSON struct {
	VolumeNumber int `json:"volume_number"`
}

type volumeJSON struct {
	VolumeNumber  int               `json:"volume_number"`
	StoragePool   string            `json:"storage_pool_name,omitempty"`
	ProviderKind  string            `json:"provider_kind,omitempty"`
	DevicePath    string            `json:"device_path,omitempty"`
	State         *volumeStateJSON  `json:"state,omitempty"`
	LayerDataList []volumeLayerJSON `json:"layer_data_list,omitempty"`
}

type volumeStateJSON struct {
	DiskState         string                     `json:"disk_state,omitempty"`
	ReplicationStates map[string]replicationJSON `json:"replication_states,omitempty"`
}

type replicationJSON struct {
	ReplicationState string   `json:"replication_state,omitempty"`
	DonePercentage   *float64 `json:"done_percentage,omitempty"`
}

type volumeLayerJSON struct {
	Type string              `json:"type,omitempty"`
	Data volumeLayerDataJSON `json:"data"`
}

type volumeLayerDataJSON struct {
	DevicePath   string `json:"device_path,omitempty"`
	VolumeNumber *int   `json:"volume_number,omitempty"`
}

type definitionJSON struct {
	Name              string                 `json:"name,omitempty"`
	ExternalName      string                 `json:"external_name,omitempty"`
	Props             map[string]string      `json:"props,omitempty"`
	Flags             []string               `json:"flags,omitempty"`
	LayerData         []definitionLayerJSON  `json:"layer_data,omitempty"`
	UUID              string                 `json:"uuid,omitempty"`
	ResourceGroupName string                 `json:"resource_group_name,omitempty"`
	VolumeDefinitions []volumeDefinitionJSON `json:"volume_definitions,omitempty"`
}

type definitionLayerJSON struct {
	Type string              `json:"type,omitempty"`
	Data *drbdDefinitionJSON `json:"data,omitempty"`
}

type volumeDefinitionJSON struct {
	VolumeNumber int   `json:"volume_number"`
	SizeKiB      int64 `json:"size_kib"`
}

type nodeJSON struct {
	Name             string             `json:"name,omitempty"`
	Type             string             `json:"type,omitempty"`
	Flags            []string           `json:"flags,omitempty"`
	Props            map[string]string  `json:"props,omitempty"`
	NetInterfaces    []netInterfaceJSON `json:"net_interfaces,omitempty"`
	ConnectionStatus string             `json:"connection_status,omitempty"`
	UUID             string             `json:"uuid,omitempty"`
	StorageProviders []string           `json:"storage_providers,omitempty"`
	ResourceLayers   []string           `json:"resource_layers,omitempty"`
}

type netInterfaceJSON struct {
	Name           string `json:"name,omitempty"`
	Address        string `json:"address,omitempty"`
	SatellitePort  int    `json:"satellite_port"`
	EncryptionType string `json:"satellite_encryption_type,omitempty"`
	IsActive       bool   `json:"is_active"`
	UUID           string `json:"uuid,omitempty"`
}

type groupJSON struct {
	Name         string            `json:"name,omitempty"`
	Props        map[string]string `json:"props,omitempty"`
	SelectFilter selectFilterJSON  `json:"select_filter"`
	UUID         string            `json:"uuid,omitempty"`
}

type selectFilterJSON struct {
	PlaceCount          int      `json:"place_count,omitempty"`
	NodeNameList        []string `json:"node_name_list,omitempty"`
	ReplicasOnDifferent []string `json:"replicas_on_different,omitempty"`
}

type versionJSON struct {
	Version        string `json:"version,omitempty"`
	GitHash        string `json:"git_hash,omitempty"`
	BuildTime      string `json:"build_time,omitempty"`
	RestAPIVersion string `json:"rest_api_version,omitempty"`
}

// apiCallRC is one entry of the list that LINSTOR answers changes and errors with.
type apiCallRC struct {
	RetCode    int64             `json:"ret_code"`
	Message    string            `json:"message,omitempty"`
	Cause      string            `json:"cause,omitempty"`
	Details    string            `json:"details,omitempty"`
	Correction string            `json:"correction,omitempty"`
	ObjRefs    map[string]string `json:"obj_refs,omitempty"`
}
