package evacuation

import "slices"

// rule answers what is to be done, or passes.
type rule struct {
	name  string
	apply func(situation) (Plan, bool)
}

// rules is the table of the plan. The first rule that answers decides.
var rules = []rule{
	{"a node without the taint returns", ruleReturn},
	{"a taint that means nothing is refused", ruleRefused},
	{"while something holds the controller up it waits", ruleHalted},
	{"LINSTOR is asked", ruleUnread},
	{"while LINSTOR does not answer, or not reach the node, it waits", ruleHindered},
	{"a node that LINSTOR does not know is refused", ruleNoSatellite},
	{"what somebody else has begun is only observed", ruleByOther},
	{"a node of which only last copies are made is restored", ruleTakenBack},
	{"what exists nowhere else is copied", ruleCopy},
	{"once that is done a node stays of which only last copies are made", ruleStays},
	{"a node without disks and snapshots has left", ruleLeft},
	{"what is left leaves through the gates", ruleLeave},
}

// PlanFor plans the next step for one node. The input is not changed.
func PlanFor(in Input) Plan {
	s := assess(in)
	for _, r := range rules {
		if plan, ok := r.apply(s); ok {
			return s.timely(plan)
		}
	}
	return Plan{State: Waiting, Progress: in.Progress, Conditions: same(StatusUnknown, LinstorStale, "no rule fits"), Again: Interval}
}

// timely names in a step the node that it is about, and puts one off that rests on an old look.
func (s situation) timely(plan Plan) Plan {
	if plan.Step.Call != Nothing {
		plan.Step.Node, plan.Step.Entry = s.self.Satellite, s.entry()
	}
	if plan.Step.Call != Nothing && s.Now.Sub(s.Linstor.Asked) > plan.Step.Call.MaxAge() {
		plan.Step, plan.Again = Step{}, Interval
	}
	return plan
}

// begun is the progress of a node that is tainted: it begins now where it has not yet.
func (s situation) begun() *Progress {
	mode, _, _ := s.self.mode()
	p := Progress{}
	if s.Progress != nil {
		p = *s.Progress
	}
	if mode == LastCopies {
		p.Asked, p.Asks, p.QuorumOff = nil, 0, 0
	}
	p.By = s.Installation
	if p.Mode = mode; p.Since.IsZero() {
		p.Since = s.Now.UTC()
		if !s.self.Since.IsZero() {
			p.Since = s.self.Since.UTC()
		}
	}
	return &p
}

// waiting is the plan of a node that waits and keeps what it has.
func (s situation) waiting(status Status, reason Reason, message string) Plan {
	plan := Plan{State: Waiting, Conditions: same(status, reason, message), Progress: s.begun(), Again: Interval}
	if s.Halt.DryRun {
		plan.Progress = s.Progress
	}
	return s.ofMode(plan)
}

// ofMode leaves a node of which only last copies are made without the condition that it will never fulfil.
func (s situation) ofMode(plan Plan) Plan {
	if mode, _, _ := s.self.mode(); mode == LastCopies {
		plan.Conditions.Evacuated = nil
	}
	return plan
}

// Unread is the plan of a node of which it cannot be read what is so, and has not been for longer than [MaxAge]: what its conditions said may
// not be so any more. It keeps its annotation.
func Unread(conditions Conditions, progress *Progress, why string) Plan {
	plan := Plan{State: Waiting, Progress: progress, Conditions: same(StatusUnknown, LinstorStale, why), Again: Interval}
	if conditions.Evacuated == nil { // of some nodes only last copies are made
		plan.Conditions.Evacuated = nil
	}
	return plan
}

func ruleRefused(s situation) (Plan, bool) {
	_, reason, message := s.self.mode()
	if reason == "" || reason == NotASatellite {
		return Plan{}, false
	}
	return s.refused(reason, message), true
}

// refused is the plan of a node whose taint asks for nothing that could be done. What was noted before stays, but not that it is safe: nobody looks after that.
func (s situation) refused(reason Reason, message string) Plan {
	plan := Plan{State: Refused, Conditions: same(False, reason, message), Again: Interval}
	if s.Progress != nil {
		progress := *s.Progress
		progress.Safe, plan.Progress = nil, &progress
	}
	return plan
}

func ruleHalted(s situation) (Plan, bool) {
	reason, message := first(halts, s)
	if reason == "" {
		return Plan{}, false
	}
	status := False
	if reason == FailingOver { // what is so is not known
		status = StatusUnknown
	}
	return s.waiting(status, reason, message), true
}

func ruleUnread(s situation) (Plan, bool) {
	return Plan{Needs: Needs{Placed: true}, Progress: s.Progress}, s.Linstor == Linstor{}
}

func ruleHindered(s situation) (Plan, bool) {
	if s.Linstor.Problem == "" && !s.self.Listed {
		return Plan{}, false
	}
	reason, message := first(slices.Concat(hindrances, doubts), s)
	if reason == "" {
		return Plan{}, false
	}
	return s.waiting(StatusUnknown, reason, message), true
}

