package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

// An ordinary history is one of a cluster in which nothing goes wrong but that nodes crash: people and controllers do what
// they do every day. None of it may hold a fail-over up because the settings of a node are not known, beyond what it costs to learn
// them: a second after the first report of a new volume, 25 s where nobody has heard that because LINSTOR had just started, after the first install
// or where all of ours were restarted, and a minute after each satellite's restart where a person has set quorum.

// What is done every day, beside what other histories know.
const (
	NewVolume      Deed = "create a volume, as the CSI driver does"
	PlaceRest      Deed = "place the other replicas of the new volume"
	StartPod       Deed = "start the pod of the new volume"
	Evacuate       Deed = "move the replica"
	MoveTieBreaker Deed = "move the tie-breaker"
)

// GenerateOrdinary returns the ordinary history of a seed.
func GenerateOrdinary(seed uint64) History {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 1)), history: History{Seed: seed, Ordinary: true}}
	w := &g.history.World
	for i := range pick(g, 3, 4, 4, 5) {
		w.Nodes = append(w.Nodes, "node-"+string(rune('a'+i)))
	}
	w.Processes, w.TieBreakers, w.Replay = 3, true, linstorsim.Immediately
	w.Lag, w.PingTimeout, w.Detect = 50*time.Millisecond, 6*time.Second, make(map[string]time.Duration)
	g.drawDetection()
	for i := range 1 + g.IntN(2) {
		nodes := slices.Clone(w.Nodes)
		g.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
		v := Volume{Name: fmt.Sprintf("v%d", i), Handle: fmt.Sprintf("pvc-v%d", i), Kind: Filesystem, Diskful: nodes[:2], TieBreaker: nodes[2]}
		if g.chance(40) {
			v.Diskful, v.TieBreaker = nodes[:3], ""
		}
		w.Volumes = append(w.Volumes, v)
		w.Workloads = append(w.Workloads, Workload{
			Name: fmt.Sprintf("pod-%d", i), Volumes: []string{v.Name}, Nodes: nodes, Selected: true, Stop: time.Second,
		})
	}
	at := g.milliseconds(0, 5*time.Second)
	if g.chance(35) {
		if g.chance(40) { // nobody may hear of it
			g.add(at, Step{What: StopLinstor})
			at += g.milliseconds(time.Second, 20*time.Second)
			g.add(at, Step{What: StartLinstor})
			at += g.milliseconds(0, 15*time.Second)
		}
		at = g.newVolume(at)
	}
	for range g.IntN(4) {
		at = g.ordinary(at)
		at += g.milliseconds(100*time.Millisecond, pick(g, 2*time.Second, 15*time.Second, 90*time.Second))
	}
	g.add(at, Step{What: Crash, Node: g.home()})
	w.Clients, w.GroupQuorum = g.chance(50), g.chance(30)
	g.sort()
	last := g.space()
	g.history.Length = last + 90*time.Second
	return g.history
}

// newResource is the resource of a volume that is made in the course of a history.
const newResource = "pvc-n"

// newVolume adds a volume with a pod, which come later; the pod's node may be the one that crashes soon afterwards.
func (g *generator) newVolume(at time.Duration) time.Duration {
	w := &g.history.World
	v, p := w.Volumes[0], w.Workloads[0]
	v.Name, v.Handle, v.Later = "n", newResource, true
	p.Name, p.Volumes, p.Later = "pod-n", []string{v.Name}, true
	w.Volumes, w.Workloads = append(w.Volumes, v), append(w.Workloads, p)
	g.add(at, Step{What: NewVolume, On: v.Name})
	placed := at + g.milliseconds(0, 600*time.Millisecond)
	g.add(placed, Step{What: PlaceRest, On: v.Name})
	g.add(placed+pick(g, 0, 0, g.milliseconds(0, 20*time.Second)), Step{What: StartPod, On: v.Name})
	return at + g.milliseconds(time.Second, 20*time.Second)
}

// ordinary adds something that is done every day and returns when it is over.
func (g *generator) ordinary(at time.Duration) time.Duration {
	v, node := g.volume(), g.node()
	switch g.IntN(13) {
	case 0, 1:
		g.add(at, Step{What: AddReplica, On: v.Name, Node: node, Value: diskless})
		at += g.milliseconds(time.Second, 10*time.Second)
		g.add(at, Step{What: RemoveReplica, On: v.Name, Node: node})
	case 2:
		g.add(at, Step{What: AddReplica, On: v.Name, Node: node, Value: diskful})
	case 3:
		g.add(at, Step{What: RemoveReplica, On: v.Name, Node: g.other(g.home())})
	case 4:
		g.add(at, Step{What: ToggleDisk, On: v.Name, Node: node, Value: pick(g, diskful, diskless)})
	case 5:
		g.add(at, Step{What: Evacuate, On: v.Name, Node: pick(g, v.Diskful...), Peer: node})
	case 6:
		g.add(at, Step{What: MoveTieBreaker, On: v.Name, Node: node})
	case 7, 8:
		return g.reboot(at)
	case 9:
		for _, name := range g.history.World.Nodes {
			g.nodeFault(at, g.milliseconds(500*time.Millisecond, 3*time.Second), StopSatellite, name)
			at += g.milliseconds(12*time.Second, 25*time.Second)
		}
	case 10:
		g.add(at, Step{What: RestartLinstor})
		at += 30 * time.Second
	case 11:
		for _, s := range []Step{{What: RestartProcess, On: "1"}, {What: RestartProcess, On: "2"}, {What: ChangeLeader}} {
			g.add(at, s)
			at += g.milliseconds(8*time.Second, 20*time.Second)
		}
	default:
		g.add(at, Step{What: pick(g, SetQuorum, SetGroupQuorum), On: v.Name, Value: "majority"})
	}
	return at
}

