package sim

import (
	"fmt"
	"time"
)

// longestHold is how long the API keeps a request at most, of which a webhook makes nothing.
const longestHold = 30 * time.Second

// untidyTimes are drawn on the steps of the plots.
var untidyTimes = []untidiness{
	{BlipBeforeCut, (*generator).blipBeforeCut},
	{AllCutTogether, func(g *generator) bool { g.cutAll(g.moment(), g.span()); return true }},
	{SlowRequests, func(g *generator) bool { return g.troubleAPI(SlowAPI, 15*time.Second) }},
	{RejectedRequests, func(g *generator) bool { return g.troubleAPI(RejectAPI, time.Millisecond) }},
	{HangingWebhooks, func(g *generator) bool { return g.troubleAPI(HangAPI, longestHold) }},
	{FrozenProcess, (*generator).freezeProcess},
	{TwoLeaders, (*generator).overlapLeaders},
	{LateInformers, (*generator).startLate},
	{ClockOff, (*generator).setClock},
	{RareRenewals, (*generator).renewRarely},
	{FrozenMachine, (*generator).freezeMachine},
	{BlindLinstor, (*generator).blindLinstor},
	{HangingPools, func(g *generator) bool { g.nodeFault(g.around(), g.span(), HangPools, g.node()); return true }},
}

// untidyPeople are drawn on all steps, and what was thought of later.
var untidyPeople = []untidiness{
	{OutOfService, (*generator).takeOutOfService},
	{HangingResource, (*generator).hangResource},
	{SlowResource, (*generator).slowResource},
	{SparedAmid, (*generator).spareAmid},
	{CreatedAgain, (*generator).createAgain},
	{DeadKubelet, (*generator).killKubelet},
	{ProxyCuts, (*generator).cutStreams},
	{StopsSlowly, (*generator).stopBefore},
	{DeafForLong, func(g *generator) bool {
		g.fault(g.around(), g.milliseconds(time.Minute, 3*time.Minute), Step{What: PauseCache, On: g.process()}, ResumeCache)
		return true
	}},
	{Interrupted, func(g *generator) bool {
		g.history.World.IOError = true
		g.nodeFault(g.moment(), g.milliseconds(6*time.Second, 16*time.Second), IsolateDRBD, g.home())
		return true
	}},
}

// killKubelet ends the kubelet of a node and the containers there, sometimes its satellite, too. A pod may open its volume again meanwhile.
func (g *generator) killKubelet() bool {
	node, at, span := g.home(), g.around(), g.milliseconds(20*time.Second, 3*time.Minute)
	g.nodeFault(at, span, SilenceKubelet, node)
	if g.chance(40) {
		g.nodeFault(at, span, StopSatellite, node)
	}
	for _, v := range g.history.World.Volumes {
		if v.Released == "" {
			closed := span
			if g.chance(20) {
				closed = g.span()
			}
			g.fault(at, closed, Step{What: CloseVolume, On: v.Name, Node: node}, OpenVolume)
		}
	}
	return true
}

// cutStreams ends the event streams once a minute, while nodes are lost one after the other.
func (g *generator) cutStreams() bool {
	for at := g.moment(); at < 4*time.Minute; at += time.Minute {
		g.add(at, Step{What: DropStreams})
	}
	g.nodeFault(g.moment(), g.span(), Crash, g.other(g.home()))
	g.nodeFault(g.milliseconds(2*time.Minute, 200*time.Second), g.span(), pick(g, Crash, Isolate), g.home())
	return true
}

// stopBefore deletes a pod that takes long to stop, before its node is lost.
func (g *generator) stopBefore() bool {
	at, pod := g.moment(), g.workload()
	g.add(at, Step{What: StopSlowly, On: pod.Name, For: pick(g, 20*time.Second, time.Minute, 5*time.Minute)})
	g.add(at+time.Second, Step{What: DeletePod, On: pod.Name})
	g.nodeFault(at+g.milliseconds(2*time.Second, 40*time.Second), g.span(), pick(g, IsolateDRBD, Isolate, Crash), pod.Nodes[0])
	return true
}

// atGrace is the value of a hang that begins some time after a grace has.
const atGrace = "after a grace has begun"

