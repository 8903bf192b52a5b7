package evacuation

// Explanation is what docs/reasons.md says of a reason, as [failover.Explanation].
type Explanation struct {
	Reason          Reason
	Meaning, Remedy string
}

// explanations has every reason, in the order of its declaration.
var explanations = []Explanation{
	{
		WrongEffect,
		"The taint has another effect than `NoSchedule`. Both conditions are False, and LINSTOR is told nothing.",
		"taint the node with the effect `NoSchedule`; never with `NoExecute`, because then the Piraeus Operator removes the satellite",
	},
	{
		UnknownMode,
		"The taint has a value that is neither empty nor `last-copies`. Both conditions are False, and LINSTOR is told nothing.",
		"taint the node with one of these values",
	},
	{
		NotASatellite,
		"LINSTOR lists no node of the name that the CSI driver there gives, or one that can have no replicas. LINSTOR is told nothing.",
		"look at `linstor node list`; remove the taint if the node has no storage; if it returns, start its CSI driver, or end its evacuation with " +
			"`linstor node restore` or `linstor node lost`",
	},
	{
		FailingOver,
		"The node is lost, or a volume fails over from there, as ever. The conditions are Unknown.",
		"see to the node; the evacuation goes on when it is back",
	},
	{
		GuardTripped,
		"More nodes are lost than `--max-lost-nodes` allows. LINSTOR is told nothing.",
		"see to the other nodes; the evacuation goes on by itself",
	},
	{
		Paused,
		"Fail-over is paused, or it is not known whether it is. LINSTOR is told nothing.",
		"end the pause",
	},
	{
		NodeAgentRuns,
		"Node agents of 1.x run. LINSTOR is told nothing.",
		"remove their DaemonSet",
	},
	{
		DryRun,
		"The controller only says what it would do. LINSTOR is told nothing.",
		"start the controller without `--dry-run`",
	},
	{
		SatelliteOffline,
		"LINSTOR does not reach the node. The conditions are Unknown: what was safe before may have lost its copy since.",
		"see to the node; nothing, if you have switched it off",
	},
	{
		LinstorStale,
		"LINSTOR or the Kubernetes API did not answer in time, or LINSTOR's answer is incomplete: it has no replica for a PersistentVolume that is " +
			"Bound or attached to the node. The conditions are Unknown. The message has the error.",
		"look at the LINSTOR controller, slow satellites, the API server, and permissions; delete a PersistentVolume whose volume is gone for good",
	},
	{
		LinstorRefuses,
		"LINSTOR has not cleared its flag or a mark of a node that returns, or not switched off its balancing for a copy. It is told again, every ten " +
			"minutes in the end. The message has LINSTOR's words.",
		"look at LINSTOR's error reports; `linstor node restore NODE` clears the flag by hand, and [this](evacuation.md#what-stays) the mark",
	},
	{
		EvacuatedByOther,
		"Somebody else has told LINSTOR to evacuate the node. This controller tells LINSTOR nothing.",
		"let them finish, or `linstor node restore NODE`",
	},
	{
		AnotherNodeFirst,
		"As many nodes as `--max-concurrent-evacuations` allows come first; with LINSTOR older than 1.33, one that is up and has not left. The node " +
			"waits, and gets no copies.",
		"nothing",
	},
	{
		Copying,
		"What exists nowhere else is being copied. The message counts, and tells how much of one copy is done.",
		"wait",
	},
	{
		NoTarget,
		"LINSTOR has no node for a copy, or has reported nothing of a new one for three minutes. It is tried again every ten minutes, and when nodes " +
			"change. The message has LINSTOR's words.",
		"add a node or room in its storage pool, or uncordon one; if `StorageSafe` has this reason, do not switch the node off",
	},
	{
		PeerOffline,
		"No disk is known to be UpToDate on a node that is ONLINE, or DRBD does not connect the disk here to the good ones elsewhere. LINSTOR is told " +
			"nothing, because its evacuation would delete this disk.",
		"bring the peer back, or the connection of DRBD that the message names",
	},
	{
		NotDRBD,
		"The volume has no DRBD layer, so LINSTOR cannot copy it. It stays where it is.",
		"copy its data yourself, or give it up",
	},
	{
		AffinityPinned,
		"The volume is attached here, and its PersistentVolume allows no other node that is Ready and schedulable. Its pod would stay Pending. Normal " +
			"for 15 seconds after a PersistentVolume was replaced.",
		"run linstor-affinity-controller, or use a StorageClass with `allowRemoteVolumeAccess`",
	},
	{
		QuorumWouldBeLost,
		"The volume has a good copy elsewhere, but no quorum without this node: another node, a disk or a connection has failed, or nodes may run " +
			"another quorum. The pod may be moved; do not switch the node off.",
		"bring back the node, disk or connection, or delete that replica; set quorum to majority; restart linstor-satellite",
	},
	{
		CopiedElsewhere,
		"Every volume has a good copy elsewhere and may be used there. `StorageSafe` is True.",
		"drain the node, or switch it off",
	},
	{
		WaitingForDrain,
		"A volume is in use or attached on the node. The message names the pod. LINSTOR is told nothing yet.",
		"`kubectl drain NODE --ignore-daemonsets --delete-emptydir-data`",
	},
	{
		NFSExport,
		"The node exports a volume by NFS. LINSTOR is told nothing yet.",
		"move the export: `drbd-reactorctl evict` on the node",
	},
	{
		Leaving,
		"LINSTOR moves what is left, or is about to. The message counts replicas and snapshots.",
		"wait",
	},
	{
		LeavingStalled,
		"LINSTOR was told to move what is left, and nothing has changed for a minute. It is told again, every ten minutes in the end. Other nodes no " +
			"longer wait for this one.",
		"look at `linstor resource list` and at LINSTOR's error reports",
	},
	{
		NothingLeft,
		"No disk and no snapshot is left; replicas without a disk may be. `StorageEvacuated` is True.",
		"nothing",
	},
}

// Explanations returns every reason with its explanation, in the order of docs/reasons.md.
func Explanations() []Explanation { return explanations }

// Reasons returns every reason.
func Reasons() []Reason {
	all := make([]Reason, len(explanations))
	for i, e := range explanations {
		all[i] = e.Reason
	}
	return all
}
