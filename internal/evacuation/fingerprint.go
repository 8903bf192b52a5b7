package evacuation

import (
	"fmt"
	"slices"
	"strings"
)

// Fingerprint says what is so of the volumes with a replica on N and of its snapshots: where it is the same, nothing has changed.
func (in Input) Fingerprint() string {
	s := assess(in)
	var b strings.Builder
	fmt.Fprintf(&b, "%t %d\n", s.self.Evacuating, in.Snapshots.N)
	for _, v := range s.mine {
		fmt.Fprintln(&b, v.Resource)
		replicas := slices.Clone(v.Replicas)
		slices.SortFunc(replicas, func(x, y Replica) int { return strings.Compare(x.Node, y.Node) })
		for _, r := range replicas {
			fmt.Fprintln(&b, r) // a map is printed in the order of its keys
		}
	}
	return b.String()
}
