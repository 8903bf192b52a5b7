package check

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"sigs.k8s.io/yaml"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/forecast"
)

// write prints a report in one of the formats.
func write(w io.Writer, format string, r forecast.Report) error {
	var text []byte
	var err error
	switch format {
	case formatJSON:
		text, err = json.MarshalIndent(r, "", "  ")
		text = append(text, '\n')
	case formatYAML:
		text, err = yaml.Marshal(r)
	default:
		text = table(r)
	}
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

const (
	// lineWidth is where the text of findings is wrapped.
	lineWidth = 110
	// listed is how many objects of a finding the table names; the other formats name all.
	listed = 10
)

// Widths of the columns that can be long. LINSTOR's names are long where CSI made them, and tell little.
const (
	podWidth      = 30
	resourceWidth = 16
	nodeWidth     = 16
)

func table(r forecast.Report) []byte {
	var b bytes.Buffer // writing to it does not fail
	if !r.Process.Leads && r.Process.Pod != "" {
		standby(&b, r.Process)
	}
	switch {
	case r.Node != nil:
		nodeTable(&b, r.Node)
	case len(r.Volumes) > 0:
		t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(t, "POD\tRESOURCE\tNODE\tREPLICAS\tQUORUM\tSTATE\tVERDICT\tREASON")
		for _, row := range r.Volumes {
			_, _ = fmt.Fprintln(t, strings.Join(columns(row), "\t"))
		}
		_ = t.Flush()
		b.WriteString("\n")
	}
	evacuated(&b, r.Evacuations)
	for _, f := range r.Findings {
		printFinding(&b, f)
	}
	wrap(&b, "", capital(r.Message)+".", "")
	return b.Bytes()
}

// standby says that the answer is not the leader's.
func standby(b *bytes.Buffer, p forecast.Process) {
	text := "pod " + p.Pod + " answers, which does not lead: its guard and its clocks are its own, and the leader may know more. "
	if namespace, leader, ok := strings.Cut(p.Leader, "/"); ok {
		text += fmt.Sprintf("To ask the leader: kubectl -n %s exec %s -- %s check", namespace, leader, program)
	} else {
		text += "No other is known to lead."
	}
	wrap(b, "STANDBY: ", text, "  ")
	b.WriteString("\n")
}

func capital(sentence string) string { return strings.ToUpper(sentence[:1]) + sentence[1:] }

func columns(r forecast.Row) []string {
	replicas := "-"
	if r.Diskful+r.Diskless > 0 {
		replicas = strconv.Itoa(r.Diskful) + "+" + strconv.Itoa(r.Diskless)
	}
	if r.Offline > 0 {
		replicas += fmt.Sprintf(" (%d offline)", r.Offline)
	}
	verdict, reason := string(r.Verdict), string(r.Reason)
	if r.Verdict == failover.Protected {
		verdict, reason = verdict+" "+r.Grace, "-"
	}
	if r.Stuck() {
		verdict += ", stuck"
	}
	return []string{
		shortened(r.Namespace+"/"+r.Pod, podWidth), shortened(dashed(r.Resource), resourceWidth), shortened(dashed(r.Node), nodeWidth),
		replicas, dashed(r.Quorum), dashed(string(r.State)), verdict, reason,
	}
}

func dashed(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// shortened leaves out the middle of what is too long: names often differ at their end.
func shortened(s string, width int) string {
	if len(s) <= width {
		return s
	}
	head := (width - 1) * 2 / 3
	return s[:head] + "…" + s[len(s)-(width-1-head):]
}

func printFinding(b *bytes.Buffer, f forecast.Finding) {
	wrap(b, fmt.Sprintf("%s %s: ", strings.ToUpper(string(f.Severity)), f.Code), f.Message, "  ")
	for i, o := range f.Objects {
		if i == listed {
			fmt.Fprintf(b, "  - and %d more, see -o yaml\n", len(f.Objects)-listed)
			break
		}
		wrap(b, "  - ", o, "    ")
	}
	wrap(b, "  Remedy: ", f.Remedy, "    ")
	b.WriteString("\n")
}

// wrap writes text after a head, in lines of lineWidth; all but the first are indented.
func wrap(b *bytes.Buffer, head, text, indent string) {
	line := head
	empty := true
	for word := range strings.FieldsSeq(text) {
		if !empty && len(line)+1+len(word) > lineWidth {
			b.WriteString(line + "\n")
			line, empty = indent, true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	b.WriteString(line + "\n")
}
