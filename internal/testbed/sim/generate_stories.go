package sim

import (
	"math/rand/v2"
	"slices"
	"time"
)

// A story is a short history in a tidy world that ends badly as soon as one certain belief is without evidence. Random histories tell
// each of them too, but rarely, and among so much else that something else keeps the pods mostly.

// storyEvery is in how many histories one tells a story, and ordinaryEvery one that is ordinary.
const (
	storyEvery    = 8
	ordinaryEvery = 16
)

// stories are told in turn.
var stories = []func(*storyteller){
	(*storyteller).changedUnheard, (*storyteller).changedInTheGap, (*storyteller).changedBehindFrozen, (*storyteller).failedToAdjust,
	(*storyteller).metBefore, (*storyteller).metAgain, (*storyteller).metTheSecond, (*storyteller).metOneOfTwo, (*storyteller).metByChance,
	(*storyteller).metJustBefore, (*storyteller).metMeanwhile,
	(*storyteller).reconnectedBefore, (*storyteller).reconnectedLate, (*storyteller).offForAMinute, (*storyteller).offOnTheGroup,
	(*storyteller).startedAgain, (*storyteller).movedAfterStart, (*storyteller).forgotten, (*storyteller).votesForgotten,
	(*storyteller).silentVotes, (*storyteller).survivorWithout, (*storyteller).survivorOfBefore, (*storyteller).voteOnItsWayOut, (*storyteller).volumeBeside,
	(*storyteller).allCut, (*storyteller).claimAgain, (*storyteller).longInit, (*storyteller).blindThenLost, (*storyteller).blindAfterLoss,
	(*storyteller).heldByOther, (*storyteller).onceOutOfService,
}

// tell returns the story of a seed.
func tell(seed uint64) History {
	g := &storyteller{generator: &generator{Rand: rand.New(rand.NewPCG(seed, 2)), history: History{Seed: seed}}}
	w := &g.history.World
	w.Nodes = []string{"node-a", "node-b", "node-c", "node-d", "node-e", "node-f"}
	g.a, g.b, g.c, g.d, g.e = w.Nodes[0], w.Nodes[1], w.Nodes[2], w.Nodes[3], w.Nodes[4]
	w.Processes, w.Replay = 1, pick(g.generator, 0, time.Millisecond, 300*time.Millisecond)
	w.Lag, w.PingTimeout, w.Detect = 50*time.Millisecond, g.milliseconds(5*time.Second, 7*time.Second), make(map[string]time.Duration)
	g.drawDetection()
	w.Volumes = []Volume{{Name: "v0", Handle: "pvc-v0", Kind: Filesystem, Diskful: []string{g.a, g.b}, TieBreaker: g.c}}
	w.Workloads = []Workload{{Name: "pod-0", Volumes: []string{"v0"}, Nodes: slices.Clone(w.Nodes), Selected: true, Stop: time.Second}}
	g.at = g.milliseconds(0, 5*time.Second)
	if isActStory(seed) {
		actStories[seed/actEvery%uint64(len(actStories))](g)
	} else {
		stories[seed/storyEvery%uint64(len(stories))](g)
	}
	g.drew(Story)
	g.sort()
	g.history.Length = g.space() + pick(g.generator, 45*time.Second, 80*time.Second)
	return g.history
}

// storyteller draws what happens to one pod on node a, whose volume has another disk on b and a tie-breaker on c.
type storyteller struct {
	*generator
	a, b, c, d, e string
	// at is when the next thing happens.
	at time.Duration
}

// after lets some time pass.
func (g *storyteller) after(from, to time.Duration) *storyteller {
	g.at += g.milliseconds(from, to)
	return g
}

func (g *storyteller) do(what Deed, node string) { g.add(g.at, Step{What: what, Node: node}) }

func (g *storyteller) set(quorum string) { g.add(g.at, Step{What: SetQuorum, On: "v0", Value: quorum}) }

func (g *storyteller) place(node, disk string) {
	g.add(g.at, Step{What: AddReplica, On: "v0", Node: node, Value: disk})
}

// unheard lets the next changes not reach the DRBD of a node.
func (g *storyteller) unheard(node string) {
	g.add(g.at, Step{What: BreakAdjust, Node: node, On: "v0", Value: pick(g.generator, atOptions, hangs)})
}

func (g *storyteller) volume() *Volume { return &g.history.World.Volumes[0] }

// off lets the volume be without quorum for more than a minute, so that everybody knows that.
func (g *storyteller) off() *storyteller {
	g.volume().Quorum = "off"
	return g.after(10*time.Second, 15*time.Second)
}

// alone leaves the volume on the node alone, for which LINSTOR sets no quorum.
func (g *storyteller) alone() *storyteller {
	g.volume().Diskful, g.volume().TieBreaker = []string{g.a}, ""
	return g.after(10*time.Second, 15*time.Second)
}

