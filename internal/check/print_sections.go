package check

import (
	"bytes"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/forecast"
)

// nodeTable writes the pods of the node, and why those stay that no finding explains.
func nodeTable(b *bytes.Buffer, l *forecast.NodeLoss) {
	if len(l.Pods) == 0 {
		return
	}
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "POD\tFATE\tWITHIN\tRESOURCES\tREASON")
	moves := false
	for _, p := range l.Pods {
		moves = moves || p.Fate == forecast.Moves
		resources := make([]string, len(p.Resources))
		for i, r := range p.Resources {
			resources[i] = shortened(r, resourceWidth)
		}
		_, _ = fmt.Fprintln(t, strings.Join([]string{
			shortened(p.Name(), podWidth), strings.ToLower(string(p.Fate)), dashed(p.Within), dashed(strings.Join(resources, ",")), dashed(string(p.Reason)),
		}, "\t"))
	}
	_ = t.Flush()
	if moves {
		wrap(b, "WITHIN: ", "from the loss to the removal of the pod at the latest, with the time that DRBD needs to notice. Kubernetes starts it "+
			"elsewhere about a second later, and its own start comes on top.", "  ")
	}
	b.WriteString("\n")
	for _, p := range l.Pods {
		if p.Fate != forecast.Moves && !p.Selected {
			wrap(b, "- ", fmt.Sprintf("pod %s stays: %s", p.Name(), p.Message), "  ")
		}
	}
	for _, note := range l.Notes {
		wrap(b, "- ", note, "  ")
	}
	if !bytes.HasSuffix(b.Bytes(), []byte("\n\n")) {
		b.WriteString("\n")
	}
}

// evacuated prints a section for each node with the taint.
func evacuated(b *bytes.Buffer, nodes []forecast.EvacuatedNode) {
	if len(nodes) == 0 {
		return
	}
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "EVACUATED NODE\tTAINT\tUNSAFE VOLUMES")
	for _, e := range nodes {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%d\n", shortened(e.Node, nodeWidth), dashed(e.Mode), len(e.Unsafe))
	}
	_ = t.Flush()
	for _, e := range nodes {
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