// hangResource lets LINSTOR answer on all resources but one around a loss: of the node where its pod is, or of that resource first and of the
// node, with all else that runs there, while LINSTOR is still asked about the one.
func (g *generator) hangResource() bool {
	at, home, v := g.around(), g.home(), g.volume()
	if g.chance(50) {
		for _, peer := range g.history.World.Nodes {
			if peer != home {
				g.fault(at+time.Second, g.span(), Step{What: CutResource, Node: home, Peer: peer, On: v.Name}, undo[CutResource])
			}
		}
	}
	g.nodeFault(at+g.milliseconds(0, 30*time.Second), g.span(), pick(g, Crash, Isolate), home)
	hang := Step{What: HangResource, On: v.Name}
	if g.chance(60) { // about when the grace ends, between the last reading and the look
		hang.Value, hang.For = atGrace, pick(g, g.milliseconds(700*time.Millisecond, 1300*time.Millisecond), g.milliseconds(4500*time.Millisecond, 5300*time.Millisecond))
	}
	g.fault(at, g.span(), hang, FreeResource)
	return true
}

// slowResource lets LINSTOR take about as long as a look waits, or up to three times that, to tell of one of two volumes whose node is lost.
func (g *generator) slowResource() bool {
	w := &g.history.World
	suffix := fmt.Sprintf("-beside-%d", len(w.Workloads))
	if !g.twin(suffix, func(v Volume) string { return v.Resource() + suffix }) {
		return false
	}
	beside, at, span := w.Workloads[len(w.Workloads)-1], g.around(), g.milliseconds(40*time.Second, 2*time.Minute)
	slow := Step{What: SlowLinstor, On: beside.Volumes[0], For: g.milliseconds(500*time.Millisecond, 1800*time.Millisecond)}
	g.fault(at, span, slow, FastLinstor)
	g.nodeFault(at+g.milliseconds(0, 10*time.Second), span, pick(g, Crash, Isolate), beside.Nodes[0])
	return true
}

// takeOutOfService lets a person take a node out of service: one that is lost, or one that only seems so, or none of both, or one that is
// well again when it is lost.
func (g *generator) takeOutOfService() bool {
	node, at := g.home(), g.around()
	if g.chance(50) {
		g.nodeFault(max(0, at-g.milliseconds(time.Second, 20*time.Second)), g.span(), pick(g, Crash, Isolate), node)
	}
	what := TakeOutOfService
	if g.chance(30) {
		what = TakeOutForNew
	}
	if g.chance(20) { // and forget the taint
		early := min(at, g.milliseconds(20*time.Second, time.Minute))
		g.nodeFault(at-early, early+g.span(), what, node)
	} else {
		g.nodeFault(at, g.span(), what, node)
	}
	if g.chance(20) { // Kubernetes does not move its pod, then
		g.someWorkload().Tolerant = true
	}
	return true
}

// untidyNames are drawn on the world.
var untidyNames = []untidiness{
	{QualifiedNames, func(g *generator) bool { g.history.World.Qualified = true; return true }},
	{UnknownNode, (*generator).addForeignNode},
}

// blipBeforeCut breaks a node's connections for a moment, as a reset does, right before it or everything is cut off.
func (g *generator) blipBeforeCut() bool {
	node, at := g.home(), g.moment()
	if g.chance(60) {
		for _, peer := range g.history.World.Nodes {
			if peer != node {
				g.add(at, Step{What: ResetConnections, Node: node, Peer: peer})
			}
		}
	} else {
		g.nodeFault(at, g.milliseconds(10*time.Millisecond, 2*time.Second), IsolateDRBD, node)
	}
	at += g.milliseconds(200*time.Millisecond, 3*time.Second)
	if g.chance(50) {
		g.cutAll(at, g.span())
	} else {
		g.nodeFault(at, g.span(), pick(g, Isolate, Crash, CutSatellite), node)
	}
	return true
}

