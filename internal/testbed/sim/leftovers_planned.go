package sim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

// object is an object of LINSTOR, as far as an evacuation leaves something there.
type object struct {
	Name     string            `json:"name"`
	NodeName string            `json:"node_name"`
	Flags    []string          `json:"flags"`
	Props    map[string]string `json:"props"`
}

// lists are what LINSTOR lists at a path.
func (w *world) lists(path string) (objects []object) {
	request, err := http.NewRequestWithContext(w.ctx, http.MethodGet, "http://linstor:3370"+path, http.NoBody)
	w.must(err)
	answer := httptest.NewRecorder()
	w.Linstor.ServeHTTP(answer, request)
	if answer.Code != http.StatusOK {
		return nil
	}
	w.must(json.Unmarshal(answer.Body.Bytes(), &objects))
	return objects
}

// flagged are the nodes that LINSTOR has flagged EVACUATE.
func (w *world) flagged() (names []string) {
	for _, node := range w.lists("/v1/nodes") {
		if slices.Contains(node.Flags, linstorsim.FlagEvacuate) {
			names = append(names, node.Name)
		}
	}
	return names
}

// plannedLeftovers tells what is left of evacuations: conditions, annotations, flags and properties of ours.
func (w *world) plannedLeftovers(nodes []corev1.Node) (left []string) {
	if !w.history.World.Planned.Is {
		return nil
	}
	add := func(format string, args ...any) { left = append(left, fmt.Sprintf(format, args...)) }
	for i := range nodes {
		if cluster.IsEvacuated(&nodes[i]) {
			add("node %s has %v, %s", nodes[i].Name, nodes[i].Status.Conditions, nodes[i].Annotations[cluster.AnnotationEvacuation])
		}
	}
	w.leftFlags(add)
	for _, d := range w.lists("/v1/resource-definitions") {
		mark, marked := d.Props[evacuation.PropMark]
		balance := d.Props[evacuation.PropBalance]
		if marked || balance != w.balanceOf(d.Name) {
			if w.restored {
				w.excuse(ExcuseDatabase, "definition %s", d.Name)
				continue
			}
			if w.belated[d.Name] {
				w.excuse(ExcuseBelated, "definition %s", d.Name)
				continue
			}
			add("definition %s is marked %q, its balancing is %q and was %q", d.Name, mark, balance, w.balanceOf(d.Name))
		}
	}
	return left
}

// balanceOf is what a person has set of a resource's balancing.
func (w *world) balanceOf(resource string) string {
	for name, value := range w.history.World.Planned.Balances {
		if strings.EqualFold(w.resource(name), resource) {
			return value
		}
	}
	return ""
}

// leftFlags adds the nodes and replicas that LINSTOR still moves things away from. Where somebody has given it an old database, a flag may have
// come back that the controller had taken away, and of which nothing tells that it was the controller's.
func (w *world) leftFlags(add func(format string, args ...any)) {
	nodes := w.flagged()
	if w.restored && len(nodes) > 0 {
		w.excuse(ExcuseDatabase, "nodes %v", nodes)
		return
	}
	for _, node := range nodes {
		add("node %s is flagged in LINSTOR", node)
	}
	for _, r := range w.lists("/v1/view/resources") {
		if slices.Contains(r.Flags, linstorsim.FlagEvacuate) {
			add("resource %s on %s is flagged in LINSTOR", r.Name, r.NodeName)
		}
	}
}
