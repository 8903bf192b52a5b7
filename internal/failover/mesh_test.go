package failover

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evidence"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

const meshResource = "pvc-1"

// member is a node of a mesh: its replica, and the configuration that it has applied.
type member struct {
	spec   drbd.ReplicaSpec
	quorum string
	// peers are those that it has a connection to; nil is all others.
	peers []drbd.ReplicaSpec
	// confirmed is set where that is known, and unsure where it may count each peer as anything, for all that is known.
	confirmed, unsure bool
	// forgotten is set where LINSTOR does not list it.
	forgotten bool
}

// mesh is a resource, whose first member is Primary, and what happens to it.
type mesh struct {
	members []member
	quorum  string // that LINSTOR wants
	volumes int
	// left is a member that goes before all else, in order or not; 0 for none, for that is the Primary.
	left    int
	inOrder bool
	// cuts are links that end after that, by their members' numbers.
	cuts [][2]int
}

func (m mesh) name(i int) string { return m.members[i].spec.Node }

func (m mesh) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "LINSTOR wants %s for %d volumes", m.quorum, m.volumes)
	for _, x := range m.members {
		fmt.Fprintf(&b, "\n  %s runs %s, diskless %t, client %t, confirmed %t, unsure %t", x.spec.Node, x.quorum, x.spec.Diskless, x.spec.Client, x.confirmed, x.unsure)
		if x.peers != nil {
			fmt.Fprintf(&b, ", peers %v", x.peers)
		}
	}
	fmt.Fprintf(&b, "\n  left: %d, in order: %t; links cut: %v", m.left, m.inOrder, m.cuts)
	return b.String()
}

// play lets DRBD live through it, in a bubble of its own time. It is nil where the Primary could not be one.
func (m mesh) play(t *testing.T) *drbd.Cluster {
	t.Helper()
	c := drbd.NewCluster(drbd.Options{DetectionDelay: time.Second, ReconnectDelay: drbd.Immediately})
	notice := func() { <-time.After(2 * time.Second) } // all links that were cut are noticed together
	var specs []drbd.ReplicaSpec
	for _, x := range m.members {
		c.AddNode(x.spec.Node)
		specs = append(specs, x.spec)
	}
	if err := c.CreateResource(drbd.Spec{Name: meshResource, Volumes: m.volumes, Quorum: "off", Replicas: specs}); err != nil {
		t.Fatal(err)
	}
	if err := c.Open(meshResource, m.name(0), false); err != nil {
		return nil
	}
	for _, x := range m.members {
		config := drbd.Config{Replica: x.spec, Options: map[string]string{drbd.OptionQuorum: x.quorum}, Peers: x.peers}
		if x.peers == nil {
			config.Peers = slices.DeleteFunc(slices.Clone(specs), func(s drbd.ReplicaSpec) bool {
				return s.Node == x.spec.Node || without(s) && without(x.spec)
			})
		}
		if err := c.Adjust(meshResource, config); err != nil {
			return nil
		}
	}
	if m.left > 0 && m.inOrder {
		c.Shutdown(m.name(m.left))
	} else if m.left > 0 {
		c.Crash(m.name(m.left))
	}
	notice()
	for _, cut := range m.cuts {
		c.CutLink(m.name(cut[0]), m.name(cut[1]))
	}
	notice()
	return c
}

func without(s drbd.ReplicaSpec) bool { return s.Diskless || s.TieBreaker || s.Client }

// shown is what LINSTOR shows of it, if it reaches some of the satellites.
func (m mesh) shown(c *drbd.Cluster, reached func(i int) bool) Input {
	in := healthy()
	in.Node.LeaseSilence = time.Hour
	in.Resource.Volumes, in.Resource.Quorum, in.Resource.Replicas = m.volumes, m.quorum, nil
	for i, x := range m.members {
		if x.forgotten {
			continue
		}
		r := Replica{
			Node: x.spec.Node, Diskless: without(x.spec), Client: x.spec.Client, LastInUse: ago(time.Hour),
			Online: held(false, time.Hour), Reports: held(false, time.Hour), Confirmed: x.confirmed, Proven: x.confirmed, Votes: x.votes(m),
		}
		state, up := c.Replica(meshResource, x.spec.Node)
		if up && reached(i) {
			r.Online, r.Reports = held(true, time.Hour), held(true, time.Hour)
			r.InUse, r.MayPromote, r.Score = held(state.Role == drbd.Primary, time.Hour), held(state.MayPromote, time.Hour), held(state.Score, time.Hour)
			r.Connections = make(map[string]Fact[bool], len(state.Connections))
			for peer, connection := range state.Connections {
				r.Connections[peer] = held(connection == drbd.Connected, time.Hour)
			}
		}
		in.Resource.Replicas = append(in.Resource.Replicas, r)
	}
	return in
}

