package failover

import (
	"maps"
	"time"
)

// AnyFact is a fact, whatever the type of its value.
type AnyFact interface {
	// SameAs reports whether another fact of that type says the same, whenever it does.
	SameAs(other AnyFact) bool
	// Void makes the fact unknown since a time.
	Void(since time.Time)
	// NotBefore has the fact hold since a time at the earliest.
	NotBefore(since time.Time)
	// expire makes the fact unknown if it was read longer ago than that.
	expire(age time.Duration, now time.Time)
}

// SameAs implements AnyFact.
func (f *Fact[T]) SameAs(other AnyFact) bool {
	o, ok := other.(*Fact[T])
	return ok && f.Known == o.Known && (!f.Known || f.Value == o.Value)
}

// Void implements AnyFact.
func (f *Fact[T]) Void(since time.Time) { *f = Fact[T]{Since: since, Confirmed: f.Confirmed} }

// NotBefore implements AnyFact.
func (f *Fact[T]) NotBefore(since time.Time) { f.Since = latest(f.Since, since) }

func (f *Fact[T]) expire(age time.Duration, now time.Time) {
	if f.Known && !within(age, f.Confirmed, now) {
		f.Known, f.Since = false, latest(f.Since, f.Confirmed.Add(age))
	}
}

// facts returns all facts of a replica but those of its connections. A fact that is added to Replica is added here: whatever compares, ages
// or voids facts visits these.
func (a *Replica) facts() []AnyFact {
	return []AnyFact{&a.Online, &a.Reports, &a.MayPromote, &a.InUse, &a.Score}
}

// ChangeFacts has each fact of a replica changed, those of its connections included. They get a map of their own: others may share the old one.
func (a *Replica) ChangeFacts(change func(AnyFact)) {
	for _, f := range a.facts() {
		change(f)
	}
	connections := make(map[string]Fact[bool], len(a.Connections))
	for peer, connected := range a.Connections {
		change(&connected)
		connections[peer] = connected
	}
	a.Connections = connections
}

// SaysSameAs reports whether each fact of two replicas is the same, whenever it is.
func (a *Replica) SaysSameAs(other *Replica) bool {
	others := other.facts()
	for i, f := range a.facts() {
		if !f.SameAs(others[i]) {
			return false
		}
	}
	return maps.EqualFunc(a.Connections, other.Connections, func(one, two Fact[bool]) bool { return one.SameAs(&two) })
}
