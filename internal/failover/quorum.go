package failover

import (
	"fmt"
	"slices"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evidence"
)

// basis is what a loss rests on.
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

// fencing tells whether quorum keeps A from writing R; if not, or if that is not known, why. A goes on by what it applied last: it must have been
// seen to apply something since the quorum has fenced at every reading.
func fencing(r Resource, node string, t testimony, b basis) (Reason, string) {
	a, ok := r.Replica(node) // where there is none: one of which nothing is known
	if !ok && r.hasLeft(node) {
		return "", ""
	}
	if reason, message := wantedFences(r, a); reason != "" {
		return reason, message
	}
	if a.provesQuorum(r) {
		return "", ""
	}
	mine := r.votesOf(a)
	switch {
	case !a.Confirmed:
		return QuorumUnconfirmed, fmt.Sprintf("it is not known that node %s runs resource %s with quorum", node, r.Name)
	case r.InDoubt:
		return QuorumUnconfirmed, fmt.Sprintf("the replicas of resource %s have just changed", r.Name)
	case !a.Gone && !evidence.Outvotes(r.Quorum, mine):
		return QuorumUnconfirmed, fmt.Sprintf("node %s may count more replicas of resource %s than quorum %s is enough for", node, r.Name, r.Quorum)
	case b == byAnswer:
		return "", ""
	}
	return r.others(a, mine, t, b)
}

// others tells whether those by whose word A could write, or a survivor be promoted, run quorum and count whom A counts. Who has no disk takes the word
// of one that has.
func (r Resource) others(a Replica, mine []evidence.Vote, t testimony, b basis) (Reason, string) {
	for _, replica := range r.Replicas {
		near := evidence.MayLackDisk(mine, a.Node) && !replica.Diskless && !t.heard[replica.Node] && evidence.Counts(mine, replica.Node)
		backs := b != byWitnesses && (survives(replica) || r.lendsData(replica))
		switch {
		case replica.Node == a.Node, !near && !backs:
		case !replica.Confirmed:
			return QuorumUnconfirmed, fmt.Sprintf("it is not known that node %s runs resource %s with quorum", replica.Node, r.Name)
		case !evidence.Alike(mine, r.votesOf(replica)):
			return QuorumUnconfirmed, fmt.Sprintf("node %s may count other replicas of resource %s than node %s does", replica.Node, r.Name, a.Node)
		}
	}
	return "", ""
}

// lendsData tells whether a survivor may be promoted by the data of a replica. One that does not know A says to others that they may take them.
func (r Resource) lendsData(replica Replica) bool {
	return !replica.Diskless && slices.ContainsFunc(r.Replicas, func(s Replica) bool { return survives(s) && s.Connections[replica.Node].is(true) })
}

// wantedFences tells whether what LINSTOR wants fences A. Of one that is gone it counts what was so when it went.
func wantedFences(r Resource, a Replica) (Reason, string) {
	switch {
	case a.Gone && a.Confirmed:
		return "", ""
	case r.Quorum == "":
		return QuorumUnconfirmed, fmt.Sprintf("the quorum of resource %s has not been read yet", r.Name)
	case !r.fences():
		return NoQuorum, fmt.Sprintf("resource %s has quorum %s, so that a node that is cut off goes on writing", r.Name, r.Quorum)
	}
	return "", ""
}

// provesQuorum tells whether A says itself that its quorum works: it is Primary and may not write. DRBD reports one score for all
// volumes of a resource, so that with several of them the score proves nothing of each.
func (a Replica) provesQuorum(r Resource) bool {
	return !a.Gone && !a.Diskless && !evidence.MayLackDisk(r.votesOf(a), a.Node) && r.Volumes == 1 && a.Online.is(true) && a.InUse.is(true) && a.Score.is(0)
}

// hasLeft tells whether the replica on a node went while its satellite was ONLINE: nothing of R is left there.
func (r Resource) hasLeft(node string) bool { return slices.Contains(r.Left, node) }
