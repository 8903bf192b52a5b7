package evacuation

import (
	"time"

	"pgregory.net/rapid"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evidence"
)

// often draws the first value in most cases, so that many inputs are well enough for something to be done.
func often[T any](t *rapid.T, label string, first T, others ...T) T {
	if rapid.IntRange(0, 9).Draw(t, label+"?") < 8 { //nolint:mnd // most cases
		return first
	}
	return rapid.SampledFrom(append(others, first)).Draw(t, label)
}

// anyInput draws inputs of two or three volumes on four nodes.
func anyInput() *rapid.Generator[Input] {
	return rapid.Custom(func(t *rapid.T) Input {
		mode := rapid.SampledFrom([]Mode{Everything, LastCopies, "all"}).Draw(t, "mode")
		in := tainted(mode, with())
		ago := func(label string) time.Time {
			return often(t, label, now.Add(-time.Second), time.Time{}, now.Add(-3*time.Second), now.Add(-time.Hour))
		}
		for i := range in.Nodes {
			n := &in.Nodes[i]
			n.Online, n.Ready = often(t, "online", Yes, No, Unknown), often(t, "ready", Yes, No, Unknown)
			n.Listed, n.Cordoned = often(t, "listed", true, false), often(t, "cordoned", false, true)
			n.Going, n.Evicted, n.Evacuating = often(t, "off", false, true), often(t, "evicted", false, true), often(t, "flag", false, true)
			n.Evacuator = often(t, "evacuator", "", cluster, "other")
			if i > 0 && often(t, "tainted", false, true) {
				n.Evacuate = []Taint{{Value: rapid.SampledFrom([]string{"", "last-copies"}).Draw(t, "value"), Effect: "NoSchedule"}}
				n.Since = ago("since")
			}
		}
		if often(t, "untainted", false, true) {
			in.Nodes[0].Evacuate = nil
		}
		in.Linstor = Linstor{Asked: ago("asked"), Problem: often(t, "problem", "", "no answer"), Missing: often(t, "missing", "", "pvc-9")}
		in.FailOver = often(t, "failover", "", "lost")
		in.Halt.Guard, in.Halt.Paused = often(t, "guard", "", "x"), often(t, "paused", "", "x")
		in.Halt.Agents, in.Halt.DryRun = often(t, "agents", "", "x"), often(t, "dry run", false, true)
		in.Attachments.Read = ago("attachments")
		in.Attachments.Volumes = often(t, "attached", nil, []string{"pvc-1"})
		in.Snapshots = often(t, "snapshots", Count{Known: true}, Count{}, Count{true, 2})
		in.Marked = often(t, "marked", Marks{Known: true}, Marks{}, Marks{true, []Mark{{"pvc-0", []string{markA, markB}, "false"}}})
		in.Version = often(t, "version", Version{true, true}, Version{true, false}, Version{})
		in.Settings = Settings{MaxNodes: rapid.IntRange(1, 2).Draw(t, "nodes"), MaxCopies: rapid.IntRange(1, 3).Draw(t, "copies")}
		anyProgress(t, &in)
		for _, name := range []string{"pvc-0", "pvc-1", "pvc-2"} {
			in.Volumes = append(in.Volumes, anyVolume(t, name))
		}
		return in
	})
}

func anyProgress(t *rapid.T, in *Input) {
	if often(t, "new", false, true) {
		in.Progress = nil
		return
	}
	if rapid.Bool().Draw(t, "was asked") {
		at := now.Add(-time.Hour)
		in.Progress.Asked, in.Progress.Asks = &at, rapid.IntRange(1, 6).Draw(t, "asks")
		in.Memory.Unchanged, in.Memory.Asked = now.Add(-time.Hour), at
	}
	if often(t, "refused", false, true) {
		in.Memory.Refused = map[string]Refusal{"pvc-1": {Until: now.Add(time.Minute), Words: "none", Nodes: in.Eligible()}}
	}
}

func anyVolume(t *rapid.T, name string) Volume {
	v := volume(name)
	v.DRBD, v.Quorum = often(t, "drbd", true, false), rapid.SampledFrom([]string{"off", evidence.Majority, evidence.All, "2"}).Draw(t, "quorum")
	v.Claims[0].Attached, v.Claims[0].Elsewhere = often(t, "pv attached", false, true), often(t, "elsewhere", true, false)
	v.PlaceCount = often(t, "last place count", 4, 0, 1, 2)
	if often(t, "mark", false, true) {
		v.Mark = Mark{name, []string{markA}, "false"}
	}
	v.Definition.PlaceCount = rapid.IntRange(1, 3).Draw(t, "place count")
	v.Definition.Nodes = often(t, "list", nil, []string{nodeB}, []string{nodeA})
	if often(t, "unread", false, true) {
		v.Definition = nil
	}
	for i, node := range []string{nodeA, nodeB, nodeC, nodeD} {
		if i > 0 && !rapid.Bool().Draw(t, "replica") {
			continue
		}
		v.Replicas = append(v.Replicas, anyReplica(t, node))
	}
	return v
}

func anyReplica(t *rapid.T, node string) Replica {
	if often(t, "diskless", false, true) {
		r := diskless(node)
		r.InUse = often(t, "in use", No, Yes, Unknown)
		return r
	}
	r := disk(node)
	r.InUse = often(t, "in use", No, Yes, Unknown)
	r.Disks = map[int]string{0: often(t, "disk", diskUpToDate, "", diskInconsistent, diskSyncTarget, "Outdated", "Failed", "DUnknown")}
	if often(t, "two volumes", false, true) {
		r.Disks[1] = often(t, "second disk", diskUpToDate, "", diskInconsistent)
	}
	r.Syncing = often(t, "syncing", false, true)
	if often(t, "alone", false, true) {
		connected()(&r)
	}
	if often(t, "flagged", false, true) {
		r.Flags = []string{rapid.SampledFrom([]string{
			flagDelete, flagDRBDDelete, flagEvicted, flagEvacuate, flagInactive, "DISK_ADDING", "DISK_REMOVING",
		}).Draw(t, "flag of replica")}
	}
	return r
}
