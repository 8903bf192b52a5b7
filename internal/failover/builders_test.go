package failover

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evidence"
)

// The nodes of the tests: A and B have a disk, T is the tie-breaker. Cases that need a third disk add C.
const (
	nodeA = "node-a"
	nodeB = "node-b"
	nodeC = "node-c"
	nodeT = "node-t"
)

var now = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// held is a fact that has held for d and was confirmed just now.
func held[T comparable](value T, d time.Duration) Fact[T] {
	return Fact[T]{Value: value, Known: true, Since: ago(d), Confirmed: now}
}

// untold is a fact that LINSTOR has left out for d.
func untold[T comparable](d time.Duration) Fact[T] {
	return Fact[T]{Since: ago(d), Confirmed: now}
}

// edit makes one input out of another.
type edit func(*Input)

// edited applies several edits one after the other.
func edited(edits ...edit) edit {
	return func(in *Input) {
		for _, e := range edits {
			e(in)
		}
	}
}

// healthy is a volume that has been Primary on A for an hour, in the hands of one selected pod.
func healthy() Input {
	return Input{
		Now: now,
		Settings: Settings{
			ConfirmedGrace: 5 * time.Second,
			UnanimousGrace: time.Second,
			KnownGrace:     45 * time.Second,
			NewGrace:       45 * time.Second,
			KubeletSilence: 20 * time.Second,
			DeletionGrace:  10 * time.Second,
		},
		Volume: Volume{Name: "pv-1", Since: ago(time.Hour)},
		Node:   Node{Name: nodeA, LeaseKnown: true, LeaseSilence: 3 * time.Second, BootSince: ago(2 * time.Hour)},
		Resource: Resource{
			Name: "pvc-1", Known: true, DRBD: true, Volumes: 1, Confirmed: now, SetSince: ago(time.Hour), Quorum: "majority",
			Replicas: []Replica{primary(nodeA), secondary(nodeB), tieBreaker(nodeT)},
		},
		Attachment:       &Attachment{Name: "csi-1", UID: "attachment", Attached: true, Since: ago(time.Hour)},
		Pods:             []Pod{runningPod("web-0")},
		LinstorConfirmed: now,
	}
}

func primary(node string) Replica {
	return Replica{
		Node: node, LastInUse: now,
		Online: held(true, time.Hour), Reports: held(true, time.Hour), MayPromote: held(false, time.Hour),
		InUse: held(true, time.Hour), Score: held(10102, time.Hour),
		Connections: map[string]Fact[bool]{nodeB: held(true, time.Hour), nodeT: held(true, time.Hour)},
		Confirmed:   true,
	}
}

func secondary(node string) Replica {
	return Replica{
		Node:   node,
		Online: held(true, time.Hour), Reports: held(true, time.Hour), MayPromote: held(false, time.Hour),
		InUse: held(false, time.Hour), Score: held(10102, time.Hour),
		Connections: map[string]Fact[bool]{nodeA: held(true, time.Hour)},
		Confirmed:   true,
	}
}

func tieBreaker(node string) Replica {
	r := secondary(node)
	r.Diskless = true
	r.Score = held(2, time.Hour)
	return r
}

// setting is a quorum, and whose votes count in it.
type setting struct {
	quorum            string
	diskful, diskless []string
}

// usual is a setting with the replicas of healthy.
func usual(quorum string) setting { return with(quorum, []string{nodeA, nodeB}, nodeT) }

func with(quorum string, diskful []string, diskless ...string) setting {
	return setting{quorum, diskful, diskless}
}

// mayRun lets a node run one of several settings.
func mayRun(node string, settings ...setting) edit {
	return at(node, func(r *Replica) { r.Confirmed, r.Votes = observed(settings) })
}

// unborne lets it be unknown which setting A runs.
var unborne = at(nodeA, func(r *Replica) { r.Confirmed = false })

// wants lets LINSTOR want a quorum, and everybody run it.
func wants(quorum string) edit {
	return func(in *Input) {
		in.Resource.Quorum = quorum
		everywhereAsListed(in)
	}
}

// everywhereAsListed lets everybody run what LINSTOR wants.
func everywhereAsListed(in *Input) {
	for i := range in.Resource.Replicas {
		in.Resource.Replicas[i].Confirmed, in.Resource.Replicas[i].Votes = in.Resource.fences(), nil
	}
}

func runningPod(name string) Pod {
	return Pod{
		Namespace: "default", Name: name, Since: ago(time.Hour), Ran: ago(time.Hour), Runs: true,
		HasRun: true, Selected: true, Owned: true, Places: Places{Known: true, Fit: true},
	}
}

