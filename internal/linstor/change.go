package linstor

import (
	"slices"
)

// sameValues tells whether two snapshots of a resource differ in nothing but time.
func sameValues(a, b Resource) bool {
	return a.Name == b.Name && a.DRBD == b.DRBD && a.Volumes == b.Volumes && slices.EqualFunc(a.Replicas, b.Replicas, sameReplica)
}

func sameReplica(a, b Replica) bool {
	return a.Node == b.Node &&
		a.Diskless == b.Diskless && a.TieBreaker == b.TieBreaker && a.Leaving == b.Leaving &&
		same(a.Online, b.Online) && same(a.Reports, b.Reports) &&
		same(a.MayPromote, b.MayPromote) && same(a.InUse, b.InUse) && same(a.Score, b.Score) &&
		slices.EqualFunc(a.Connections, b.Connections, sameConnection) &&
		a.Quorum == b.Quorum && sameMemory(a.Remembered, b.Remembered)
}

func sameConnection(a, b Connection) bool { return a.Peer == b.Peer && same(a.Connected, b.Connected) }

func sameMemory(a, b *Memory) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Quorum == b.Quorum && slices.Equal(a.Diskful, b.Diskful) && slices.Equal(a.Diskless, b.Diskless)
}
