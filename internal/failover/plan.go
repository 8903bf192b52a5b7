package failover

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Plan is what one look at a node calls for now. Keep-away comes first, then the marks, the removals and, by another look, the detaches.
type Plan struct {
	// Volumes says what to do about each volume of the look, in its order.
	Volumes []VolumePlan
	// Removals are the pods of lost volumes, each once however many of its volumes are lost.
	Removals []PodRemoval
}

// VolumePlan is what to do about one volume.
type VolumePlan struct {
	Decision
	// Step is the next one; empty where nothing is to be done, or nothing is left to do.
	Step Step
}

// Step is what the fail-over of a lost volume needs next.
type Step string

const (
	// StepRemove : pods there use the volume. New ones are kept away, the attachment is marked, and they are removed.
	StepRemove Step = "Remove"
	// StepDetach : no pod there uses the volume any more. It is released from the node, and its attachment deleted.
	StepDetach Step = "Detach"
)

// PodRemoval is how a pod that must go is removed now.
type PodRemoval struct {
	Pod Pod
	// By is the volume of the look whose loss it is removed for.
	By int
	// Volumes are all lost volumes of the look that it uses; each must be marked before.
	Volumes []int
	// How is what to do: nothing, where it is RemovalRunning or RemovalStuck.
	How Removal
}

// IsDue reports whether the pod is to be deleted now.
func (r PodRemoval) IsDue() bool { return r.How == RemoveForce || r.How == RemoveGracefully }

// PlanFor says what a look calls for now; its inputs are volumes on the same node.
func PlanFor(look []Input) Plan {
	plan := Plan{Volumes: make([]VolumePlan, len(look))}
	known := make(map[types.UID]int)
	for i, in := range look {
		v := VolumePlan{Decision: Decide(in)}
		switch {
		case v.Verdict != Lost:
		case len(in.Pods) > 0:
			v.Step, v.After = StepRemove, untilDue(in)
			for _, pod := range in.Pods {
				plan.remove(known, in, i, pod)
			}
		case in.Attachment != nil && in.mayBeOpen():
			v.After = lookAgain
		case in.Attachment != nil:
			v.Step, v.After = StepDetach, lookAgain
		}
		plan.Volumes[i] = v
	}
	return plan
}

// mayBeOpen reports whether a shared volume may be open on a node that LINSTOR or Kubernetes hears. If it were detached there, two nodes could write it.
func (in Input) mayBeOpen() bool {
	s := assess(in.freshened())
	replica, _ := s.Resource.Replica(s.Node.satellite())
	return s.shared() && !s.isAway() && !s.Resource.hasLeft(s.Node.satellite()) && !replica.InUse.is(false)
}

// remove plans the removal of a pod for one of its lost volumes. Where they differ, the one that can do most decides: each rests on
// everything that is known of the other volumes of the pod.
func (p *Plan) remove(known map[types.UID]int, in Input, volume int, pod Pod) {
	how := RemovalOf(in, pod)
	at, ok := known[pod.UID]
	if !ok {
		known[pod.UID] = len(p.Removals)
		p.Removals = append(p.Removals, PodRemoval{Pod: pod, By: volume, Volumes: []int{volume}, How: how})
		return
	}
	removal := &p.Removals[at]
	removal.Volumes = append(removal.Volumes, volume)
	if slices.Index(strongest, how) < slices.Index(strongest, removal.How) {
		removal.Pod, removal.By, removal.How = pod, volume, how
	}
}

// strongest are the ways to remove a pod, the one first that does most.
var strongest = []Removal{RemoveForce, RemoveGracefully, RemovalStuck, RemovalRunning}

// untilDue is how soon an act is looked at again when nothing else calls for it: soon, and when the time is up that a pod was given
// to stop.
func untilDue(in Input) (after time.Duration) {
	after = lookAgain
	for _, pod := range in.Pods {
		if left := pod.forceAt(in.Settings.DeletionGrace).Sub(in.Now); left > 0 {
			after = min(after, left)
		}
	}
	return after
}
