package evacuation

import (
	"fmt"
	"slices"
	"time"
)

// VolumeState is what is so of one volume with a replica on N.
type VolumeState struct {
	// Resource is the resource definition.
	Resource string
	// Reason is CopiedElsewhere, or why its data is not safe elsewhere.
	Reason Reason
	// Message says more; empty where there is nothing to say.
	Message string
	// Done is how much of its copy is done, in percent; negative where none is in progress or that is not known.
	Done float64
	// Volumes are the names of its PersistentVolumes.
	Volumes []string
	// Diskless is set where N has no disk of it.
	Diskless bool
}

// name is what users know the volume by: its PersistentVolume's name, which is that of the resource in most cases.
func (v VolumeState) name() string {
	if len(v.Volumes) == 1 {
		return v.Volumes[0]
	}
	return v.Resource
}

// volumeRule says what is so of a volume, or passes.
type volumeRule struct {
	name  string
	apply func(situation, Volume, Replica) (Reason, string)
}

// volumeRules is the table of the states of a volume. The first rule that answers decides; one for which all pass wants a copy.
var volumeRules = []volumeRule{
	{"a replica without a disk takes no data along, at most quorum", volumeDiskless},
	{"without a DRBD layer nothing can be copied", volumeNotDRBD},
	{"a copy that LINSTOR's balancing may remove is kept from it first", volumeSurplus},
	{"a volume with a good copy is safe, if it has quorum and may be used elsewhere", volumeCopied},
	{"without a disk that is UpToDate there is nothing to copy", volumeNoSource},
	{"a copy that LINSTOR could not make does not come, whatever is left of it", volumeNotMade},
	{"a copy that is connected to no disk with the data does not come either", volumeApart},
	{"a copy on its way is waited for", volumeOnItsWay},
	{"where the disk is cut off from a copy one more would be as well", volumeCutOff},
	{"what LINSTOR has refused a moment ago it refuses again", volumeRefused},
}

// VolumeStates are the states of all volumes with a replica on N.
func (in Input) VolumeStates() []VolumeState {
	states, _ := assess(in).volumeStates()
	return states
}

// volumeStates returns the states of all volumes with a replica on N, and those that want a copy.
func (s situation) volumeStates() (states []VolumeState, wanted []Volume) {
	for _, v := range s.mine {
		state := s.volumeState(v)
		if state.Reason == "" {
			wanted = append(wanted, v)
			state.Reason, state.Message = Copying, "a copy is to be made"
		}
		states = append(states, state)
	}
	return states, wanted
}

// volumeState returns the state of a volume; its reason is empty where it wants a copy.
func (s situation) volumeState(v Volume) VolumeState {
	state := VolumeState{Resource: v.Resource, Done: -1}
	for _, pv := range v.Claims {
		state.Volumes = append(state.Volumes, pv.Name)
	}
	replica, _ := v.on(s.self.Satellite)
	state.Diskless = replica.Diskless && !replica.has(toggling...)
	for _, rule := range volumeRules {
		if state.Reason, state.Message = rule.apply(s, v, replica); state.Reason != "" {
			break
		}
	}
	if copied, ok := s.onItsWay(v); ok {
		state.Done = copied.Done
	}
	return state
}

func volumeDiskless(s situation, v Volume, r Replica) (Reason, string) {
	switch {
	case !r.Diskless || r.has(toggling...):
		return "", ""
	case v.DRBD && !s.hasData(v):
		return PeerOffline, "none of its disks is known to be UpToDate on a node that is ONLINE"
	}
	return s.usable(v, r)
}

func volumeNotDRBD(_ situation, v Volume, _ Replica) (Reason, string) {
	if v.DRBD {
		return "", ""
	}
	return NotDRBD, "it has no DRBD layer: copy its data yourself"
}

func volumeSurplus(s situation, v Volume, _ Replica) (Reason, string) {
	if !s.goodElsewhere(v) || !s.exposed(v) {
		return "", ""
	}
	if v.Mark.With(s.entry()) == nil {
		return BalancingEnabled, "LINSTOR's balancing may remove its copy: a person has set " + PropBalance + "=" + v.Mark.Balance + " on the resource definition"
	}
	if failed := s.Memory.Failed[Properties]; failed.Times > 0 {
		return LinstorRefuses, "LINSTOR's balancing may remove its copy, and LINSTOR does not switch it off: " + failed.Words
	}
	return Copying, "LINSTOR's balancing, which may remove its copy, is being switched off"
}

func volumeCopied(s situation, v Volume, r Replica) (Reason, string) {
	if !s.goodElsewhere(v) {
		return "", ""
	}
	return s.usable(v, r)
}

