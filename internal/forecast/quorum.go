package forecast

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
)

// quorums says where a node may run another quorum than LINSTOR shows, or shows that it does.
func quorums(f Facts, without names) []Finding {
	var all []Finding
	if quorum := f.Options.QuorumOfController(); quorum != "" {
		all = append(all, Finding{
			Severity: Warning, Code: QuorumOnController,
			Message: fmt.Sprintf("%s is %s on the LINSTOR controller: LINSTOR shows it on every resource definition at once, but "+
				"satellites are not told, and their nodes may go on with what they ran before", linstor.OptionQuorum, quorum),
			Remedy: fmt.Sprintf("while all nodes are ONLINE: linstor resource-group set-property GROUP %s %s, or the same on the resource "+
				"definitions, instead; then restart linstor-satellite on each node, which leaves DRBD alone", linstor.OptionQuorum, quorum),
		})
	}
	return append(all, withObjects(Finding{
		Severity: Error, Code: WithoutQuorum, Objects: without.sorted(),
		Message: "these replicas reach no majority, and DRBD would promote them all the same, because their nodes run without quorum, whatever " +
			"LINSTOR shows: none of them counts as a node that could take over",
		Remedy: "restart linstor-satellite on the node, which leaves DRBD alone; set quorum on the resource group or definition, not on the " +
			"controller",
	})...)
}

// eviction says what LINSTOR makes of a node that stays away.
func eviction(f Facts) []Finding {
	if f.Lost != nil || !strings.EqualFold(f.Options.Controller(linstor.OptionEvict), "true") {
		return nil // without it a volume has a replica fewer until the node is back
	}
	after := "its default time"
	if minutes := f.Options.Controller(linstor.OptionEvictAfter); minutes != "" {
		after = minutes + " minutes"
	}
	return []Finding{{
		Severity: Info, Code: AutoEvict,
		Message: fmt.Sprintf("LINSTOR evicts a node that was OFFLINE for %s (%s), and places its replicas elsewhere: until then volumes have a replica "+
			"fewer and the loss of one more node may stop them, and later the node comes back empty", after, linstor.OptionEvictAfter),
		Remedy: fmt.Sprintf("let %s be longer than a repair takes: linstor controller set-property %s MINUTES; or let no node be evicted: linstor controller "+
			"set-property %s false, with which redundancy comes back only with the node", linstor.OptionEvictAfter, linstor.OptionEvictAfter, linstor.OptionEvict),
	}}
}

// doubts says in one line for each node why it is not known to run the quorum that LINSTOR shows, and what to do there.
func doubts(in failover.Input, message string) []string {
	r := in.Resource
	inDoubt := func(replica failover.Replica) bool { return !replica.Unconfirmed.IsZero() }
	// What the pod's node may run comes first: what the others may run counts only where that is settled.
	found := slices.DeleteFunc(slices.Clone(r.Replicas), func(replica failover.Replica) bool {
		return replica.Node != cmp.Or(in.Node.Satellite, in.Node.Name) || !inDoubt(replica)
	})
	if len(found) == 0 {
		found = slices.DeleteFunc(slices.Clone(r.Replicas), func(replica failover.Replica) bool { return !inDoubt(replica) })
	}
	if len(found) == 0 {
		return []string{fmt.Sprintf("%s on %s: not moved, because %s", r.Name, in.Node.Name, message)}
	}
	lines := make([]string, 0, len(found))
	for _, replica := range found {
		remedy := "restart linstor-satellite on " + replica.Node
		if replica.Online.Known && !replica.Online.Value {
			remedy = fmt.Sprintf("bring %s back", replica.Node)
		}
		lines = append(lines, fmt.Sprintf("%s: not moved, because it has not been known since %s that %s runs quorum %s: %s",
			r.Name, replica.Unconfirmed.UTC().Format(time.RFC3339), replica.Node, r.Quorum, remedy))
	}
	return lines
}