// restart starts the controller again.
func (g *storyteller) restart() { g.add(g.at, Step{What: RestartProcess, On: "0"}) }

// cut cuts a node off, which goes on writing where nothing fences it: from everything, or from all but Kubernetes.
func (g *storyteller) cut(node string) {
	if g.chance(50) {
		g.cutStorage(node)
	} else {
		g.do(Isolate, node)
	}
}

// cutStorage leaves a node nothing but Kubernetes.
func (g *storyteller) cutStorage(node string) {
	g.do(IsolateDRBD, node)
	g.do(CutSatellite, node)
}

// changedUnheard switches quorum on while the node is away that writes without, and starts the controller again.
func (g *storyteller) changedUnheard() {
	g.off().cut(g.a)
	g.after(8*time.Second, 20*time.Second).set("majority")
	g.after(100*time.Millisecond, 5*time.Second).restart()
}

// onceOutOfService does so with a node that had been taken out of service before, when it was well, or maybe was not.
func (g *storyteller) onceOutOfService() {
	g.history.World.Workloads[0].Tolerant = true
	g.off().do(pick(g.generator, TakeOutOfService, TakeOutForNew), g.a)
	g.after(15*time.Second, 40*time.Second).cut(g.a)
	g.after(8*time.Second, 20*time.Second).set("majority")
	g.after(20*time.Second, 30*time.Second)
}

// changedInTheGap does so while LINSTOR still calls the node ONLINE, whose kubelet lives.
func (g *storyteller) changedInTheGap() {
	g.history.World.Renew = map[string]time.Duration{g.a: 4 * time.Second}
	g.off().cutStorage(g.a)
	g.after(100*time.Millisecond, 300*time.Millisecond).set("majority")
	g.after(100*time.Millisecond, 500*time.Millisecond).restart()
}

// changedBehindFrozen does so while LINSTOR calls the node ONLINE for ever.
func (g *storyteller) changedBehindFrozen() {
	g.off().do(FreezeSatellite, g.a)
	g.do(Isolate, g.a)
	g.after(100*time.Millisecond, time.Second).set("majority")
	g.after(100*time.Millisecond, 2*time.Second).restart()
}

// failedToAdjust switches quorum on, which the node fails to apply.
func (g *storyteller) failedToAdjust() {
	g.off().unheard(g.a)
	g.after(100*time.Millisecond, time.Second).set("majority")
	g.after(time.Second, 15*time.Second)
	if g.chance(60) {
		g.after(65*time.Second, 75*time.Second) // everybody knows that by then
	}
	g.cut(g.a)
}

// metBefore lets the node meet a new replica before quorum is switched on, which it fails to apply.
func (g *storyteller) metBefore() {
	g.place(g.d, diskless)
	g.off().failedToAdjust()
}

// metAgain lets the tie-breaker be made again on the same node, to which the node had a connection all the time.
func (g *storyteller) metAgain() {
	g.off().unheard(g.a)
	g.after(100*time.Millisecond, time.Second).set("majority")
	g.after(time.Second, 2*time.Second).add(g.at, Step{What: RemoveReplica, On: "v0", Node: g.c})
	g.after(13*time.Second, 20*time.Second).place(g.c, diskless)
	g.after(3*time.Second, 20*time.Second).cut(g.a)
}

// metTheSecond lets the node meet the second replica, and not hear of the third, with which LINSTOR sets quorum by itself.
func (g *storyteller) metTheSecond() {
	g.alone().place(g.b, diskful)
	g.after(5*time.Second, 15*time.Second).unheard(g.a)
	g.after(100*time.Millisecond, time.Second).place(g.c, diskless)
	g.after(3*time.Second, 20*time.Second).cut(g.a)
}

// metOneOfTwo does so, and one reading tells of both new replicas and of the quorum.
func (g *storyteller) metOneOfTwo() {
	g.alone().add(g.at, Step{What: CutLinstor, On: "0"})
	g.after(100*time.Millisecond, time.Second).place(g.b, diskful)
	g.after(2*time.Second, 3*time.Second).unheard(g.a)
	g.after(100*time.Millisecond, time.Second).place(g.c, diskless)
	g.after(100*time.Millisecond, 4*time.Second).add(g.at, Step{What: RestoreLinstor, On: "0"})
	g.after(20*time.Second, 40*time.Second).cut(g.a)
}

