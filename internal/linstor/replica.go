package linstor

import "time"

// stamp is a moment by which the store orders what it has read, in nanoseconds since epoch; 0 is the zero time.
type stamp int64

// epoch lies long before any time that is kept, so that none of them is 0. It has a reading of the monotonic clock, and so
// have the times that are made of it: a step of the machine's clock changes no duration.
var epoch = time.Now().Add(-1 << 60)

func stampOf(t time.Time) stamp {
	if t.IsZero() {
		return 0
	}
	return stamp(t.Sub(epoch))
}

func (s stamp) time() time.Time {
	if s == 0 {
		return time.Time{}
	}
	return epoch.Add(time.Duration(s))
}

// replicaEntry is a Replica as the store keeps it. What the node and the levels above decide is added when it is handed out.
type replicaEntry struct {
	Replica
	// read is the start of the newest list that had it.
	read stamp
	// listed is the end of the list that brought the replica; 0 for one that the first list of the resource had.
	listed stamp
	// lacked is the start of the last list that lacked it.
	lacked stamp
	// reporting is since when each list has had a state of it, and no event said that there is none.
	reporting stamp
	// peers are those that it has reported a connection to.
	peers []reportedPeer
	runs  mayRun
	// returned is set where LINSTOR lists the replica again, after it had gone from the list for no reason that is known.
	returned bool
	volumes  int32
	// spoke is set from an event that changed what the replica said on, until a list is read.
	spoke bool
	drbd  bool
}

// replica returns the Replica as it is handed out.
func (r *replicaEntry) replica() Replica {
	out := r.Replica
	out.MayRun, out.Begun = r.runs.settings, r.runs.begun
	return out
}
