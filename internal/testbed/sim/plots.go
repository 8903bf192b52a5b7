package sim

import (
	"time"
)

// plots are what mostly happens in a history: the stories in which a fail-over is right, and those that look like them.
var (
	plots = []func(*generator){
		plotNodeLost, plotNodeIsolated, plotStorageIsolated, plotFlap, plotManagementLost, plotFrozen, plotQuorumChanged,
		plotDemoted, plotQuickReboot, plotManyLost, plotLeaderChanges, plotLinstorAway, plotAPIAway, plotPodsChange, plotMigration,
		plotPartialMesh, plotReplicaGone, plotNodeIsolated, plotSlowly, plotOldWords, plotLies, plotSuspect,
	}
	plotWeights = []int{10, 6, 8, 7, 6, 6, 5, 6, 5, 3, 5, 5, 4, 5, 4, 5, 5, 4, 4, 4, 5, 4}
)

// later is a while after a moment, in which something else happens because of it.
func (g *generator) later(at time.Duration) time.Duration {
	return at + g.milliseconds(0, pick(g, 3*time.Second, 12*time.Second, 30*time.Second))
}

// plotPlainCrash lets a node crash for good while all else is well, under a pod that may be removed: in a world that is as untidy
// as any, that must end in time.
func plotPlainCrash(g *generator) {
	w := &g.history.World
	w.DryRun = false
	for i := range w.Workloads {
		p := &w.Workloads[i]
		p.Selected, p.Exempt, p.Unsafe, p.Finalizer, p.Owner = true, false, false, false, ""
	}
	for i := range w.Volumes {
		v := &w.Volumes[i]
		if v.Released != "" || v.Kind == NFSExport || v.Quorum == "off" {
			continue
		}
		v.Kind, v.Quorum = Filesystem, ""
		v.Shared = v.TwoPrimaries
		if v.TwoPrimaries {
			v.Kind = Block
		}
		if len(v.Diskful) < 3 && v.TieBreaker == "" {
			v.Diskful, v.TieBreaker = w.Nodes[:2], w.Nodes[2]
		}
	}
	g.nodeFault(g.moment(), 10*time.Minute, Crash, g.history.World.Workloads[0].Nodes[0])
}

func plotNodeLost(g *generator) {
	node, at := g.home(), g.moment()
	g.nodeFault(at, g.span(), Crash, node)
	if g.chance(30) {
		g.nodeFault(g.later(at), g.span(), ShutdownTaint, node)
	}
	if g.chance(30) {
		g.anyFault(g.later(at), g.span())
	}
}

func plotNodeIsolated(g *generator) {
	g.nodeFault(g.moment(), g.span(), Isolate, g.home())
}

func plotStorageIsolated(g *generator) {
	node, at := g.home(), g.moment()
	g.nodeFault(at, g.span(), IsolateDRBD, node)
	if g.chance(50) {
		g.nodeFault(g.later(at), g.span(), pick(g, CutSatellite, SilenceKubelet, StopSatellite, FreezeSatellite, Crash), node)
	}
}

// plotFlap lets a connection come and go, around a grace of 5 or 45 s.
func plotFlap(g *generator) {
	node, at := g.home(), g.moment()
	deed := pick(g, IsolateDRBD, Isolate, CutSatellite, Crash)
	around := pick(g, 5*time.Second, 5*time.Second, 12*time.Second, 45*time.Second)
	for range 2 + g.IntN(3) {
		span := g.milliseconds(around/2, around*3/2)
		g.nodeFault(at, span, deed, node)
		at += span + g.milliseconds(100*time.Millisecond, 8*time.Second)
	}
}

// plotManagementLost takes LINSTOR's and Kubernetes' networks from a node whose storage may be well.
func plotManagementLost(g *generator) {
	node, at := g.home(), g.moment()
	g.nodeFault(at, g.span(), pick(g, CutSatellite, StopSatellite), node)
	g.nodeFault(g.later(at), g.span(), SilenceKubelet, node)
	if g.chance(50) {
		peer := g.other(node)
		g.fault(g.later(at), g.span(), Step{What: CutLink, Node: node, Peer: peer}, HealLink)
		if g.chance(50) {
			g.nodeFault(g.later(at), g.span(), pick(g, CutSatellite, StopSatellite, FreezeSatellite), g.other(node))
		}
	}
}

