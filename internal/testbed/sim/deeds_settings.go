package sim

import (
	"strings"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

// What can happen to settings.
const (
	SetGroupQuorum          Deed = "set quorum on the group"
	SetControllerQuorum     Deed = "set quorum on the controller"
	SetTieBreaker           Deed = "set automatic tie-breakers"
	SetGroupTieBreaker      Deed = "set automatic tie-breakers on the group"
	SetControllerTieBreaker Deed = "set automatic tie-breakers on the controller"
	BreakAdjust             Deed = "let adjusts fail"
	MendAdjust              Deed = "let adjusts work"
	DelayAdjust             Deed = "let the next adjust be late"
	AddReplica              Deed = "add a replica"
	ToggleDisk              Deed = "toggle the disk"
	LoseNode                Deed = "node lost"
	FindNode                Deed = "add the node again"
	SaveDatabase            Deed = "save LINSTOR's database"
	RestoreDatabase         Deed = "restore LINSTOR's database"
)

// onSettings is what happens to what LINSTOR wants, and to how its nodes hear of it.
var onSettings = map[Deed]func(w *world, s Step){
	SetGroupQuorum: func(w *world, s Step) {
		w.Linstor.SetGroupProperty(linstorsim.DefaultGroup, linstorsim.PropQuorum, s.Value)
	},
	SetControllerQuorum: func(w *world, s Step) { w.Linstor.SetControllerProperty(linstorsim.PropQuorum, s.Value) },
	SetTieBreaker: func(w *world, s Step) {
		w.Linstor.SetDefinitionProperty(w.resource(s.On), linstorsim.PropAutoTieBreaker, s.Value)
	},
	SetGroupTieBreaker: func(w *world, s Step) {
		w.Linstor.SetGroupProperty(linstorsim.DefaultGroup, linstorsim.PropAutoTieBreaker, s.Value)
	},
	SetControllerTieBreaker: func(w *world, s Step) { w.Linstor.SetControllerProperty(linstorsim.PropAutoTieBreaker, s.Value) },
	AddReplica: func(w *world, s Step) {
		_ = w.Linstor.AddReplica(w.resource(s.On), drbd.ReplicaSpec{Node: s.Node, Diskless: s.Value == diskless})
	},
	ToggleDisk:      func(w *world, s Step) { _ = w.Linstor.ToggleDisk(w.resource(s.On), s.Node, s.Value == diskful) },
	LoseNode:        func(w *world, s Step) { _ = w.Linstor.LoseNode(s.Node) },
	FindNode:        func(w *world, s Step) { w.Linstor.AddNode(s.Node) },
	SaveDatabase:    func(w *world, _ Step) { w.saved = w.Linstor.Snapshot() },
	RestoreDatabase: (*world).restoreDatabase,
}

// onAdjust is what goes wrong when a satellite adjusts; what LINSTOR wants stays as it is.
var onAdjust = map[Deed]func(w *world, s Step){
	BreakAdjust: func(w *world, s Step) {
		w.mu.Lock()
		w.adjusts[place{w.resource(s.On), s.Node}] = true
		w.mu.Unlock()
		w.Linstor.SetAdjustFault(s.Node, w.resource(s.On), map[string]linstorsim.AdjustFault{
			atOptions: linstorsim.AdjustFailsAtOptions, atPeers: linstorsim.AdjustFailsAtPeers, hangs: linstorsim.AdjustHangs,
		}[s.Value])
	},
	MendAdjust: func(w *world, s Step) {
		w.mu.Lock()
		delete(w.adjusts, place{w.resource(s.On), s.Node})
		w.mu.Unlock()
		w.Linstor.SetAdjustFault(s.Node, w.resource(s.On), linstorsim.AdjustWorks)
	},
	DelayAdjust: func(w *world, s Step) {
		w.mu.Lock()
		w.late[s.Node] = s.For >= adjustLate
		w.mu.Unlock()
		w.Linstor.DelayAdjust(s.Node, s.For)
	},
}

// change lets what LINSTOR wants change, and notes whose it was.
func (w *world) change(s Step) {
	do := onSettings[s.What]
	if do == nil {
		return
	}
	before := w.wanted()
	do(w, s)
	if s.What == SetGroupQuorum || s.What == SetControllerQuorum {
		for _, resource := range w.DRBD.Resources() {
			w.sets(resource)
			w.setsAbove(resource)
		}
	}
	switch s.What {
	case AddReplica, ToggleDisk:
		w.changes(w.resource(s.On))
	default:
		w.compare(before)
	}
}

// wanted is what LINSTOR wants of each resource.
func (w *world) wanted() map[string]string {
	all := make(map[string]string)
	for _, resource := range w.DRBD.Resources() {
		all[resource] = w.Linstor.WantedQuorum(resource) + " " + strings.Join(w.Linstor.ReplicaNodes(resource), " ")
	}
	return all
}

// compare notes of which resources LINSTOR wants something else than before.
func (w *world) compare(before map[string]string) {
	for resource, now := range w.wanted() {
		if before[resource] != now {
			w.changes(resource)
		}
	}
}

// adjustsAgain notes which adjusts fail once more, or are late, now that a satellite is back; the lock is held.
func (w *world) adjustsAgain(node string) {
	for at := range w.adjusts {
		if at.node == node {
			w.failedAgain[at] = true
		}
	}
	if w.late[node] {
		for _, v := range w.history.World.Volumes {
			w.failedAgain[place{v.Resource(), node}] = true
		}
	}
}

// sets notes that a person has set the quorum of a resource.
func (w *world) sets(resource string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.byPerson[resource] = true
}

// setsAbove notes that it came with the group or the controller.
func (w *world) setsAbove(resource string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.setAbove[resource] = time.Now()
}

// changes notes that somebody has changed what LINSTOR wants of a resource.
func (w *world) changes(resource string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changed[resource] = true
	w.changedAt[resource] = time.Now()
}

func (w *world) restoreDatabase(_ Step) {
	if w.saved != nil && !w.linstorDown {
		w.linstorUp = time.Now()
		w.sees()
		w.Linstor.RestoreDatabase(w.saved)
	}
}

// mendSettings brings back what LINSTOR wanted in the beginning, and lets every node hear of it.
func (w *world) mendSettings() {
	for at := range w.adjusts {
		w.Linstor.SetAdjustFault(at.node, at.what, linstorsim.AdjustWorks)
	}
	clear(w.adjusts)
	w.Linstor.SetGroupProperty(linstorsim.DefaultGroup, linstorsim.PropQuorum, w.history.World.groupQuorum())
	w.Linstor.SetGroupProperty(linstorsim.DefaultGroup, linstorsim.PropAutoTieBreaker, "")
	w.Linstor.SetControllerProperty(linstorsim.PropQuorum, "")
	w.Linstor.SetControllerProperty(linstorsim.PropAutoTieBreaker, "True")
	for _, node := range w.history.World.Nodes {
		w.Linstor.DelayAdjust(node, 0)
		w.Linstor.AddNode(node)
	}
}
