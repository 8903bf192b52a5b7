package failover

import (
	"fmt"
	"time"
)

// Recovery is everything that the decision on one pod of LINSTOR itself rests on: the LINSTOR controller, or what
// attaches its volumes.
type Recovery struct {
	Now time.Time
	// Silence is how long the kubelet of the pod's node must have been silent.
	Silence time.Duration
	// Answers tells whether LINSTOR has just answered.
	Answers bool
	// Blind is the node that LINSTOR is proven to be blind for, see [Blindness.Proof]; empty where there is none.
	Blind string
	// Online is LINSTOR's word on the pod's node.
	Online Fact[bool]
	// Nodes is the number of LINSTOR's nodes, OnlineNodes that of those that it has just called ONLINE.
	Nodes, OnlineNodes int
	// Node is the pod's node.
	Node Node
	// Kubelets is the number of kubelets heard of lately, Silent that of those that are silent now. More than Limit
	// are no lost nodes but a suspect view.
	Kubelets, Silent int
	Limit            Limit
	// ReadyNode is set when another node is ready for the pod.
	ReadyNode bool
	// Pod is the pod.
	Pod RecoveryPod
	// Halt holds what forbids every removal. The guard is one against LINSTOR's view: it counts while LINSTOR answers.
	Halt Halt
}

// BlindRetry is how long a LINSTOR that was restarted because it was blind is left alone, whether or not that has helped. A restart and the
// return of all satellites take a few minutes at most.
const BlindRetry = 10 * time.Minute

// RecoveryPod is a pod of LINSTOR itself.
type RecoveryPod struct {
	// Leaving is set when it is being deleted, or another pod of its owner was deleted so lately that the node of its
	// replacement need not have been known to be gone.
	Leaving bool
	// Replaced is set when a ReplicaSet owns it: that one replaces a pod as soon as it is being deleted, while other
	// owners wait until it is gone, and a dead node never lets it go.
	Replaced bool
	// Controller is set for the LINSTOR controller itself.
	Controller bool
	// Restarted is set where it, or the pod that it replaces, may have been deleted less than BlindRetry ago because LINSTOR was blind.
	Restarted bool
	// Attaches is set when it attaches LINSTOR's volumes. Its CSI driver keeps for a minute what it has read of nodes, and attaches
	// nothing to one that was not ONLINE then: one that starts before LINSTOR has its satellites back does more harm than one that
	// starts a few seconds later.
	Attaches bool
	// Storage names its first claim with a volume of LINSTOR; empty when it has none.
	Storage string
}

// tooEarly says why a pod that attaches volumes would start too early; empty where it would not.
func (in Recovery) tooEarly() string {
	switch {
	case !in.Pod.Attaches:
		return ""
	case !in.Answers:
		return "LINSTOR does not answer yet"
	case in.OnlineNodes <= in.Nodes/2:
		return fmt.Sprintf("only %d of %d nodes are ONLINE yet", in.OnlineNodes, in.Nodes)
	}
	return ""
}

// Recover decides whether a pod of LINSTOR itself is to be deleted, so that its owner starts another one on a node that
// lives. Kubernetes does so by itself, but only minutes later, and until then no volume can be moved.
//
// A pod is deleted plainly and never by force: nobody knows that it has stopped. So it must not matter if the old one
// still runs, cut off from the cluster. It is the same that Kubernetes does, only earlier.
func Recover(in Recovery) Decision {
	switch {
	case in.Pod.Leaving:
		return Decision{Verdict: NotLost, Reason: PodLeaving, Message: "it is being replaced already"}
	case in.Blind != "" && in.Pod.Controller:
		return restart(in)
	case !in.Node.LeaseSilent(in.Silence):
		return Decision{Verdict: NotLost, Reason: NodeAlive, Message: "its kubelet is not known to be silent"}
	case in.Answers && !freshFact(in.Online, in.Now).is(false):
		return Decision{Verdict: NotLost, Reason: LinstorAnswers, Message: "LINSTOR answers, and does not say that the node is gone"}
	}
	return replace(in)
}

