package check

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
)

// Bystander is a pod that uses a volume of the driver and is not selected, although it could be moved.
type Bystander struct {
	// Pod is its "namespace/name", Node the node it is bound to.
	Pod, Node string
	// Lost is set where that node is not ready, or not ONLINE in LINSTOR.
	Lost bool
}

// bystanders finds them by what the reader holds anyway. Pods that would not be moved if they were selected are left out.
func bystanders(
	ctx context.Context, reader client.Reader, namespace, driver string, selector labels.Selector, satellites []linstor.Node,
) ([]Bystander, error) {
	claims, err := claimsOf(ctx, reader, driver)
	if err != nil {
		return nil, err
	}
	lost, err := lostNodes(ctx, reader, satellites)
	if err != nil {
		return nil, err
	}
	var pods corev1.PodList
	if err := reader.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	var found []Bystander
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !selector.Matches(labels.Set(pod.Labels)) && cluster.Movable(pod) && usesOne(pod, claims) {
			found = append(found, Bystander{Pod: pod.Namespace + "/" + pod.Name, Node: pod.Spec.NodeName, Lost: lost[pod.Spec.NodeName]})
		}
	}
	slices.SortFunc(found, func(a, b Bystander) int { return strings.Compare(a.Pod, b.Pod) })
	return found, nil
}

// claimsOf returns the claims, as "namespace/name", whose volume is of a driver.
func claimsOf(ctx context.Context, reader client.Reader, driver string) (map[string]bool, error) {
	var volumes corev1.PersistentVolumeList
	if err := reader.List(ctx, &volumes); err != nil {
		return nil, fmt.Errorf("listing volumes: %w", err)
	}
	claims := map[string]bool{}
	for i := range volumes.Items {
		spec := &volumes.Items[i].Spec
		if spec.CSI != nil && spec.CSI.Driver == driver && spec.ClaimRef != nil {
			claims[spec.ClaimRef.Namespace+"/"+spec.ClaimRef.Name] = true
		}
	}
	return claims, nil
}

// lostNodes returns the nodes that are not ready in Kubernetes, or not ONLINE in LINSTOR, which notices a loss much sooner.
func lostNodes(ctx context.Context, reader client.Reader, satellites []linstor.Node) (map[string]bool, error) {
	offline := map[string]bool{}
	for _, s := range satellites {
		offline[s.Name] = s.Satellite && s.Online.Known && !s.Online.Value
	}
	var nodes corev1.NodeList
	if err := reader.List(ctx, &nodes); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	lost := map[string]bool{}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		unready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
		})
		lost[node.Name] = unready || offline[strings.ToLower(node.Name)]
	}
	return lost, nil
}

// usesOne tells whether a pod uses one of the claims.
func usesOne(pod *corev1.Pod, claims map[string]bool) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		switch {
		case v.PersistentVolumeClaim != nil:
			return claims[pod.Namespace+"/"+v.PersistentVolumeClaim.ClaimName]
		case v.Ephemeral != nil:
			return claims[pod.Namespace+"/"+pod.Name+"-"+v.Name]
		}
		return false
	})
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

// unselected tells of the pods that nothing moves because nobody has selected them.
func unselected(f Facts) []Finding {
	var lost, others, lostWhere, othersWhere []string
	for _, b := range f.Bystanders {
		if b.Lost {
			lost, lostWhere = append(lost, b.Pod), append(lostWhere, b.where())
		} else {
			others, othersWhere = append(others, b.Pod), append(othersWhere, b.where())
		}
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