// votes are whom a member may count, by what can be known of it: one that LINSTOR wants and that it does not list it may count or not.
func (x member) votes(m mesh) []evidence.Vote {
	if x.peers == nil && !x.unsure && !slices.ContainsFunc(m.members, func(x member) bool { return x.forgotten }) {
		return nil
	}
	votes := []evidence.Vote{{Node: x.spec.Node, May: evidence.KindOf(without(x.spec), x.spec.Client)}}
	for _, other := range m.members {
		if other.spec.Node == x.spec.Node || without(other.spec) && without(x.spec) {
			continue
		}
		may := evidence.KindOf(without(other.spec), other.spec.Client)
		if x.unsure {
			may |= evidence.WithDisk | evidence.WithoutDisk
		}
		if other.forgotten {
			may |= evidence.Absent
		}
		switch at := slices.IndexFunc(x.peers, func(s drbd.ReplicaSpec) bool { return s.Node == other.spec.Node }); {
		case x.peers == nil:
		case at < 0:
			may |= evidence.WithoutDisk | evidence.Absent
		case x.peers[at] != other.spec:
			may |= evidence.WithDisk | evidence.WithoutDisk
		}
		votes = append(votes, evidence.Vote{Node: other.spec.Node, May: may})
	}
	return votes
}

// tried counts what meshes have shown.
type tried struct{ states, lost, dead int }

// try decides on a mesh for sets of satellites that LINSTOR reaches, as bits.
func (m mesh) try(t *testing.T, n *tried, sets []int) {
	t.Helper()
	c := m.play(t)
	if c == nil {
		return
	}
	defer c.Stop()
	writes := c.CanWrite(meshResource, m.name(0))
	for _, reached := range sets {
		in := m.shown(c, func(i int) bool { return reached&(1<<i) != 0 })
		n.states++
		d := Decide(in)
		if d.Verdict != Lost {
			continue
		}
		n.lost++
		if !writes {
			n.dead++
			continue
		}
		t.Fatalf("%s: %s, and %s can write:\n%s\n  LINSTOR reaches %b", d.Reason, d.Message, m.name(0), m, reached)
	}
}

func nodesOf(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("node-%c", 'a'+i))
	}
	return names
}

// cutsApart are the links that end where some members are apart from the others.
func cutsApart(n, near int) (cuts [][2]int) {
	for a := range n {
		for b := a + 1; b < n; b++ {
			if (near>>a)&1 != (near>>b)&1 {
				cuts = append(cuts, [2]int{a, b})
			}
		}
	}
	return cuts
}

// All nodes run what LINSTOR wants: every mesh of two to four nodes, every quorum, any of the others gone before, and every cut in two.
func TestNoVolumeOfASettledMeshIsLostWhileItsPrimaryCanWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var n tried
		number := 0
		for size := 2; size <= 4; size++ {
			for _, quorum := range []string{"off", "1", "2", evidence.Majority, evidence.All} {
				eachSettled(size, quorum, func(m mesh) {
					if number++; testing.Short() && number%11 != 0 {
						return
					}
					m.volumes = 1 + number%2
					m.try(t, &n, allOf(1<<size))
				})
			}
		}
		n.report(t)
	})
}

// eachSettled visits the meshes of a size with a quorum, with any of the others gone before, and each cut in two. Those of up to three nodes have clients, which have
// no vote.
func eachSettled(size int, quorum string, visit func(mesh)) {
	kindsOf := 2 + min(1, 4-size)
	for kinds := range pow(kindsOf, size) {
		var members []member
		rest := kinds
		for _, node := range nodesOf(size) {
			spec := drbd.ReplicaSpec{Node: node, Diskless: rest%kindsOf == 1, Client: rest%kindsOf == 2}
			members = append(members, member{spec: spec, quorum: quorum, confirmed: true})
			rest /= kindsOf
		}
		for left := range 2*size - 1 {
			for near := 1; near < 1<<size; near += 2 { // the Primary is near itself
				visit(mesh{members: members, quorum: quorum, left: (left + 1) / 2, inOrder: left%2 == 0, cuts: cutsApart(size, near)})
			}
		}
	}
}

func allOf(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

func pow(base, exponent int) int {
	product := 1
	for range exponent {
		product *= base
	}
	return product
}

func (n tried) report(t *testing.T) {
	t.Helper()
	t.Logf("%d states, %d lost", n.states, n.lost)
	if n.lost < n.states/100 {
		t.Errorf("of %d states only %d were lost: that shows nothing", n.states, n.lost)
	}
}

// Five nodes that have not all applied the same.
func TestNoVolumeOfAnUnsettledMeshIsLostWhileItsPrimaryCanWrite(t *testing.T) {
	t.Parallel()
	meshes := 30000
	if testing.Short() {
		meshes = 5000
	}
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2)) // the same meshes each time
		var n tried
		for range meshes {
			m, near := unsettled(random)
			far := 1<<len(m.members) - 1&^near
			m.try(t, &n, []int{far, far &^ (1 << random.IntN(len(m.members))), random.IntN(1 << len(m.members)), 1 << random.IntN(len(m.members)), far | 1, far | near})
		}
		n.report(t)
	})
}

