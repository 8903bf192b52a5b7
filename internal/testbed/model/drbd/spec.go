package drbd

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
)

// Names and values of the DRBD options that the model acts on, spelt as in drbd.conf.
const (
	OptionQuorum                  = "quorum"
	OptionOnNoQuorum              = "on-no-quorum"
	OptionOnSuspendedPrimary      = "on-suspended-primary-outdated"
	OptionRRConflict              = "rr-conflict"
	OptionAllowTwoPrimaries       = "allow-two-primaries"
	QuorumMajority                = "majority"
	QuorumAll                     = "all"
	QuorumOff                     = "off"
	OnNoQuorumIOError             = "io-error"
	OnNoQuorumSuspendIO           = "suspend-io"
	OnSuspendedPrimaryDisconnect  = "disconnect"
	OnSuspendedPrimaryForceSecond = "force-secondary"
	RRConflictDisconnect          = "disconnect"
	RRConflictRetryConnect        = "retry-connect"
	yes                           = "yes"
	no                            = "no"
	maxQuorumNumber               = 32
)

// Errors that an operation on a resource can end with. Each is wrapped with the resource and node.
var (
	// ErrNotFound says that there is no such node, resource or replica.
	ErrNotFound = errors.New("not found")
	// ErrExists says that the node, resource or replica is there already.
	ErrExists = errors.New("already exists")
	// ErrNodeDown says that the node is crashed or shut down.
	ErrNodeDown = errors.New("node is down")
	// ErrNoQuorum refuses an open: the replica has no quorum.
	ErrNoQuorum = errors.New("no quorum")
	// ErrNoUpToDateDisk refuses an open: no UpToDate copy of some volume is within reach.
	ErrNoUpToDateDisk = errors.New("need access to UpToDate data")
	// ErrPeerPrimary refuses an open: another replica within reach is Primary.
	ErrPeerPrimary = errors.New("a peer is Primary")
	// ErrWeaklyConnected refuses a promotion although two Primaries are allowed: it has no connection to the other one.
	ErrWeaklyConnected = errors.New("weakly connected to another Primary")
	// ErrPeerOpen refuses a promotion: a Secondary within reach is held open read-only.
	ErrPeerOpen = errors.New("a peer holds the device open read-only")
	// ErrForceIOFailures refuses an open: the replica was demoted by force and waits for its openers to close.
	ErrForceIOFailures = errors.New("device is in force-io-failures")
	// ErrUnresponsive refuses a promotion: a peer counted as connected does not answer.
	ErrUnresponsive = errors.New("a connected peer does not answer")
	// ErrInUse refuses to remove a replica that is open.
	ErrInUse = errors.New("in use")
)

// DefaultSizeKiB is the size of a volume of which nothing else is said: 1 GiB.
const DefaultSizeKiB = 1024 * 1024

// Spec describes a resource to create.
type Spec struct {
	// Name of the resource.
	Name string
	// Quorum is "majority", "all", "off" or a number from 1 to 32. Empty means DRBD's default, off.
	Quorum string
	// Volumes is the number of volumes; 0 means 1.
	Volumes int
	// SizeKiB is the size of each volume in KiB; 0 means [DefaultSizeKiB].
	SizeKiB int64
	// Options are further DRBD options by their drbd.conf names. Unknown ones are kept and ignored.
	Options map[string]string
	// Replicas are the resource's nodes. Diskful ones start with the same UpToDate data.
	Replicas []ReplicaSpec
}

// ReplicaSpec describes one node's part in a resource.
type ReplicaSpec struct {
	// Node must have been added to the cluster.
	Node string
	// Diskless replicas have no local disk. All diskless replicas have a vote as tie-breaker, except clients.
	Diskless bool
	// TieBreaker marks a diskless replica that is there for its vote only. It makes no difference to DRBD.
	TieBreaker bool
	// Client is a diskless replica without a tie-breaker's vote (LINSTOR 1.34 and newer).
	Client bool
}

// diskless tells whether the replica has no disk, in whichever way the spec says so.
func (s ReplicaSpec) diskless() bool { return s.Diskless || s.TieBreaker || s.Client }

// checkOptions rejects option values that DRBD would reject.
func checkOptions(resource string, options map[string]string) error {
	allowed := map[string][]string{
		OptionOnNoQuorum:         {OnNoQuorumIOError, OnNoQuorumSuspendIO},
		OptionOnSuspendedPrimary: {OnSuspendedPrimaryDisconnect, OnSuspendedPrimaryForceSecond},
		OptionRRConflict:         nil,
		OptionAllowTwoPrimaries:  {yes, no},
	}
	for name, value := range options {
		values := allowed[name]
		if name == OptionQuorum {
			values = []string{QuorumMajority, QuorumAll, QuorumOff}
			if n, err := strconv.Atoi(value); err == nil && n >= 1 && n <= maxQuorumNumber {
				continue
			}
		}
		known := len(values) == 0
		for _, v := range values {
			known = known || v == value
		}
		if !known {
			return fmt.Errorf("resource %s: DRBD option %s can not be %q, use one of %q", resource, name, value, values)
		}
	}
	return nil
}

// options returns the spec's options with the quorum among them.
func (s Spec) options() map[string]string {
	options := maps.Clone(s.Options)
	if options == nil {
		options = map[string]string{}
	}
	if s.Quorum != "" {
		options[OptionQuorum] = s.Quorum
	}
	return options
}