// cutAll cuts all nodes off from LINSTOR at once, as a switch does that dies, mostly from the API too, and sometimes from each other.
func (g *generator) cutAll(at, span time.Duration) {
	deeds := pick(g, []Deed{CutSatellite}, []Deed{CutSatellite, SilenceKubelet}, []Deed{CutSatellite, SilenceKubelet}, []Deed{Isolate})
	for _, node := range g.history.World.Nodes {
		for _, deed := range deeds {
			g.nodeFault(at+g.milliseconds(0, 100*time.Millisecond), span+g.milliseconds(0, time.Second), deed, node)
		}
	}
}

// troubleAPI disturbs all requests of the controllers, or those of one verb and kind.
func (g *generator) troubleAPI(deed Deed, most time.Duration) bool {
	what := pick(g, append([]string{"", "list Pod", "get Lease"}, writes...)...)
	s := Step{What: deed, Value: what}
	if most > time.Second {
		s.For = g.milliseconds(time.Second, most)
	}
	g.fault(g.around(), min(g.span(), 45*time.Second), s, undo[deed])
	return true
}

func (g *generator) freezeProcess() bool {
	span := g.milliseconds(500*time.Millisecond, pick(g, 5*time.Second, 20*time.Second, time.Minute))
	g.fault(g.around(), span, Step{What: FreezeProcess, On: g.process()}, ThawProcess)
	return true
}

func (g *generator) overlapLeaders() bool {
	g.history.World.Processes = max(2, g.history.World.Processes)
	g.fault(g.around(), g.milliseconds(time.Second, time.Minute), Step{What: Overlap}, EndOverlap)
	return true
}

func (g *generator) startLate() bool {
	g.history.World.Late = g.milliseconds(200*time.Millisecond, 20*time.Second)
	g.add(g.around(), pick(g, Step{What: ChangeLeader}, Step{What: RestartProcess, On: g.process()}))
	return true
}

func (g *generator) setClock() bool {
	off := g.milliseconds(time.Second, pick(g, 10*time.Second, 2*time.Minute, 10*time.Minute))
	g.history.World.Clock = pick(g, off, -off)
	if g.chance(50) {
		g.add(g.moment(), Step{What: JumpClock, For: pick(g, -2*time.Hour, -10*time.Minute, 10*time.Minute, 2*time.Hour)})
	}
	return true
}

// renewRarely lets kubelets renew their Leases as nodeLeaseDurationSeconds says: all of them alike, or some.
func (g *generator) renewRarely() bool {
	w := &g.history.World
	w.Renew = make(map[string]time.Duration)
	every := pick(g, 25*time.Second, 30*time.Second, 40*time.Second)
	for _, node := range w.Nodes {
		if g.chance(80) {
			w.Renew[node] = every
		}
	}
	return len(w.Renew) > 0
}

func (g *generator) freezeMachine() bool {
	at := g.moment()
	for range 1 + g.IntN(2) {
		span := g.milliseconds(time.Second, 15*time.Second)
		g.nodeFault(at, span, FreezeMachine, g.home())
		at += span + g.milliseconds(time.Second, 20*time.Second)
	}
	return true
}

// addForeignNode adds a node of Kubernetes on which LINSTOR does not run. It may fail like any other.
func (g *generator) addForeignNode() bool {
	w := &g.history.World
	name := fmt.Sprintf("node-x%d", len(w.Foreign))
	w.Foreign = append(w.Foreign, name)
	if g.chance(50) {
		g.nodeFault(g.around(), g.span(), pick(g, Crash, SilenceKubelet), name)
	}
	return true
}

// blindLinstor lets LINSTOR lose its connector, mostly before a node is lost for good, and sometimes in the midst of something else. It is
// restarted by the controllers, by a person, or not at all.
func (g *generator) blindLinstor() bool {
	at := g.around()
	g.fault(at, pick(g, g.span(), 10*time.Minute), Step{What: LoseConnector}, RestartLinstor)
	if g.chance(70) {
		node, lost := g.home(), g.later(at)
		g.nodeFault(lost, pick(g, g.span(), 10*time.Minute), pick(g, Crash, Crash, Isolate, SilenceKubelet), node)
		if g.chance(60) {
			// Nothing else happens until LINSTOR has been restarted and the pod moved, which takes two minutes.
			g.add(lost+g.milliseconds(110*time.Second, 130*time.Second), Step{What: Replay})
		}
	}
	return true
}