// plotFrozen leaves old words of some satellite standing.
func plotFrozen(g *generator) {
	node, at := g.home(), g.moment()
	peer := g.other(node)
	g.nodeFault(at, g.span(), pick(g, IsolateDRBD, Crash, Isolate), node)
	g.nodeFault(g.later(at), g.span(), FreezeSatellite, pick(g, peer, peer, node))
	if g.chance(60) {
		again := g.later(at + 10*time.Second)
		g.nodeFault(again, g.span(), pick(g, CutSatellite, SilenceKubelet, Isolate, Crash), pick(g, node, g.other(node, peer)))
	}
}

// plotQuorumChanged switches quorum where a node may not hear of it.
func plotQuorumChanged(g *generator) {
	node, at, v := g.home(), g.moment(), g.volume()
	if g.chance(70) {
		g.nodeFault(at, g.span(), pick(g, CutSatellite, Isolate, Crash), node)
		at = g.later(at)
	}
	g.add(at, Step{What: SetQuorum, On: v.Name, Value: pick(g, "majority", "all", "2", "1", "off")})
	g.nodeFault(g.later(at), g.span(), pick(g, IsolateDRBD, Isolate, Crash), node)
}

// plotDemoted closes a volume under its pod, for a while or for good.
func plotDemoted(g *generator) {
	at, p := g.moment(), g.workload()
	g.fault(at, g.span(), Step{What: CloseVolume, On: p.Volumes[0], Node: p.Nodes[0]}, OpenVolume)
	if g.chance(30) {
		g.anyFault(g.later(at), g.span())
	}
}

func plotQuickReboot(g *generator) {
	node, at := g.home(), g.moment()
	for range 1 + g.IntN(2) {
		span := g.milliseconds(500*time.Millisecond, 15*time.Second)
		g.nodeFault(at, span, Crash, node)
		at += span + g.milliseconds(time.Second, 20*time.Second)
	}
}

// plotManyLost takes most of the cluster away, so that the view is suspect and not the cluster.
func plotManyLost(g *generator) {
	at := g.moment()
	deed := pick(g, Crash, Isolate, CutSatellite, SilenceKubelet, IsolateDRBD)
	for _, node := range g.history.World.Nodes {
		if g.chance(75) {
			g.nodeFault(at+g.milliseconds(0, 4*time.Second), g.span(), deed, node)
		}
	}
}

func plotLeaderChanges(g *generator) {
	at := g.moment()
	g.nodeFault(at, g.span(), pick(g, Crash, Isolate, IsolateDRBD), g.home())
	for range 1 + g.IntN(2) {
		at = g.later(at)
		if g.chance(50) {
			g.add(at, Step{What: ChangeLeader})
		} else {
			g.add(at, Step{What: RestartProcess, On: g.process()})
		}
	}
}

func plotLinstorAway(g *generator) {
	at := g.moment()
	g.nodeFault(g.later(at), g.span(), pick(g, Crash, Isolate, IsolateDRBD, CutSatellite), g.home())
	switch g.IntN(3) {
	case 0:
		g.fault(at, g.span(), Step{What: StopLinstor}, StartLinstor)
	case 1:
		g.add(at, Step{What: RestartLinstor})
	default:
		g.fault(at, g.span(), Step{What: CutLinstor, On: g.process()}, RestoreLinstor)
	}
	if g.chance(40) {
		g.add(g.later(at), Step{What: pick(g, DropStreams, ResetStreams, SilenceStreams, Replay)})
	}
}

func plotAPIAway(g *generator) {
	at := g.moment()
	deed := pick(g, FailAPI, CutAPI, PauseCache)
	g.fault(at, min(g.span(), 90*time.Second), Step{What: deed, On: g.process()}, undo[deed])
	g.nodeFault(g.later(at), g.span(), pick(g, Crash, Isolate, IsolateDRBD), g.home())
}

// plotPodsChange lets pods come and go while their node fails.
func plotPodsChange(g *generator) {
	at := g.moment()
	g.nodeFault(at, g.span(), pick(g, Crash, Isolate, IsolateDRBD, CutSatellite), g.home())
	p := g.workload()
	if g.chance(50) {
		g.add(at, Step{What: StopSlowly, On: p.Name, For: pick(g, 5*time.Second, 30*time.Second)})
	}
	for range 1 + g.IntN(3) {
		g.add(g.later(at-min(at, 5*time.Second)), Step{What: pick(g, DeletePod, DeletePod, ForceDeletePod), On: p.Name})
	}
}

