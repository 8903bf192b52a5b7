// Package drbd models what DRBD does with a replicated resource when nodes and links fail: roles, disk
// states, connections, quorum, and the two words that reach LINSTOR, may_promote and promotion_score.
//
// It follows the kernel's calc_quorum (drbd_state.c of DRBD 9.2) and the promotion arithmetic of drbd-utils
// (drbdsetup_events2.c of 9.34). It knows neither LINSTOR nor HTTP, keeps no goroutine and takes its time
// from package time only, so that it runs the same in a testing/synctest bubble and in real time.
//
// # What it leaves out
//
//   - There are no bytes. The data of a replica is one generation (DRBD's current UUID) per resource, not per
//     volume. A Primary that can write is taken to be writing: as soon as it goes on without a diskful member,
//     it starts a new generation.
//   - State changes that need the whole cluster are instantaneous. Where DRBD would wait for a peer that does
//     not answer, a promotion is refused ([ErrUnresponsive]) and a disk stays Consistent until the peer is
//     noticed to be gone.
//   - Unless [Options.NoticeEach] is set, a node that notices one dead connection notices all its dead connections
//     of that resource at once. Each end of a connection still notices in its own time.
//   - A lost connection is Connecting again at once; Timeout, NetworkFailure, BrokenPipe and Unconnected, which
//     last for milliseconds, are never shown.
//   - A resync copies everything or nothing and needs one source. Only the initial sync of an empty disk can take a time that
//     depends on its size, see [Options.SyncRate].
//   - quorum-minimum-redundancy, fencing handlers, on-no-data-accessible, external meta data, protocol A and B and the
//     after-split-brain policies do not exist: diverged data ends in StandAlone.
//   - The generation that a diskless node has seen is remembered like that of a disk until the node reboots.
//     DRBD is less strict there.
package drbd
