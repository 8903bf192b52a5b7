package failover

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// MaxSilence is how long LINSTOR may not have confirmed anything before its last word is too old to act on. While a clock runs it is asked
// every second.
const MaxSilence = 10 * time.Second

// gate forbids a removal although the storage is lost; an empty reason lets it pass.
type gate struct {
	name  string
	check func(situation) (Reason, string)
}

// gates are asked in this order once the grace has passed: those of the volume, of its pods, of the moment.
var gates = []gate{
	{"quorum fences the node, whatever it runs", gateQuorum},
	{"a pod or a begun fail-over asks for it", gateAsked},
	{"every pod on the node may be removed", gatePods},
	{"Kubernetes itself does not move the pods", gateOutOfService},
	{"LINSTOR has spoken recently", gateLinstor},
	{"the view of the cluster is not suspect", gateGuard},
	{"nobody has paused fail-over", gatePause},
	{"no node agent of 1.x does the same work", gateAgents},
	{"the controller may act", gateDryRun},
}

// gated returns what forbids a removal although the storage is lost; an empty reason if nothing does.
func gated(s situation) (Reason, string) {
	for _, g := range gates {
		if reason, message := g.check(s); reason != "" {
			return reason, message
		}
	}
	return "", ""
}

// untilBack is what ends the doubt about a node that nobody reaches.
func untilBack(node Node) string {
	old := ""
	if node.OutOfService {
		old = ", once that taint is taken off, which may be older than the last sign of life from the node"
	}
	return fmt.Sprintf("it ends when node %s is back; or switch that node off, make sure that it is, and run kubectl taint node %s "+
		"node.kubernetes.io/out-of-service=nodeshutdown:NoExecute%s, by which Kubernetes removes all of its pods; setting quorum ends nothing while the "+
		"node is away", node.Name, node.Name, old)
}

func gateQuorum(s situation) (Reason, string) {
	reason, message := fencing(s.Resource, s.Node.satellite(), s.witness, s.basis(s.witness))
	switch {
	case reason == NoQuorum && s.cond.state == Unreachable:
		message += ": " + untilBack(s.Node) + "; set DrbdOptions/Resource/quorum to majority when it is back"
	case reason == NoQuorum:
		message += ": set DrbdOptions/Resource/quorum to majority on its resource group"
	case reason != QuorumUnconfirmed:
	case s.cond.state == Unreachable && (s.Node.SwitchedOff || s.Node.TakenOut) && !s.witness.met: // else its kernel is up
		return "", "" // somebody has said so, who knows
	case s.cond.state == Unreachable:
		message += ": " + untilBack(s.Node)
	default:
		message += ": restart linstor-satellite there"
	}
	return reason, message
}

func gateAsked(s situation) (Reason, string) {
	if len(s.Pods) > 0 || s.Attachment != nil && (s.Attachment.Marked || s.Attachment.Awaited) {
		return "", ""
	}
	return NotSelected, "no selected pod asks for the volume"
}

// gatePods looks at every pod of the volume on A. One that may not be removed keeps the others: they
// would only wait for the volume elsewhere.
func gatePods(s situation) (Reason, string) {
	for _, pod := range s.Pods {
		reason, message := gatePod(s, pod)
		if reason == "" {
			continue
		}
		if len(s.Pods) > 1 {
			return SharedVolume, fmt.Sprintf("pod %s/%s uses the resource too and would not be removed (%s: %s)",
				pod.Namespace, pod.Name, reason, message)
		}
		return reason, message
	}
	return "", ""
}

func gatePod(s situation, pod Pod) (Reason, string) {
	if reason, message := gateAlone(s, pod); reason != "" {
		return reason, message
	}
	return gateVolumes(s, pod)
}

// gateAlone looks at a pod by itself.
func gateAlone(s situation, pod Pod) (Reason, string) {
	switch {
	case !pod.Selected && pod.HelperOf != "":
		return HelperNotSelected, fmt.Sprintf("the pod is a helper of pod %s, and not selected for fail-over itself", pod.HelperOf)
	case !pod.Selected && !pod.Owned:
		return NotSelected, "the pod is not selected for fail-over, and has no controller that would re-create it"
	case !pod.Selected:
		return NotSelected, "the pod is not selected for fail-over"
	case pod.Exempt && pod.HelperOf != "":
		return Exempt, fmt.Sprintf("the annotation drbd.linbit.com/ignore-fail-over exempts the pod, or pod %s, for which it holds volumes; it ends when "+
			"that is taken off", pod.HelperOf)
	case pod.Exempt:
		return Exempt, "the annotation drbd.linbit.com/ignore-fail-over exempts the pod; it ends when that is taken off the pod"
	case !pod.Owned:
		return NoOwner, "the pod has no controller that would re-create it"
	case pod.NodeBound:
		return NodeBound, "the pod's controller would re-create it on the same node"
	case pod.UnboundClaim != "":
		return OtherVolumeUnavailable, fmt.Sprintf("it is not known which volume the pod's claim %s has: no PersistentVolume is bound to it", pod.UnboundClaim)
	case pod.UnsafeVolume != "" && !s.Settings.RemoveUnsafePods:
		return UnsafeVolume, fmt.Sprintf("the pod's volume %q may not survive a move; if the pod can start without what is in it, annotate it: "+
			"drbd.linbit.com/fail-over-unsafe-volumes=true", pod.UnsafeVolume)
	}
	return "", ""
}

