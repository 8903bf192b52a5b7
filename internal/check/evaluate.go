package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// Evaluate makes a report of the facts. It asks nobody.
func Evaluate(f Facts) Report {
	report := Report{Selector: f.Selector, Driver: f.Driver, Volumes: []Row{}, Evacuations: f.Evacuations.Nodes}
	if absent := f.Node.absent(); absent != "" {
		report.Verdict, report.Message, report.Findings = failover.Untold, absent, []Finding{}
		return report
	}
	if f.Node != nil {
		f = f.onNode()
	}
	for _, use := range f.Uses {
		report.Volumes = append(report.Volumes, row(use, f.LeadingSince))
	}
	report.Findings = findings(f, report.Volumes)
	if f.Node != nil && f.KubernetesError == "" && !f.Deserted {
		report.Node = lossOf(f, report.Volumes)
		report.Verdict, report.Message = verdictOfNode(f, report)
		return report
	}
	report.Verdict, report.Message = verdict(f, report)
	return report
}

func row(use cluster.Use, leadingSince time.Time) Row {
	in := use.Input
	r := Row{
		Namespace: use.Namespace, Pod: use.Pod, Node: in.Node.Name,
		Claim: use.Claim, Volume: use.Volume, Resource: in.Resource.Name,
	}
	for _, replica := range in.Resource.Replicas {
		if replica.Diskless {
			r.Diskless++
		} else {
			r.Diskful++
		}
		if !replica.Online.Known || !replica.Online.Value {
			r.Offline++
		}
	}
	r.Quorum = cmp.Or(in.Resource.Quorum, "unknown")
	switch {
	case use.Volume == "":
		r.Verdict, r.Reason, r.Message = failover.Starting, failover.VolumeStarting, "the claim is not bound to a volume"
	case r.Node == "":
		r.Verdict, r.Reason, r.Message = failover.Starting, failover.VolumeStarting, "the pod is not bound to a node"
	default:
		forecast := failover.Foresee(in)
		r.State, r.Verdict, r.Reason, r.Message = forecast.State, forecast.Outlook, forecast.Reason, forecast.Message
		r.Lost = lostNow(in, forecast)
		if why := newcomer(in, forecast, leadingSince); why != "" {
			r.Message, r.Passes = why, true
		}
		if r.Verdict == failover.Protected || r.Verdict == failover.Failing {
			r.Grace = forecast.Grace.String()
		}
	}
	return r
}

// verdict sums the report up. What is known to be unprotected outweighs what could not be told.
func verdict(f Facts, report Report) (failover.Outlook, string) {
	if f.KubernetesError != "" {
		return failover.Untold, "could not tell: the Kubernetes API could not be read"
	}
	selected := fmt.Sprintf("pod selected by %q", f.Selector)
	if f.Namespace != "" {
		selected += " in namespace " + f.Namespace
	}
	if f.Deserted {
		return failover.Untold, fmt.Sprintf("no pod is in namespace %s, if there is such a namespace: this account may not read namespaces", f.Namespace)
	}
	if len(report.Volumes) == 0 {
		return failover.Protected, fmt.Sprintf("no %s uses a volume of %s: there is nothing to protect", selected, f.Driver) + counted(f.Bystanders)
	}
	pods := worst(report.Volumes)
	bad, unknown := pods[failover.Unprotected]+pods[failover.Failing], pods[failover.Untold]
	numbers := fmt.Sprintf("%d protected, %d not, %d unknown, %d starting",
		pods[failover.Protected], bad, unknown, pods[failover.Starting]) + counted(f.Bystanders)
	switch {
	case bad > 0:
		return failover.Unprotected, headline(report.Volumes) + ": " + numbers
	case slices.ContainsFunc(report.Findings, disables):
		return failover.Unprotected, "the controller could not do its work, see the findings: " + numbers
	case unknown > 0:
		return failover.Untold, "could not tell for all selected pods: " + numbers
	default:
		return failover.Protected, "every selected pod would survive the loss of its node: " + numbers
	}
}

// disables tells whether a finding keeps the controller from moving anything, whatever it is.
func disables(f Finding) bool { return f.Code == ControllerNotRunning || f.Code == MissingPermission }

// worst counts the pods by the worst verdict of their volumes.
func worst(rows []Row) map[failover.Outlook]int {
	order := []failover.Outlook{failover.Protected, failover.Starting, failover.Untold, failover.Failing, failover.Unprotected}
	pods := map[string]int{}
	for _, r := range rows {
		name := r.Namespace + "/" + r.Pod
		pods[name] = max(pods[name], slices.Index(order, r.Verdict))
	}
	counts := map[failover.Outlook]int{}
	for _, i := range pods {
		counts[order[i]]++
	}
	return counts
}
