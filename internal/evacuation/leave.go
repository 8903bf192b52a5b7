package evacuation

import (
	"cmp"
	"slices"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evidence"
)

const (
	// unchangedFor is for how long nothing must have changed before LINSTOR is told once more: what LINSTOR does in the background nobody sees,
	// and each further call while a copy syncs adds one.
	unchangedFor = time.Minute
	// minority is with how many disks LINSTOR keeps a majority only if a tie-breaker has a place.
	minority = 2
	// defaultPlaceCount is how many disks LINSTOR wants where the group does not say.
	defaultPlaceCount = 2
)

// askAgain is how long after a call LINSTOR is told once more; the last one holds for all further calls.
var askAgain = []time.Duration{time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute}

// remaining is what is left on N that has to leave.
type remaining struct {
	disks    []Volume // with DRBD
	bound    []Volume // without: they stay
	diskless int
}

func (s situation) remaining() remaining {
	var left remaining
	for _, v := range s.mine {
		r, _ := v.on(s.self.Satellite)
		switch {
		case r.Diskless && !r.has(toggling...):
			left.diskless++
		case v.DRBD:
			left.disks = append(left.disks, v)
		default:
			left.bound = append(left.bound, v)
		}
	}
	return left
}

// leaving is the plan of a node from which everything is to leave, as far as it is the same whatever comes next.
func (s situation) leaving(state State) Plan {
	states, _ := s.volumeStates()
	plan := Plan{State: state, Volumes: states, Conditions: Conditions{Safe: s.isSafe(states)}, Again: Interval}
	if plan.Conditions.Safe.Status == True {
		plan.Progress = s.safe()
	} else {
		plan.Progress = s.unsafe()
	}
	return plan
}

func (p Plan) evacuated(status Status, reason Reason, message string) Plan {
	p.Conditions.Evacuated = &Condition{status, reason, message}
	return p
}

func ruleLeft(s situation) (Plan, bool) {
	left := s.remaining()
	was := s.Conditions.Evacuated
	readMarks := s.Progress.asked() || was == nil || was.Status != True // once is enough where nothing but a person has moved anything
	switch {
	case len(left.disks) > 0:
		return Plan{}, false
	case !s.Snapshots.Known || !s.Marked.Known && readMarks:
		return Plan{Needs: Needs{Snapshots: true, Marked: readMarks}, Progress: s.Progress}, true
	case s.Snapshots.N > 0:
		return Plan{}, false
	}
	plan := s.leaving(Evacuated)
	if marked := s.unmark(false); len(marked) > 0 {
		plan = s.tells(plan, Step{Call: Properties, Unmark: marked})
	}
	if len(left.bound) > 0 {
		return plan.evacuated(False, NotDRBD, s.named(left.bound)+" has no DRBD layer: LINSTOR leaves it where it is"), true
	}
	message := "no disk and no snapshot is left"
	if left.diskless > 0 {
		message += "; " + counted(left.diskless, "replica") + " without a disk remain"
	}
	if n := plan.Progress.QuorumOff; n > 0 {
		message += "; without this node LINSTOR has quorum off for " + counted(n, "volume")
	}
	return plan.evacuated(True, NothingLeft, message), true
}

func (s situation) named(volumes []Volume) string {
	var names []string
	for _, v := range volumes {
		names = append(names, s.volumeState(v).name())
	}
	return few(names)
}

func ruleLeave(s situation) (Plan, bool) {
	plan := s.leaving(LeavingState)
	if !s.Snapshots.Known && s.Progress.asked() || !s.Marked.Known && s.Progress.asked() {
		return Plan{Needs: Needs{Snapshots: true, Marked: true}, Progress: s.Progress}, true
	}
	if reason, message := first(gates, s); reason != "" {
		if reason == WaitingForDrain || reason == NFSExport {
			plan.State = Draining
		}
		if reason == Leaving && s.stuck() {
			reason, message = LeavingStalled, message+", and nothing has changed for a minute"
			if s.Memory.NotMoved != "" {
				message += "; LINSTOR said: " + s.Memory.NotMoved
			}
		}
		return plan.evacuated(False, reason, s.also(message)), true
	}
	if marked := s.unmark(false); len(marked) > 0 && !s.Memory.Failed[Properties].Holds(s.Now) {
		return s.tells(plan, Step{Call: Properties, Unmark: marked}).evacuated(False, Leaving, s.also(s.leftMessage())), true
	}
	if !s.due() {
		reason, message := s.progressing()
		return plan.evacuated(False, reason, message), true
	}
	if ahead := append(s.ahead(), s.overtaken()...); len(ahead) >= s.Settings.MaxNodes {
		plan.State = Waiting
		return plan.evacuated(False, AnotherNodeFirst, "node "+few(ahead)+" goes first"), true
	}
	return s.ask(plan), true
}

