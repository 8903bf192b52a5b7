package evacuation

import "time"

// Failure is that LINSTOR has not done what it was told, and how often in a row. The zero value is that of a call that has not failed.
type Failure struct {
	// Times is how often in a row, and At when the last time; both are zero of a call that has not failed.
	Times int
	At    time.Time
	// Words are LINSTOR's, or say that it has not answered.
	Words string
}

// Again is the failure after one more.
func (f Failure) Again(now time.Time, words string) Failure {
	return Failure{Times: f.Times + 1, At: now, Words: words}
}

// Holds tells whether it is too early to tell LINSTOR the same again: a single mishap is made good by the next look, and what fails more often is
// told as rarely as to evacuate a node.
func (f Failure) Holds(now time.Time) bool {
	wait := Interval
	if f.Times > 1 {
		wait = askAgain[min(f.Times-2, len(askAgain)-1)]
	}
	return now.Sub(f.At) < wait
}

// tells returns the plan with a step, or without where LINSTOR has refused such a call a moment ago.
func (s situation) tells(plan Plan, step Step) Plan {
	if s.Memory.Failed[step.Call].Holds(s.Now) {
		return plan
	}
	plan.Step, plan.Again = step, soon
	return plan
}
