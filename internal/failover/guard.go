package failover

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// GuardMemory is how long a node that was once healthy counts among those that can be lost.
	GuardMemory = time.Hour
	// GuardWarmUp is how long after LINSTOR came back an unknown node counts as lost, even if this process never
	// saw it healthy: satellites return one by one, and until then everything looks lost.
	GuardWarmUp = 2 * time.Minute
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

// exceeded tells whether lost of all nodes are more than the limit.
func (l Limit) exceeded(lost, all int) bool {
	if l.Percent {
		return float64(lost) > math.Floor(float64(all)*float64(l.Value)/100)
	}
	return lost > l.Value
}

// Satellite is a node of LINSTOR as the guard sees it.
type Satellite struct {
	// Name is the node's name.
	Name string
	// Online tells whether it is ONLINE now; false also when that is unknown.
	Online bool
	// LastOnline is when it was last seen ONLINE; zero when never.
	LastOnline time.Time
	// LostVolume is set while a volume has a lost verdict there.
	LostVolume bool
}

// View is the whole cluster as LINSTOR shows it.
type View struct {
	Now time.Time
	// Satellites are all nodes that can hold resources.
	Satellites []Satellite
	// Up is when LINSTOR was last reached after it had been away; zero while it is away.
	Up time.Time
	// Replicas is the number of replicas LINSTOR lists, Reporting of how many it has any state.
	Replicas, Reporting int
}

// Guard tells why the view is suspect, or returns an empty string. When more of the cluster seems lost at once than the
// limit allows, it is more likely that LINSTOR has just started or was cut off itself than that the nodes are
// gone; where they are, a person has to look anyway.
func Guard(v View, limit Limit) string {
	warmUp := v.Up.IsZero() || v.Now.Sub(v.Up) < GuardWarmUp
	if warmUp && 2*v.Reporting < v.Replicas {
		return fmt.Sprintf("LINSTOR came back a moment ago and knows the state of %d of %d replicas only", v.Reporting, v.Replicas)
	}
	var counted int
	var lost []string
	for _, s := range v.Satellites {
		if !warmUp && (s.LastOnline.IsZero() || v.Now.Sub(s.LastOnline) > GuardMemory) {
			continue
		}
		counted++
		if !s.Online || s.LostVolume {
			lost = append(lost, s.Name)
		}
	}
	if !limit.exceeded(len(lost), counted) {
		return ""
	}
	slices.Sort(lost)
	return fmt.Sprintf("%d of %d nodes seem lost at once (%s), more than --max-lost-nodes=%s allows: LINSTOR's view is suspect",
		len(lost), counted, abbreviated(lost), limit)
}

// abbreviated names the first few.
func abbreviated(names []string) string {
	const few = 5
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:few], ", ") + ", ..."
}