// gateVolumes looks at the other volumes of a pod: on another node it would wait for one that cannot be used there, or that a pod keeps on A.
func gateVolumes(s situation, pod Pod) (Reason, string) {
	for _, other := range pod.Others {
		if !fineElsewhere(other, s.Node.satellite(), s.cond.state == Unreachable) {
			return OtherVolumeUnavailable, fmt.Sprintf("the pod's volume %s could not be used on another node", other.Name)
		}
		if other.Ephemeral || other.NFSExport || other.Shared {
			continue
		}
		for _, user := range other.Users {
			if slices.ContainsFunc(s.Pods, func(goes Pod) bool { return goes.UID == user.UID }) {
				continue // it goes with this volume
			}
			why := "the volume is not lost, or may be written there" // then the user stays, and holds it
			if reason, message := gateAlone(s, user); reason != "" {
				why = fmt.Sprintf("%s: %s", reason, message)
			} else if s.otherFenced(other) {
				continue
			}
			return SharedVolume, fmt.Sprintf("pod %s/%s uses the pod's volume %s too and would not be removed (%s)",
				user.Namespace, user.Name, other.Name, why)
		}
	}
	return "", ""
}

// fineElsewhere tells whether another volume of a pod does not keep it from being replaced on another node.
func fineElsewhere(other OtherVolume, node string, gone bool) bool {
	return other.Ephemeral || other.NFSExport || other.Shared && usedElsewhere(other.Resource, node) ||
		availableElsewhere(other.Resource, node, gone)
}

// usedElsewhere tells whether another node that answers has R in use, with quorum and data.
func usedElsewhere(r Resource, node string) bool {
	return slices.ContainsFunc(r.Replicas, func(replica Replica) bool {
		return replica.Node != node && replica.Online.is(true) && replica.InUse.is(true) && replica.Score.Known && replica.Score.Value > 0
	})
}

// availableElsewhere tells whether R could be used on another node: by a survivor or, while A answers
// and would hand it over in peace, by a replica elsewhere that has quorum and data.
func availableElsewhere(r Resource, node string, gone bool) bool {
	if _, ok := survivorOf(r, node); ok {
		return true
	}
	if gone {
		return false
	}
	for _, replica := range r.Replicas {
		if replica.Node != node && !replica.Leaving && replica.Online.is(true) && replica.Score.Known && replica.Score.Value > 0 {
			return true
		}
	}
	return false
}

// evictionSettled is for how long Kubernetes' taint eviction may still delete a pod that it has deleted: it does so again at each change of
// the pod, its own ones included, within moments.
const evictionSettled = 5 * time.Second

// gateOutOfService leaves pods to Kubernetes where somebody has asked it to move them. Its taint eviction deletes by name,
// and would hit the replacement of a pod that was removed meanwhile. What is left of the attachments is still finished.
//
// While it calls the node Ready, which it does for most of a minute after a crash, it does no more than that: its garbage collector of pods
// ends none that is left. Who says at once that a node is off would wait the longer for it.
func gateOutOfService(s situation) (Reason, string) {
	if !s.Node.OutOfService || !slices.ContainsFunc(s.Pods, s.movedByKubernetes) {
		return "", ""
	}
	return OutOfService, "the node has the taint node.kubernetes.io/out-of-service, by which Kubernetes itself moves its pods"
}

// movedByKubernetes tells whether Kubernetes still does something about a pod of a node that is out of service: its taint eviction deletes it, or
// may delete it once more, or its garbage collector ends it.
func (s situation) movedByKubernetes(pod Pod) bool {
	switch {
	case !pod.Terminating:
		return s.Node.Evicts && !pod.StaysOutOfService
	case s.Node.NotReady:
		return true
	default:
		return s.Now.Sub(pod.Deleting) < evictionSettled
	}
}

func gateLinstor(s situation) (Reason, string) {
	if s.Now.Sub(s.LinstorConfirmed) > MaxSilence {
		return LinstorStale, fmt.Sprintf("LINSTOR has not confirmed anything for more than %s", MaxSilence)
	}
	return "", ""
}

func gateGuard(s situation) (Reason, string) {
	if s.Halt.Guard != "" {
		return GuardTripped, s.Halt.Guard
	}
	return "", ""
}

func gatePause(s situation) (Reason, string) {
	if s.Halt.Paused != "" {
		return Paused, s.Halt.Paused
	}
	return "", ""
}

func gateAgents(s situation) (Reason, string) {
	if s.Halt.Agents != "" {
		return NodeAgentRuns, s.Halt.Agents
	}
	return "", ""
}

// gateDryRun is the last one, so that its message tells what would have been done if it were not there.
func gateDryRun(s situation) (Reason, string) {
	if !s.Halt.DryRun {
		return "", ""
	}
	var deeds []string
	for _, pod := range s.Pods {
		deeds = append(deeds, fmt.Sprintf("remove pod %s/%s (%s)", pod.Namespace, pod.Name, RemovalOf(s.Input, pod)))
	}
	if s.Attachment != nil {
		deeds = append(deeds, "delete VolumeAttachment "+s.Attachment.Name)
	}
	return DryRun, "would " + strings.Join(deeds, ", then ")
}