// terminates lets a pod be terminating, with so much of its grace period left.
func terminates(left time.Duration) func(*Pod) {
	return func(p *Pod) { p.Terminating, p.Grace, p.Deleting = true, time.Minute, now.Add(left-time.Minute) }
}

// crashed is the same volume a minute after A lost power: LINSTOR says OFFLINE, no peer reaches A, the others may promote.
func crashed() Input {
	in := healthy()
	unreachable(&in)
	in.Node.LeaseSilence = time.Minute
	return in
}

// isolated is the same volume a minute after A lost its DRBD network alone.
func isolated() Input {
	in := healthy()
	takeover(&in)
	a := replicaOf(&in, nodeA)
	a.Score = held(0, time.Minute)
	a.Connections = map[string]Fact[bool]{nodeB: held(false, time.Minute), nodeT: held(false, time.Minute)}
	return in
}

// ioErrors is the same volume after A came back to peers that had gone on without it and was demoted by force.
func ioErrors() Input {
	in := healthy()
	takeover(&in)
	a := replicaOf(&in, nodeA)
	a.InUse, a.Score, a.LastInUse = held(false, time.Minute), held(0, time.Minute), ago(time.Minute)
	return in
}

// demoted is the same volume after A came back as Secondary under the pod that had it mounted.
func demoted() Input {
	in := healthy()
	takeover(&in)
	a := replicaOf(&in, nodeA)
	a.InUse, a.Score, a.LastInUse = held(false, time.Minute), held(10102, time.Minute), ago(time.Minute)
	connectedTo(nodeA, true)(&in)
	return in
}

// gone is the same volume after LINSTOR removed A's replica.
func gone() Input {
	in := healthy()
	takeover(&in)
	in.Resource.SetSince, in.Resource.Left = ago(time.Minute), []string{nodeA}
	in.Resource.Replicas = in.Resource.Replicas[1:]
	return in
}

// takeover lets the peers of A lose it and be promotable.
func takeover(in *Input) {
	connectedTo(nodeA, false)(in)
	for i := range in.Resource.Replicas {
		if in.Resource.Replicas[i].Node != nodeA {
			in.Resource.Replicas[i].MayPromote = held(true, time.Minute)
		}
	}
}

func unreachable(in *Input) {
	takeover(in)
	a := replicaOf(in, nodeA)
	a.Online, a.Reports = held(false, time.Minute), held(false, time.Minute)
	a.MayPromote, a.InUse, a.Score = untold[bool](time.Minute), untold[bool](time.Minute), untold[int](time.Minute)
	a.Connections, a.LastInUse = nil, ago(time.Minute)
}

// connectedTo lets every other replica report its connection to the node.
func connectedTo(node string, connected bool) edit {
	return func(in *Input) {
		for i := range in.Resource.Replicas {
			if r := &in.Resource.Replicas[i]; r.Node != node {
				r.Connections = map[string]Fact[bool]{node: held(connected, time.Minute)}
			}
		}
	}
}

// begunFor lets a fail-over of a pod have begun because its node lost the quorum.
func begunFor(pod string) edit {
	return func(in *Input) {
		in.Pods[0].UID = "web-0"
		in.Attachment.Marked, in.Attachment.Noted, in.Attachment.Reason, in.Attachment.Pods = true, true, QuorumLost, []types.UID{types.UID(pod)}
	}
}

// twoPrimaries lets DRBD accept a second Primary.
func twoPrimaries(in *Input) { in.Resource.TwoPrimaries = true }

// justNow lets A have changed its state a moment ago.
var justNow = at(nodeA, func(r *Replica) { r.InUse = held(false, 100*time.Millisecond) })

// oneSeesAPrimary lets the tie-breaker be connected to A, and see a Primary.
var oneSeesAPrimary = at(nodeT, func(r *Replica) {
	r.MayPromote, r.Connections = held(false, time.Minute), map[string]Fact[bool]{nodeA: held(true, time.Minute)}
})

// kubeletDead is the volume after kubelet and containers of A died while its kernel lives: Secondary, connected, and every node may promote it.
func kubeletDead() Input {
	in := demoted()
	in.Node.LeaseSilence = time.Minute
	return in
}

// replicaOf returns the replica on a node for an edit in place.
func replicaOf(in *Input, node string) *Replica {
	for i := range in.Resource.Replicas {
		if in.Resource.Replicas[i].Node == node {
			return &in.Resource.Replicas[i]
		}
	}
	return new(Replica{Node: node})
}

