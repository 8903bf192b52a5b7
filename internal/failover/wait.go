package failover

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// WaitLimit is how long a loss may wait before whoever is on call is told why nothing is done about it.
	WaitLimit = 30 * time.Second
	// waitLook is how often a loss that waits is looked at. A further reason is told when it has held for as long: while a node comes
	// back, several pass by.
	waitLook = 5 * time.Second
	// waitOver is how long the node must have seemed well for the wait to be over. A shorter time is a flap, and the wait goes on.
	waitOver = 2 * waitLook
)

// Word is what is to be said of a loss that nobody has acted on.
type Word struct {
	// Pods are those that are told, none where there is nothing to be said.
	Pods []Pod
	// Reason is why nothing is done.
	Reason Reason
	// Message is the reason in words, with what ends it.
	Message string
	// After is how soon the loss must be looked at again to be told of in time; zero when that is for others.
	After time.Duration
}

// Wait is what is remembered of a loss that waits: one volume on one node. The zero value remembers nothing; each leader begins
// with that.
type Wait struct {
	// since is since when the node has seemed lost, but for flaps; zero while there is no wait.
	since time.Time
	// well is since when it has seemed well again; zero while it does not.
	well time.Time
	// reason is the newest reason, acting whether the fail-over is under way, and held since when both have been so.
	reason Reason
	acting bool
	held   time.Time
	// told are the reasons that were told, by pod.
	told map[types.UID][]Reason
}

// Over tells whether nothing waits, so that nothing need be remembered.
func (w *Wait) Over() bool { return w.since.IsZero() }

// Blocks returns why nothing is done about the loss, once somebody was told so; empty before, and while it is acted on.
func (w *Wait) Blocks() Reason {
	if w.acting && w.reason != StepFailed || !w.toldAnybody(w.reason) {
		return ""
	}
	return w.reason
}

func (w *Wait) toldAnybody(reason Reason) bool {
	for pod := range w.told {
		if w.Told(pod, reason) {
			return true
		}
	}
	return false
}

// Told tells whether a pod was told a reason.
func (w *Wait) Told(pod types.UID, reason Reason) bool { return slices.Contains(w.told[pod], reason) }

// Observe takes a decision and tells what is to be said of it. A gate is told of at once; all else once the loss has waited for
// WaitLimit: that nobody can take over, that somebody still sees the node, that what is known does not suffice, a long grace, or
// that a step failed, which failure says in the words of who rejected it and which is empty where none did. Each pod is told a
// reason once, however often it comes back.
//
// The pods are those that may be told: the selected ones on the node or, where none is left there, those that wait for the volume
// elsewhere.
func (w *Wait) Observe(in Input, d Decision, failure string, pods []Pod) Word {
	reason, message, seems := waitsFor(in, d, failure)
	if seems == looksUnknown && w.Over() || seems == looksWell && !w.endures(in.Now) {
		*w = Wait{}
		return Word{}
	}
	if seems == looksWell {
		return Word{After: waitOver - in.Now.Sub(w.well)}
	}
	if w.Over() {
		w.since = in.Now
	}
	if acting := d.Verdict == Lost; w.reason != reason || w.acting != acting {
		w.reason, w.acting, w.held = reason, acting, in.Now
	}
	w.well = time.Time{}
	left := w.left(in.Now, d, failure)
	word := Word{Reason: reason, After: waitLook}
	for _, pod := range pods {
		first := len(w.told[pod.UID]) == 0
		switch rest := max(left, w.unsettled(in.Now, d, first)); {
		case w.Told(pod.UID, reason):
		case rest > 0:
			word.After = min(word.After, rest)
		default:
			word.Pods = append(word.Pods, pod)
		}
	}
	w.note(pods, word)
	if len(word.Pods) > 0 {
		word.Message = message + endOf(in, reason) + unfinishedUpgrade(in)
	}
	return word
}

