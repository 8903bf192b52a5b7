package linstor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

// synchronous is DRBD's protocol, the default, by which a write is done only once it is on the disks of all peers that are connected.
const synchronous = "C"

// unknownDone is how much of a sync is done where nobody says.
const unknownDone = -1

// Placed reads where all resources are, with the states of their disks, and the nodes at the same time. Each volume has all of its replicas
// and nothing of Kubernetes. What it says was true after asked, when the first of the reads began. LINSTOR asks its satellites for it.
func (f *Feed) Placed(ctx context.Context) (volumes []evacuation.Volume, asked time.Time, err error) {
	asked = time.Now()
	var resources []client.PlacedResource
	reads, readCtx := errgroup.WithContext(ctx)
	reads.Go(func() error { return f.readNodes(readCtx, asked) })
	reads.Go(func() (err error) {
		resources, err = f.client.Placed(readCtx)
		return err
	})
	if f.store.readAt(&f.store.definitionsRead).IsZero() { // else they are read regularly
		reads.Go(func() error { return errors.Join(f.readUpperLevels(readCtx, asked), f.readDefinitions(readCtx, asked)) })
	}
	if err := reads.Wait(); err != nil {
		return nil, time.Time{}, fmt.Errorf("ask LINSTOR where its resources are: %w", err)
	}
	f.confirmed(asked)
	return f.store.placed(resources), asked, nil
}

// placed puts the resources together to volumes.
func (s *Store) placed(resources []client.PlacedResource) []evacuation.Volume {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var volumes []evacuation.Volume
	index := make(map[string]int)
	for i := range resources {
		r := &resources[i]
		key := fold(r.Name)
		at, ok := index[key]
		if !ok {
			at = len(volumes)
			index[key] = at
			volume := evacuation.Volume{Resource: r.Name}
			if d := s.definitions[key]; d != nil {
				levels := s.levels(d)
				protocol := cmp.Or(levels[0].protocol, levels[1].protocol, levels[2].protocol)
				volume.Asynchronous = protocol != "" && !strings.EqualFold(protocol, synchronous)
				volume.Quorum, volume.UserQuorum, _ = s.quorum(d)
				volume.PlaceCount, volume.Mark = s.placeCounts[d.group], d.mark
			}
			if volume.UserQuorum {
				volume.OtherQuorums = s.otherQuorums(key, volume.Quorum)
			}
			volumes = append(volumes, volume)
		}
		if client.AnyFlag(r.Flags, client.FlagDelete, client.FlagDRBDDelete) {
			// What LINSTOR changes by itself it sends, but not what it finds while a deletion waits for a node: after a full sync of another one.
			volumes[at].OtherQuorums = s.otherQuorums(key, volumes[at].Quorum)
		}
		volumes[at].DRBD = volumes[at].DRBD || r.IsDRBD() // one replica with another stack of layers does not speak for the others
		volumes[at].Replicas = append(volumes[at].Replicas, placedReplica(r))
	}
	for i := range resources { // a move is noted on its source, or on its target
		source := fold(resources[i].Props[client.PropMigrateFrom])
		replicas := volumes[index[fold(resources[i].Name)]].Replicas
		if at := slices.IndexFunc(replicas, func(r evacuation.Replica) bool { return r.Node == source }); at >= 0 {
			replicas[at].Moves = true
		}
	}
	return volumes
}

// otherQuorums are the quorums that nodes may run of a resource definition, by its name in lower case, beside the one that LINSTOR wants.
func (s *Store) otherQuorums(key, wanted string) (others []string) {
	e := s.resources[key]
	if e == nil {
		return nil
	}
	for i := range e.replicas {
		if q := e.replicas[i].evidence.Other(&e.fence); q != "" && q != wanted && !slices.Contains(others, q) {
			others = append(others, q)
		}
	}
	slices.Sort(others)
	return others
}