// plotMigration lets two pods hold a shared volume open as Primary, and something happen meanwhile.
func plotMigration(g *generator) {
	for _, v := range g.history.World.Volumes {
		if !v.Shared {
			continue
		}
		at, node := g.moment(), g.node()
		g.fault(at, g.span(), Step{What: MigrateTo, On: v.Name, Node: node}, EndMigration)
		g.nodeFault(g.later(at), g.span(), pick(g, faultsOfNodes...), pick(g, node, g.home()))
		return
	}
	plotNodeLost(g)
}

// plotPartialMesh cuts single links.
func plotPartialMesh(g *generator) {
	node, at := g.home(), g.moment()
	for range 1 + g.IntN(3) {
		a := pick(g, node, node, g.node())
		v := g.volume()
		deed := pick(g, CutLink, CutLink, CutResource)
		g.fault(g.later(at), g.span(), Step{What: deed, Node: a, Peer: g.other(a), On: v.Name}, undo[deed])
	}
	if g.chance(50) {
		g.nodeFault(g.later(at), g.span(), pick(g, CutSatellite, SilenceKubelet, Crash), g.node())
	}
}

// plotReplicaGone deletes the replica under a pod whose volume was closed.
func plotReplicaGone(g *generator) {
	at, p := g.moment(), g.workload()
	g.add(at, Step{What: CloseVolume, On: p.Volumes[0], Node: p.Nodes[0]})
	g.add(at+g.milliseconds(100*time.Millisecond, 5*time.Second), Step{What: RemoveReplica, On: p.Volumes[0], Node: p.Nodes[0]})
}

// plotSlowly lets LINSTOR answer slowly while a node fails.
func plotSlowly(g *generator) {
	at := g.moment()
	g.fault(at, g.span(), Step{What: SlowLinstor, For: g.milliseconds(50*time.Millisecond, 4*time.Second)}, FastLinstor)
	g.nodeFault(g.later(at), g.span(), pick(g, Crash, Isolate, IsolateDRBD, CutSatellite), g.home())
}

// plotOldWords cuts the witnesses off from LINSTOR just when the node comes back that they have given up: for some seconds
// LINSTOR does not know that what they have said is over.
func plotOldWords(g *generator) {
	node, at := g.home(), g.moment()
	g.add(at, Step{What: Isolate, Node: node})
	back := at + g.milliseconds(5*time.Second, 25*time.Second)
	for _, witness := range g.history.World.Nodes {
		if witness != node && g.chance(90) {
			g.nodeFault(back-g.milliseconds(0, time.Second), g.span(), CutSatellite, witness)
		}
	}
	g.add(back, Step{What: RejoinDRBD, Node: node})
	if g.chance(30) {
		g.add(g.later(back), Step{What: Rejoin, Node: node})
	}
}

// plotLies lets a satellite's old words stand for ever while the node that they are about comes back, and the others lose
// sight of that one in their own ways.
func plotLies(g *generator) {
	node, at := g.home(), g.moment()
	liar := g.other(node)
	g.add(at, Step{What: IsolateDRBD, Node: node})
	at += g.milliseconds(time.Second, 15*time.Second)
	g.add(at, Step{What: FreezeSatellite, Node: liar})
	if g.chance(30) {
		g.add(at, Step{What: FreezeSatellite, Node: g.other(node, liar)})
	}
	at += g.milliseconds(0, 5*time.Second)
	g.add(at, Step{What: RejoinDRBD, Node: node})
	g.nodeFault(g.later(at), g.span(), pick(g, CutSatellite, StopSatellite, Isolate), node)
	g.nodeFault(g.later(at), g.span(), SilenceKubelet, node)
	for _, other := range g.history.World.Nodes {
		if other == node || other == liar {
			continue
		}
		switch g.IntN(4) {
		case 0, 1:
			g.fault(g.later(at), g.span(), Step{What: CutLink, Node: node, Peer: other}, HealLink)
		case 2:
			g.nodeFault(g.later(at), g.span(), pick(g, CutSatellite, Crash, StopSatellite), other)
		}
	}
}