// unsettled draws a mesh, and who stays with the Primary, as bits.
func unsettled(random *rand.Rand) (m mesh, near int) {
	chance := func(percent int) bool { return random.IntN(100) < percent }
	size := 2 + random.IntN(4)
	m = mesh{quorum: pickOf(random, evidence.Majority, evidence.Majority, evidence.Majority, evidence.All, "2", "3"), volumes: 1 + random.IntN(2)}
	near = 1 | random.IntN(1<<size)
	for _, node := range nodesOf(size) {
		kind := random.IntN(10)
		m.members = append(m.members, member{
			spec: drbd.ReplicaSpec{Node: node, Diskless: kind >= 6 && kind < 9, Client: kind == 9}, quorum: m.quorum, confirmed: chance(80), unsure: chance(5),
		})
	}
	for i := range m.members {
		x := &m.members[i]
		if !x.confirmed && chance(80) {
			x.quorum = pickOf(random, "off", "off", "1", "2")
		}
		if !chance(25) {
			continue
		}
		x.peers = []drbd.ReplicaSpec{} // it has not heard of a peer, or takes one for what it was before
		for j, other := range m.members {
			spec := other.spec
			spec.Diskless = spec.Diskless != (chance(10) && !spec.Client && !without(x.spec))
			if i != j && !chance(15) && !(without(spec) && without(x.spec)) {
				x.peers = append(x.peers, spec)
			}
		}
	}
	if chance(40) {
		m.left, m.inOrder = random.IntN(size), chance(50)
	}
	if chance(80) {
		m.cuts = cutsApart(size, near)
	}
	for a := range size {
		for b := a + 1; b < size; b++ {
			if chance(7) {
				m.cuts = append(m.cuts, [2]int{a, b})
			}
		}
	}
	return m, near
}

func pickOf(random *rand.Rand, words ...string) string { return words[random.IntN(len(words))] }

// Meshes in which a rule was missing once.
func TestAPrimaryThatOthersLetWriteIsNotLost(t *testing.T) {
	t.Parallel()
	disk := func(node string) member {
		return member{spec: drbd.ReplicaSpec{Node: node}, quorum: evidence.Majority, confirmed: true}
	}
	diskless := func(node string) member {
		return member{spec: drbd.ReplicaSpec{Node: node, Diskless: true}, quorum: evidence.Majority, confirmed: true}
	}
	client := func(node string) member {
		return member{spec: drbd.ReplicaSpec{Node: node, Client: true}, quorum: evidence.Majority, confirmed: true}
	}
	lists := func(x member, peers ...member) member {
		x.peers = []drbd.ReplicaSpec{}
		for _, p := range peers {
			x.peers = append(x.peers, p.spec)
		}
		return x
	}
	off := func(x member) member {
		x.quorum, x.confirmed = "off", false
		return x
	}
	a, b, c, d, e := disk("node-a"), disk("node-b"), disk("node-c"), disk("node-d"), disk("node-e")
	for name, s := range map[string]struct {
		mesh    mesh
		reached int // by LINSTOR, as bits
	}{
		"a disk beside one without, which runs no quorum": {
			mesh{members: []member{diskless("node-a"), b, off(c), d}, cuts: cutsApart(4, 0b0101)}, 0b1010,
		},
		"a disk beside one without, which does not list the others": {
			mesh{members: []member{diskless("node-a"), b, lists(c, diskless("node-a")), d}, cuts: cutsApart(4, 0b0101)}, 0b1010,
		},
		"a tie-breaker that a client has no connection to": {
			mesh{members: []member{client("node-a"), lists(b, client("node-a")), c, diskless("node-d")}, cuts: [][2]int{{0, 1}}}, 0b0011,
		},
		"a disk that does not list it, and lends its data to a survivor": {
			mesh{members: []member{a, b, c, lists(d, b, c, e), lists(e, a, b, d)}, cuts: [][2]int{{0, 2}}}, 0b00100,
		},
		"a disk that LINSTOR has forgotten": {
			mesh{quorum: "2", members: []member{runs(a, "2"), runs(b, "2"), runs(c, "2"), forget(runs(d, "2"))}, cuts: cutsApart(4, 0b1001)}, 0b0110,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { s.mesh.stays(t, s.reached) })
		})
	}
}

// stays fails the test if the Primary cannot write, or its volume counts as lost.
func (m mesh) stays(t *testing.T, reached int) {
	t.Helper()
	m.volumes = 1
	if m.quorum == "" {
		m.quorum = evidence.Majority
	}
	c := m.play(t)
	defer c.Stop()
	if !c.CanWrite(meshResource, m.name(0)) {
		t.Fatalf("%s cannot write:\n%s", m.name(0), m)
	}
	in := m.shown(c, func(i int) bool { return reached&(1<<i) != 0 })
	if _, ok := survivorOf(in.Resource, m.name(0)); !ok {
		t.Errorf("nobody survives:\n%s", m)
	}
	if got := Decide(in); got.Verdict == Lost {
		t.Errorf("lost by %s: %s", got.Reason, got.Message)
	}
}

func runs(x member, quorum string) member {
	x.quorum = quorum
	return x
}

func forget(x member) member {
	x.forgotten = true
	return x
}