// placedReplica is a resource as the policy wants it.
func placedReplica(r *client.PlacedResource) evacuation.Replica {
	replica := evacuation.Replica{
		Node: fold(r.NodeName), Diskless: client.AnyFlag(r.Flags, client.FlagDiskless, client.FlagDRBDDiskless), Flags: r.Flags,
		InUse: evacuation.AnswerOf(r.IsInUse()), Disks: make(map[int]string, len(r.Volumes)), Done: unknownDone,
	}
	for peer, connection := range r.Values().Connections {
		switch connected := connection.IsConnected(); {
		case connected == nil:
		case *connected:
			replica.Peers = append(replica.Peers, fold(peer))
		default:
			replica.Apart = append(replica.Apart, fold(peer))
		}
	}
	replica.Client = replica.Diskless && client.AnyFlag(r.Values().Flags, client.FlagClient)
	slices.Sort(replica.Peers)
	slices.Sort(replica.Apart)
	for _, v := range r.Volumes {
		replica.Disks[v.Number] = ""
		if v.State == nil {
			continue
		}
		word, done := diskState(v.State.DiskState)
		replica.Disks[v.Number] = word
		for _, peer := range v.State.Replication {
			if !peer.Copies() {
				continue
			}
			replica.Syncing = true
			if peer.Done != nil && done < 0 {
				done = *peer.Done
			}
		}
		replica.Syncing = replica.Syncing || strings.HasPrefix(word, syncTarget)
		if done >= 0 && (replica.Done < 0 || done < replica.Done) { // the slowest of its volumes
			replica.Done = done
		}
	}
	return replica
}

const syncTarget = "SyncTarget"

// diskState reads the word on a disk, and how much of its sync is done: "SyncTarget(12.34%)".
func diskState(text string) (word string, done float64) {
	word, rest, ok := strings.Cut(text, "(")
	if !ok {
		return text, unknownDone
	}
	percent, ok := strings.CutSuffix(rest, "%)")
	done, err := strconv.ParseFloat(percent, 64)
	if !ok || err != nil {
		return word, unknownDone
	}
	return word, done
}

// Moves returns the replicas that LINSTOR has in mind to move elsewhere, by their sources.
func (f *Feed) Moves(ctx context.Context) (sources []Place, err error) {
	resources, err := f.client.Migrating(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask LINSTOR which resources it moves: %w", err)
	}
	for i := range resources { // a move is noted on its source, or on its target
		source := fold(resources[i].Props[client.PropMigrateFrom])
		known, _ := f.store.Resource(resources[i].Name)
		if r, ok := known.Replica(source); ok && !r.Gone {
			sources = append(sources, Place{Resource: resources[i].Name, Node: source})
		}
	}
	return sources, nil
}

// CopyDefinitions reads what must be known of resource definitions before they are copied. Those that do not exist are left out.
func (f *Feed) CopyDefinitions(ctx context.Context, names []string) (map[string]evacuation.Definition, error) {
	definitions, err := f.definitionsOf(ctx, names)
	if err != nil {
		return nil, fmt.Errorf("ask LINSTOR for resource definitions: %w", err)
	}
	groups, err := f.client.Groups(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask LINSTOR for resource groups: %w", err)
	}
	filters := make(map[string]evacuation.Definition, len(groups))
	for _, g := range groups {
		filter := evacuation.Definition{PlaceCount: int(g.SelectFilter.PlaceCount)}
		for _, node := range g.SelectFilter.NodeNameList {
			filter.Nodes = append(filter.Nodes, fold(node))
		}
		filters[fold(g.Name)] = filter
	}
	read := make(map[string]evacuation.Definition, len(definitions))
	for _, d := range definitions {
		filter, ok := filters[fold(d.ResourceGroupName)]
		if !ok {
			continue // the group has gone in between: the next look will tell
		}
		filter.Mark = evacuation.MarkOf(d.Name, d.Props)
		read[fold(d.Name)] = filter
	}
	return read, nil
}

// Marks reads the marks of all resource definitions that have one.
func (f *Feed) Marks(ctx context.Context) ([]evacuation.Mark, error) {
	definitions, err := f.client.Marked(ctx, evacuation.PropMark)
	if err != nil {
		return nil, fmt.Errorf("ask LINSTOR for marked resource definitions: %w", err)
	}
	var marks []evacuation.Mark
	for _, d := range definitions {
		if _, ok := d.Props[evacuation.PropMark]; ok { // whatever was filtered
			marks = append(marks, evacuation.MarkOf(d.Name, d.Props))
		}
	}
	return marks, nil
}

