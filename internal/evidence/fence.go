package evidence

import (
	"math"
	"strconv"
	"time"
)

// Moment orders what was observed, in nanoseconds since any time; 0 is before all of it.
type Moment int64

// Never is later than everything.
const Never = Moment(math.MaxInt64)

// userApart is how much later than a quorum of a person a list must begin that lacks a replica, for the replica to show that the quorum was applied.
const userApart = Moment(10 * time.Second)

// Majority and All are quorums that fence whatever the number of disks.
const (
	Majority = "majority"
	All      = "all"
)

// Fences tells whether a quorum keeps a node without its peers from writing: majority, all, or a number greater than half of
// the disks. LINSTOR accepts any number from 1 to 32; a smaller one fences nothing.
func Fences(quorum string, disks int) bool {
	if quorum == Majority || quorum == All {
		return true
	}
	n, err := strconv.Atoi(quorum)
	return err == nil && 2*n > disks
}

// Reading is what LINSTOR wants of a resource: the list of its replicas and then the definition, which LINSTOR writes in one step.
type Reading struct {
	Quorum string
	// ByUser is set where a person has set the quorum: LINSTOR says so, or it stands on the group or the controller. Marked is set where LINSTOR says so of
	// the definition.
	ByUser, Marked  bool
	Disks, Diskless int
	// Brought is set where a replica was listed for the first time since the last reading, and Lacked is the start of the last complete list
	// without the newest of them.
	Brought bool
	Lacked  Moment
	// Old is set where LINSTOR had the resource before it was followed.
	Old bool
	End Moment
}

// Fence is since when the quorum of a resource has fenced at every reading. The zero Fence has not been read.
type Fence struct {
	last  Reading
	since Moment
	// before is the quorum before the present one, until the reading that ended at changed.
	before  string
	changed Moment
	// person is set once a person was seen to have set the quorum: from then on every change may be a person's, who sets and takes back at any
	// moment, while LINSTOR changes it in the step in which it adds a replica.
	person bool
	// early is set where the quorum came with a replica that is not listed yet, and alone where it came without one: no peer shows that it was applied.
	early, alone bool
}

// Since is FencingSince: 0 where it has fenced from the first reading on, and Never while it does not.
func (f *Fence) Since() Moment {
	if f.last.Quorum == "" {
		return Never
	}
	return f.since
}

// NeedsReports tells whether the return of a satellite shows only with its error reports that the quorum was applied: a person has set it, or had, or it
// came without a replica.
func (f *Fence) NeedsReports() bool { return f.person || f.alone }

// Judge takes over a reading. It tells whether that changed since when the quorum has fenced.
func (f *Fence) Judge(r Reading) (changed bool) {
	was, first := *f, f.last.Quorum == ""
	f.person = was.person || r.ByUser
	f.early = f.isEarly(r)
	f.since = f.begins(r, was)
	f.early = f.early && f.since != Never
	if f.since != was.since {
		f.alone = f.since == r.End+1
	}
	if !first && was.last.Quorum != r.Quorum {
		f.before, f.changed = was.last.Quorum, r.End
	}
	f.last = r
	return first || f.since != was.since
}

// isEarly tells whether a quorum came with a replica that is not in the list: LINSTOR itself sets no majority for fewer disks.
func (f *Fence) isEarly(r Reading) bool {
	few := r.Quorum == Majority && r.Disks+min(r.Diskless, 1) < 3
	first := f.last.Quorum == ""
	return !f.person && few && (first && !r.Old || !first && f.since == Never || f.early)
}

// begins is since when a quorum has fenced that was read after another one.
func (f *Fence) begins(r Reading, was Fence) Moment {
	byLinstor := !f.person && r.Brought
	switch {
	case !Fences(r.Quorum, r.Disks):
		return Never
	case was.last.Quorum == "" && (r.Old || !f.early):
		return 0
	case was.early && byLinstor:
		return r.Lacked
	case was.goesOn(r):
		return was.since
	case !f.early && byLinstor:
		return r.Lacked
	default:
		return r.End + 1 // a list that begins in that moment may be older
	}
}

// goesOn tells whether the quorum of a reading has fenced since the one before. It may have been another one in between where a person has set it since.
func (f *Fence) goesOn(r Reading) bool {
	turned := r.Marked && !f.last.Marked
	return f.last.Quorum != "" && f.since != Never && same(f.last.Quorum, r.Quorum) && !turned
}

// same tells whether a quorum that fences stays what it is: a number that follows a number, or one word after the other, fences as before.
func same(was, now string) bool {
	_, errWas := strconv.Atoi(was)
	_, errNow := strconv.Atoi(now)
	return was == now || errWas != nil && errNow != nil
}