// endures tells whether the wait goes on although the node seems well.
func (w *Wait) endures(now time.Time) bool {
	if w.Over() {
		return false
	}
	if w.well.IsZero() {
		w.well = now
	}
	return now.Sub(w.well) < waitOver
}

// left is how much longer a loss must wait to be told of. One that is being acted on has not waited for as long as that goes on.
func (w *Wait) left(now time.Time, d Decision, failure string) time.Duration {
	switch {
	case d.Verdict == Blocked && failure == "":
		return 0
	case d.Verdict == Lost && failure == "":
		return WaitLimit - now.Sub(w.held)
	}
	return WaitLimit - now.Sub(w.since)
}

// unsettled is how much longer a reason must hold to be told to a pod that was told another one.
func (w *Wait) unsettled(now time.Time, d Decision, first bool) time.Duration {
	if first || d.Verdict == Blocked {
		return 0
	}
	return waitLook - now.Sub(w.held)
}

// note remembers who is told, and forgets pods that are gone.
func (w *Wait) note(pods []Pod, word Word) {
	maps.DeleteFunc(w.told, func(uid types.UID, _ []Reason) bool {
		return !slices.ContainsFunc(pods, func(pod Pod) bool { return pod.UID == uid })
	})
	if w.told == nil {
		w.told = make(map[types.UID][]Reason)
	}
	for _, pod := range word.Pods {
		w.told[pod.UID] = append(w.told[pod.UID], word.Reason)
	}
}

// seeming is what a node looks like to who must explain what becomes of its pods.
type seeming int

const (
	// looksWell : nothing speaks for a loss.
	looksWell seeming = iota
	// looksUnknown : what is known does not suffice.
	looksUnknown
	// looksLost : something speaks for a loss, whether or not it is one.
	looksLost
)

// waitsFor tells why nothing is done, and whether the node seems lost. Unlike Decide it takes what it sees for no evidence, and so takes
// it however old it is.
func waitsFor(in Input, d Decision, failure string) (Reason, string, seeming) {
	switch {
	case failure != "":
		return StepFailed, failure, looksLost
	case d.Verdict == Lost:
		step := "the fail-over has begun, and has not come to the pod yet"
		if len(in.Pods) == 0 {
			step = "its pods are gone, and Kubernetes has not detached the volume yet"
		}
		return d.Reason, d.Message + "; " + step, looksLost
	case d.Verdict == Pending:
		if reason, message := gated(assess(in)); reason != "" { // else it would be a false promise
			return reason, message, looksLost
		}
		return d.Reason, fmt.Sprintf("%s; it is moved in %s unless that changes", d.Message, d.GraceLeft.Round(time.Second)), looksLost
	case d.Verdict == Blocked:
		return d.Reason, d.Message, looksLost
	}
	s := assess(in)
	silent := s.Node.LeaseSilent(s.Settings.KubeletSilence)
	if !silent && !s.unwell() {
		if d.Verdict == Undecided {
			return d.Reason, d.Message, looksUnknown
		}
		return "", "", looksWell
	}
	if reason, message := gateLinstor(s); reason != "" {
		return reason, message, looksLost
	}
	message := d.Message
	if s.cond.state == PrimaryUp { // nothing but the silence speaks against the node
		message = fmt.Sprintf("the node's kubelet has been silent for %s, but LINSTOR hears the node, which is Primary and has quorum",
			s.Node.LeaseSilence.Round(time.Second))
	}
	return d.Reason, message, looksLost
}

// unwell tells whether LINSTOR's word speaks for a loss: it does not hear A, or A cannot work on R while a pod does that has run
// there. A replica that is not there yet, or not in use yet, is the normal picture before that.
func (s situation) unwell() bool {
	replica, _ := s.Resource.Replica(s.Node.satellite())
	switch {
	case s.Volume.NFSExport, s.Resource.Known && !s.Resource.DRBD:
		return false // what DRBD makes of it there is no matter to the pod
	case replica.Online.is(false):
		return true
	case !s.started():
		return false
	case s.Resource.Missing, s.Resource.Known && s.Node.Unlisted:
		return true
	case s.cond.state == IOErrors:
		return !s.Volume.Block && !s.readOnly()
	}
	return s.cond.state == Unreachable || s.cond.state == PrimaryWithoutQuorum || s.cond.state == NoReplica
}

