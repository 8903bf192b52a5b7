package linstor

import (
	"cmp"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

const (
	// quorumOff is DRBD's default for quorum.
	quorumOff = "off"
	// quorumMajority is what LINSTOR sets by itself where there are replicas enough.
	quorumMajority = "majority"
)

// setByUser is the value of client.PropQuorumSetBy where a person has set the quorum, and not LINSTOR itself.
const setByUser = "user"

// level is the value of DrbdOptions/Resource/quorum at one level, empty when it is not set there. The zero level has not
// been read.
type level struct {
	value string
	// byUser is set where a person has set the value.
	byUser bool
	// since is the end of the read that first showed this value.
	since stamp
}

func (l level) read() bool { return l.since != 0 }

// observeLevel returns the level after props have been read.
func observeLevel(old level, props map[string]string, at span) level {
	seen := level{value: props[client.PropQuorum], byUser: props[client.PropQuorumSetBy] == setByUser}
	if old.read() && old.value == seen.value && old.byUser == seen.byUser {
		return old
	}
	seen.since = stampOf(at.end)
	return seen
}

// effectiveQuorum merges the levels at which LINSTOR lets a quorum be set, the highest first: resource definition, resource
// group, controller. It is "off" when no level sets it, and empty while one of them has not been read.
func effectiveQuorum(definition, group, controller level) string {
	if !definition.read() || !group.read() || !controller.read() {
		return ""
	}
	return cmp.Or(definition.value, group.value, controller.value, quorumOff)
}
