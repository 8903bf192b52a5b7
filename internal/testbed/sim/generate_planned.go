package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

// leavesIn is in how many histories of a hundred that are neither stories nor ordinary a node leaves on purpose: more than a third of all.
const leavesIn = 48

// leave lets nodes leave in some histories, beside all that happens there or after it was mended. It draws by random numbers of its own:
// what was drawn before is as it was.
func leave(h History) History {
	g := &leaver{generator: &generator{Rand: rand.New(rand.NewPCG(h.Seed, 3)), history: h}}
	if !g.chance(leavesIn) {
		return h
	}
	g.drawPlannedWorld()
	g.leave()
	g.Rand = rand.New(rand.NewPCG(h.Seed, 4)) // what was drawn before stays as it is when more is drawn
	g.also()
	g.sort()
	g.history.Length = max(g.history.Length, g.space()) + g.milliseconds(5*time.Second, 60*time.Second)
	return g.history
}

// leaver draws what happens to a node that leaves.
type leaver struct {
	*generator
	// node leaves, from at on.
	node string
	at   time.Duration
	// quiet is set where nothing happens beside that.
	quiet bool
}

// maybe draws a kind with a probability of percent.
func (g *leaver) maybe(percent int, k Kind) bool {
	if !g.chance(percent) {
		return false
	}
	g.drew(k)
	return true
}

func (g *leaver) drawPlannedWorld() {
	w := &g.history.World
	w.Planned = Planned{
		Is: true, SyncRate: 1024 * pick[int64](g.generator, 50, 100, 100, 500), MaxNodes: pick(g.generator, 1, 1, 2), MaxCopies: pick(g.generator, 1, 4, 4),
		Balances: make(map[string]string),
	}
	w.TieBreakers = w.TieBreakers || g.chance(85)
	w.Planned.Balancing = g.maybe(35, Balances)
	for i, v := range w.Volumes {
		first := !slices.ContainsFunc(w.Volumes[:i], func(other Volume) bool { return other.Resource() == v.Resource() }) // a resource has one value
		if g.chance(8) && v.Released == "" && first {
			w.Planned.Balances[v.Name] = pick(g.generator, "true", "false")
		}
	}
	if g.chance(45) {
		g.pin()
	}
	if g.maybe(10, Tolerating) {
		g.someWorkload().Tolerant = true
	}
	if g.maybe(40, OperatorRuns) {
		g.add(g.moment(), Step{What: OperatorOn})
	}
}

// pin lets PersistentVolumes allow only the nodes with a disk, mostly beside a controller that keeps that up to date.
func (g *leaver) pin() {
	w := &g.history.World
	for i := range w.Volumes {
		w.Volumes[i].Pinned = w.Volumes[i].Released == "" && !w.Volumes[i].Later && g.chance(70)
	}
	if g.maybe(65, AffinityRuns) {
		g.add(0, Step{What: AffinityOn})
	} else {
		g.drew(PinnedForGood)
	}
}

// leave lets one node leave, or two, and most of them come back.
func (g *leaver) leave() {
	g.node, g.at = g.home(), g.milliseconds(0, 40*time.Second)
	if g.chance(50) {
		g.drew(LeavesAfter)
		g.add(g.history.Length, Step{What: MendAll})
		g.at = g.history.Length + g.milliseconds(20*time.Second, time.Minute)
	} else {
		g.drew(LeavesAmid)
	}
	if g.chance(15) {
		g.node = g.generator.node()
	}
	g.quiet = g.chance(35)
	if !g.quiet && g.maybe(14, AmidMove) {
		g.amidMove()
		return
	}
	if !g.quiet {
		g.beside()
	}
	stay := g.at + pick(g.generator, g.milliseconds(5*time.Second, time.Minute), g.milliseconds(time.Minute, 3*time.Minute),
		g.milliseconds(200*time.Second, 330*time.Second))
	if g.quiet && g.chance(70) { // there is time for all of it
		stay = g.at + g.milliseconds(260*time.Second, 340*time.Second)
	}
	g.leaves(g.node, g.at, stay)
	if !g.quiet && g.maybe(40, SecondLeaves) {
		second := max(0, g.at+g.milliseconds(-10*time.Second, 70*time.Second))
		g.leaves(g.other(g.node), second, stay+g.milliseconds(-20*time.Second, 60*time.Second))
	}
}

