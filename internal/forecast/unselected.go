package forecast

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
)

// Bystander is a pod that uses a volume of the driver and is not selected, although it could be moved.
type Bystander struct {
	// Pod is its "namespace/name", Node the node it is bound to.
	Pod, Node string
	// Lost is set where that node is not ready, or not ONLINE in LINSTOR.
	Lost bool
}

// counted counts them in words, those on lost nodes first; empty where there is none.
func counted(all []Bystander) string {
	lost := 0
	for _, b := range all {
		if b.Lost {
			lost++
		}
	}
	text := ""
	if lost > 0 {
		text = "; " + pods(lost) + " on a lost node and not selected, so that nothing moves from there"
	}
	if stay := len(all) - lost; stay > 0 {
		text += "; " + pods(stay) + " not selected and would stay, see the findings"
	}
	return text
}

// where says which pod is meant, and on which node.
func (b Bystander) where() string {
	if b.Node == "" {
		return b.Pod
	}
	return b.Pod + " on " + b.Node
}

// nothingSelected reports whether the controller looks after nothing although there is something: a typo in its selector looks like that.
func (f Facts) nothingSelected(volumes int) bool {
	return volumes == 0 && len(f.Bystanders) > 0 && f.Namespace == "" && f.Lost == nil
}

// unselected tells of the pods that nothing moves because nobody has selected them.
func unselected(f Facts, volumes int) []Finding {
	var lost, others, lostWhere, othersWhere []string
	for _, b := range f.Bystanders {
		if b.Lost {
			lost, lostWhere = append(lost, b.Pod), append(lostWhere, b.where())
		} else {
			others, othersWhere = append(others, b.Pod), append(othersWhere, b.where())
		}
	}
	if f.nothingSelected(volumes) {
		return []Finding{{
			Severity: Warning, Code: NothingSelected, Objects: slices.Concat(lostWhere, othersWhere),
			Message: fmt.Sprintf("no pod with a volume of %s matches --pod-label-selector=%s, and these pods have one", f.Driver, f.Selector),
			Remedy:  "correct --pod-label-selector in the controller's Deployment; or, if it is as you want it, give the templates of these pods labels that match",
		}}
	}
	stuck := Finding{
		Severity: Warning, Code: NotSelectedPods, Objects: lostWhere, Remedy: remedyOfUnselected(f.Selector, lost),
		Message: fmt.Sprintf("%s not selected, with a volume of %s on a node that is not ready, or not ONLINE in LINSTOR: nothing is moved from there",
			pods(len(lost)), f.Driver),
	}
	idle := Finding{
		Severity: Info, Code: NotSelectedPods, Objects: othersWhere, Remedy: remedyOfUnselected(f.Selector, others),
		Message: fmt.Sprintf("%s not selected, with a volume of %s: not moved when the node is lost", pods(len(others)), f.Driver),
	}
	return withObjects(stuck, idle)
}

// remedyOfUnselected says how to select pods, and how to say that they shall stay.
func remedyOfUnselected(selector string, pods []string) string {
	label := assignments(selector)
	remedy := "give them labels that match " + selector + ", in the template of the pods and on the pods that run"
	if label != "" {
		remedy = "select them: set " + strings.ReplaceAll(strings.ReplaceAll(label, " ", ", "), "=", ": ") +
			" in the labels of the pod template, and label the pods that run, which helps after a loss as well: " +
			"kubectl label -n NAMESPACE pod NAME " + label
	}
	if len(pods) == 1 {
		remedy = named(remedy, pods[0], "NAME")
	}
	return remedy + "; where they shall stay: the annotation " + cluster.AnnotationIgnore
}

// assignments returns labels that a selector matches, as kubectl label takes them; empty where it asks for more than to have some.
func assignments(selector string) string {
	parsed, err := labels.Parse(selector)
	if err != nil {
		return ""
	}
	requirements, _ := parsed.Requirements()
	var all []string
	for _, r := range requirements {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			all = append(all, r.Key()+"="+slices.Sorted(maps.Keys(r.Values()))[0])
		case selection.Exists:
			all = append(all, r.Key()+"=true")
		default:
			return ""
		}
	}
	return strings.Join(all, " ")
}
