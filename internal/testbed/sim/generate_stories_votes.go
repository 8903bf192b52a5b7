package sim

import "time"

// The stories of replicas that vote where nobody counts them, or that are counted and do not vote.

// votesForgotten makes LINSTOR forget the tie-breaker that gives the node a majority, and place another one.
func (g *storyteller) votesForgotten() {
	g.forgetTieBreaker()
	if g.chance(50) {
		g.after(100*time.Millisecond, 40*time.Second).do(SilenceKubelet, g.a)
	}
}

// silentVotes does so, and LINSTOR does not hear the new one either.
func (g *storyteller) silentVotes() {
	g.forgetTieBreaker()
	g.after(time.Second, 3*time.Second).do(CutSatellite, g.d)
	g.do(SilenceKubelet, g.a)
	g.after(30*time.Second, 40*time.Second)
}

// forgetTieBreaker does so where a person has set quorum: LINSTOR would switch its own off with the tie-breaker, and then nobody knows
// whether the node has heard that.
func (g *storyteller) forgetTieBreaker() {
	g.volume().Quorum = "majority"
	g.after(10*time.Second, 15*time.Second).do(CutSatellite, g.a)
	g.do(CutSatellite, g.c)
	g.after(10*time.Second, 15*time.Second).do(LoseNode, g.c)
	g.after(100*time.Millisecond, 2*time.Second).place(g.d, diskless)
	g.after(3*time.Second, 5*time.Second).add(g.at, Step{What: CutLink, Node: g.a, Peer: g.b})
	g.add(g.at, Step{What: CutLink, Node: g.c, Peer: g.b})
}

// survivorWithout lets a node run without quorum that could take over by that, while the others have the majority.
func (g *storyteller) survivorWithout() {
	g.off().unheard(g.b)
	g.set("majority")
	g.after(2*time.Second, 5*time.Second).restart()
	g.after(40*time.Second, 50*time.Second)
	g.do(IsolateDRBD, g.b)
	g.do(CutSatellite, g.a)
	g.do(CutSatellite, g.c)
	g.do(SilenceKubelet, g.a)
	g.after(30*time.Second, 40*time.Second)
}

// survivorOfBefore lets another node not hear of two more replicas, with which the node stays: by those that were there before, the others
// have the majority as well.
func (g *storyteller) survivorOfBefore() {
	g.volume().Diskful, g.volume().TieBreaker = []string{g.a, g.b, g.d}, ""
	g.after(12*time.Second, 15*time.Second).unheard(g.b)
	g.after(100*time.Millisecond, time.Second).place(g.c, diskful)
	g.after(100*time.Millisecond, time.Second).place(g.e, diskless)
	g.after(20*time.Second, 40*time.Second)
	for _, node := range []string{g.a, g.c, g.e} {
		g.do(CutSatellite, node)
		for _, peer := range []string{g.b, g.d} {
			g.add(g.at, Step{What: CutLink, Node: node, Peer: peer})
		}
	}
	g.do(SilenceKubelet, g.a)
	g.after(40*time.Second, 60*time.Second)
}

// voteOnItsWayOut deletes a replica whose node hears as little of that as the node that stays with it, before all are cut from the others or after
// that. These count it no longer.
func (g *storyteller) voteOnItsWayOut() {
	with, others := []string{g.a, g.b}, []string{g.c, g.d}
	g.volume().Diskful = []string{g.a, g.b, g.d}
	if g.chance(50) {
		g.volume().Diskful, with, others = []string{g.a, g.b, g.d, g.e}, []string{g.a, g.b, g.c}, []string{g.d, g.e}
	}
	g.after(12*time.Second, 15*time.Second)
	for _, node := range with {
		g.do(CutSatellite, node)
	}
	cut := func() {
		for _, node := range with {
			for _, peer := range others {
				g.add(g.at, Step{What: CutLink, Node: node, Peer: peer})
			}
			g.do(SilenceKubelet, node)
		}
	}
	remove := func() { g.add(g.at, Step{What: RemoveReplica, On: "v0", Node: g.b}) }
	first, then := remove, cut
	if len(with) > 2 && g.chance(50) {
		first, then = cut, remove
	}
	g.after(10*time.Second, 20*time.Second)
	first()
	g.after(10*time.Second, 20*time.Second)
	then()
	g.after(40*time.Second, 60*time.Second)
}
