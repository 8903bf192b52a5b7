package linstor

import (
	"cmp"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

const (
	// quorumOff is DRBD's default for quorum.
	quorumOff = "off"
	// failsIO is the value of on-no-quorum by which writes fail without quorum, instead of waiting for it.
	failsIO = "io-error"
)

// isYes reports whether an option of DRBD is on. LINSTOR accepts both words.
func isYes(value string) bool { return value == "yes" || value == "true" }

// setByUser is the value of client.PropQuorumSetBy where a person has set the quorum, and not LINSTOR itself.
const setByUser = "user"

// level has the values of properties of DRBD at one level. value is that of DrbdOptions/Resource/quorum, empty when it is not set there. The zero level
// has not been read.
type level struct {
	value string
	// byUser is set where a person has set the value.
	byUser bool
	// onNoQuorum, twoPrimaries and protocol are the values of DrbdOptions/Resource/on-no-quorum, DrbdOptions/Net/allow-two-primaries and
	// DrbdOptions/Net/protocol, empty where they are not set.
	onNoQuorum, twoPrimaries, protocol string
	// since is the end of the read that first showed this value.
	since stamp
}

func (l level) read() bool { return l.since != 0 }

// observeLevel returns the level after props have been read.
func observeLevel(old level, props map[string]string, at span) level {
	seen := level{
		value: props[client.PropQuorum], byUser: props[client.PropQuorumSetBy] == setByUser,
		onNoQuorum: props[client.PropOnNoQuorum], twoPrimaries: props[client.PropTwoPrimaries], protocol: props[client.PropProtocol],
		since: stampOf(at.end),
	}
	if old.read() && old.value == seen.value && old.byUser == seen.byUser {
		seen.since = old.since
	}
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
