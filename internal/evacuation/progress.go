package evacuation

import (
	"encoding/json"
	"fmt"
	"time"
)

// Mode says how far an evacuation goes. It is the value of the taint.
type Mode string

const (
	// LastCopies copies what exists nowhere else, and nothing leaves.
	LastCopies Mode = "last-copies"
	// Everything does that and then, once the node is drained, has LINSTOR move the rest.
	Everything Mode = ""
)

// Progress is what the annotation of a node says of its evacuation, for whoever leads next.
type Progress struct {
	// By is the installation of the controller that evacuates the node: another one stands back.
	By string `json:"by,omitempty"`
	// Mode is the value of the taint.
	Mode Mode `json:"mode"`
	// Since is when the evacuation began: nodes go in this order.
	Since time.Time `json:"since"`
	// Safe is since when all of its data is safe elsewhere, as far as was known when it was last ONLINE; nil while it is not.
	Safe *time.Time `json:"safe,omitempty"`
	// Asked is when LINSTOR was last told to move everything; nil where it never was: then a flag on the node is not ours.
	Asked *time.Time `json:"asked,omitempty"`
	// Asks is how often it was.
	Asks int `json:"asks,omitempty"`
	// QuorumOff is of how many volumes LINSTOR was expected to switch quorum off when it was told.
	QuorumOff int `json:"quorumOff,omitempty"`
}

// ParseProgress reads an annotation. One that cannot be read is an error: what it says of a flag's owner is not known.
func ParseProgress(text string) (Progress, error) {
	var p Progress
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return Progress{}, fmt.Errorf("reading what is known of the evacuation: %w", err)
	}
	return p, nil
}

// String returns the progress as ParseProgress reads it.
func (p Progress) String() string {
	text, err := json.Marshal(p)
	if err != nil { // of times before the year 0 only
		return "{}"
	}
	return string(text)
}

// Equal tells whether both say the same.
func (p Progress) Equal(other Progress) bool { return p.String() == other.String() }

// asked tells whether LINSTOR was ever told to move everything.
func (p *Progress) asked() bool { return p != nil && p.Asked != nil }