// ask is the plan that tells LINSTOR to move the rest, once all that this rests on has been read.
func (s situation) ask(plan Plan) Plan {
	needs := Needs{
		Attachments: s.Now.Sub(s.Attachments.Read) > MaxAge, Version: !s.Version.Known, Snapshots: !s.Snapshots.Known,
	}
	if s.Version.Spares {
		needs.Definitions = s.unreadTraps()
	}
	if needs.Any() {
		return Plan{Needs: needs, Progress: s.Progress}
	}
	if others := s.unfinished(); !s.Version.Spares && len(others) > 0 {
		plan.State = Waiting
		return plan.evacuated(False, AnotherNodeFirst,
			"node "+few(others)+" goes first: this LINSTOR is older than 1.33 and cannot be told not to use a node that leaves")
	}
	if trapped := s.traps(); s.Version.Spares && len(trapped) > 0 {
		return s.avoid(plan, trapped)
	}
	progress := *plan.Progress
	now := s.Now.UTC()
	progress.Asked, progress.Asks = &now, progress.Asks+1
	plan.QuorumOff, plan.SingleDisk = s.quorumOff()
	if progress.Asks == 1 {
		progress.QuorumOff = len(plan.QuorumOff)
	}
	plan.Step, plan.Again = Step{Call: Evacuate, Asking: &progress}, soon
	if s.Version.Spares {
		plan.Step.DoNotTarget = s.otherLeaving()
	}
	return plan.evacuated(False, Leaving, s.leftMessage())
}

// avoid is the plan that has LINSTOR make the copies by which nothing is trapped any more.
func (s situation) avoid(plan Plan, trapped []Volume) Plan {
	var wanted []Volume
	blocked := ""
	for _, v := range trapped {
		if reason, words := volumeRefused(s, v, Replica{}); reason == "" {
			wanted = append(wanted, v)
		} else if blocked == "" {
			blocked = v.Resource + ": " + words
		}
	}
	copies, _, noTarget := s.copies(wanted)
	plan.NoTarget = noTarget
	if len(copies) > 0 {
		plan.Step, plan.Again = Step{Call: Autoplace, Copies: copies}, soon
	}
	if blocked == "" && len(noTarget) > 0 {
		blocked = noTarget[0] + ": " + NoNodeFree
	}
	if blocked != "" {
		return plan.evacuated(False, NoTarget, blocked)
	}
	return plan.evacuated(False, Leaving, "another copy comes first, since LINSTOR would use a node that leaves: "+s.named(trapped))
}

// due tells whether it is time to tell LINSTOR, the first time or once more.
func (s situation) due() bool {
	if !s.Progress.asked() {
		return true
	}
	wait := askAgain[min(max(s.Progress.Asks, 1), len(askAgain))-1]
	return s.unchanged() && !s.Memory.Asked.IsZero() && s.Now.Sub(s.Memory.Asked) >= wait
}

// unchanged tells whether nothing has changed for a while, by what this process has seen.
func (s situation) unchanged() bool { return s.unchangedFor(unchangedFor) }

func (s situation) unchangedFor(d time.Duration) bool {
	return !s.Memory.Unchanged.IsZero() && s.Now.Sub(s.Memory.Unchanged) >= d
}

// stuck tells whether LINSTOR has not settled although nothing syncs and nothing has changed for a while, whoever had it begin. Others need not wait for that.
func (s situation) stuck() bool {
	return s.unchanged() && !slices.ContainsFunc(s.mine, func(v Volume) bool {
		return slices.ContainsFunc(v.Replicas, func(r Replica) bool { return r.Syncing })
	})
}

