package linstor

// quorumOff is DRBD's default for quorum.
const quorumOff = "off"

// level is the value of DrbdOptions/Resource/quorum at one level, empty when it is not set there. The
// zero level has not been read.
type level struct {
	value string
	// since is the end of the read that first showed this value.
	since stamp
}

func (l level) read() bool { return l.since != 0 }

// observeLevel returns the level after props have been read.
func observeLevel(old level, props map[string]string, at span) level {
	value := props[propQuorum]
	if old.read() && old.value == value {
		return old
	}
	return level{value: value, since: stampOf(at.end)}
}

// effectiveQuorum merges the levels, the highest first, the way a LINSTOR satellite does when it writes
// DRBD's configuration: resource, resource definition, resource group, node, controller. It is "off" when
// no level sets it, and empty while one of them has not been read.
func effectiveQuorum(levels ...level) string {
	for _, l := range levels {
		if !l.read() {
			return ""
		}
	}
	for _, l := range levels {
		if l.value != "" {
			return l.value
		}
	}
	return quorumOff
}