// at edits the replica on one node.
func at(node string, change func(*Replica)) edit {
	return func(in *Input) { change(replicaOf(in, node)) }
}

// silent lets LINSTOR know nothing of the replica on a node, whose satellite is OFFLINE.
func silent(node string) edit {
	return at(node, func(r *Replica) {
		r.Online, r.Reports = held(false, time.Minute), held(false, time.Minute)
		r.MayPromote, r.InUse, r.Score = untold[bool](time.Minute), untold[bool](time.Minute), untold[int](time.Minute)
		r.Connections = nil
	})
}

// hasLostDisks lets a tie-breaker deny that it is connected to a disk.
func hasLostDisks(r *Replica) {
	r.Connections = map[string]Fact[bool]{nodeA: held(false, time.Minute), nodeB: held(false, time.Minute)}
}

// blindFor lets LINSTOR be blind for a node: nothing that it says of the replica there is known.
func blindFor(node string) edit {
	return at(node, func(r *Replica) {
		*r = Replica{Node: node, Diskless: r.Diskless, Blind: true, LastInUse: r.LastInUse, Confirmed: r.Confirmed, Votes: r.Votes}
	})
}

// withThirdDisk adds a diskful replica on C that looks like the one on B, and that everybody knows of.
func withThirdDisk(in *Input) {
	c := *replicaOf(in, nodeB)
	c.Node, c.Connections = nodeC, maps.Clone(c.Connections)
	in.Resource.Replicas = append(in.Resource.Replicas, c)
	everywhereAsListed(in)
}

// withoutTieBreaker removes the replica on T, of which everybody knows.
func withoutTieBreaker(in *Input) {
	var kept []Replica
	for _, r := range in.Resource.Replicas {
		if r.Node != nodeT {
			kept = append(kept, r)
		}
	}
	in.Resource.Replicas = kept
	everywhereAsListed(in)
}

func theLease(silence time.Duration) edit {
	return func(in *Input) { in.Node.LeaseKnown, in.Node.LeaseSilence = true, silence }
}

func thePod(change func(*Pod)) edit {
	return func(in *Input) { change(&in.Pods[0]) }
}

func otherVolume(change edit) edit {
	return thePod(func(p *Pod) {
		other := isolated()
		change(&other)
		p.Others = append(p.Others, OtherVolume{Name: "pv-2", Resource: other.Resource})
	})
}

// scenario is one case of a table: a starting point, what is different, and the outcome.
type scenario struct {
	from   func() Input
	edit   edit
	want   Verdict
	reason Reason
	state  State // not compared when empty
}

func (s scenario) input() Input {
	in := s.from()
	if s.edit != nil {
		s.edit(&in)
	}
	return in
}

type outcome struct {
	Verdict Verdict
	Reason  Reason
	State   State
}

func runScenarios(t *testing.T, scenarios map[string]scenario) {
	t.Helper()
	for name, s := range scenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := Decide(s.input())
			got, want := outcome{d.Verdict, d.Reason, d.State}, outcome{s.want, s.reason, s.state}
			if want.State == "" {
				want.State = got.State
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("Decide (-want +got):\n%s%s", diff, d.Message)
			}
			if d.Message == "" {
				t.Error("Decide explains nothing")
			}
		})
	}
}

// theGap is how long A's kubelet takes from one renewal to the next.
func theGap(d time.Duration) edit {
	return func(in *Input) { in.Node.LeaseGap = d }
}

// observed is what can be known of a node that runs one of several settings.
func observed(settings []setting) (confirmed bool, votes []evidence.Vote) {
	confirmed = len(settings) > 0
	kinds := map[string]evidence.Kind{}
	for i, s := range settings {
		confirmed = confirmed && evidence.Fences(s.quorum, len(s.diskful))
		here := map[string]evidence.Kind{}
		for _, n := range s.diskful {
			here[n] = evidence.WithDisk
		}
		for _, n := range s.diskless {
			here[n] = evidence.WithoutDisk
		}
		for n, kind := range here {
			if _, ok := kinds[n]; !ok && i > 0 {
				kinds[n] = evidence.Absent
			}
			kinds[n] |= kind
		}
		for n := range kinds {
			if _, ok := here[n]; !ok {
				kinds[n] |= evidence.Absent
			}
		}
	}
	for n, kind := range kinds {
		votes = append(votes, evidence.Vote{Node: n, May: kind})
	}
	return confirmed, votes
}
