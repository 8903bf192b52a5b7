package check

import (
	"bytes"
	"cmp"
	"fmt"
	"time"
)

func (h History) table() []byte {
	var b bytes.Buffer
	for i, f := range h.Failovers {
		if i == listed {
			fmt.Fprintf(&b, "and %d more, see -o yaml\n\n", len(h.Failovers)-listed)
			break
		}
		f.print(&b)
	}
	for i, w := range h.Waiting {
		if i == listed {
			fmt.Fprintf(&b, "and %d more, see -o yaml\n\n", len(h.Waiting)-listed)
			break
		}
		wrap(&b, fmt.Sprintf("%s pod %s/%s is not moved, %s: ", w.Time.Format(time.RFC3339), w.Namespace, w.Pod, w.Reason), w.Message, "  ")
		b.WriteString("\n")
	}
	wrap(&b, "", capital(h.Message)+".", "")
	return b.Bytes()
}

func (f Failover) print(b *bytes.Buffer) {
	subject := "resource " + f.Resource
	if f.Claim != "" {
		subject = fmt.Sprintf("claim %s/%s, resource %s", f.Namespace, f.Claim, f.Resource)
	}
	wrap(b, "", fmt.Sprintf("%s %s: from %s to %s", f.Steps[0].Time.Format(time.RFC3339), subject, cmp.Or(f.From, "?"), cmp.Or(f.To, "nowhere yet")), "  ")
	if f.Reason != "" || f.Message != "" {
		wrap(b, "  why: ", fmt.Sprintf("%s: %s", cmp.Or(string(f.Reason), "the reason is not known any more"), cmp.Or(f.Message, "its Event is not there any more")), "    ")
	}
	for _, s := range f.Steps {
		wrap(b, "  "+s.Time.Format(time.TimeOnly)+" ", s.What, "    ")
	}
	for _, o := range f.Open {
		wrap(b, "  open: ", o, "    ")
	}
	b.WriteString("\n")
}
