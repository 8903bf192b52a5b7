package failover

import (
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"
)

// The ages from which the random facts are drawn lie around the limits of the policy.
var ages = []time.Duration{
	0, 500 * time.Millisecond, time.Second, 2 * time.Second, 2*time.Second + 1, 5 * time.Second, 12 * time.Second,
	20 * time.Second, 45 * time.Second, time.Minute, time.Hour,
}

func anyAge(t *rapid.T) time.Duration { return rapid.SampledFrom(ages).Draw(t, "age") }

// anyTime is sometimes zero, and sometimes ahead of now.
func anyTime(t *rapid.T) time.Time {
	switch rapid.IntRange(0, 9).Draw(t, "kind of time") {
	case 0:
		return time.Time{}
	case 1:
		return now.Add(anyAge(t))
	default:
		return ago(anyAge(t))
	}
}

// anyFact has held for some time until now, or until some time ago.
func anyFact[T comparable](t *rapid.T, values ...T) Fact[T] {
	confirmed := now
	if rapid.IntRange(0, 4).Draw(t, "aged") == 0 {
		confirmed = ago(anyAge(t))
	}
	return Fact[T]{
		Value: rapid.SampledFrom(values).Draw(t, "value"), Known: rapid.IntRange(0, 4).Draw(t, "known") > 0,
		Since: confirmed.Add(-anyAge(t)), Confirmed: confirmed,
	}
}

func anyBool(t *rapid.T) Fact[bool] { return anyFact(t, false, true) }

// A generator names itself on first use, so that parallel tests must not share one.

func anyNode() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{nodeA, nodeB, nodeC, nodeT})
}

func anyQuorum() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{"majority", "all", "off", "", "1", "2", "many"})
}

func anySetting(t *rapid.T) setting {
	nodes := rapid.SliceOfDistinct(anyNode(), rapid.ID).Draw(t, "nodes of a setting")
	disks := rapid.IntRange(0, len(nodes)).Draw(t, "disks of a setting")
	return with(anyQuorum().Draw(t, "quorum of a setting"), nodes[:disks], nodes[disks:]...)
}

func anyReplica(t *rapid.T, node string) Replica {
	r := Replica{
		Node: node, Diskless: rapid.Bool().Draw(t, "diskless"), Leaving: rapid.IntRange(0, 4).Draw(t, "leaving") == 0,
		Online: anyBool(t), Reports: anyBool(t), MayPromote: anyBool(t), InUse: anyBool(t),
		Score: anyFact(t, -1, 0, 1, 10102), LastInUse: anyTime(t),
		Connections: map[string]Fact[bool]{},
	}
	for range rapid.IntRange(0, 3).Draw(t, "connections") {
		r.Connections[anyNode().Draw(t, "peer")] = anyBool(t)
	}
	r.Confirmed, r.Gone = rapid.IntRange(0, 4).Draw(t, "begun") > 0, rapid.IntRange(0, 9).Draw(t, "gone") == 0
	var settings []setting
	for range rapid.IntRange(0, 2).Draw(t, "settings") {
		settings = append(settings, anySetting(t))
	}
	if len(settings) > 0 {
		confirmed, votes := observed(settings)
		r.Confirmed, r.Votes = r.Confirmed && confirmed, votes
	}
	return r
}

func anyResource(t *rapid.T) Resource {
	r := Resource{
		Name: "pvc-1", Known: rapid.IntRange(0, 4).Draw(t, "list read") > 0, DRBD: rapid.IntRange(0, 4).Draw(t, "drbd") > 0,
		Volumes: rapid.IntRange(0, 2).Draw(t, "volumes"), Confirmed: now, SetSince: anyTime(t),
		Quorum: anyQuorum().Draw(t, "quorum"), InDoubt: rapid.IntRange(0, 9).Draw(t, "in doubt") == 0,
		Left: rapid.SliceOfDistinct(anyNode(), rapid.ID).Draw(t, "left"),
	}
	for _, node := range rapid.SliceOfNDistinct(anyNode(), 0, 4, rapid.ID).Draw(t, "nodes") {
		r.Replicas = append(r.Replicas, anyReplica(t, node))
	}
	return r
}

func anyPod(t *rapid.T) Pod {
	p := Pod{
		Namespace: "default", Name: "web-0", Since: anyTime(t), Ran: anyTime(t), Runs: rapid.Bool().Draw(t, "runs"), Deleting: anyTime(t),
		Terminating: rapid.Bool().Draw(t, "terminating"), Grace: anyAge(t),
		HasRun: rapid.Bool().Draw(t, "has run"), ReadOnly: rapid.Bool().Draw(t, "read-only"), Forced: rapid.Bool().Draw(t, "forced"),
		Selected: rapid.Bool().Draw(t, "selected"), Exempt: rapid.Bool().Draw(t, "exempt"), Owned: rapid.Bool().Draw(t, "owned"),
		NodeBound: rapid.Bool().Draw(t, "node-bound"), UnsafeVolume: rapid.SampledFrom([]string{"", "cache"}).Draw(t, "unsafe volume"),
		UnboundClaim: rapid.SampledFrom([]string{"", "", "shop/wal"}).Draw(t, "unbound claim"),
	}
	p.Places = Places{Known: rapid.IntRange(0, 9).Draw(t, "nodes known") > 0, Fit: rapid.IntRange(0, 4).Draw(t, "node fits") > 0}
	if rapid.IntRange(0, 3).Draw(t, "others") == 0 {
		p.Others = []OtherVolume{{Name: "pv-2", Resource: anyResource(t)}}
	}
	return p
}

