package evacuation

// The types of the conditions that a node gets.
const (
	// StorageSafe is True while the node may be drained or switched off: every volume has a good copy elsewhere.
	StorageSafe = "piraeus.io/StorageSafe"
	// StorageEvacuated is True while no disk and no snapshot is left on the node.
	StorageEvacuated = "piraeus.io/StorageEvacuated"
)

// Status is that of a condition, in Kubernetes' words.
type Status string

// Statuses of a condition.
const (
	True          Status = "True"
	False         Status = "False"
	StatusUnknown Status = "Unknown"
)

// Condition is a condition of a node.
type Condition struct {
	Status  Status
	Reason  Reason
	Message string
}

// Conditions are those of a node; nil is one that it does not have.
type Conditions struct {
	Safe, Evacuated *Condition
}

// same sets both conditions to the same.
func same(status Status, reason Reason, message string) Conditions {
	return Conditions{
		Safe:      &Condition{status, reason, message},
		Evacuated: &Condition{status, reason, message},
	}
}

// active tells whether an evacuation is at work by its conditions, so that others have to wait: it copies, or its node leaves. One that has
// no condition yet is about to begin. One that waits for somebody, or cannot go on, holds up nobody.
func (c Conditions) active() bool {
	if c.Safe == nil && c.Evacuated == nil {
		return true
	}
	return c.Safe != nil && c.Safe.Reason == Copying || c.leaving()
}

// leaving tells whether LINSTOR moves the rest off the node, or is about to.
func (c Conditions) leaving() bool { return c.Evacuated != nil && c.Evacuated.Reason == Leaving }