func ruleNoSatellite(s situation) (Plan, bool) {
	_, reason, message := s.self.mode()
	if reason == "" {
		return Plan{}, false
	}
	return s.refused(reason, message), true
}

func ruleByOther(s situation) (Plan, bool) {
	reason, message := gateOwn(s)
	if reason == "" {
		return Plan{}, false
	}
	plan := s.waiting(False, reason, message)
	plan.Progress = s.unsafe()
	return plan, true
}

func ruleTakenBack(s situation) (Plan, bool) {
	progress := s.begun()
	if progress.Mode != LastCopies || !s.self.Evacuating {
		return Plan{}, false
	}
	plan := s.waiting(False, Copying, "LINSTOR is told that the node stays")
	if failed := s.Memory.Failed[Restore]; failed.Times > 0 {
		plan = s.waiting(False, LinstorRefuses, failed.Words)
	}
	plan.State = Returning
	return s.tells(plan, Step{Call: Restore}), true
}

func ruleCopy(s situation) (Plan, bool) {
	states, wanted := s.volumeStates()
	if !unsafe(states) || blocksNobody(states) && s.begun().Mode != LastCopies {
		return Plan{}, false // what is drained may leave
	}
	plan := Plan{State: CopyingState, Volumes: states, Progress: s.unsafe(), Again: Interval}
	if exposed := s.exposedCopies(); len(exposed) > 0 && !s.Memory.Failed[Properties].Holds(s.Now) {
		reason, message := sumUp(states)
		plan.Conditions = same(False, reason, message)
		return s.ofMode(s.tells(plan, Step{Call: Properties, Mark: exposed})), true
	}
	ahead := s.ahead()
	if len(wanted) > 0 && len(ahead) >= s.Settings.MaxNodes {
		plan.State, plan.Conditions = Waiting, same(False, AnotherNodeFirst, "node "+few(ahead)+" goes first")
		return s.ofMode(plan), true
	}
	copies, unread, noTarget := s.copies(wanted)
	if len(unread) > 0 {
		return Plan{Needs: Needs{Definitions: unread}, Progress: s.Progress}, true
	}
	plan.NoTarget = noTarget
	s.block(states, noTarget)
	if len(copies) > 0 {
		plan.Step, plan.Again = Step{Call: Autoplace, Copies: copies}, soon
	}
	reason, message := sumUp(states)
	if reason != Copying {
		plan.State = Blocked
	}
	plan.Conditions = same(False, reason, message)
	return s.ofMode(plan), true
}

// unsafe tells whether any of the volumes is not safe elsewhere.
func unsafe(states []VolumeState) bool {
	for _, v := range states {
		if v.Reason != CopiedElsewhere {
			return true
		}
	}
	return false
}

// blocksNobody tells whether all that is not safe elsewhere keeps nothing else from leaving: LINSTOR leaves alone what has no DRBD layer,
// what is pinned to the node is attached there, what writes asynchronously is in use there, and a replica without a disk has nothing to be moved.
func blocksNobody(states []VolumeState) bool {
	for _, v := range states {
		if v.Diskless {
			continue
		}
		switch v.Reason {
		case CopiedElsewhere, NotDRBD, AffinityPinned, QuorumWouldBeLost, AsynchronousWrites:
		default:
			return false
		}
	}
	return true
}

// NoNodeFree is why a volume gets no copy where LINSTOR need not be asked for one.
const NoNodeFree = "no node of its resource group is ONLINE, Ready, schedulable, without taints and without a disk of it"

// block notes the volumes for which no node may have a copy.
func (s situation) block(states []VolumeState, noTarget []string) {
	for i := range states {
		if slices.Contains(noTarget, states[i].Resource) {
			states[i].Reason, states[i].Message = NoTarget, NoNodeFree
		}
	}
	for _, v := range s.mine {
		i := slices.IndexFunc(states, func(state VolumeState) bool { return state.Resource == v.Resource })
		if moving := s.moving(v); states[i].Reason == NoTarget && len(moving) > 0 {
			states[i].Message += "; its disk on " + few(moving) + " does not count, because LINSTOR may still move it from there (UnfinishedMove)"
		}
	}
}

// unsafe is the progress of a node whose data is not safe elsewhere.
func (s situation) unsafe() *Progress {
	p := s.begun()
	p.Safe = nil
	return p
}

// safe is the progress of a node whose data is.
func (s situation) safe() *Progress {
	p := s.begun()
	if p.Safe == nil {
		now := s.Now.UTC()
		p.Safe = &now
	}
	return p
}

func ruleStays(s situation) (Plan, bool) {
	if s.begun().Mode != LastCopies {
		return Plan{}, false
	}
	states, _ := s.volumeStates()
	return Plan{State: Safe, Volumes: states, Progress: s.safe(), Conditions: Conditions{Safe: s.isSafe(states)}, Again: Interval}, true
}

// isSafe is the condition StorageSafe by the states of the volumes.
func (s situation) isSafe(states []VolumeState) *Condition {
	if reason, message := sumUp(states); reason != CopiedElsewhere {
		return &Condition{False, reason, message}
	}
	return &Condition{True, CopiedElsewhere, "the node may be drained or switched off: " + safeMessage(states)}
}
