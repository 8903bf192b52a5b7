package failover

import (
	"slices"
	"time"
)

// freshened returns the input with every value that was read from LINSTOR longer ago than MaxAge turned unknown.
func (in Input) freshened() Input {
	in.Resource = in.Resource.freshened(in.Now)
	pods := make([]Pod, len(in.Pods))
	for i, pod := range in.Pods {
		others := make([]OtherVolume, len(pod.Others))
		for j, other := range pod.Others {
			others[j] = other
			others[j].Resource = other.Resource.freshened(in.Now)
		}
		pod.Others = others
		pods[i] = pod
	}
	in.Pods = pods
	return in
}

// freshened returns R with every value that was read longer ago than MaxAge turned unknown.
func (r Resource) freshened(now time.Time) Resource {
	r.Known = r.Known && fresh(r.Confirmed, now)
	replicas := make([]Replica, len(r.Replicas))
	for i, replica := range r.Replicas {
		replica.Online = freshFact(replica.Online, now)
		replica.Reports = freshFact(replica.Reports, now)
		replica.MayPromote = freshFact(replica.MayPromote, now)
		replica.InUse = freshFact(replica.InUse, now)
		replica.Score = freshFact(replica.Score, now)
		connections := make(map[string]Fact[bool], len(replica.Connections))
		for peer, connection := range replica.Connections {
			connections[peer] = freshFact(connection, now)
		}
		replica.Connections = connections
		replicas[i] = replica
	}
	r.Replicas = replicas
	return r
}

// freshFact returns the fact or, when it is older than MaxAge, the unknown it has been since it reached that age.
func freshFact[T comparable](f Fact[T], now time.Time) Fact[T] {
	if f.Known && !fresh(f.Confirmed, now) {
		f.Known, f.Since = false, latest(f.Since, f.Confirmed.Add(MaxAge))
	}
	return f
}

func fresh(confirmed, now time.Time) bool {
	return !confirmed.IsZero() && now.Sub(confirmed) <= MaxAge
}

// latest returns the latest of the given times.
func latest(times ...time.Time) time.Time {
	var result time.Time
	for _, t := range times {
		if t.After(result) {
			result = t
		}
	}
	return result
}

// earliest returns the earliest of the given times.
func earliest(times ...time.Time) time.Time { return slices.MinFunc(times, time.Time.Compare) }