// amidMove lets a node leave, drained, and stay after all when LINSTOR has begun to move its volumes, which it then goes on with: it deletes them there as soon
// as nobody uses them. Another node leaves then, whose only good copies may be those.
func (g *leaver) amidMove() {
	other := g.other(g.node)
	g.history.World.Planned.SyncRate = pick[int64](g.generator, 10*1024, 25*1024, 50*1024)
	drain := g.at + g.milliseconds(0, 10*time.Second)
	stay := drain + g.milliseconds(10*time.Second, 90*time.Second)
	second := stay + g.milliseconds(0, 100*time.Second)
	g.add(g.at, Step{What: Leave, Node: g.node, Value: string(evacuation.Everything)})
	g.add(drain, Step{What: DrainNode, Node: g.node})
	g.add(stay, Step{What: Stay, Node: g.node})
	g.add(stay, Step{What: Uncordon, Node: g.node})
	if g.chance(40) {
		g.add(stay+g.milliseconds(0, 60*time.Second), Step{What: DrainNode, Node: other}) // whose pods come back to the first one
		g.add(second, Step{What: Uncordon, Node: other})
	}
	g.add(second, Step{What: Leave, Node: other, Value: pick(g.generator, string(evacuation.LastCopies), string(evacuation.Everything))})
	if g.chance(50) {
		g.add(second+g.milliseconds(0, 60*time.Second), Step{What: DrainNode, Node: other})
	}
	if g.chance(50) {
		g.add(second, Step{What: SwitchOffSafe, Node: other})
	}
}

// changesValue lets somebody want copies only, and then all of it again, or the other way round.
func (g *leaver) changesValue(node string, at time.Duration, value string) {
	changed := at + g.milliseconds(5*time.Second, 100*time.Second)
	to := map[string]string{string(evacuation.Everything): string(evacuation.LastCopies), string(evacuation.LastCopies): string(evacuation.Everything)}[value]
	g.add(changed, Step{What: Leave, Node: node, Value: to})
	if g.chance(70) {
		g.add(changed+g.milliseconds(time.Second, 100*time.Second), Step{What: Leave, Node: node, Value: value})
	}
}

// leaves lets a node leave, be drained, and mostly stay after all.
func (g *leaver) leaves(node string, at, stay time.Duration) {
	value := string(evacuation.Everything)
	switch {
	case g.maybe(10, MeansNothing):
		value = pick(g.generator, "all", wrongEffect)
	case g.maybe(35, LastCopiesOnly):
		value = string(evacuation.LastCopies)
	default:
		g.drew(Everything)
	}
	g.add(at, Step{What: Leave, Node: node, Value: value})
	if value != "all" && value != wrongEffect && g.maybe(12, ValueChanges) {
		g.changesValue(node, at, value)
	}
	if g.maybe(72, Drained) {
		drain := max(0, at+g.milliseconds(-5*time.Second, 75*time.Second))
		g.add(drain, Step{What: DrainNode, Node: node})
		if g.chance(60) {
			g.add(max(drain, stay)+g.milliseconds(0, 20*time.Second), Step{What: Uncordon, Node: node})
		}
	}
	if g.maybe(25, SafePowerOff) {
		g.add(at+g.milliseconds(0, 50*time.Second), Step{What: SwitchOffSafe, Node: node})
		g.add(stay+g.milliseconds(0, 40*time.Second), Step{What: Return, Node: node})
	}
	if g.maybe(70, Untainted) {
		g.add(stay, Step{What: Stay, Node: node})
		if g.chance(15) {
			g.add(stay+g.milliseconds(100*time.Millisecond, 30*time.Second), Step{What: Leave, Node: node, Value: value})
		}
	}
}

// beside draws what happens beside that.
func (g *leaver) beside() {
	other := g.other(g.node)
	if g.maybe(18, Cordoned) {
		g.fault(g.during(), g.span(), Step{What: Cordon, Node: other}, Uncordon)
	}
	if g.maybe(17, DiskFails) {
		v := g.volume()
		g.fault(g.during(), g.span(), Step{What: FailDisk, On: v.Name, Node: pick(g.generator, append(slices.Clone(v.Diskful), other)...)}, ReplaceDisk)
	}
	if g.maybe(17, PoolFull) {
		g.fault(max(0, g.at-g.milliseconds(0, 5*time.Second)), g.span(), Step{What: FillPool, Node: other}, EmptyPool)
	}
	if g.maybe(18, LinstorRestarts) {
		g.add(g.during(), Step{What: RestartLinstor})
	}
	if g.maybe(25, NodeFails) {
		g.nodeFault(g.during(), g.span(), pick(g.generator, Crash, Crash, Isolate, StopSatellite, CutSatellite, IsolateDRBD), pick(g.generator, g.node, other))
	}
	if g.maybe(25, Snapshots) {
		g.add(max(0, g.at-g.milliseconds(0, 10*time.Second)), Step{What: TakeSnapshot, On: g.volume().Name})
	}
	if g.maybe(17, ByAnother) {
		node := pick(g.generator, g.node, other)
		at := max(0, g.at+g.milliseconds(-10*time.Second, 60*time.Second))
		g.add(at, Step{What: EvacuateOther, Node: node})
		if g.chance(50) {
			g.add(at+g.milliseconds(5*time.Second, time.Minute), Step{What: RestoreOther, Node: node})
		}
	}
	if g.chance(8) {
		g.add(g.during(), Step{What: RestoreOther, Node: g.node})
	}
	if g.history.World.Planned.Balancing && g.chance(30) {
		g.add(g.during(), Step{What: BalancingOff})
		g.add(g.during(), Step{What: BalancingOn})
	}
	if g.chance(10) {
		g.add(g.during(), Step{What: ChangeLeader})
	}
	if g.chance(10) {
		g.add(g.during(), Step{What: AffinityOff})
		g.add(g.during(), Step{What: AffinityOn})
	}
}

