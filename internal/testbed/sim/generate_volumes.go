package sim

import (
	"fmt"
	"slices"
	"time"
)

// untidyVolumes are drawn on a world that has its volumes and workloads.
var untidyVolumes = []untidiness{
	{ClaimAgainAlive, func(g *generator) bool { return g.claimAgain(Alive) }},
	{ClaimAgainGone, func(g *generator) bool { return g.claimAgain(Gone) }},
	{ClaimAgainDead, func(g *generator) bool { return g.claimAgain(Dead) }},
	{OneHandle, func(g *generator) bool { return g.twin("y", func(v Volume) string { return v.Handle }) }},
	{GroupOfPods, func(g *generator) bool { return g.twin("z", func(v Volume) string { return v.Resource() + "/2" }) }},
	{StaticallyBound, (*generator).bindStatically},
	{EphemeralVolume, (*generator).addEphemeral},
	{NFSBeside, (*generator).addExport},
	{OpenOnTwo, (*generator).openOnTwo},
	{ThreeVolumes, (*generator).addVolumes},
	{OneWithoutQuorum, (*generator).addWithoutQuorum},
}

// someWorkload returns a workload to change, most often the first one: that is the one whose node is lost.
func (g *generator) someWorkload() *Workload {
	w := &g.history.World
	if g.chance(70) {
		return &w.Workloads[0]
	}
	return &w.Workloads[g.IntN(len(w.Workloads))]
}

// claimAgain adds the volume that a claim had before it was deleted and created anew. Either may come first in every list.
func (g *generator) claimAgain(resource string) bool {
	v := g.history.World.volume(g.someWorkload().Volumes[0])
	if v.Kind == NFSExport {
		return false
	}
	old := Volume{Name: pick(g, "old-", "w-old-") + v.Name + "-" + resource[:1], Kind: v.Kind, Claim: v.claim(), Released: resource}
	old.Handle = "pvc-" + old.Name
	nodes := slices.Clone(g.history.World.Nodes)
	if g.chance(50) {
		g.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	}
	old.Diskful = nodes[:2]
	if g.chance(70) {
		old.TieBreaker = nodes[2]
	}
	g.history.World.Volumes = append(g.history.World.Volumes, old)
	return true
}

// twin binds a second PersistentVolume and claim to a resource, and lets a pod use it on the same node: by the same handle, or by one for
// another volume of the resource, or by one of another resource on the same nodes.
func (g *generator) twin(suffix string, handle func(Volume) string) bool {
	all := g.history.World.Workloads
	i := slices.IndexFunc(all, func(p Workload) bool { v := g.history.World.volume(p.Volumes[0]); return opens(v) && !v.Shared })
	if i < 0 {
		return false
	}
	first := all[i]
	v := g.history.World.volume(first.Volumes[0])
	v.Name, v.Handle, v.Claim = v.Name+suffix, handle(v), ""
	p := Workload{Name: "pod-" + suffix, Volumes: []string{v.Name}, Nodes: slices.Clone(first.Nodes), Selected: !g.chance(20), Stop: first.Stop}
	g.history.World.Volumes = append(g.history.World.Volumes, v)
	g.history.World.Workloads = append(g.history.World.Workloads, p)
	return true
}

// bindStatically gives a volume a handle and a claim that have nothing to do with its name; the handle may be another
// volume's name.
func (g *generator) bindStatically() bool {
	all := g.history.World.Volumes
	i := g.IntN(len(all))
	if all[i].Released != "" || g.history.World.shared(all[i]) {
		return false
	}
	handle := "kept"
	if len(all) > 1 && g.chance(50) {
		handle = all[(i+1)%len(all)].Name
	}
	all[i].Handle, all[i].Claim = handle, "claim-of-"+handle
	return true
}

func (g *generator) addEphemeral() bool {
	g.someWorkload().Ephemeral = true
	return true
}

// addTo gives a workload one more volume, which is as it was drawn except for what change changes.
func (g *generator) addTo(p *Workload, change func(*Volume)) {
	w := &g.history.World
	nodes := w.Nodes
	v := Volume{Name: fmt.Sprintf("v%d", len(w.Volumes)), Kind: Filesystem, Diskful: slices.Clone(nodes[:2]), TieBreaker: nodes[2]}
	v.Handle = "pvc-" + v.Name
	change(&v)
	w.Volumes = append(w.Volumes, v)
	p.Volumes = append(p.Volumes, v.Name)
}

func (g *generator) addExport() bool {
	p := g.someWorkload()
	if g.history.World.volume(p.Volumes[0]).Kind == NFSExport {
		return false
	}
	g.addTo(p, func(v *Volume) { v.Kind = NFSExport })
	return true
}

// openOnTwo lets two pods on two nodes hold a shared raw block volume open for writing.
func (g *generator) openOnTwo() bool {
	w := &g.history.World
	name := ""
	for i, node := range w.Nodes[:2] {
		p := Workload{Name: fmt.Sprintf("pod-both-%d", i), Selected: !g.chance(10), Stop: 1e9}
		p.Nodes = append([]string{node}, slices.DeleteFunc(slices.Clone(w.Nodes), func(n string) bool { return n == node })...)
		if i == 0 {
			g.addTo(&p, func(v *Volume) { v.Kind, v.Shared, v.TwoPrimaries = Block, true, true })
			name = p.Volumes[0]
		} else {
			p.Volumes = []string{name}
		}
		w.Workloads = append(w.Workloads, p)
	}
	return true
}

func (g *generator) addVolumes() bool {
	p := g.someWorkload()
	for len(p.Volumes) < 3 {
		g.addTo(p, func(*Volume) {})
	}
	return true
}

func (g *generator) addWithoutQuorum() bool {
	p := g.someWorkload()
	if len(p.Volumes) > 2 {
		return false
	}
	g.addTo(p, func(v *Volume) {
		v.Quorum = "off"
		if g.chance(50) {
			v.TieBreaker = ""
		}
	})
	return true
}

// noteVolumes notes what was drawn by chance.
func (g *generator) noteVolumes() {
	for _, p := range g.history.World.Workloads {
		if g.history.World.volume(p.Volumes[0]).Kind == NFSExport {
			g.drew(NFSJudged)
		}
		if len(p.Volumes) == 2 {
			g.drew(TwoVolumes)
		}
	}
}

// volume returns the volume of that name.
func (world World) volume(name string) Volume {
	i := slices.IndexFunc(world.Volumes, func(v Volume) bool { return v.Name == name })
	if i < 0 {
		panic("no volume " + name)
	}
	return world.Volumes[i]
}

// createAgain creates the PersistentVolume of a pod's last volume again, as an affinity controller does, about when its node is lost.
func (g *generator) createAgain() bool {
	w := &g.history.World
	p := g.someWorkload()
	if len(p.Volumes) < 2 {
		g.addTo(p, func(v *Volume) {
			if g.chance(50) {
				v.Quorum = "off"
			}
		})
	}
	name := p.Volumes[len(p.Volumes)-1]
	if v := w.volume(name); v.Kind == NFSExport || v.Released != "" {
		return false
	}
	w.Reckless = true
	lost := g.around()
	g.nodeFault(lost, g.span(), pick(g, Crash, Isolate), p.Nodes[0])
	again := max(0, lost+g.milliseconds(-5*time.Second, 12*time.Second))
	g.add(again, Step{What: CreateAgain, On: name})
	g.add(again+g.milliseconds(3*time.Second, 20*time.Second), Step{What: BindAgain, On: name}) // always: nothing is judged of its pod until then
	return true
}