// usable returns CopiedElsewhere if a volume with data elsewhere may be used there when N, with that replica, is switched off; else why not.
func (s situation) usable(v Volume, here Replica) (Reason, string) {
	switch {
	case !s.keepsQuorum(v):
		return QuorumWouldBeLost, noQuorumWithout(s, v)
	case v.Asynchronous && here.InUse != No:
		return AsynchronousWrites, "it is in use, and DRBD's protocol is not C: what was written last may be on no other disk; drain the node first"
	}
	for _, pv := range v.Claims {
		switch {
		case pv.Attached && !pv.Elsewhere:
			return AffinityPinned, fmt.Sprintf("the node affinity of PersistentVolume %s allows no other node that is Ready and schedulable", pv.Name)
		case pv.Attached && pv.Lost:
			return AffinityPinned, fmt.Sprintf("PersistentVolume %s was replaced, and Kubernetes has not bound its claim again yet", pv.Name)
		}
	}
	return CopiedElsewhere, ""
}

func noQuorumWithout(s situation, v Volume) string {
	message := "without this node it would have no quorum"
	if names := s.offlinePeers(v); names != "" {
		message += ", because " + names + " is not ONLINE"
	}
	if s.keepsWanted(v) {
		message += "; by what LINSTOR wants (" + quoted(v.Quorum) + ") it would, but its nodes may still run " + few(v.OtherQuorums) + ": restart linstor-satellite there"
	}
	return message
}

// wordlessFor is for how long a copy may be without a word of it: LINSTOR may take two minutes to answer who has asked for it.
const wordlessFor = 3 * time.Minute

// volumeNotMade is for what LINSTOR leaves behind where a satellite could not make a disk: a replica of which no word comes, as of one that is being made.
// LINSTOR's words say so; where nobody here has heard them, that nothing has changed on N's volumes for a while.
func volumeNotMade(s situation, v Volume, _ Replica) (Reason, string) {
	copied, ok := s.onItsWay(v)
	if !ok || copied.Syncing || !copied.untold() && !copied.has(toggling...) {
		return "", ""
	}
	words := s.Memory.Refused[v.Resource].Words
	if _, mine := v.on(s.self.Satellite); words == "" && mine && s.unchangedFor(wordlessFor) {
		words = "LINSTOR has no word on it, and nothing has changed for three minutes"
	}
	return when(words != "", NoTarget, "its copy on "+copied.Node+" has not come about: "+words)
}

// volumeApart is for a copy of which the sync was broken off or has never begun: DRBD copies only between replicas that are connected. A connection
// that was lost for a moment is waited for.
func volumeApart(s situation, v Volume, _ Replica) (Reason, string) {
	copied, ok := s.onItsWay(v)
	_, mine := v.on(s.self.Satellite)
	if !ok || !mine || copied.Syncing || copied.untold() || copied.has(toggling...) || !s.unchangedFor(wordlessFor) {
		return "", ""
	}
	return when(!v.isFed(copied), PeerOffline, "its copy on "+copied.Node+" is connected to no disk that is UpToDate, and nothing has changed for three minutes")
}

func volumeOnItsWay(s situation, v Volume, _ Replica) (Reason, string) {
	copied, ok := s.onItsWay(v)
	if !ok {
		return "", ""
	}
	if copied.Done >= 0 {
		return Copying, fmt.Sprintf("its copy on %s is at %.0f %%", copied.Node, copied.Done)
	}
	return Copying, "its copy on " + copied.Node + " is being made"
}

func volumeNoSource(s situation, v Volume, _ Replica) (Reason, string) {
	if s.source(v) {
		return "", ""
	}
	if names := s.offlinePeers(v); names != "" {
		return PeerOffline, "its replica here is not UpToDate, and " + names + " is not ONLINE"
	}
	return PeerOffline, "none of its replicas is known to be UpToDate"
}

// volumeCutOff holds off a further copy where one was made for N already, or is not to be, and DRBD on N is connected to none of those that are
// UpToDate, such as while its network is down: otherwise each node would get one. A first one is worth a try, since only one connection may be missing.
func volumeCutOff(s situation, v Volume, _ Replica) (Reason, string) {
	if !v.Mark.settled(s.entry()) {
		return "", ""
	}
	var names []string
	for _, r := range v.Replicas {
		if s.good(v, r) { // none on N, which leaves
			names = append(names, r.Node)
		}
	}
	if len(names) == 0 {
		return "", ""
	}
	slices.Sort(names)
	return PeerOffline, "its disk here is not connected to that on " + few(names) + ", so that nobody knows which has what was written last"
}

func volumeRefused(s situation, v Volume, _ Replica) (Reason, string) {
	refusal := s.Memory.Refused[v.Resource]
	if !s.Now.Before(refusal.Until) || !slices.Equal(refusal.Nodes, s.Eligible()) {
		return "", ""
	}
	return NoTarget, refusal.Words
}