// also draws what else there may be, and what else may happen.
func (g *leaver) also() {
	if g.maybe(14, GroupLists) {
		others := slices.DeleteFunc(slices.Clone(g.history.World.Nodes), func(node string) bool { return node == g.node })
		g.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
		g.history.World.Planned.Group = append([]string{g.node}, others[:g.IntN(len(others))]...)
		slices.Sort(g.history.World.Planned.Group)
	}
	if g.quiet {
		return
	}
	v, other := g.copied()
	if g.maybe(25, ReplicaGoes) {
		s := Step{What: FlagReplica, On: v.Name, Node: other, Value: pick(g.generator, replicaFlags...)}
		g.fault(g.around(), pick(g.generator, g.span(), 2*time.Minute), s, UnflagReplica)
	} else if g.maybe(20, KubeletSilent) {
		g.nodeFault(g.around(), pick(g.generator, g.span(), 2*time.Minute), SilenceKubelet, other)
	}
	if slices.Contains(v.Diskful, g.node) && slices.Contains(v.Diskful, other) && g.maybe(20, CopyUnsure) {
		g.unsure(v, other)
	}
	if g.maybe(16, PausedMeanwhile) {
		g.fault(g.during(), g.span(), Step{What: Pause}, Unpause)
	}
	if g.maybe(16, MostLost) {
		at, span := g.during(), g.span()
		rest := slices.DeleteFunc(slices.Clone(g.history.World.Nodes), func(node string) bool { return node == g.node })
		for _, node := range rest[:len(g.history.World.Nodes)/2+1] {
			g.nodeFault(at+g.milliseconds(0, 5*time.Second), span, pick(g.generator, Crash, Isolate, CutSatellite), node)
		}
	}
	if g.maybe(17, Autoscaled) {
		g.fault(g.around(), g.span(), Step{What: ScaleDown, Node: g.other(g.node)}, ScaleUp)
	}
}

// unsure switches the quorum of a volume off, so that nothing but the copy itself tells whether it may be relied upon: a person has it deleted or
// deactivated, or DRBD does not reach it, mostly from before the node is drained on, so that what the pod writes last does not arrive.
func (g *leaver) unsure(v Volume, other string) {
	for i := range g.history.World.Volumes {
		if g.history.World.Volumes[i].Resource() == v.Resource() {
			g.history.World.Volumes[i].Quorum = drbd.QuorumOff
		}
	}
	at, span := g.around(), g.milliseconds(time.Minute, 3*time.Minute)
	if g.chance(50) {
		g.fault(at, span, Step{What: FlagReplica, On: v.Name, Node: other, Value: pick(g.generator, replicaFlags...)}, UnflagReplica)
		return
	}
	if i := slices.IndexFunc(g.history.Steps, func(s Step) bool { return s.What == DrainNode && s.Node == g.node }); i >= 0 {
		at = max(0, g.history.Steps[i].At-g.milliseconds(0, 15*time.Second))
	}
	g.nodeFault(at, span, IsolateDRBD, pick(g.generator, g.node, other))
}

// copied is a volume with a copy on another node, the only one if there is such a volume, and that node.
func (g *leaver) copied() (Volume, string) {
	v := g.volume()
	for _, u := range g.history.World.Volumes {
		if u.Released == "" && len(u.Diskful) == 2 && slices.Contains(u.Diskful, g.node) {
			v = u
		}
	}
	others := slices.DeleteFunc(slices.Clone(v.Diskful), func(node string) bool { return node == g.node })
	if len(others) == 0 {
		return v, g.other(g.node)
	}
	return v, pick(g.generator, others...)
}

// around is some moment about the time at which the node begins to leave.
func (g *leaver) around() time.Duration {
	return max(0, g.at+g.milliseconds(-10*time.Second, 70*time.Second))
}

// during is some moment while the node is about to leave.
func (g *leaver) during() time.Duration { return g.at + g.milliseconds(0, 100*time.Second) }
