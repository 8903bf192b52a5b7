package failover

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// GuardQuiet is how long a node counts as newly lost, and how long LINSTOR may not know all replicas after it came back: satellites return
	// one by one, and until then everything looks lost.
	GuardQuiet = 2 * time.Minute
)

// Limit is a number of nodes, or a share of them.
type Limit struct {
	// Percent tells whether Value is a percentage, 0 to 100, or a number of nodes.
	Percent bool
	// Value is zero or more.
	Value int
}

// ParseLimit reads a number such as "2" or a percentage such as "50%".
func ParseLimit(text string) (Limit, error) {
	digits, percent := strings.CutSuffix(text, "%")
	value, err := strconv.Atoi(digits)
	switch {
	case err != nil || value < 0:
		return Limit{}, fmt.Errorf("%q is neither a number of nodes nor a percentage such as 50%%", text)
	case percent && value > 100:
		return Limit{}, fmt.Errorf("%q is more than 100%%", text)
	}
	return Limit{Percent: percent, Value: value}, nil
}

// String returns the limit as ParseLimit reads it.
func (l Limit) String() string {
	if l.Percent {
		return strconv.Itoa(l.Value) + "%"
	}
	return strconv.Itoa(l.Value)
}

// Exceeded reports whether the loss of so many nodes of all at once makes the guard active.
func (l Limit) Exceeded(lost, all int) bool { return l.exceeded(lost, all) }

// exceeded tells whether lost of all nodes are more than the limit.
func (l Limit) exceeded(lost, all int) bool {
	if l.Percent {
		return float64(lost) > math.Floor(float64(all)*float64(l.Value)/100)
	}
	return lost > l.Value
}

// Satellite is a node of LINSTOR as the guard sees it.
type Satellite struct {
	// Name is the node's name in LINSTOR.
	Name string
	// Online tells whether it is ONLINE now; false also when that is unknown.
	Online bool
	// LastOnline is when it was last seen ONLINE; zero when never.
	LastOnline time.Time
	// LostVolume is set while a volume is lost there for a reason that SpeaksOfTheNode.
	LostVolume bool
}

func (s Satellite) healthy() bool { return s.Online && !s.LostVolume }

// SpeaksOfTheNode tells whether a loss for that reason makes the guard count the node. What happened to one volume alone
// does not: its replica was demoted or is gone.
func SpeaksOfTheNode(loss Reason) bool { return loss == QuorumLost || loss == NodeUnreachable }

// View is the whole cluster as LINSTOR shows it.
type View struct {
	Now time.Time
	// Satellites are all nodes that can hold resources.
	Satellites []Satellite
	// Up is when LINSTOR was last reached after it had been away; zero while it is away.
	Up time.Time
	// Replicas is the number of replicas LINSTOR lists, Reporting of how many it has any state. They count while it warms up only.
	Replicas, Reporting int
}

// GuardMemory is what a process remembers of the nodes, to tell those that were lost just now from those that have been for long. The
// zero value is the memory of a process that has just started. It must see the view every few seconds.
type GuardMemory struct {
	nodes map[string]guarded
}

// guarded is a node as the guard last saw it.
type guarded struct {
	// lost is when the node was newly lost; zero if it was not, or for longer than GuardQuiet.
	lost time.Time
	// online and lastOnline are what LINSTOR said.
	online     bool
	lastOnline time.Time
	// lostVolume is set once a volume was lost there since the node was last healthy: another one is no news.
	lostVolume bool
}

// WarmsUp tells whether LINSTOR came back a moment ago, and may not know the state of all replicas yet.
func (v View) WarmsUp() bool { return v.Up.IsZero() || v.Now.Sub(v.Up) < GuardQuiet }

// Observe notes which nodes are newly lost, and tells why the view is suspect, or returns an empty string. When more of the cluster
// seems lost at once than the limit allows, it is more likely that LINSTOR has just started or was cut off itself than
// that the nodes are gone.
//
// A node is newly lost when its satellite leaves ONLINE, when a volume there is lost, or when the process sees it for the first
// time and it is not healthy. It remains so until it is healthy, or for GuardQuiet.
// After an outage of LINSTOR that time begins anew.
func (m *GuardMemory) Observe(v View, limit Limit) string {
	m.remember(v)
	if v.WarmsUp() && 2*v.Reporting < v.Replicas {
		return fmt.Sprintf("LINSTOR came back a moment ago and knows the state of %d of %d replicas only", v.Reporting, v.Replicas)
	}
	healthy := 0
	var lost []string
	for _, s := range v.Satellites {
		switch {
		case s.healthy():
			healthy++
		case !m.nodes[s.Name].lost.IsZero():
			lost = append(lost, s.Name)
		}
	}
	if !limit.exceeded(len(lost), len(lost)+healthy) {
		return ""
	}
	slices.Sort(lost)
	return fmt.Sprintf("%d of %d nodes seem lost at once (%s), more than --max-lost-nodes=%s allows: LINSTOR's view is suspect",
		len(lost), len(lost)+healthy, abbreviated(lost), limit)
}

// Imagine tells what Observe would if the node were lost this moment, too. It remembers nothing.
func (m *GuardMemory) Imagine(v View, node string, limit Limit) string {
	imagined := GuardMemory{nodes: maps.Clone(m.nodes)}
	v.Satellites = slices.Clone(v.Satellites)
	for i := range v.Satellites {
		s := &v.Satellites[i]
		if s.Name == node && !s.LostVolume { // where a volume is lost, the node is already
			s.Online = false
			delete(imagined.nodes, node)
		}
	}
	return imagined.Observe(v, limit)
}

// remember takes over what a view says of each node. A node that LINSTOR no longer lists is forgotten.
func (m *GuardMemory) remember(v View) {
	nodes := make(map[string]guarded, len(v.Satellites))
	for _, s := range v.Satellites {
		before, known := m.nodes[s.Name]
		after, lost := before.then(s)
		switch {
		case lost || !known && !s.healthy():
			after.lost = v.Now
		case !v.Up.IsZero() && v.Now.Sub(latest(after.lost, v.Up)) >= GuardQuiet: // nobody knows more of it while LINSTOR is away
			after.lost = time.Time{}
		}
		nodes[s.Name] = after
	}
	m.nodes = nodes
}

// then returns the node as it is seen next, and whether it is newly lost by that. One that is already is not so again.
func (g guarded) then(s Satellite) (after guarded, lost bool) {
	if !g.online && !s.Online && s.LastOnline.After(g.lastOnline) {
		g = guarded{online: true} // in between
	}
	after = guarded{online: s.Online, lastOnline: s.LastOnline}
	if s.healthy() {
		return after, false
	}
	after.lost, after.lostVolume = g.lost, g.lostVolume || s.LostVolume
	left, turned := g.online && !s.Online, !g.lostVolume && s.LostVolume
	return after, g.lost.IsZero() && (left || turned)
}

// abbreviated names the first few.
func abbreviated(names []string) string {
	const few = 5
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:few], ", ") + ", ..."
}