// reboot lets a node be away for a while: its pods move, and some come back.
func (g *generator) reboot(at time.Duration) time.Duration {
	node, span := g.node(), g.milliseconds(15*time.Second, 90*time.Second)
	g.nodeFault(at, span, Crash, node)
	return at + span + 30*time.Second
}

// onOrdinary is what is done every day and nowhere else.
var onOrdinary = map[Deed]func(w *world, s Step){
	NewVolume: (*world).createVolume,
	PlaceRest: (*world).placeRest,
	StartPod: func(w *world, _ Step) {
		for _, p := range w.history.World.Workloads {
			if p.Later {
				w.addWorkload(p)
			}
		}
	},
	Evacuate: func(w *world, s Step) {
		if w.Linstor.AddReplica(w.resource(s.On), drbd.ReplicaSpec{Node: s.Peer}) == nil {
			_ = w.Linstor.RemoveReplica(w.resource(s.On), s.Node)
		}
	},
	MoveTieBreaker: func(w *world, s Step) {
		for _, node := range w.history.World.Nodes {
			if node == w.volume(s.On).TieBreaker {
				_ = w.Linstor.AddReplica(w.resource(s.On), drbd.ReplicaSpec{Node: s.Node, TieBreaker: true})
				_ = w.Linstor.RemoveReplica(w.resource(s.On), node)
			}
		}
	},
}

// createVolume creates a volume as the CSI driver does, with the replica of the pod's node alone.
func (w *world) createVolume(s Step) {
	v := w.volume(s.On)
	first := drbd.ReplicaSpec{Node: v.Diskful[0]}
	spec := linstorsim.ResourceSpec{Spec: drbd.Spec{Name: v.Resource(), Replicas: []drbd.ReplicaSpec{first}}}
	_ = w.Linstor.CreateResource(spec)
}

// placeRest places the other replicas.
func (w *world) placeRest(s Step) {
	v := w.volume(s.On)
	if len(w.Linstor.ReplicaNodes(v.Resource())) == 0 {
		return // LINSTOR could not create it
	}
	rest := []drbd.ReplicaSpec{}
	for _, node := range v.Diskful[1:] {
		rest = append(rest, drbd.ReplicaSpec{Node: node})
	}
	if v.TieBreaker != "" {
		rest = append(rest, drbd.ReplicaSpec{Node: v.TieBreaker, TieBreaker: true})
	}
	_ = w.Linstor.Place(v.Resource(), rest...)
	w.addVolume(v)
}

// unconfirmed counts, in an ordinary history, a decision that a node's settings are not known, unless it may be so.
func (w *world) unconfirmed(reason, resource string) {
	if !w.history.Ordinary || reason != string(failover.QuorumUnconfirmed) {
		return
	}
	if w.maybeUnknown(resource) {
		w.count("ordinary: QuorumUnconfirmed where it may be")
		return
	}
	w.count(OrdinaryBlocked)
	w.note("BLOCKED without need: " + resource)
}

// OrdinaryBlocked counts how often an ordinary operation held a fail-over up. It must not.
const OrdinaryBlocked = "ordinary: QuorumUnconfirmed where it may not be"

const (
	// learning is how long settings may be unknown after the first install, where all of ours were restarted, or of a volume that was made before
	// anybody heard LINSTOR's events.
	learning = 25 * time.Second
	// deaf is how long after its start nobody may hear LINSTOR's events.
	deaf = 15 * time.Second
	// hearing is how long after a satellite's restart.
	hearing = time.Minute
)

// maybeUnknown tells whether what a node runs of a resource need not be known at the moment.
func (w *world) maybeUnknown(resource string) bool {
	restarted := true
	for _, p := range w.allProcesses() {
		restarted = restarted && time.Since(p.begun) < learning
	}
	unheard := resource == newResource && w.history.crashesUnheard()
	w.mu.Lock()
	defer w.mu.Unlock()
	set := w.changedAt[resource]
	if marked := w.marked[resource]; marked.After(set) {
		set = marked
	}
	return restarted || unheard || w.byPerson[resource] && !w.heardSince(set.Add(hearing))
}

// crashesUnheard tells whether a node crashes before anybody can know what it runs of the new volume, whose making nobody may have heard.
func (h History) crashesUnheard() bool {
	at := func(what Deed) time.Duration {
		i := slices.IndexFunc(h.Steps, func(s Step) bool { return s.What == what })
		if i < 0 {
			return -time.Hour
		}
		return h.Steps[i].At
	}
	made := at(NewVolume)
	return made-at(StartLinstor) < deaf && slices.ContainsFunc(h.Steps, func(s Step) bool {
		return s.What == Crash && made < s.At && s.At < made+learning
	})
}

// heardSince tells whether every satellite has come back after a moment, and stayed for a minute, which only a person's quorum needs; the lock is held.
func (w *world) heardSince(moment time.Time) bool {
	for _, node := range w.history.World.Nodes {
		until := time.Now()
		if silent, is := w.silent[node]; is {
			until = silent
		}
		if w.returned[node].Before(moment) || until.Sub(w.returned[node]) < hearing {
			return false
		}
	}
	return true
}