// metByChance lets one reading tell of a new replica, and of a quorum that a person has set a moment later and the node fails to apply.
func (g *storyteller) metByChance() {
	g.off().add(g.at, Step{What: CutLinstor, On: "0"})
	g.after(100*time.Millisecond, time.Second).place(g.d, diskless)
	g.after(2*time.Second, 3*time.Second).unheard(g.a)
	g.after(100*time.Millisecond, time.Second).set("majority")
	g.after(100*time.Millisecond, 4*time.Second).add(g.at, Step{What: RestoreLinstor, On: "0"})
	g.after(20*time.Second, 40*time.Second).cut(g.a)
}

// metJustBefore lets one reading tell of the second replica, which the node meets, and of a quorum that somebody has set on the controller a
// moment later, which LINSTOR does not send; nor does the node hear of the third replica.
func (g *storyteller) metJustBefore() {
	g.alone().add(g.at, Step{What: CutLinstor, On: "0"})
	g.after(100*time.Millisecond, time.Second).place(g.b, diskful)
	g.after(0, 3*time.Second).add(g.at, Step{What: SetControllerQuorum, On: "v0", Value: "2"})
	g.after(100*time.Millisecond, 4*time.Second).add(g.at, Step{What: RestoreLinstor, On: "0"})
	g.after(10*time.Second, 20*time.Second).unheard(g.a)
	g.after(100*time.Millisecond, time.Second).place(g.c, diskless)
	g.after(10*time.Second, 20*time.Second).cut(g.a)
}

// metMeanwhile lets LINSTOR set quorum with the third replica, of which the node does not hear, between the list that tells of the second one
// and the reading of the definition.
func (g *storyteller) metMeanwhile() {
	g.alone().fault(g.at, 10*time.Second, Step{What: SlowLinstor, For: g.milliseconds(100*time.Millisecond, 700*time.Millisecond)}, FastLinstor)
	g.after(time.Second, 2*time.Second).place(g.b, diskful)
	g.after(100*time.Millisecond, 700*time.Millisecond).unheard(g.a)
	g.after(10*time.Millisecond, 1200*time.Millisecond).place(g.c, diskless)
	g.after(20*time.Second, 40*time.Second).cut(g.a)
}

// reconnectedBefore lets the satellite reconnect before the change.
func (g *storyteller) reconnectedBefore() {
	g.do(StopSatellite, g.a)
	g.after(8*time.Second, 15*time.Second).do(RestoreSatellite, g.a)
	g.after(70*time.Second, 90*time.Second)
	g.failedToAdjust()
}

// reconnectedLate lets the satellite reconnect after a change that was not sent, and be cut off before it adjusts.
func (g *storyteller) reconnectedLate() {
	g.off().do(StopSatellite, g.a)
	g.after(time.Second, 5*time.Second).set("majority")
	g.after(80*time.Second, 90*time.Second).add(g.at, Step{What: DelayAdjust, Node: g.a, For: g.milliseconds(30*time.Second, 55*time.Second)})
	g.do(RestoreSatellite, g.a)
	g.after(2*time.Second, 15*time.Second).cut(g.a)
}

// offForAMinute switches quorum off, and on again a good minute later, of which the node hears the first only.
func (g *storyteller) offForAMinute() {
	g.set("off")
	g.after(80*time.Second, 95*time.Second).unheard(g.a)
	g.after(100*time.Millisecond, time.Second).set("majority")
	g.after(time.Second, 20*time.Second).cut(g.a)
}

// offOnTheGroup does so on the group, for less than a minute.
func (g *storyteller) offOnTheGroup() {
	g.add(g.at, Step{What: SetGroupQuorum, On: "v0", Value: "off"})
	g.after(46*time.Second, 58*time.Second).unheard(g.a)
	g.after(100*time.Millisecond, time.Second).add(g.at, Step{What: SetGroupQuorum, On: "v0", Value: "majority"})
	g.after(time.Second, 20*time.Second).cut(g.a)
}

// startedAgain starts the controller again some time after a change that the node has failed to apply.
func (g *storyteller) startedAgain() {
	g.off().unheard(g.a)
	g.after(100*time.Millisecond, time.Second).set("majority")
	g.after(90*time.Second, 100*time.Second).restart()
	g.after(30*time.Second, 50*time.Second).cut(g.a)
}

// movedAfterStart lets the pod move, after that, to the node that has failed to apply the change.
func (g *storyteller) movedAfterStart() {
	g.off().unheard(g.b)
	g.after(100*time.Millisecond, time.Second).set("majority")
	g.after(80*time.Second, 90*time.Second).do(StopSatellite, g.a)
	g.after(8*time.Second, 15*time.Second).do(RestoreSatellite, g.a) // which shows that this one has applied it
	g.after(75*time.Second, 90*time.Second).restart()
	g.after(30*time.Second, 40*time.Second).do(Crash, g.a)
	g.after(60*time.Second, 70*time.Second).do(Return, g.a)
	g.after(70*time.Second, 90*time.Second).cut(g.b)
}

