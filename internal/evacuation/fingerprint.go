package evacuation

import (
	"fmt"
	"slices"
	"strings"
)

// Fingerprint says what is so of the volumes with a replica on N: where it is the same, nothing has changed that an evacuation waits for, but for snapshots.
// Who uses a replica comes and goes meanwhile, and so do connections. Of these it counts only whether a replica is connected to a disk with the data.
func (in Input) Fingerprint() string {
	s := assess(in)
	var b strings.Builder
	fmt.Fprintln(&b, s.self.Evacuating)
	for _, v := range s.mine {
		fmt.Fprintln(&b, v.Resource)
		replicas := slices.Clone(v.Replicas)
		slices.SortFunc(replicas, func(x, y Replica) int { return strings.Compare(x.Node, y.Node) })
		for _, r := range replicas {
			fmt.Fprintln(&b, r.Node, r.Diskless, r.Flags, r.Disks, r.Syncing, r.Done, r.Moves, v.isFed(r)) // a map is printed in the order of its keys
		}
	}
	return b.String()
}
