package forecast

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
)

// Fate is what would become of a pod if its node were lost.
type Fate string

const (
	// Moves : the pod is removed, and its volumes are detached.
	Moves Fate = "Moves"
	// Stays : nothing is done.
	Stays Fate = "Stays"
	// Unsure : what is known does not suffice for an answer.
	Unsure Fate = "Unknown"
)

// NodeLoss is what the loss of one node would do.
type NodeLoss struct {
	// Name is the node, and Satellite its name in LINSTOR.
	Name      string `json:"name"`
	Satellite string `json:"satellite"`
	// Pods are those on the node that use a volume of the driver, selected or not.
	Pods []PodLoss `json:"pods"`
	// Notes are what else the loss of this node would hold up.
	Notes []string `json:"notes,omitempty"`
}

// PodLoss is what the loss of its node would do to a pod.
type PodLoss struct {
	// Namespace and Pod name the pod, Resources LINSTOR's resource definitions that it uses.
	Namespace string   `json:"namespace"`
	Pod       string   `json:"pod"`
	Resources []string `json:"resources"`
	// Fate is the answer.
	Fate Fate `json:"fate"`
	// Within is how long after the loss the pod is removed at the latest, such as "17s"; only where it moves.
	Within string `json:"within,omitempty"`
	// Reason and Message say why it stays; docs/reasons.md explains each reason.
	Reason  failover.Reason `json:"reason,omitempty"`
	Message string          `json:"message,omitempty"`
	// Selected is set where the pod is selected for fail-over.
	Selected bool `json:"selected"`
}

const (
	// defaultPing is DRBD's ping-int where LINSTOR sets none.
	defaultPing = 10 * time.Second
	// pingExcess is how much later than its ping-int a DRBD was seen to notice a loss at most; docs/benchmarks.md has the times.
	pingExcess = 1300 * time.Millisecond
	// linstorNotice is how long LINSTOR was seen to take to miss a satellite at most, with the time for which its other ones must
	// stay online then.
	linstorNotice = 9500 * time.Millisecond
)

// lossOf tells what the loss of the node would do; the rows are those of its selected pods.
func lossOf(f Facts, rows, strangers []Row) *NodeLoss {
	loss := &NodeLoss{Name: f.Lost.Name, Satellite: f.Lost.Satellite, Pods: []PodLoss{}}
	late := time.Duration(0)
	if f.Lost.Leader != "" {
		late = f.Lost.Takeover
		loss.Notes = append(loss.Notes, fmt.Sprintf("pod %s leads the controller and would be lost too: another one takes over within %s, which is counted in above",
			f.Lost.Leader, late))
	}
	if f.Lost.Linstor != "" {
		loss.Notes = append(loss.Notes, fmt.Sprintf("pod %s is the LINSTOR controller and would be lost too: nothing moves before another one runs, which is not counted above",
			f.Lost.Linstor))
	}
	for _, r := range rows {
		loss.add(r, late+noticed(f.Options, r.Resource, f.Lost.Satellite), true)
	}
	for _, r := range strangers {
		loss.add(r, 0, false)
	}
	slices.SortStableFunc(loss.Pods, func(a, b PodLoss) int {
		return cmp.Or(cmp.Compare(order(a.Fate), order(b.Fate)), strings.Compare(a.Name(), b.Name()))
	})
	return loss
}

// order puts what moves first, and what stays last.
func order(fate Fate) int { return slices.Index([]Fate{Moves, Unsure, Stays}, fate) }

// Name returns "namespace/name".
func (p PodLoss) Name() string { return p.Namespace + "/" + p.Pod }

// add takes one volume into account: a pod stays where one of its volumes keeps it.
func (l *NodeLoss) add(r Row, notice time.Duration, selected bool) {
	p := PodLoss{Namespace: r.Namespace, Pod: r.Pod, Fate: Stays, Reason: r.Reason, Message: r.Message, Selected: selected}
	if r.Resource != "" {
		p.Resources = []string{r.Resource}
	}
	grace, _ := time.ParseDuration(r.Grace)
	switch r.Verdict {
	case failover.Protected:
		p.Fate, p.Within, p.Reason, p.Message = Moves, seconds(notice+grace), "", ""
	case failover.Failing:
		p.Fate, p.Within, p.Reason = Moves, seconds(grace), ""
		p.Message = "the storage is lost on the node already: " + r.Message
	case failover.Untold:
		p.Fate = Unsure
	case failover.Unprotected, failover.Starting:
	}
	at := slices.IndexFunc(l.Pods, func(other PodLoss) bool { return other.Name() == p.Name() })
	if at < 0 {
		l.Pods = append(l.Pods, p)
		return
	}
	other := l.Pods[at]
	resources := slices.Concat(other.Resources, p.Resources)
	if order(p.Fate) > order(other.Fate) || p.Fate == other.Fate && later(p.Within, other.Within) {
		l.Pods[at] = p
	}
	l.Pods[at].Resources = resources
}

