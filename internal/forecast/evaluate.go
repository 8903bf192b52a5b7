package forecast

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// learning is how long a process takes at most from its start on until it knows what a node runs that it hears: LINSTOR must show the node ONLINE in a
// list that is read 10 seconds later, and the kubelet, which does so every 10 seconds, must have renewed its Lease since.
const learning = 25 * time.Second

// Evaluation makes a report of the facts, and of one volume after the other: of thousands it does not retain what they rest on.
type Evaluation struct {
	facts     Facts
	volumes   []Row
	strangers []Row
	idle      names

	tiebreakers tiebreakers
	without     names // quorum: "resource on node"
	options     optionsFound
	strays      strays
	interrupted interrupted
	unended     names // "pod on node"
}

// Evaluate begins the evaluation of facts.
func Evaluate(f Facts) *Evaluation {
	return &Evaluation{
		facts: f, volumes: []Row{}, idle: names{}, tiebreakers: newTiebreakers(), without: names{}, options: optionsFound{options: f.Options},
		strays: strays{remote: names{}, noTarget: names{}}, interrupted: interrupted{names{}, names{}}, unended: names{},
	}
}

// Add takes in the volumes of a selected pod, of which there may be none.
func (e *Evaluation) Add(namespace, pod string, uses []cluster.Use) {
	if len(uses) == 0 && e.facts.Lost == nil { // else they stay wherever they are
		e.idle[cluster.Key(namespace, pod)] = true
	}
	uses = slices.DeleteFunc(slices.Clone(uses), func(use cluster.Use) bool { return e.facts.Lost != nil && use.Input.Node.Name != e.facts.Lost.Name })
	for i, foreseen := range Foresee(uses) {
		use := uses[i]
		r := e.row(use, foreseen)
		e.volumes = append(e.volumes, r)
		if use.Volume == "" {
			continue
		}
		e.end(use.Input)
		e.tiebreakers.add(r, use.Input.Resource)
		for _, node := range failover.WithoutQuorum(use.Input.Resource) {
			e.without[use.Input.Resource.Name+" on "+node] = true
		}
		e.options.add(use.Input.Resource)
		e.strays.add(use, e.facts.Attaching.Nodes)
	}
}

// endsWithin is how long after its grace a pod may still run.
const endsWithin = time.Minute

// end notes the pods that run although their grace is over and their kubelet is up.
func (e *Evaluation) end(in failover.Input) {
	for _, pod := range in.Pods {
		if pod.Terminating && pod.Runs && in.Now.Sub(pod.GraceEnds()) >= endsWithin && in.Node.LeaseFresh(in.Settings.KubeletSilence) {
			e.unended[cluster.Key(pod.Namespace, pod.Name)+" on "+in.Node.Name] = true
		}
	}
}

// AddStranger takes in the volumes of a pod that is not selected, on the node whose loss is asked about.
func (e *Evaluation) AddStranger(uses []cluster.Use) {
	for i, foreseen := range Foresee(uses) {
		if uses[i].Volume != "" {
			e.strangers = append(e.strangers, e.row(uses[i], foreseen))
		}
	}
}

// Report returns the report.
func (e *Evaluation) Report() Report {
	f := e.facts
	report := Report{
		Version: Version, Process: f.Process, Selector: f.Selector, Driver: f.Driver, Volumes: e.volumes, Evacuations: f.Evacuations.Nodes,
		Findings: []Finding{},
	}
	if absent := f.Lost.absent(); absent != "" {
		report.Verdict, report.Message = failover.Untold, absent
		return report
	}
	slices.SortFunc(e.volumes, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Claim, b.Claim))
	})
	report.Findings = e.findings()
	if f.Lost != nil && f.KubernetesError == "" && !f.Deserted {
		report.Node = lossOf(f, e.volumes, e.strangers)
		report.Verdict, report.Message = verdictOfNode(f, report)
		return report
	}
	report.Verdict, report.Message = verdict(f, report)
	return report
}

func (e *Evaluation) row(use cluster.Use, foreseen failover.Forecast) Row {
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
		e.foretell(&r, in, foreseen)
	}
	return r
}

