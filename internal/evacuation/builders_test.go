package evacuation

import (
	"slices"
	"time"
)

// The nodes of the tables: A is the one that leaves, and has the only disk of volume pvc-1.
const (
	nodeA = "node-a"
	nodeB = "node-b"
	nodeC = "node-c"
	nodeD = "node-d"

	cluster = "this"
	markA   = nodeA + "@" + cluster
	markB   = nodeB + "@" + cluster
)

var now = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// edit changes an input.
type edit func(*Input)

func edited(edits ...edit) edit {
	return func(in *Input) {
		for _, e := range edits {
			e(in)
		}
	}
}

// tainted is an input in which all is well: four nodes, A has the taint with that value and a volume of which it has the only disk.
func tainted(mode Mode, edits ...edit) Input {
	in := Input{
		Now: now, Settings: Settings{MaxNodes: 1, MaxCopies: 4}, Cluster: cluster, Node: nodeA, Linstor: Linstor{Asked: now.Add(-time.Second)},
		Attachments: Attachments{Read: now.Add(-time.Second)}, Snapshots: Count{Known: true}, Marked: Marks{Known: true},
		Version: Version{Known: true, Spares: true}, Progress: &Progress{Mode: mode, Since: now.Add(-time.Hour)},
		Volumes: []Volume{volume("pvc-1", disk(nodeA))},
	}
	for _, name := range []string{nodeA, nodeB, nodeC, nodeD} {
		in.Nodes = append(in.Nodes, Node{Name: name, Satellite: name, Listed: true, Online: Yes, Ready: Yes})
	}
	in.Nodes[0].Evacuate = []Taint{{Value: string(mode), Effect: "NoSchedule"}}
	in.Nodes[0].Since = in.Progress.Since
	edited(edits...)(&in)
	return in
}

// volume is a volume of DRBD with these replicas, whose definition has been read and whose group wants no fewer.
func volume(name string, replicas ...Replica) Volume {
	return Volume{
		PlaceCount: len(replicas),
		Resource:   name, DRBD: true, Quorum: "off", Replicas: replicas, Claims: []PersistentVolume{{Name: name, Elsewhere: true}},
		Definition: &Definition{PlaceCount: 1, Mark: Mark{Resource: name}},
	}
}

// disk is a replica with an UpToDate disk that is not in use and connected to all others, changed by the given functions.
func disk(node string, changes ...func(*Replica)) Replica {
	r := Replica{Node: node, InUse: No, Disks: map[int]string{0: diskUpToDate}, Peers: []string{nodeA, nodeB, nodeC, nodeD}, Done: -1}
	for _, change := range changes {
		change(&r)
	}
	return r
}

func diskless(node string, changes ...func(*Replica)) Replica {
	r := Replica{Node: node, InUse: No, Diskless: true, Disks: map[int]string{0: "Diskless"}, Done: -1}
	for _, change := range changes {
		change(&r)
	}
	return r
}

func client(node string, edits ...func(*Replica)) Replica {
	r := diskless(node, edits...)
	r.Client = true
	return r
}

func state(word string) func(*Replica) {
	return func(r *Replica) { r.Disks = map[int]string{0: word} }
}

func syncing(done float64) func(*Replica) {
	return func(r *Replica) { r.Disks, r.Syncing, r.Done = map[int]string{0: diskSyncTarget}, true, done }
}

func flagged(flags ...string) func(*Replica) {
	return func(r *Replica) { r.Flags = flags }
}

// connected returns a change by which a replica is connected to no others than these.
func connected(to ...string) func(*Replica) {
	return func(r *Replica) { r.Peers = to }
}

// apart returns a change by which a replica says that it is not connected to these.
func apart(from ...string) func(*Replica) {
	return func(r *Replica) { r.Apart = from }
}

func inUse(r *Replica) { r.InUse = Yes }

// moves is a change by which LINSTOR says that the replica is the source of a move.
func moves(r *Replica) { r.Moves = true }

// the returns an edit of a node.
func the(node string, change func(*Node)) edit {
	return func(in *Input) {
		for i := range in.Nodes {
			if in.Nodes[i].Name == node {
				change(&in.Nodes[i])
			}
		}
	}
}

// with returns an edit that replaces the volumes.
func with(volumes ...Volume) edit {
	return func(in *Input) {
		in.Volumes = slices.Clone(volumes)
		for i := range in.Volumes { // other rows have them, too
			in.Volumes[i].Claims = slices.Clone(in.Volumes[i].Claims)
		}
	}
}

// safely is that the volume has a good copy elsewhere.
var safely = with(volume("pvc-1", disk(nodeA), disk(nodeB)))

// asked returns an edit by which LINSTOR was told so long ago to move everything, and has flagged the node.
func asked(ago time.Duration, times int) edit {
	return edited(func(in *Input) {
		at := now.Add(-ago)
		in.Progress.Asked, in.Progress.Asks, in.Memory.Asked = &at, times, at
	}, the(nodeA, func(n *Node) { n.Evacuating, n.Evacuator = true, cluster }))
}

func untainted(in *Input) { the(nodeA, func(n *Node) { n.Evacuate = nil })(in) }

func unchangedFrom(ago time.Duration) edit {
	return func(in *Input) { in.Memory.Unchanged = now.Add(-ago) }
}

// alsoLeaving returns an edit by which another node has the taint, too, for so long.
func alsoLeaving(node string, since time.Duration, conditions Conditions) edit {
	return the(node, func(n *Node) {
		n.Evacuate, n.Since, n.Conditions = []Taint{{Effect: "NoSchedule"}}, now.Add(-since), conditions
	})
}

// failed returns an edit by which LINSTOR has refused a call so many times, the last time so long ago.
func failed(call Call, times int, ago time.Duration) edit {
	return func(in *Input) {
		in.Memory.Failed = map[Call]Failure{call: {Times: times, At: now.Add(-ago), Words: "the database is locked"}}
	}
}

// markedForA is that the volume has a mark for the node.
func markedForA(in *Input) { in.Marked.All = []Mark{{"pvc-1", []string{markA}, "false"}} }
