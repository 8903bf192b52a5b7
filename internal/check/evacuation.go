package check

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
)

// placedTimeout is how long LINSTOR may take to tell where everything is: it asks its satellites.
const placedTimeout = 20 * time.Second

// storageComponents are the pods of Piraeus without which a node has no storage, by the label of components.
var storageComponents = []string{"linstor-satellite", "linstor-csi-node"}

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

// evacuations reads what is known of nodes that are evacuated. LINSTOR is asked once, by one question for everything.
func (s sources) evacuations(ctx context.Context, cfg cluster.Config, feed *linstor.Feed, memory *linstor.Store, linstorAnswers bool) (Evacuations, error) {
	var found Evacuations
	var nodes corev1.NodeList
	if err := cfg.Cache.List(ctx, &nodes); err != nil {
		return found, fmt.Errorf("listing nodes: %w", err)
	}
	var volumes []evacuation.Volume
	var marks []evacuation.Mark
	if linstorAnswers { // who cannot be told is not waited for: LINSTOR has just answered
		asking, cancel := context.WithTimeout(ctx, placedTimeout)
		volumes, _, _ = feed.Placed(asking)
		marks, _ = feed.Marks(asking)
		cancel()
	}
	reader := cluster.NewEvacuations(cfg)
	tainted, concerned := make(map[string]bool), make(map[string]bool)
	for i := range nodes.Items {
		node := &nodes.Items[i]
		concerned[cfg.Kubelets.Satellite(node.Name)] = cluster.IsEvacuated(node)
		if !cluster.HasTaint(node, evacuation.TaintKey, "") {
			continue
		}
		tainted[cfg.Kubelets.Satellite(node.Name)] = true
		row, err := evacuatedNode(ctx, reader, node, memory.Nodes(), slices.Clone(volumes))
		if err != nil {
			return found, err
		}
		found.Nodes = append(found.Nodes, row)
		untolerated, err := s.untolerated(ctx, node)
		if err != nil {
			return found, err
		}
		found.Untolerated = append(found.Untolerated, untolerated...)
	}
	for _, node := range memory.Nodes() {
		if node.Evacuating && !tainted[node.Name] {
			found.Flagged = append(found.Flagged, node.Name)
		}
	}
	for _, v := range volumes {
		for _, r := range v.Replicas {
			if r.Moves && !tainted[r.Node] {
				found.Moves = append(found.Moves, v.Resource+": "+r.Node)
			}
		}
	}
	if id, err := cluster.ID(ctx, s.api); err == nil { // else nobody knows whose marks are whose
		found.Marked = leftMarks(marks, id, concerned)
	}
	slices.Sort(found.Flagged)
	slices.Sort(found.Moves)
	return found, nil
}

// leftMarks are the marks for nodes that no evacuation concerns, as "resource: node".
func leftMarks(marks []evacuation.Mark, id string, concerned map[string]bool) []string {
	var left []string
	for _, mark := range marks {
		for _, entry := range mark.Nodes {
			node, ours := strings.CutSuffix(entry, evacuation.Entry("", id))
			if ours && !concerned[node] {
				left = append(left, mark.Resource+": "+node)
			}
		}
	}
	slices.Sort(left)
	return left
}

// evacuatedNode is a node with the taint, and those of its volumes that are not safe elsewhere.
func evacuatedNode(
	ctx context.Context, reader cluster.Evacuations, node *corev1.Node, satellites []linstor.Node, volumes []evacuation.Volume,
) (EvacuatedNode, error) {
	row := EvacuatedNode{Node: node.Name}
	for _, t := range node.Spec.Taints {
		if t.Key == evacuation.TaintKey {
			row.Mode = t.Value
		}
	}
	conditions := cluster.EvacuationConditions(node)
	row.Safe, row.Evacuated = inWords(conditions.Safe), inWords(conditions.Evacuated)
	attached, _, err := reader.Attached(ctx, node.Name)
	if err != nil {
		return row, err
	}
	in := evacuation.Input{Node: node.Name}
	if in.Nodes, err = reader.Nodes(ctx, node, satellites); err != nil {
		return row, err
	}
	if in.Volumes, err = reader.Claims(ctx, node, in.Nodes, volumes, attached); err != nil {
		return row, err
	}
	for _, v := range in.VolumeStates() {
		if v.Reason != evacuation.CopiedElsewhere {
			row.Unsafe = append(row.Unsafe, fmt.Sprintf("%s: %s: %s", v.Resource, v.Reason, v.Message))
		}
	}
	return row, nil
}

func inWords(c *evacuation.Condition) string {
	if c == nil {
		return ""
	}
	return strings.TrimSuffix(fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message), ": ")
}

// untolerated are the pods of Piraeus on a node that do not tolerate its taint: restarted there, they do not come back.
func (s sources) untolerated(ctx context.Context, node *corev1.Node) ([]string, error) {
	only := &corev1.Node{}
	for _, t := range node.Spec.Taints {
		if t.Key == evacuation.TaintKey {
			only.Spec.Taints = append(only.Spec.Taints, t)
		}
	}
	var found []string
	for _, component := range storageComponents {
		var pods corev1.PodList
		if err := s.api.List(ctx, &pods, client.MatchingLabels{cluster.ComponentLabel: component}); err != nil {
			return nil, fmt.Errorf("listing the pods of component %s: %w", component, err)
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			if pod.Spec.NodeName == node.Name && !cluster.Ended(pod) && cluster.Untolerated(ctx, only, pod) != "" {
				found = append(found, cluster.Key(pod.Namespace, pod.Name)+" on "+node.Name)
			}
		}
	}
	slices.Sort(found)
	return found, nil
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

// evacuated prints a section for each node with the taint.
func (r Report) evacuated(b *bytes.Buffer) {
	if len(r.Evacuations) == 0 {
		return
	}
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "EVACUATED NODE\tTAINT\tUNSAFE VOLUMES")
	for _, e := range r.Evacuations {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%d\n", shortened(e.Node, nodeWidth), dashed(e.Mode), len(e.Unsafe))
	}
	_ = t.Flush()
	for _, e := range r.Evacuations {
		for _, c := range []struct{ name, text string }{{evacuation.StorageSafe, e.Safe}, {evacuation.StorageEvacuated, e.Evacuated}} {
			if c.text != "" {
				wrap(b, "  "+e.Node+" "+c.name+": ", c.text, "    ")
			}
		}
		for i, v := range e.Unsafe {
			if i == listed {
				fmt.Fprintf(b, "  - and %d more, see -o yaml\n", len(e.Unsafe)-listed)
				break
			}
			wrap(b, "  - ", v, "    ")
		}
	}
	b.WriteString("\n")
}
