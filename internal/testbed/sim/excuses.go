package sim

import (
	"fmt"
	"slices"
)

// Excuses free a history of an invariant where no controller could have known better. None is without a limit: each is counted, by
// the number of histories in which it was needed.
const (
	// ExcuseOldWords: every witness's satellite had been cut off a moment before, or LINSTOR wrongly took it for ONLINE.
	ExcuseOldWords = "all witnesses' words were old, and LINSTOR did not know"
	// ExcuseUnseen: the settings that the node runs were shown for less time than lies between two readings.
	ExcuseUnseen = "the node runs settings that came and went between two readings"
	// ExcuseForgotten: all controllers were started again before the change could be written down.
	ExcuseForgotten = "all controllers were started again right after a change"
	// ExcuseFailedAgain: an adjust failed once more after a reconnect, or came more than a minute later.
	ExcuseFailedAgain = "an adjust failed again after a reconnect, or was later than a minute"
	// ExcuseArrived: a pod was bound to the node after the look that the write rests on.
	ExcuseArrived = "a pod arrived after the look"
	// ExcuseBegun: a fail-over has begun since the look.
	ExcuseBegun = "a fail-over has begun since the look"
	// ExcuseDemoted: DRBD has demoted who has a volume open, so that LINSTOR shows no use of it. LINSTOR refuses by what it asks itself.
	ExcuseDemoted = "a volume is open on a node that DRBD has demoted by force, which LINSTOR does not show"
	// ExcuseUnusable: nobody could use a volume before its node was switched off.
	ExcuseUnusable = "a volume could not be used before its node was switched off"
	// ExcuseNeverStarts: a pod waits for a volume where a person has removed the replica from under the attachment.
	ExcuseNeverStarts = "a pod waits for a volume on a node whose replica a person has removed"
	// ExcuseDelayed: the API acted later, and the node could write again by then.
	ExcuseDelayed = "the node got its storage back between the look and what the API made of it"
	// ExcuseSighted: LINSTOR was restarted right after its last answer, or before the API acted.
	ExcuseSighted = "a blind LINSTOR saw again between the look and what the API made of it"
	// ExcuseDamaged: a disk failed, and what was written there only is gone.
	ExcuseDamaged = "a disk with the only data has failed"
	// ExcuseUnfenced: a node that could not write when its volume was taken can do so because somebody has changed settings since.
	ExcuseUnfenced = "settings were changed after a volume was taken, so that its node can write again"
	// ExcusePerson: a person has removed the pod by force.
	ExcusePerson = "a person has removed the pod by force"
	// ExcuseVouched: a person has said that a node does not run, which could write.
	ExcuseVouched = "a person has said of a node that could write that it does not run"
	// ExcuseHidden: a loss has no Event because LINSTOR shows nothing of it, and the kubelet lives.
	ExcuseHidden = "nobody could know of a loss, since the kubelet lived and LINSTOR told nothing"
	// ExcuseUnannounced: a loss has no Event yet because LINSTOR has not announced it, and everything is read again every ten minutes only.
	ExcuseUnannounced = "nobody could know of a loss yet, which LINSTOR does not announce"
	// ExcuseNothingThere: the kubelet of a pod that has not run is one of most that are silent, or is for too short a time, and LINSTOR shows no replica there.
	ExcuseNothingThere = "nobody could know of a loss, since the kubelet's silence did not count, and LINSTOR had nothing there"
	// ExcuseAnotherNode: another node has failed, or what LINSTOR wants has changed, since the node was StorageSafe.
	ExcuseAnotherNode = "another node has failed since a node was StorageSafe"
	// ExcuseDatabase: somebody has given LINSTOR a database in which a mark or a flag was that had been taken away.
	ExcuseDatabase = "a mark or a flag came back with an old database of LINSTOR"
	// ExcuseBelated: LINSTOR has set a mark after minutes, when nobody waited for the answer any more.
	ExcuseBelated = "LINSTOR has set a mark long after it was told to"
	// ExcuseDeleted: a person has had LINSTOR delete the last disk.
	ExcuseDeleted = "a person has had LINSTOR delete the last disk with the newest data"
	// ExcuseCopyDeleted: a person has had LINSTOR delete a copy, which it does once it reaches the copy's node.
	ExcuseCopyDeleted = "a person has had LINSTOR delete a copy that was made for a node that leaves"
	// ExcuseBalanced: LINSTOR's balancing counts disks that have failed or that it does not reach, too, and has removed the last good one of a volume.
	ExcuseBalanced = "LINSTOR's balancing has removed the last disk with the newest data of a volume that no controller had touched, or while a node with another one was away or a disk had failed"
	// ExcuseTaken: a person has taken a replica from a node to which its volume is attached.
	ExcuseTaken = "a node that leaves is not safe in time: a replica was taken from under its attachment"
	// ExcusePinned: the volumes of a node that is to leave allow no other node.
	ExcusePinned = "a node that leaves is not safe in time: its volumes are pinned there"
	// ExcuseQuorumLost: a volume would have no quorum without it, whoever looks.
	ExcuseQuorumLost = "a node that leaves is not safe in time: a volume would have no quorum without it"
	// ExcuseNoTarget: no node could have a copy, or a pool was full when LINSTOR was asked last.
	ExcuseNoTarget = "a node that leaves is not safe or evacuated in time: no node could have a copy, or a pool was full"
	// ExcuseNeverFilled: a Primary never fills a disk that was replaced under it.
	ExcuseNeverFilled = "a node that leaves is not safe or evacuated in time: a disk that was replaced under a pod is never filled"
	// ExcuseBalances: a person lets LINSTOR's balancing remove copies of a volume.
	ExcuseBalances = "a node that leaves is not safe in time: a person lets LINSTOR's balancing remove copies"
	// ExcuseUnlisted: LINSTOR lists no disk of a volume that somebody claims, so that nobody knows what is left of it, or is to delete the last one.
	ExcuseUnlisted = "a node that leaves is not safe in time: LINSTOR keeps no disk of a volume that somebody claims"
)

// Excuses are all of them.
var Excuses = []string{
	ExcuseOldWords, ExcuseUnseen, ExcuseForgotten, ExcuseFailedAgain, ExcuseArrived, ExcuseBegun, ExcuseDemoted, ExcuseUnusable, ExcuseNeverStarts, ExcuseDelayed, ExcuseSighted, ExcuseDamaged, ExcuseUnfenced, ExcusePerson, ExcuseVouched, ExcuseHidden, ExcuseUnannounced, ExcuseNothingThere, ExcuseAnotherNode, ExcuseDatabase,
	ExcuseBelated, ExcuseDeleted, ExcuseCopyDeleted, ExcuseBalanced, ExcuseTaken, ExcusePinned, ExcuseQuorumLost, ExcuseNoTarget, ExcuseNeverFilled, ExcuseBalances, ExcuseUnlisted,
}

// asked notes that in this history a pod had to be moved in time.
func (w *world) asked() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outcome.Asked = true
}

// free notes why nobody asks for a lost volume to be moved in time. It may be moved all the same, and every other invariant holds.
func (w *world) free(why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.outcome.Freed, why) {
		w.outcome.Freed = append(w.outcome.Freed, why)
	}
}

// excuse notes that an excuse was needed.
func (w *world) excuse(name, format string, args ...any) {
	w.mu.Lock()
	if !slices.Contains(w.outcome.Excuses, name) {
		w.outcome.Excuses = append(w.outcome.Excuses, name)
	}
	w.mu.Unlock()
	w.note("EXCUSED " + name + ": " + fmt.Sprintf(format, args...))
}
