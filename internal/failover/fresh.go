package failover

import (
	"slices"
	"time"
)

// maxAge is how old a value may be that was read from LINSTOR.
func (in Input) maxAge() time.Duration {
	if in.Live {
		return ActAge
	}
	return MaxAge
}

// freshened returns the input with every value that was read from LINSTOR too long ago turned unknown.
func (in Input) freshened() Input {
	in.Resource = in.fresh(in.Resource)
	pods := make([]Pod, len(in.Pods))
	for i, pod := range in.Pods {
		others := make([]OtherVolume, len(pod.Others))
		for j, other := range pod.Others {
			others[j] = other
			others[j].Resource = in.fresh(other.Resource)
		}
		pod.Others = others
		pods[i] = pod
	}
	in.Pods = pods
	return in
}

// fresh returns R with every value turned unknown that is too old for the input.
func (in Input) fresh(r Resource) Resource { return r.within(in.maxAge(), in.Now) }

// freshened returns R with every value that was read longer ago than MaxAge turned unknown.
func (r Resource) freshened(now time.Time) Resource { return r.within(MaxAge, now) }

// within returns R with every value that was read longer ago than that turned unknown.
func (r Resource) within(age time.Duration, now time.Time) Resource {
	r.Known = r.Known && within(age, r.Confirmed, now)
	replicas := make([]Replica, len(r.Replicas))
	for i := range r.Replicas {
		replicas[i] = r.Replicas[i]
		replicas[i].ChangeFacts(func(f AnyFact) { f.expire(age, now) })
	}
	r.Replicas = replicas
	return r
}

// freshFact returns the fact or, when it is older than MaxAge, the unknown it has been since it reached that age.
func freshFact[T comparable](f Fact[T], now time.Time) Fact[T] {
	f.expire(MaxAge, now)
	return f
}

// live reports whether something was read a moment ago, as what an act rests on must be.
func live(read, now time.Time) bool { return within(ActAge, read, now) }

func within(age time.Duration, read, now time.Time) bool {
	return !read.IsZero() && now.Sub(read) <= age
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