// foretell fills in what the loss of the node would mean.
func (e *Evaluation) foretell(r *Row, in failover.Input, forecast failover.Forecast) {
	r.State, r.Verdict, r.Reason, r.Message = forecast.State, forecast.Outlook, forecast.Reason, forecast.Message
	r.Lost = forecast.Lost
	heard := in.Now.Add(-in.Node.LeaseSilence)
	unconfirmed := r.Reason == failover.QuorumUnconfirmed && r.Verdict != failover.Protected
	if unconfirmed && !r.Lost && heard.Sub(e.facts.Process.Started) < learning {
		r.Passes, r.Message = true, fmt.Sprintf("this process of the controller started %s ago, and knows %s after its start what node %s runs: nothing "+
			"is moved from there until then", in.Now.Sub(e.facts.Process.Started).Round(time.Second), learning, in.Node.Name)
	}
	if unconfirmed && r.Verdict != failover.Failing && !r.Passes {
		r.Doubts = doubts(in, r.Message)
	}
	if r.Verdict == failover.Protected || r.Verdict == failover.Failing {
		r.Grace = forecast.Grace.String()
	}
}

// verdict sums the report up. What is known to be unprotected outweighs what could not be told.
func verdict(f Facts, report Report) (failover.Outlook, string) {
	if f.KubernetesError != "" && len(report.Volumes) == 0 {
		return failover.Untold, "could not tell: the Kubernetes API could not be read"
	}
	selected := fmt.Sprintf("pod selected by %q", f.Selector)
	if f.Namespace != "" {
		selected += " in namespace " + f.Namespace
	}
	if f.Deserted {
		return failover.Untold, fmt.Sprintf("no pod is in namespace %s, if there is such a namespace: the controller may not read namespaces", f.Namespace)
	}
	if f.nothingSelected(len(report.Volumes)) {
		return failover.Unprotected, fmt.Sprintf("no %s uses a volume of %s, and %d others do: nothing is moved", selected, f.Driver, len(f.Bystanders))
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
	case unknown > 0 || f.KubernetesError != "":
		return failover.Untold, "could not tell for all selected pods: " + numbers
	default:
		return failover.Protected, "every selected pod would survive the loss of its node: " + numbers
	}
}

// disables reports whether a finding keeps the controller from moving anything, whatever it is.
func disables(f Finding) bool { return f.Code == MissingPermission || f.Code == LinstorUnreachable }

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

// Stuck reports whether the volume is lost on the pod's node and nothing moves the pod.
func (r Row) Stuck() bool { return r.Lost && r.Verdict == failover.Unprotected }

// endangered reports whether the pod works, and would not be moved if its node were lost next.
func (r Row) endangered() bool { return !r.Lost && r.Verdict == failover.Unprotected }

// headline says what is lost now, and what would not survive the next loss.
func headline(rows []Row) string {
	stuck, moving, lost, next, nodes := names{}, names{}, names{}, names{}, names{}
	for _, r := range rows {
		pod := r.Namespace + "/" + r.Pod
		switch {
		case r.Stuck():
			stuck[pod], lost[r.Node] = true, true
		case r.Verdict == failover.Failing:
			moving[pod] = true
		case r.endangered():
			next[pod], nodes[r.Node] = true, true
		}
	}
	text := "no selected pod is stuck now"
	if len(stuck) > 0 {
		text = fmt.Sprintf("%s stuck now, because the storage is lost on %s", pods(len(stuck)), firstOf(lost.sorted()))
	}
	if len(moving) > 0 {
		text += fmt.Sprintf("; %s being moved", pods(len(moving)))
	}
	if len(next) > 0 {
		text += fmt.Sprintf("; %s well, and would not be moved after the next loss, that of %s", pods(len(next)), firstOf(nodes.sorted()))
	}
	return text
}

// pods counts pods, with the verb.
func pods(n int) string {
	if n == 1 {
		return "1 pod is"
	}
	return fmt.Sprintf("%d pods are", n)
}