// progressing says what LINSTOR is doing about what is left.
func (s situation) progressing() (Reason, string) {
	message := s.also(s.leftMessage())
	switch {
	case !s.unchanged():
		return Leaving, message
	case s.Memory.NotMoved != "":
		return NoTarget, message + "; LINSTOR said: " + s.Memory.NotMoved
	}
	return LeavingStalled, message + "; nothing has changed for a minute, and LINSTOR will be told again"
}

// also adds to a message what somebody else has done.
func (s situation) also(message string) string {
	if s.Progress.asked() && !s.self.Evacuating {
		message += "; somebody has restored the node in LINSTOR since (FlagRemoved)"
	}
	return message
}

// leftMessage counts what is left.
func (s situation) leftMessage() string {
	left := s.remaining()
	snapshots := ""
	if s.Snapshots.N > 0 {
		snapshots = counted(s.Snapshots.N, "snapshot")
	}
	return joinedWords(counted(len(left.disks), "replica"), snapshots) + " left"
}

// unfinished are the nodes that go before N and have not left, but those that are off: LINSTOR puts nothing there.
func (s situation) unfinished() []string {
	var names []string
	for _, n := range s.Nodes {
		done := n.Conditions.Evacuated != nil && n.Conditions.Evacuated.Status == True
		if mode, refused, _ := n.mode(); len(n.Evacuate) > 0 && mode == Everything && refused == "" && !done && n.Online != No && goesBefore(n, s.self) {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	return names
}

// traps are the volumes on N of which every replica without a disk is on another node that leaves. LINSTOR gives one of these a disk,
// whatever it was told: where none of them may be used, it takes that for no restriction. With one copy more than it wants it has no reason to.
func (s situation) traps() []Volume {
	others := s.otherLeaving()
	var trapped []Volume
	for _, v := range s.disks() {
		diskless, usable := 0, 0
		for _, r := range v.Replicas {
			if r.Diskless {
				diskless++
				if !slices.Contains(others, r.Node) {
					usable++
				}
			}
		}
		if diskless > 0 && usable == 0 && !s.spared(v) {
			trapped = append(trapped, v)
		}
	}
	return trapped
}

// spared tells whether there are so many good copies elsewhere that LINSTOR drops the one on N, and places none.
func (s situation) spared(v Volume) bool {
	return v.Definition != nil && s.goodCopies(v) >= cmp.Or(v.Definition.PlaceCount, defaultPlaceCount)
}

func (s situation) goodCopies(v Volume) int {
	good := 0
	for _, r := range v.Replicas {
		if s.good(v, r) { // none on N, which leaves
			good++
		}
	}
	return good
}

// unreadTraps are the traps of which the place count was not read.
func (s situation) unreadTraps() []string {
	var names []string
	for _, v := range s.traps() {
		if v.Definition == nil {
			names = append(names, v.Resource)
		}
	}
	return names
}

// quorumOff returns the volumes of which LINSTOR will switch quorum off: with two disks it keeps a majority only if a third node has a place for a
// tie-breaker, and N has none any more; with a single disk it keeps none. A volume that cannot move at all keeps what it has.
func (s situation) quorumOff() (noPlace, single []string) {
	places := 0
	for _, n := range s.Nodes {
		if n.Listed && n.Name != s.Node && !n.Evacuating && !n.Evicted {
			places++
		}
	}
	for _, v := range s.mine {
		if v.Quorum != evidence.Majority || v.UserQuorum {
			continue
		}
		switch after := s.disksAfter(v); {
		case after < minority:
			single = append(single, s.volumeState(v).name())
		case after == minority && places <= minority:
			noPlace = append(noPlace, s.volumeState(v).name())
		}
	}
	slices.Sort(noPlace)
	slices.Sort(single)
	return noPlace, single
}

// disksAfter is how many disks the volume has once N has left: as many as now, but where there are enough elsewhere LINSTOR does not replace the one on N.
func (s situation) disksAfter(v Volume) int {
	disks := 0
	for _, r := range v.Replicas {
		if !r.Diskless && !r.has(flagDelete, flagDRBDDelete, flagInactive) {
			disks++
		}
	}
	if here, _ := v.on(s.self.Satellite); !here.Diskless && s.goodCopies(v) >= cmp.Or(v.PlaceCount, defaultPlaceCount) {
		disks--
	}
	return disks
}
