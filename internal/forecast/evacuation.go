package forecast

import (
	"fmt"
	"strings"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
)

// Evacuations is what is known of nodes that are evacuated, or were.
type Evacuations struct {
	// Nodes are those with the taint.
	Nodes []EvacuatedNode
	// Moves are volumes that LINSTOR may move off a node without the taint, as "resource: node".
	Moves []string
	// Flagged are nodes, by their names in LINSTOR, that have the flag EVACUATE without the taint.
	Flagged []string
	// Marked are resource definitions that have our mark for a node that is not evacuated, as "resource: node".
	Marked []string
	// Untolerated are the pods of Piraeus on a node with the taint that do not tolerate it, as "namespace/name on node".
	Untolerated []string
}

// EvacuatedNode is a node with the taint.
type EvacuatedNode struct {
	// Node is its name, Mode the value of the taint.
	Node string `json:"node"`
	Mode string `json:"mode,omitempty"`
	// Safe and Evacuated are its conditions as the controller has written them: status, reason and message.
	Safe      string `json:"storageSafe,omitempty"`
	Evacuated string `json:"storageEvacuated,omitempty"`
	// Unsafe are its volumes without a good copy elsewhere as LINSTOR shows them now, as "volume: reason: message".
	Unsafe []string `json:"unsafe,omitempty"`
}

// leftovers tells what an evacuation has left, or will miss.
func leftovers(e Evacuations) []Finding {
	return withObjects(
		Finding{
			Severity: Warning, Code: UnfinishedMove, Objects: e.Moves,
			Message: "LINSTOR has in mind to move these volumes off a node that has no taint " + evacuation.TaintKey + ": it may still remove a replica there " +
				"once a copy elsewhere is UpToDate",
			Remedy: "restart the LINSTOR controller, by which it forgets moves that are under way; then take off the mark, also of moves that are long over: " +
				"linstor resource set-property NODE RESOURCE MigrateFrom, for the replica that has it, which is the source or the target",
		},
		Finding{
			Severity: Warning, Code: FlaggedWithoutTaint, Objects: e.Flagged,
			Message: "LINSTOR was told to evacuate these nodes, not by the taint " + evacuation.TaintKey + ": they get no new replica, not even a tie-breaker",
			Remedy:  filled("if nobody evacuates it: linstor node restore NODE", "NODE", e.Flagged),
		},
		Finding{
			Severity: Warning, Code: LeftoverMark, Objects: e.Marked,
			Message: "these resource definitions have the mark of an evacuation for a node that is not evacuated: as long as it is there LINSTOR's balancing leaves " +
				"surplus copies of them alone",
			Remedy: filled("the controller takes it off within a minute or two, unless it runs with --evacuation=false or an evacuated node is unknown to LINSTOR; by "+
				"hand, where the mark names no other node: linstor resource-definition set-property RESOURCE "+evacuation.PropMark+
				" and linstor resource-definition set-property RESOURCE "+evacuation.PropBalance+", both without a value", "RESOURCE", resourcesOf(e.Marked)),
		},
		Finding{
			Severity: Warning, Code: TaintNotTolerated, Objects: e.Untolerated,
			Message: "these pods do not tolerate the taint " + evacuation.TaintKey + ": restarted on that node they do not come back, and volumes cannot be unmounted there",
			Remedy:  "let them tolerate it, as docs/evacuation.md says, before they are restarted",
		},
	)
}

// resourcesOf are the resources of "resource: node".
func resourcesOf(places []string) []string {
	names := make([]string, 0, len(places))
	for _, place := range places {
		name, _, _ := strings.Cut(place, ": ")
		names = append(names, name)
	}
	return names
}

// InWords returns a condition as text; empty if there is none.
func InWords(c *evacuation.Condition) string {
	if c == nil {
		return ""
	}
	return strings.TrimSuffix(fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message), ": ")
}