// anyInput is anything at all.
func anyInput(t *rapid.T) Input {
	in := healthy()
	in.Node.LeaseKnown = rapid.Bool().Draw(t, "lease known")
	in.Node.LeaseSilence, in.Node.BootSince = anyAge(t), anyTime(t)
	in.Node.Shutdown = rapid.IntRange(0, 4).Draw(t, "shutdown") == 0
	in.Volume.Block, in.Volume.ReadOnly = rapid.Bool().Draw(t, "block"), rapid.Bool().Draw(t, "read-only")
	in.Volume.NFSExport = rapid.IntRange(0, 4).Draw(t, "nfs") == 0
	in.Resource, in.LinstorConfirmed = anyResource(t), anyTime(t)
	in.Pods = nil
	for range rapid.IntRange(0, 2).Draw(t, "pods") {
		in.Pods = append(in.Pods, anyPod(t))
	}
	in.Attachment = nil
	if rapid.Bool().Draw(t, "attachment") {
		in.Attachment = &Attachment{
			Since: anyTime(t), Attached: rapid.Bool().Draw(t, "attached"),
			Marked: rapid.Bool().Draw(t, "marked"), Awaited: rapid.Bool().Draw(t, "awaited"),
		}
	}
	return in
}

// anyStory is one of the known pictures with a few random changes: most of these are near a loss.
func anyStory(t *rapid.T) Input {
	stories := []func() Input{healthy, crashed, isolated, ioErrors, demoted, gone}
	in := stories[rapid.IntRange(0, len(stories)-1).Draw(t, "story")]()
	if rapid.Bool().Draw(t, "third disk") {
		withThirdDisk(&in)
	}
	if rapid.Bool().Draw(t, "no tie-breaker") {
		withoutTieBreaker(&in)
	}
	for range rapid.IntRange(0, 4).Draw(t, "changes") {
		r := replicaOf(&in, anyNode().Draw(t, "node"))
		r.Connections = maps.Clone(r.Connections)
		if r.Connections == nil {
			r.Connections = map[string]Fact[bool]{}
		}
		switch rapid.IntRange(0, 9).Draw(t, "change") {
		case 0:
			r.Online = anyBool(t)
		case 1:
			r.Reports = anyBool(t)
		case 2:
			r.MayPromote = anyBool(t)
		case 3:
			r.InUse = anyBool(t)
		case 4:
			r.Score = anyFact(t, 0, 10102)
		case 5:
			r.Connections[nodeA] = anyBool(t)
		case 6:
			r.Diskless = !r.Diskless
		case 7:
			in.Node.LeaseSilence = anyAge(t)
		case 8:
			r.Confirmed = false
		case 9:
			in.Node.LeaseKnown = !in.Node.LeaseKnown
		}
	}
	return in
}

// eitherInput is near a loss or anything at all.
func eitherInput(t *rapid.T) Input {
	if rapid.Bool().Draw(t, "a story") {
		return anyStory(t)
	}
	return anyInput(t)
}

// facts returns, for every fact of the volume's resource, how to forget it: by LINSTOR saying no more, from now
// on, or by its not having been read lately.
func facts(in *Input) []func(stale bool) {
	var forget []func(bool)
	for i := range in.Resource.Replicas {
		r := &in.Resource.Replicas[i]
		for _, f := range []*Fact[bool]{&r.Online, &r.Reports, &r.MayPromote, &r.InUse} {
			forget = append(forget, func(stale bool) { *f = forgotten(*f, stale) })
		}
		forget = append(forget, func(stale bool) { r.Score = forgotten(r.Score, stale) })
		for _, peer := range slices.Sorted(maps.Keys(r.Connections)) {
			forget = append(forget, func(stale bool) {
				r.Connections = maps.Clone(r.Connections)
				r.Connections[peer] = forgotten(r.Connections[peer], stale)
			})
		}
	}
	return forget
}

func forgotten[T comparable](f Fact[T], stale bool) Fact[T] {
	if stale {
		f.Confirmed = earliest(f.Confirmed, now.Add(-MaxAge-1))
		return f
	}
	return untold[T](0)
}

// confirm lets every fact that is fresh now be read again at a later time.
func confirm(r *Replica, later time.Time) {
	again := func(f *Fact[bool]) {
		if within(MaxAge, f.Confirmed, now) {
			f.Confirmed = later
		}
	}
	for _, f := range []*Fact[bool]{&r.Online, &r.Reports, &r.MayPromote, &r.InUse} {
		again(f)
	}
	if within(MaxAge, r.Score.Confirmed, now) {
		r.Score.Confirmed = later
	}
	connections := maps.Clone(r.Connections)
	for peer, f := range connections {
		again(&f)
		connections[peer] = f
	}
	r.Connections = connections
}

// speakWithOneVoice takes the state from a replica of which LINSTOR says that it has none.
func speakWithOneVoice(r *Replica) {
	if !r.Reports.is(false) {
		return
	}
	r.MayPromote.Known, r.InUse.Known, r.Score.Known = false, false, false
	r.Connections = nil
}