// replace decides whether a pod that is lost with its node is to be deleted.
func replace(in Recovery) Decision {
	d := Decision{Verdict: Blocked}
	switch {
	case !in.Pod.Replaced:
		d.Reason, d.Message = NoOwner, "no ReplicaSet owns the pod, so that nothing would replace it at once"
	case in.Pod.Storage != "":
		d.Reason, d.Message = NeedsStorage, fmt.Sprintf("its claim %s is a volume of LINSTOR, which cannot be attached without LINSTOR", in.Pod.Storage)
	case in.Limit.exceeded(in.Silent, in.Kubelets):
		d.Reason = GuardTripped
		d.Message = fmt.Sprintf("%d of %d kubelets are silent at once, more than --max-lost-nodes=%s allows", in.Silent, in.Kubelets, in.Limit)
	case in.Answers && in.Halt.Guard != "":
		d.Reason, d.Message = GuardTripped, in.Halt.Guard
	case in.tooEarly() != "":
		d.Reason, d.Message = LinstorFirst, "it attaches volumes, and "+in.tooEarly()+": what it reads of nodes too early it keeps for a minute"
	case !in.ReadyNode:
		d.Reason, d.Message = NoReadyNode, "no other node is ready for the pod"
	case in.Halt.Paused != "":
		d.Reason, d.Message = Paused, in.Halt.Paused
	case in.Halt.Agents != "":
		d.Reason, d.Message = NodeAgentRuns, in.Halt.Agents
	case in.Halt.DryRun:
		d.Reason, d.Message = DryRun, "--dry-run forbids every removal"
	default:
		d.Verdict, d.Reason = Lost, LinstorGone
		d.Message = fmt.Sprintf("its node has been silent for %s and LINSTOR does not answer", in.Node.LeaseSilence.Round(time.Second))
		if in.Answers {
			d.Message = fmt.Sprintf("its node has been silent for %s and LINSTOR does not reach it either", in.Node.LeaseSilence.Round(time.Second))
		}
	}
	return d
}

// restart decides whether the pod of a LINSTOR controller that is blind is to be deleted: a new process sees. Nobody else ends it. LINSTOR
// goes on to answer, so that the pod's own kubelet must live, which ends the old process.
func restart(in Recovery) Decision {
	d := Decision{Verdict: Blocked, Reason: LinstorBlind}
	d.Message = fmt.Sprintf("LINSTOR calls node %s ONLINE and has no connection to it, and the node's kubelet is silent", in.Blind)
	switch {
	case !in.Pod.Replaced:
		d.Reason, d.Message = NoOwner, d.Message+"; no ReplicaSet owns the pod, so that nothing would replace it at once"
	case in.Pod.Storage != "":
		d.Reason, d.Message = NeedsStorage, fmt.Sprintf("%s; the pod's claim %s is a volume of LINSTOR", d.Message, in.Pod.Storage)
	case in.Limit.exceeded(in.Silent, in.Kubelets):
		d.Reason = GuardTripped
		d.Message = fmt.Sprintf("%s; but %d of %d kubelets are silent at once, more than --max-lost-nodes=%s allows", d.Message, in.Silent, in.Kubelets, in.Limit)
	case !in.Node.LeaseFresh(ForceSilence):
		d.Message += "; the kubelet of the pod's own node is not known to live, and would not end it: restart LINSTOR by hand"
	case in.Pod.Restarted:
		d.Message += fmt.Sprintf("; it may have been restarted for that less than %s ago", BlindRetry)
	case in.Halt.Paused != "":
		d.Reason, d.Message = Paused, d.Message+"; "+in.Halt.Paused
	case in.Halt.Agents != "":
		d.Reason, d.Message = NodeAgentRuns, d.Message+"; "+in.Halt.Agents
	case in.Halt.DryRun:
		d.Reason, d.Message = DryRun, d.Message+"; --dry-run forbids every removal"
	default:
		d.Verdict = Lost
		d.Message += ": only a restart of LINSTOR ends it"
	}
	return d
}
