package failover

import "github.com/piraeusdatastore/piraeus-ha-controller/internal/evidence"

// votesOf is whom a replica counts, itself included. Where nothing was seen of that it is who is listed.
func (r Resource) votesOf(x Replica) []evidence.Vote {
	if x.Votes != nil {
		return x.Votes
	}
	all := make([]evidence.Vote, 0, len(r.Replicas))
	for _, replica := range r.Replicas {
		if replica.Node != x.Node && x.Diskless && replica.Diskless {
			continue
		}
		vote := evidence.Vote{Node: replica.Node, May: replica.kind()}
		if replica.Node != x.Node && (replica.Gone || replica.Leaving) {
			vote.May |= evidence.Absent
		}
		all = append(all, vote)
	}
	return all
}

func (a Replica) kind() evidence.Kind { return evidence.KindOf(a.Diskless, a.Client) }

// fences tells whether the quorum that LINSTOR wants keeps a node without its peers from writing.
func (r Resource) fences() bool {
	disks := 0
	for _, replica := range r.Replicas {
		disks += count(!replica.Gone && replica.kind() == evidence.WithDisk)
	}
	return evidence.Fences(r.Quorum, disks)
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}