// endOf says what ends a wait; empty where the message does, or the table of reasons has to be looked up.
func endOf(in Input, reason Reason) string {
	a := in.Node.satellite()
	switch reason { //nolint:exhaustive // of all others the message says it
	case NoSurvivor:
		return among(others(in.Resource, a, func(r Replica) string { return cmp.Or(contact(r, a), obstacle(in.Resource, r, a)) })) +
			"; it ends when one of these nodes can take over, or node " + in.Node.Name + " is back" + switchOff(in)
	case PrimaryConnected:
		return among(others(in.Resource, a, func(r Replica) string { return contact(r, a) })) +
			"; it is moved once none of these is so any more" + switchOff(in)
	case TooFewWitnesses:
		return among(others(in.Resource, a, func(r Replica) string { return silence(r, a) })) +
			"; it is moved once these are heard, or the node's kubelet is silent too"
	case StateUnknown:
		return "; LINSTOR is asked again: see linstor node list and linstor resource list"
	case LinstorBlind:
		return "; it ends when the LINSTOR controller is restarted, which --recover-pod-selector lets this controller do"
	case SharedVolume:
		return "; it ends when that pod may be removed as well, or is gone (of a node that is switched off it goes with kubectl delete pod --force --grace-period=0)"
	case Paused:
		return "; it ends when somebody takes the annotation off"
	case LinstorStale:
		return "; it ends when LINSTOR answers: look at the LINSTOR controller, and at LS_CONTROLLERS"
	case PrimaryHealthy:
		return "; see to the kubelet: the workload may run on"
	case StepFailed:
		return "; it is tried again until it succeeds"
	}
	return ""
}

// unfinishedUpgrade says so if LINSTOR does not talk to the node because of its version; its peers are named with what they say.
func unfinishedUpgrade(in Input) string {
	if a, _ := in.Resource.Replica(in.Node.satellite()); !a.OtherVersion {
		return ""
	}
	return "; " + in.Node.Name + " " + otherVersion
}

// switchOff says what a person can do about a node whose kernel serves DRBD while its kubelet is silent, as after the failure of its system disk.
func switchOff(in Input) string {
	s := assess(in)
	primary := slices.ContainsFunc(in.Resource.Replicas, func(r Replica) bool {
		return r.Node != s.Node.satellite() && r.Online.is(true) && r.Connections[s.Node.satellite()].is(true) && seesPrimary(r)
	})
	if !s.Node.LeaseSilent(s.Settings.KubeletSilence) || !primary {
		return ""
	}
	return "; DRBD on node " + in.Node.Name + " is connected although its kubelet is silent: switch the node off, which ends this within a minute"
}

// others lists what there is to be said of the replicas of R on other nodes.
func others(r Resource, node string, say func(Replica) string) []string {
	var all []string
	for _, replica := range r.Replicas {
		if replica.Node == node {
			continue
		}
		if said := say(replica); said != "" {
			all = append(all, replica.Node+" "+said)
		}
	}
	return all
}

func among(said []string) string {
	if len(said) == 0 {
		return ""
	}
	return ": " + strings.Join(said, "; ")
}

// contact says how another replica contradicts the loss of a node.
func contact(r Replica, node string) string {
	switch {
	case !r.Online.is(true):
		return ""
	case r.InUse.is(true):
		return "is Primary itself"
	case r.Connections[node].is(true):
		return "is connected to " + node
	case seesPrimary(r):
		return "sees a Primary"
	}
	return ""
}

// silence says why another replica is no witness against a node.
func silence(r Replica, node string) string {
	switch {
	case !r.Online.is(true):
		return unheard(r)
	case !r.Connections[node].Known:
		return "does not say whether it is connected to " + node
	}
	return ""
}
