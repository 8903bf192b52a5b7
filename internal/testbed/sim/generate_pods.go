package sim

import (
	"slices"
	"time"
)

// untidyPods are drawn on a world that has its workloads, and on the steps of its plots.
var untidyPods = []untidiness{
	{LongInit, (*generator).initSlowly},
	{EndedEvicted, func(g *generator) bool { return g.leaveEnded("Evicted") }},
	{EndedFailed, func(g *generator) bool { return g.leaveEnded("Failed") }},
	{EndedDone, func(g *generator) bool { return g.leaveEnded("Succeeded") }},
	{ToleratesAll, func(g *generator) bool { g.someWorkload().Tolerant = true; return true }},
	{ArrivesLate, (*generator).arriveLate},
	{HotPlugHelper, (*generator).plugHot},
}

// initSlowly lets init containers run until after the first fault.
func (g *generator) initSlowly() bool {
	g.someWorkload().Init = settling + g.milliseconds(20*time.Second, 100*time.Second)
	return true
}

// leaveEnded leaves a pod listed that has ended: from the beginning, or from some moment on.
func (g *generator) leaveEnded(phase string) bool {
	of := g.someWorkload().Name
	if g.chance(60) {
		g.history.World.Ended = append(g.history.World.Ended, Ended{Of: of, Phase: phase})
	} else {
		g.add(g.around(), Step{What: LeaveEnded, On: of, Value: phase})
	}
	return true
}

// writes are the controller's writes of a fail-over.
var writes = []string{"patch Node", "patch VolumeAttachment", "patch Pod", "delete Pod", "delete VolumeAttachment"}

// arriveLate lets a pod arrive after the controller has looked, and before it has written what rests on that.
func (g *generator) arriveLate() bool {
	g.add(g.around(), Step{What: ArriveAtWrite, On: g.someWorkload().Name, Value: pick(g, writes...)})
	return true
}

// around is a moment around the first thing that happens.
func (g *generator) around() time.Duration {
	if len(g.history.Steps) == 0 {
		return g.moment()
	}
	first := g.history.Steps[0].At
	return max(0, first+g.milliseconds(-3*time.Second, 12*time.Second))
}

// plugHot gives a pod a helper, which may be selected where the pod is exempt, or not selected itself.
func (g *generator) plugHot() bool {
	p := g.someWorkload()
	p.Helper, p.HelperSelected = true, g.chance(60)
	if g.chance(60) {
		own := p.Volumes
		g.addTo(p, func(v *Volume) { v.Diskful = slices.Clone(p.Nodes[:2]); v.TieBreaker = p.Nodes[2] })
		p.HotPlugged, p.Volumes = p.Volumes[len(own)], own
	}
	if g.chance(25) {
		p.Exempt, p.Selected = true, p.Selected && g.chance(60)
	}
	return true
}

// spareAmid lets a person say of a pod that it is to stay.
func (g *generator) spareAmid() bool {
	g.fault(g.around(), g.span(), Step{What: Spare, On: g.someWorkload().Name, Value: pick(g, "label", "annotation")}, SpareNoMore)
	return true
}