// MarksOf reads what the named resource definitions say of balancing and of us, and takes it over: where it is as wanted already, nothing is
// written after which they would be read again. Those that do not exist are left out.
func (f *Feed) MarksOf(ctx context.Context, names []string) ([]evacuation.Mark, error) {
	definitions, err := f.definitionsOf(ctx, names)
	if err != nil {
		return nil, fmt.Errorf("ask LINSTOR for the marks of resource definitions: %w", err)
	}
	marks := make([]evacuation.Mark, 0, len(definitions))
	for _, d := range definitions {
		marks = append(marks, evacuation.MarkOf(d.Name, d.Props))
	}
	f.store.takeMarks(marks)
	return marks, nil
}

// takeMarks takes over the marks of known definitions, and nothing else: their settings are as old as the levels above, with which they are read.
func (s *Store) takeMarks(marks []evacuation.Mark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, mark := range marks {
		if d := s.definitions[fold(mark.Resource)]; d != nil {
			d.mark = mark
		}
	}
}

// namesAtOnce is how many definitions one request names: a name has up to 48 characters, and LINSTOR's HTTP server takes 8 KiB of headers, of
// which a token may need more than one.
const namesAtOnce = 80

// definitionsOf reads the named resource definitions with as many requests as it takes.
func (f *Feed) definitionsOf(ctx context.Context, names []string) (definitions []client.Definition, err error) {
	for some := range slices.Chunk(names, namesAtOnce) {
		read, err := f.client.Definitions(ctx, some...)
		if err != nil {
			return nil, err
		}
		definitions = append(definitions, read...)
	}
	return definitions, nil
}

// SnapshotsOn reads how many snapshots have data on a node.
func (f *Feed) SnapshotsOn(ctx context.Context, node string) (int, error) {
	snapshots, err := f.client.Snapshots(ctx)
	if err != nil {
		return 0, fmt.Errorf("ask LINSTOR for snapshots: %w", err)
	}
	n := 0
	for _, s := range snapshots {
		if slices.ContainsFunc(s.Nodes, func(holder string) bool { return fold(holder) == fold(node) }) {
			n++
		}
	}
	return n, nil
}

// sparingSince is the first version of LINSTOR that accepts nodes which an evacuation must not use.
var sparingSince = utilversion.MustParseGeneric("1.33")

// CanSpareNodes reads whether LINSTOR accepts nodes which an evacuation must not use.
func (f *Feed) CanSpareNodes(ctx context.Context) (bool, error) {
	version, err := f.client.Version(ctx)
	if err != nil {
		return false, fmt.Errorf("ask LINSTOR for its version: %w", err)
	}
	known, err := utilversion.ParseGeneric(version.Version)
	return err == nil && known.AtLeast(sparingSince), nil // an unknown version is an old one
}

// Answer is what LINSTOR answers to a call.
type Answer = client.Answer

// ErrNotSent is why a call has certainly not reached LINSTOR.
var ErrNotSent = client.ErrNotSent

// Autoplace has LINSTOR place one more replica on one of the nodes.
func (f *Feed) Autoplace(ctx context.Context, resource string, nodes []string) (Answer, error) {
	return f.client.Autoplace(ctx, resource, nodes)
}

// Evacuate has LINSTOR move everything off a node, but not to the others that are named.
func (f *Feed) Evacuate(ctx context.Context, node string, doNotTarget []string) (Answer, error) {
	return f.client.Evacuate(ctx, node, doNotTarget)
}

// Restore takes back that LINSTOR was told to evacuate a node.
func (f *Feed) Restore(ctx context.Context, node string) (Answer, error) {
	return f.client.Restore(ctx, node)
}

// OwnNode writes down in LINSTOR which cluster has it evacuate a node; an empty one takes that off.
func (f *Feed) OwnNode(ctx context.Context, node, cluster string) (Answer, error) {
	if cluster == "" {
		return f.client.ChangeNode(ctx, node, nil, []string{evacuation.PropMark})
	}
	return f.client.ChangeNode(ctx, node, map[string]string{evacuation.PropMark: cluster}, nil)
}

// ChangeDefinition changes the properties of a resource definition, and reads it again.
func (f *Feed) ChangeDefinition(ctx context.Context, change evacuation.Change) (Answer, error) {
	answer, err := f.client.ChangeDefinition(ctx, change.Resource, change.Set, change.Delete)
	if err != nil {
		return answer, err
	}
	f.failed(f.readDefinition(ctx, change.Resource, time.Now())) // then the next snapshot has the old state, and asks for the same again
	return answer, nil
}