func later(a, b string) bool {
	x, _ := time.ParseDuration(a)
	y, _ := time.ParseDuration(b)
	return x > y
}

// seconds rounds up: what is promised must hold.
func seconds(d time.Duration) string { return strconv.Itoa(int(math.Ceil(d.Seconds()))) + "s" }

// noticed returns how long it takes at most until DRBD and LINSTOR say that a node is gone that had the resource.
func noticed(options linstor.DRBDOptions, resource, node string) time.Duration {
	ping := defaultPing
	if seconds, err := strconv.Atoi(options.Setting(resource, node, linstor.OptionPingInt).Value); err == nil {
		ping = time.Duration(seconds) * time.Second
	}
	return max(ping+pingExcess, linstorNotice)
}

// absent says why there is nothing to be told of the node that is asked about; empty where there is.
func (n *Node) absent() string {
	switch {
	case n == nil || !n.Missing:
		return ""
	case n.Namesake != "":
		return fmt.Sprintf("there is no node %s in Kubernetes: LINSTOR calls node %s so", n.Name, n.Namesake)
	default:
		return fmt.Sprintf("there is no node %s in Kubernetes: its nodes are %s", n.Name, firstOf(n.Others))
	}
}

// verdictOfNode sums up what the loss of the node would do.
func verdictOfNode(f Facts, report Report) (failover.Outlook, string) {
	if len(report.Node.Pods) == 0 {
		return failover.Protected, nothingOn(f)
	}
	counts, bad := map[Fate]int{}, false
	for _, p := range report.Node.Pods {
		counts[p.Fate]++
		bad = bad || p.Selected && p.Fate == Stays && p.Reason != failover.VolumeStarting
	}
	text := sentence(f, report, counts)
	switch {
	case slices.ContainsFunc(report.Findings, disables):
		return failover.Unprotected, "the controller could not do its work, see the findings; else, " + text
	case bad:
		return failover.Unprotected, text
	case counts[Unsure] > 0:
		return failover.Untold, text
	default:
		return failover.Protected, text
	}
}

// nothingOn says that no pod of the node has a volume.
func nothingOn(f Facts) string {
	who := "no pod"
	if f.Namespace != "" {
		who += " of namespace " + f.Namespace
	}
	text := fmt.Sprintf("%s on node %s uses a volume of %s: its loss would move nothing", who, f.Lost.Name, f.Driver)
	if f.Lost.Unlisted {
		text = "node " + f.Lost.Name + " is no satellite of LINSTOR, and " + text
	}
	return text
}

// sentence says how many pods would have which fate.
func sentence(f Facts, report Report, counts map[Fate]int) string {
	text, move, stay := fmt.Sprintf("if %s were lost now, ", f.Lost.Name), would("move"), would("stay")
	if slices.ContainsFunc(report.Volumes, func(r Row) bool { return r.Lost }) {
		text, move, stay = "storage is lost on "+f.Lost.Name+" already: ", does("move"), does("stay")
	}
	last := ""
	for _, p := range report.Node.Pods {
		if later(p.Within, last) {
			last = p.Within
		}
	}
	text += move(counts[Moves])
	if last != "" {
		text += " within " + last
	}
	if n := counts[Unsure]; n > 0 {
		text += fmt.Sprintf(", it cannot be told of %d", n)
	}
	text += ", and " + stay(counts[Stays])
	if f.Lost.Unlisted {
		text += "; the node is no satellite of LINSTOR"
	}
	return text
}

// would and does return what says of how many pods they would do something, or do.
func would(verb string) func(int) string {
	return func(n int) string { return number(n) + " would " + verb }
}

func does(verb string) func(int) string {
	return func(n int) string {
		if n <= 1 {
			return number(n) + " " + verb + "s"
		}
		return number(n) + " " + verb
	}
}

func number(n int) string {
	switch n {
	case 0:
		return "no pod"
	case 1:
		return "1 pod"
	default:
		return fmt.Sprintf("%d pods", n)
	}
}