// forgotten makes LINSTOR forget the node, which is cut off and writes without quorum.
func (g *storyteller) forgotten() {
	if g.chance(50) {
		g.off().unheard(g.a)
		g.set("majority")
	}
	g.volume().Quorum = "off"
	g.after(time.Second, 5*time.Second).do(Isolate, g.a)
	if g.chance(50) {
		g.after(100*time.Millisecond, 10*time.Second).set("majority")
	}
	g.after(8*time.Second, 20*time.Second).do(LoseNode, g.a)
}

// volumeBeside loses the node of a pod that has another volume, without quorum.
func (g *storyteller) volumeBeside() {
	w := &g.history.World
	v := *g.volume()
	v.Name, v.Handle, v.Quorum = "v1", "pvc-v1", "off"
	w.Volumes = append(w.Volumes, v)
	w.Workloads[0].Volumes = append(w.Workloads[0].Volumes, v.Name)
	g.do(Isolate, g.a)
}

// allCut breaks the node's connections for a moment, which it does not notice itself, right before LINSTOR and Kubernetes lose all nodes. The
// node is the first that LINSTOR misses.
func (g *storyteller) allCut() {
	w := &g.history.World
	w.Pings, w.Links = map[string]time.Duration{g.a: g.milliseconds(5*time.Second, 5200*time.Millisecond)}, make(map[string]time.Duration)
	for _, peer := range w.Nodes[1:] {
		w.Pings[peer] = g.milliseconds(6800*time.Millisecond, 7*time.Second)
		w.Links[g.a+" "+peer] = 11 * time.Second
	}
	g.do(IsolateDRBD, g.a)
	g.after(100*time.Millisecond, 800*time.Millisecond)
	for _, node := range w.Nodes {
		g.nodeFault(g.at, 40*time.Second, CutSatellite, node)
		g.nodeFault(g.at, 40*time.Second, SilenceKubelet, node)
	}
	g.after(50*time.Millisecond, 100*time.Millisecond).do(RejoinDRBD, g.a)
}

// claimAgain loses the volume that the pod's claim had before, and that Kubernetes still shows as bound.
func (g *storyteller) claimAgain() {
	old := *g.volume()
	old.Name, old.Handle, old.Claim, old.Released, old.Unmarked = "old", "pvc-old", old.claim(), Alive, true
	g.history.World.Volumes = append(g.history.World.Volumes, old)
	for _, peer := range []string{g.b, g.c} {
		g.add(g.at, Step{What: CutResource, Node: g.a, Peer: peer, On: old.Name})
	}
	g.after(time.Second, 5*time.Second).do(StopSatellite, g.a)
}

// longInit takes the storage from a pod whose init containers run.
func (g *storyteller) longInit() {
	g.history.World.Workloads[0].Init = settling + g.milliseconds(60*time.Second, 100*time.Second)
	g.do(IsolateDRBD, g.a)
}

// blindThenLost loses the node under a LINSTOR that is blind, until the controllers or a person restart that.
func (g *storyteller) blindThenLost() {
	g.drew(BlindLinstor)
	g.fault(g.at, pick(g.generator, 20*time.Second, time.Minute, 10*time.Minute), Step{What: LoseConnector}, RestartLinstor)
	g.after(0, 15*time.Second).do(pick(g.generator, Crash, Crash, Isolate), g.a)
	g.after(90*time.Second, 110*time.Second).add(g.at, Step{What: Replay})
}

// blindAfterLoss lets LINSTOR go blind when it has noticed that the storage is lost, which comes back then, unseen, while the kubelet is
// silent all the time.
func (g *storyteller) blindAfterLoss() {
	g.drew(BlindLinstor)
	g.do(SilenceKubelet, g.a)
	g.after(25*time.Second, 40*time.Second).do(IsolateDRBD, g.a)
	g.after(11*time.Second, 14*time.Second).add(g.at, Step{What: LoseConnector})
	g.after(10*time.Millisecond, 500*time.Millisecond).do(RejoinDRBD, g.a)
}

// heldByOther loses the node of a pod that is not selected, for whose volume a selected one waits elsewhere.
func (g *storyteller) heldByOther() {
	w := &g.history.World
	waits := w.Workloads[0]
	waits.Name, waits.Nodes = "pod-1", []string{g.b}
	w.Workloads[0].Selected, w.Workloads[0].Nodes = false, []string{g.a}
	w.Workloads = append(w.Workloads, waits)
	g.do(pick(g.generator, Crash, Isolate), g.a)
}

// isStory tells whether a seed's history is a story.
func isStory(seed uint64) bool { return seed%storyEvery == 0 }

// isOrdinary tells whether a seed's history is ordinary.
func isOrdinary(seed uint64) bool { return seed%ordinaryEvery == ordinaryEvery/4 }
