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
	if why := s.unknownName(); why != "" {
		return s.held(NotASatellite, why), true
	}
	if !s.self.Listed {
		s.self.Online, s.self.Evacuating = Yes, false // LINSTOR has forgotten the node: there is nobody to wait for
	}
	if reason, message := first(hindrances, s); reason != "" {
		return s.held(reason, message), true
	}
	if s.self.Evacuating && s.ours(s.self) {
		return s.takesBack(Step{Call: Restore}), true
	}
	if !s.Marked.Known {
		return Plan{Needs: Needs{Marked: true}, Progress: s.Progress}, true
	}
	if marked := s.unmark(true); len(marked) > 0 {
		return s.takesBack(Step{Call: Properties, Unmark: marked}), true
	}
	return Plan{State: Returned, Unfinished: s.moves()}, true
}

// unknownName is why it is not known which node of LINSTOR a node is that returns; empty if it is.
func (s situation) unknownName() string {
	if s.self.Satellite == "" {
		return twoClaim
	}
	name := s.namesake()
	if s.self.Listed || s.self.Named || !s.Progress.asked() || name == "" {
		return ""
	}
	return "LINSTOR lists no node " + s.self.Satellite + ", and has " + name + " flagged EVACUATE, which may be it by another name: start the " +
		"CSI driver on the node, which tells; or see to " + name + " by linstor node restore, or linstor node lost"
}

// namesake is a node of LINSTOR that this cluster has had evacuated and is none of Kubernetes by any name that is known; empty where there is none.
func (s situation) namesake() string {
	for _, n := range s.Nodes {
		if n.Name == "" && n.Evacuating && s.ours(n) {
			return n.Satellite
		}
	}
	return ""
}

// takesBack is the plan of a node that returns with something still to be taken back. As long as LINSTOR does that the conditions stay for the
// moment; where it has not done it, nobody looks after what they say any more.
func (s situation) takesBack(step Step) Plan {
	plan := Plan{State: Returning, Progress: s.Progress, Conditions: s.Conditions, Again: Interval}
	if failed := s.Memory.Failed[step.Call]; failed.Times > 0 {
		plan = s.held(LinstorRefuses, failed.Words)
	}
	return s.tells(plan, step)
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
