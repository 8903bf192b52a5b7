package failover

import (
	"slices"
	"strings"
	"time"
)

// Outlook is what the loss of A would mean for the workload there.
type Outlook string

const (
	// Protected : the workload would be moved.
	Protected Outlook = "Protected"
	// Unprotected : it would not, for the reason of the forecast.
	Unprotected Outlook = "Unprotected"
	// Failing : the storage is lost already, and the workload is moved once the grace has passed.
	Failing Outlook = "Failing"
	// Starting : the workload does not run with the volume yet, so that it has nothing to lose.
	Starting Outlook = "Starting"
	// Untold : what is known does not suffice for an answer.
	Untold Outlook = "Unknown"
)

// Forecast is the answer of Foresee.
type Forecast struct {
	// Outlook is the answer in one word.
	Outlook Outlook
	// State is A's present state of R.
	State State
	// Reason says why: of a protected workload why nothing has to happen now, of any other what stands in the way.
	Reason Reason
	// Message is the reason in words.
	Message string
	// Loss is the reason for which the storage is lost already; empty where it is not.
	Loss Reason
	// Lost is set if the volume does not work on A now, whether or not moving the workload would help: the forecast is about this loss then.
	Lost bool
	// Grace is how long a loss would have to last at most until the workload is moved, be it that not all networks agree on it;
	// meaningful while it is protected.
	Grace time.Duration
}

// Foresee answers what would become of the workload if A were lost this moment: it changes the input into what
// LINSTOR and Kubernetes would say a while later, and applies the rules and gates of Decide to that. Unlike Decide it
// takes every value as last read, however old it is: nothing is done on its answer. And it asks for a node that could run the pods.
func Foresee(in Input) Forecast {
	s := assess(in)
	present := find(s)
	result := imagine(s, present)
	result.Lost = present.lost || s.broken()
	if result.Lost && !present.lost && result.Outlook == Unprotected && present.reason != result.Reason && slices.Contains(Hindrances(), present.reason) {
		result.Reason, result.Message = present.reason, present.message // as Decide says, and the Event
	}
	return result
}

// broken reports whether the volume does not work on A. If only A's satellite is silent, A works on, and its peers are connected to it.
func (s situation) broken() bool {
	if s.cond.state == Unreachable {
		return !slices.ContainsFunc(s.Resource.Replicas, func(r Replica) bool {
			return r.Online.is(true) && r.Connections[s.Node.satellite()].is(true)
		})
	}
	return s.cond.state == PrimaryWithoutQuorum || s.cond.state == IOErrors
}

// imagine returns the forecast by what A's loss would change, if it is not lost already.
func imagine(s situation, present finding) Forecast {
	in := s.Input
	result := Forecast{State: s.cond.state, Reason: present.reason, Message: present.message}
	obstacles := ""
	if present.lost {
		result.Loss = present.reason
	} else {
		obstacles = obstaclesTo(in.Resource, in.Node.satellite())
		s = assess(in.bereft())
	}
	loss := find(s)
	if loss.lost {
		loss = tempered(s, loss)
	}
	switch {
	case loss.reason == VolumeStarting:
		result.Outlook, result.Reason, result.Message = Starting, loss.reason, loss.message
		return result
	case loss.unsure:
		result.Outlook, result.Reason, result.Message = Untold, loss.reason, loss.message
		return result
	case !loss.lost:
		result.Outlook, result.Reason, result.Message = Unprotected, loss.reason, loss.message
		if loss.reason == NoSurvivor && obstacles != "" {
			result.Message = "no other node could take over: " + obstacles
		}
		return result
	}
	if reason, message := gated(s); reason != "" {
		result.Outlook, result.Reason, result.Message = Unprotected, reason, message
		return result
	}
	if reason, message := nowhere(in.Pods); reason != "" {
		result.Outlook, result.Reason, result.Message = Unprotected, reason, message
		if reason == StateUnknown {
			result.Outlook = Untold
		}
		return result
	}
	result.Outlook, result.Grace = Protected, loss.grace
	if present.lost {
		result.Outlook = Failing
	}
	return result
}

// longAgo is how long the loss is imagined to have lasted, longer than any grace or memory.
const longAgo = 24 * time.Hour

// bereft returns the input as it would be long after A was lost.
func (in Input) bereft() Input {
	in.Resource = in.Resource.bereft(in.Node.satellite(), in.Now)
	in.Node.LeaseKnown, in.Node.LeaseSilence = true, longAgo
	pods := make([]Pod, len(in.Pods))
	for i, pod := range in.Pods {
		others := make([]OtherVolume, len(pod.Others))
		for j, other := range pod.Others {
			others[j] = other
			others[j].Resource = other.Resource.bereft(in.Node.satellite(), in.Now)
		}
		pod.Others = others
		pods[i] = pod
	}
	in.Pods = pods
	return in
}

// bereft returns R as it would be long after the node was lost: LINSTOR has no word from it, its peers have no
// connection to it, and those that DRBD would let promote may be.
func (r Resource) bereft(node string, now time.Time) Resource {
	before := r
	r.Replicas = make([]Replica, len(before.Replicas))
	for i, replica := range before.Replicas {
		if replica.Node == node {
			if !replica.Blind { // else LINSTOR would not notice
				replica.Online, replica.Reports = settled(false, now), settled(false, now)
			}
			replica.MayPromote, replica.InUse = untoldFact[bool](now), untoldFact[bool](now)
			replica.Score, replica.Connections = untoldFact[int](now), nil
		} else {
			promotable := obstacle(before, replica, node) == ""
			replica.MayPromote = settled(promotable, now)
			if !promotable {
				replica.Score = settled(0, now) // a score says that there is a Primary
			}
			replica.Connections = severed(replica.Connections, node, now)
		}
		r.Replicas[i] = replica
	}
	return r
}

// severed returns the connections with the one to the node not Connected, where there is one.
func severed(connections map[string]Fact[bool], node string, now time.Time) map[string]Fact[bool] {
	result := make(map[string]Fact[bool], len(connections))
	for peer, connection := range connections {
		if peer == node && connection.Known {
			connection = settled(false, now)
		}
		result[peer] = connection
	}
	return result
}

func settled[T comparable](value T, now time.Time) Fact[T] {
	return Fact[T]{Value: value, Known: true, Since: now.Add(-longAgo), Confirmed: now}
}

func untoldFact[T comparable](now time.Time) Fact[T] {
	return Fact[T]{Since: now.Add(-longAgo), Confirmed: now}
}

// obstaclesTo says of each replica elsewhere why it could not take R over from the node.
func obstaclesTo(r Resource, node string) string {
	var all []string
	for _, replica := range r.Replicas {
		if replica.Node == node {
			continue
		}
		if o := obstacle(r, replica, node); o != "" {
			all = append(all, replica.Node+" "+o)
		}
	}
	if len(all) == 0 {
		return "there is no other replica"
	}
	return strings.Join(all, "; ")
}
