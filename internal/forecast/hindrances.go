package forecast

import (
	"fmt"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// plight is how pods fare that are not protected: those in the same one, for the same reason, are one finding.
type plight struct {
	message string
	has     func(Row) bool
}

// plights returns them in the order of their urgency: what is lost now comes before what would be.
func plights() []plight {
	return []plight{
		{"stuck now: the storage is lost on the pod's node, and the pod is not moved", Row.Stuck},
		{"the storage is lost on the pod's node now, and the pod is being moved", func(r Row) bool { return r.Verdict == failover.Failing }},
		{"could not be told", func(r Row) bool { return r.Verdict == failover.Untold }},
		{"works now, and would not be moved if its node were lost next", Row.endangered},
	}
}

// hindrances explains every reason for which pods are not protected, each in the column REASON.
func hindrances(f Facts, rows []Row) []Finding {
	var all []Finding
	for _, p := range plights() {
		for _, reason := range reasonsOf(rows) {
			if reason != failover.LinstorBlind { // the nodes are named
				all = append(all, withObjects(hindrance(f, rows, p, reason))...)
			}
		}
	}
	return all
}

// reasonsOf returns the reasons that are known to hinder, and after them all others of the rows.
func reasonsOf(rows []Row) []failover.Reason {
	reasons := failover.Hindrances()
	for _, r := range rows {
		reasons = appendNew(reasons, r.Reason)
	}
	return reasons
}

func hindrance(f Facts, rows []Row, p plight, reason failover.Reason) Finding {
	finding := Finding{Severity: Error, Code: Code(reason), Message: p.message, Remedy: failover.RemedyOf(reason)}
	if reason == failover.Paused {
		finding.Remedy = named(finding.Remedy, f.Deployment, "NAME")
	}
	resources, pods, told := names{}, names{}, names{}
	for _, r := range rows {
		if r.Reason != reason || !p.has(r) {
			continue
		}
		if r.Verdict == failover.Failing {
			finding.Remedy = remedyOfMoving
		}
		if r.Passes {
			finding.Remedy = remedyOfWaiting
		}
		resources[r.Resource], pods[r.Namespace+"/"+r.Pod] = true, true
		for _, line := range r.explained() {
			if !told[line] {
				told[line], finding.Objects = true, append(finding.Objects, line)
			}
		}
	}
	finding.Remedy = filled(finding.Remedy, "RESOURCE", resources.sorted())
	if len(pods) == 1 {
		pod := pods.sorted()[0]
		finding.Remedy = named(finding.Remedy, pod, "HELPER")
		finding.Remedy = named(finding.Remedy, pod, "POD")
	}
	if label := assignments(f.Selector); label != "" {
		finding.Remedy = filled(finding.Remedy, "LABEL", []string{label})
	}
	return finding
}

// explained says of one volume what the finding is about.
func (r Row) explained() []string {
	if len(r.Doubts) > 0 {
		return r.Doubts
	}
	text := fmt.Sprintf("pod %s/%s, resource %s", r.Namespace, r.Pod, r.Resource)
	switch {
	case r.endangered():
		text += fmt.Sprintf(", if %s were lost: %s", r.Node, r.Message)
	case r.Verdict == failover.Failing:
		text += fmt.Sprintf(" on %s: %s; the pod is moved once that has lasted for %s", r.Node, r.Message, r.Grace)
	case r.Stuck():
		text += fmt.Sprintf(" on %s: %s", r.Node, r.Message)
	default:
		text += ": " + r.Message
	}
	return []string{text}
}
