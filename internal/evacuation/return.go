package evacuation

import (
	"slices"
)

// ruleReturn takes back what was done for a node that has the taint no more: the flag, if it is ours, then the marks, then what the node says.
// Copies stay: LINSTOR may still have a move in mind that deletes its source without a second look, so a copy that is deleted here might be
// the last.
func ruleReturn(s situation) (Plan, bool) {
	if len(s.self.Evacuate) > 0 {
		return Plan{}, false
	}
	if s.Progress == nil {
		return Plan{State: Returned}, true
	}
	if reason, message := first(halts, s); reason != "" {
		return s.held(reason, message), true
	}
	if plan, ok := ruleUnread(s); ok {
		return plan, true
	}
	if !s.self.Listed {
		s.self.Online, s.self.Evacuating = Yes, false // LINSTOR has forgotten the node: there is nobody to wait for
	}
	if reason, message := first(hindrances, s); reason != "" {
		return s.held(reason, message), true
	}
	if s.self.Evacuating && s.Progress.asked() {
		plan := Plan{State: Returning, Progress: s.Progress, Step: Step{Call: Restore}, Again: soon, Conditions: s.Conditions}
		return plan, true
	}
	if !s.Marked.Known {
		return Plan{Needs: Needs{Marked: true}, Progress: s.Progress}, true
	}
	if marked := s.unmark(true); len(marked) > 0 {
		step := Step{Call: Properties, Unmark: marked}
		return Plan{State: Returning, Progress: s.Progress, Step: step, Again: soon, Conditions: s.Conditions}, true
	}
	return Plan{State: Returned, Unfinished: s.moves()}, true
}

// held is the plan of a node whose return something holds up. Where only last copies were made it has one condition, and gets no second.
func (s situation) held(reason Reason, message string) Plan {
	plan := Plan{State: Returning, Progress: s.Progress, Again: Interval, Conditions: same(StatusUnknown, reason, "returning: "+message)}
	if s.Conditions.Evacuated == nil {
		plan.Conditions.Evacuated = nil
	}
	return plan
}

// moves are the volumes that LINSTOR may still move off N.
func (s situation) moves() []string {
	var names []string
	for _, v := range s.mine {
		if r, _ := v.on(s.self.Satellite); r.Moves {
			names = append(names, s.volumeState(v).name())
		}
	}
	slices.Sort(names)
	return names
}
