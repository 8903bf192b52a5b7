package sim

import "time"

// plotSuspect loses a node for good while LINSTOR alone has just lost others, which makes most of them: the view is suspect, although
// the workload could be moved.
func plotSuspect(g *generator) {
	node, at := g.home(), g.moment()
	for _, other := range g.history.World.Nodes {
		if other != node && g.chance(45) {
			g.nodeFault(at+g.milliseconds(0, 20*time.Second), g.milliseconds(75*time.Second, 4*time.Minute), CutSatellite, other)
		}
	}
	g.nodeFault(at+g.milliseconds(0, 40*time.Second), 10*time.Minute, pick(g, Crash, Crash, Isolate), node)
}
