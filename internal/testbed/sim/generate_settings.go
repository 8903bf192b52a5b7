package sim

import (
	"strconv"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

// untidySettings are drawn on the world and on the steps of the plots: what a node runs, and what LINSTOR wants, part ways.
var untidySettings = []untidiness{
	{SetOnDefinition, func(g *generator) bool { return g.changeQuorum(SetQuorum) }},
	{SetOnGroup, func(g *generator) bool { return g.changeQuorum(SetGroupQuorum) }},
	{SetOnController, func(g *generator) bool { return g.changeQuorum(SetControllerQuorum) }},
	{AdjustFailed, func(g *generator) bool { return g.breakAdjust(pick(g, atOptions, atPeers)) }},
	{AdjustHung, func(g *generator) bool { return g.breakAdjust(hangs) }},
	{SentByReconnect, (*generator).sendByReconnect},
	{ChangedAroundLoss, (*generator).changeAroundLoss},
	{AgainHeardNone, func(g *generator) bool { return g.quorumAgain(0) }},
	{AgainHeardOne, func(g *generator) bool { return g.quorumAgain(1) }},
	{AgainHeardTwo, func(g *generator) bool { return g.quorumAgain(2) }},
	{AgainUnread, (*generator).quorumUnread},
	{EvictedByLinstor, (*generator).evictAway},
	{LeftInOrder, (*generator).leaveInOrder},
	{TieBreakerByLinstor, (*generator).automateTieBreaker},
	{TieBreakerSet, (*generator).setTieBreaker},
	{ReplicaAddedAway, func(g *generator) bool { return g.changeReplicaAway(AddReplica) }},
	{ReplicaRemovedAway, func(g *generator) bool { return g.changeReplicaAway(RemoveReplica) }},
	{ReplicaToggledAway, func(g *generator) bool { return g.changeReplicaAway(ToggleDisk) }},
	{NodeLost, (*generator).loseNode},
	{DatabaseRestored, (*generator).restoreDatabase},
}

func (g *generator) quorum() string {
	return pick(g, "majority", "majority", "off", "off", "1", "2", "all", "")
}

// changeQuorum sets quorum once or twice on one level.
func (g *generator) changeQuorum(deed Deed) bool {
	at, v := g.around(), g.firstVolume()
	for range 1 + g.IntN(2) {
		g.add(at, Step{What: deed, On: v.Name, Value: g.quorum()})
		at = g.later(at)
	}
	return true
}

// firstVolume is mostly the first one of the workload whose node is lost.
func (g *generator) firstVolume() Volume {
	if g.chance(70) {
		return g.history.World.volume(g.history.World.Workloads[0].Volumes[0])
	}
	return g.volume()
}

// Where an adjust fails.
const (
	atOptions = "at the options"
	atPeers   = "at the peers"
	hangs     = "and hangs"
)

// breakAdjust lets what is set not reach a node that is ONLINE, which is lost afterwards.
func (g *generator) breakAdjust(how string) bool {
	node, at, v := g.home(), g.moment(), g.firstVolume()
	g.fault(at, g.span(), Step{What: BreakAdjust, Node: pick(g, node, node, g.node()), On: v.Name, Value: how}, MendAdjust)
	at += g.milliseconds(100*time.Millisecond, 3*time.Second)
	g.add(at, Step{What: pick(g, SetQuorum, SetQuorum, SetGroupQuorum), On: v.Name, Value: pick(g, "majority", "majority", "off")})
	g.nodeFault(g.later(at), g.span(), pick(g, Isolate, Isolate, Crash, IsolateDRBD), node)
	return true
}

// sendByReconnect lets a node hear by a reconnect what it was not sent; it is lost some time after it is ONLINE, which is before it
// adjusts.
func (g *generator) sendByReconnect() bool {
	node, at, v := g.home(), g.moment(), g.firstVolume()
	g.add(at, Step{What: SetControllerQuorum, On: v.Name, Value: pick(g, "majority", "majority", "off")})
	at = g.later(at)
	g.nodeFault(at, g.milliseconds(time.Second, 8*time.Second), StopSatellite, node)
	if g.chance(40) {
		g.add(at, Step{What: DelayAdjust, Node: node, For: g.milliseconds(time.Second, 80*time.Second)})
	}
	at += g.milliseconds(8*time.Second, 90*time.Second)
	g.nodeFault(at, g.span(), pick(g, Isolate, Isolate, Crash), node)
	return true
}

// changeAroundLoss changes quorum or the tie-breaker in the seconds around a loss, while LINSTOR still takes the node for ONLINE.
func (g *generator) changeAroundLoss() bool {
	node, at, v := g.home(), 15*time.Second+g.moment(), g.firstVolume()
	g.nodeFault(at, g.span(), pick(g, Isolate, Isolate, Crash), node)
	for range 1 + g.IntN(2) {
		s := Step{What: pick(g, SetQuorum, SetQuorum, SetGroupQuorum, SetControllerQuorum), On: v.Name, Value: pick(g, "majority", "majority", "off", "")}
		if g.chance(25) {
			s = Step{What: SetTieBreaker, On: v.Name, Value: pick(g, "True", "False")}
		}
		g.add(at+g.milliseconds(-12*time.Second, 12*time.Second), s)
	}
	return true
}

// quorumAgain sets quorum off and to majority again; the node hears none, one or both of them, and is lost.
func (g *generator) quorumAgain(heard int) bool {
	node, at, v := g.home(), 5*time.Second+g.moment(), g.firstVolume()
	apart := func() time.Duration {
		return g.milliseconds(100*time.Millisecond, pick(g, 3*time.Second, 15*time.Second, 80*time.Second))
	}
	cut := pick(g, Isolate, CutSatellite)
	off := at + apart()
	on := off + apart()
	switch heard {
	case 0:
		g.add(at, Step{What: cut, Node: node})
	case 1:
		g.add(off+(on-off)/2, Step{What: cut, Node: node})
	default:
		g.nodeFault(on+apart(), g.span(), Isolate, node)
	}
	deed := pick(g, SetQuorum, SetQuorum, SetGroupQuorum, SetControllerQuorum)
	g.add(off, Step{What: deed, On: v.Name, Value: "off"})
	g.add(on, Step{What: deed, On: v.Name, Value: "majority"})
	if heard < 2 && cut == CutSatellite {
		g.nodeFault(g.later(on), g.span(), Isolate, node)
	}
	return true
}

// quorumUnread sets quorum off and to majority again while the controllers are cut off from LINSTOR for a part of that time.
func (g *generator) quorumUnread() bool {
	at, v := g.moment(), g.firstVolume()
	for i := range g.history.World.Processes {
		g.fault(at+g.milliseconds(-3*time.Second, 10*time.Second), g.milliseconds(time.Second, 20*time.Second),
			Step{What: CutLinstor, On: strconv.Itoa(i)}, RestoreLinstor)
	}
	deed := pick(g, SetQuorum, SetGroupQuorum, SetControllerQuorum)
	for _, quorum := range []string{"off", "majority"} {
		at += g.milliseconds(100*time.Millisecond, 15*time.Second)
		g.add(at, Step{What: deed, On: v.Name, Value: quorum})
	}
	g.nodeFault(g.later(at), g.span(), pick(g, Isolate, Isolate, Crash), g.home())
	return true
}

// evictAway lets LINSTOR evict a node that is away; the pod's node is lost some time after that, or is the one that was evicted.
func (g *generator) evictAway() bool {
	g.history.World.TieBreakers = true
	at, home := g.moment(), g.home()
	node := pick(g, home, g.other(home), g.other(home), g.other(home))
	g.nodeFault(at, g.span(), pick(g, Crash, Isolate), node)
	at += g.milliseconds(8*time.Second, 40*time.Second)
	g.fault(at, g.span(), Step{What: GiveUp, Node: node}, TakeBack)
	if node != home {
		g.nodeFault(at+g.milliseconds(time.Second, 90*time.Second), g.span(), pick(g, Crash, Crash, Isolate), home)
	}
	return true
}

// leaveInOrder lets a node be shut down in order, and the pod's node be lost some time after that.
func (g *generator) leaveInOrder() bool {
	at, home := g.moment(), g.home()
	v := g.firstVolume()
	node := pick(g, append([]string{g.other(home)}, v.Diskful...)...)
	if node == home {
		node = g.other(home)
	}
	g.nodeFault(at, g.span(), ShutDown, node)
	g.nodeFault(at+g.milliseconds(time.Second, 60*time.Second), g.span(), pick(g, Crash, Crash, Isolate), home)
	return true
}

// automateTieBreaker lets LINSTOR add and remove tie-breakers by itself, which it does when something else changes.
func (g *generator) automateTieBreaker() bool {
	g.history.World.TieBreakers = true
	v := g.firstVolume()
	s := pick(g, Step{What: SetQuorum, On: v.Name, Value: ""}, Step{What: SetGroupQuorum, Value: "majority"}, Step{What: AddReplica, On: v.Name, Node: g.node()})
	g.add(g.around(), s)
	return true
}

// setTieBreaker switches LINSTOR's own tie-breakers off and on.
func (g *generator) setTieBreaker() bool {
	g.history.World.TieBreakers = true
	at, v := g.around(), g.firstVolume()
	deed := pick(g, SetTieBreaker, SetGroupTieBreaker, SetControllerTieBreaker)
	g.add(at, Step{What: deed, On: v.Name, Value: "False"})
	if g.chance(60) {
		g.add(g.later(at), Step{What: deed, On: v.Name, Value: "True"})
	}
	return true
}

// changeReplicaAway changes a replica while a node is away.
func (g *generator) changeReplicaAway(deed Deed) bool {
	node, at, v := g.home(), g.moment(), g.firstVolume()
	g.nodeFault(at, g.span(), pick(g, Isolate, Crash, CutSatellite), node)
	target := pick(g, node, g.other(node), g.other(node))
	if deed == AddReplica {
		target = g.other(v.Diskful...)
	}
	g.add(g.later(at), Step{What: deed, On: v.Name, Node: target, Value: pick(g, diskful, diskless)})
	return true
}

// Whether a replica has a disk.
const (
	diskful  = "diskful"
	diskless = "diskless"
)

// loseNode lets an administrator give up a node that is away, and may write on; sometimes it is added again.
func (g *generator) loseNode() bool {
	node, at := g.home(), g.moment()
	if g.chance(40) {
		g.add(at, Step{What: SetQuorum, On: g.firstVolume().Name, Value: pick(g, "off", "majority")})
		at += g.milliseconds(time.Second, 70*time.Second)
	}
	g.nodeFault(at, g.span(), pick(g, Isolate, CutSatellite, Crash), node)
	at += g.milliseconds(8*time.Second, 40*time.Second)
	if g.chance(30) {
		g.add(at-g.milliseconds(0, 3*time.Second), Step{What: SetQuorum, On: g.firstVolume().Name, Value: "majority"})
	}
	g.add(at, Step{What: LoseNode, Node: node})
	if g.chance(30) {
		g.add(g.later(at), Step{What: FindNode, Node: node})
	}
	return true
}

// restoreDatabase gives LINSTOR the database back that it had before something changed.
func (g *generator) restoreDatabase() bool {
	node, at, v := g.home(), g.moment(), g.firstVolume()
	g.add(at, Step{What: SaveDatabase})
	at = g.later(at)
	g.add(at, pick(g, Step{What: SetQuorum, On: v.Name, Value: pick(g, "off", "majority")},
		Step{What: AddReplica, On: v.Name, Node: g.other(v.Diskful...), Value: diskful}, Step{What: RemoveReplica, On: v.Name, Node: g.other(node)}))
	g.nodeFault(at+g.milliseconds(-5*time.Second, 20*time.Second), g.span(), pick(g, Isolate, Crash, CutSatellite), node)
	g.add(g.later(at), Step{What: RestoreDatabase})
	return true
}

// drawDetection lets each satellite be missed, and each end of a link noticed, at its own time, as real ones are.
func (g *generator) drawDetection() {
	w := &g.history.World
	w.Pings, w.Links = make(map[string]time.Duration), make(map[string]time.Duration)
	if g.chance(60) {
		for _, node := range w.Nodes {
			w.Pings[node] = g.milliseconds(5*time.Second, 7*time.Second)
		}
		g.drew(OwnPings)
	}
	if g.chance(50) {
		for _, a := range w.Nodes {
			for _, b := range w.Nodes {
				if a != b {
					w.Links[a+" "+b] = g.milliseconds(6*time.Second, 11500*time.Millisecond)
				}
			}
		}
		g.drew(OwnNotices)
	}
	if g.chance(40) {
		w.Flap, w.HealFlap = g.milliseconds(drbd.MeasuredFlap.Min, drbd.MeasuredFlap.Max+time.Millisecond), drbd.MeasuredHealFlap
		g.drew(Flaps)
	}
}
