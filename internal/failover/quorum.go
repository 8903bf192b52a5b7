package failover

import (
	"fmt"
	"slices"
)

// basis is what a loss rests on, and so what must be known of each setting that A may run.
type basis int

const (
	// byAnswer : A answers, and says itself that it does not work on R.
	byAnswer basis = iota
	// byWitnesses : every witness says that it is not connected to A, and A could not hold quorum without them.
	byWitnesses
	// bySilence : too few witnesses could be asked, and A's kubelet is silent.
	bySilence
)

// basis is what a loss of R on A rests on.
func (s situation) basis(t testimony) basis {
	switch {
	case s.cond.state == Secondary && s.Node.LeaseSilent(s.Settings.KubeletSilence):
		return bySilence // no kubelet would see to it that A stays so
	case s.cond.state != Unreachable && s.cond.state != PrimaryWithoutQuorum:
		return byAnswer
	case t.full:
		return byWitnesses
	default:
		return bySilence
	}
}

// fencing tells whether quorum keeps A from writing R, whatever A runs; if not, or if that is not known, why. A goes on by the
// setting that it applied last. LINSTOR shows the one that it wants. So every setting that A may run must fence it, and
// nothing stands in for the evidence of which those are: no waiting, no silence and no absence.
func fencing(r Resource, node string, t testimony, b basis) (Reason, string) {
	a, ok := r.Replica(node) // where there is none: one that has begun nothing
	if !ok && r.hasLeft(node) {
		return "", ""
	}
	if reason, message := wantedFences(r, a); reason != "" {
		return reason, message
	}
	if a.provesQuorum(r) {
		return "", ""
	}
	switch {
	case !a.Begun || len(a.MayRun) == 0:
		return QuorumUnconfirmed, fmt.Sprintf("it is not known what node %s runs of resource %s", node, r.Name)
	case r.InDoubt:
		return QuorumUnconfirmed, fmt.Sprintf("the replicas of resource %s have just changed", r.Name)
	}
	for _, setting := range a.MayRun {
		if why := unfenced(r, node, t, b, *setting); why != "" {
			return QuorumUnconfirmed, fmt.Sprintf("node %s may still run resource %s with %s", node, r.Name, why)
		}
	}
	if b == bySilence {
		return survivorsFence(r)
	}
	return "", ""
}

// votesLeaving returns the replicas with a vote that are on their way out. Nodes that LINSTOR reaches count them no longer, and others do.
func (r Resource) votesLeaving() (nodes []string) {
	for _, replica := range r.Replicas {
		if replica.Leaving && !replica.Client {
			nodes = append(nodes, replica.Node)
		}
	}
	return nodes
}

// wantedFences tells whether the setting that LINSTOR wants fences A, and the newest that A may run.
func wantedFences(r Resource, a Replica) (Reason, string) {
	if r.Quorum == "" {
		return QuorumUnconfirmed, fmt.Sprintf("the quorum of resource %s has not been read yet", r.Name)
	}
	newest := r.wanted(r.Quorum)
	if a.Gone && len(a.MayRun) > 0 {
		newest = *a.MayRun[len(a.MayRun)-1]
	}
	if !newest.fences() {
		return NoQuorum, fmt.Sprintf("resource %s has quorum %s, so that a node that is cut off goes on writing", r.Name, newest.Quorum)
	}
	return "", ""
}

// provesQuorum tells whether A says itself that its quorum works: it is Primary and may not write. DRBD reports one score for all
// volumes of a resource, so that with several of them the score proves nothing of each.
func (a Replica) provesQuorum(r Resource) bool {
	return !a.Gone && r.Volumes == 1 && a.Online.is(true) && a.InUse.is(true) && a.Score.is(0)
}

// unfenced says why a setting that A may run might let it write, empty where it does not.
func unfenced(r Resource, node string, t testimony, b basis, setting Setting) string {
	switch {
	case !setting.fences():
		return "quorum " + setting.Quorum
	case b == byWitnesses && !t.denies(r, node, setting):
		return fmt.Sprintf("the replicas %s, of which too few could be asked", setting.replicas())
	case b == bySilence && !setting.sameReplicas(r.wanted("")):
		return fmt.Sprintf("the replicas %s, which are others now", setting.replicas())
	}
	return ""
}

func (s Setting) sameReplicas(other Setting) bool {
	return slices.Equal(s.Diskful, other.Diskful) && slices.Equal(s.Diskless, other.Diskless)
}

func (s Setting) replicas() string {
	return fmt.Sprintf("%v and without a disk %v", s.Diskful, s.Diskless)
}

// survivorsFence tells whether every setting that a survivor may run takes the quorum from A where the survivor has it: by other replicas than
// A counts, both may have one. A itself has passed before.
func survivorsFence(r Resource) (Reason, string) {
	if leaving := r.votesLeaving(); len(leaving) > 0 {
		return QuorumUnconfirmed, fmt.Sprintf("the replicas of resource %s on %v are on their way out: the survivors count them no longer, and the node may", r.Name, leaving)
	}
	wanted := r.wanted("")
	for _, replica := range r.Replicas {
		if !survives(replica) {
			continue
		}
		open := func(setting *Setting) bool { return !setting.fences() || !setting.sameReplicas(wanted) }
		if !replica.Begun || slices.ContainsFunc(replica.MayRun, open) {
			return QuorumUnconfirmed, fmt.Sprintf("it is not known that node %s runs resource %s with quorum, by the replicas of now", replica.Node, r.Name)
		}
	}
	return "", ""
}

// hasLeft tells whether the replica on a node went while its satellite was ONLINE: nothing of R is left there.
func (r Resource) hasLeft(node string) bool { return slices.Contains(r.Left, node) }
