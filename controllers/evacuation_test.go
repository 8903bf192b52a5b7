package controllers

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// evacuating is a world whose calls to LINSTOR are noted.
type evacuating struct {
	*world

	// next is a process that does not lead yet.
	next *process

	mu    sync.Mutex
	calls []string // "autoplace pvc-db", without what the test itself has called
}

// evacuationIn says where a story takes place.
type evacuationIn struct {
	// nodes are those beside A, B and T; none means C.
	nodes []string
	// balancing lets LINSTOR balance every minute what is older than that, from an hour after the beginning on.
	balancing bool
}

// inEvacuation runs a story in a world with a fourth node, C, whose DRBD syncs 100 MiB/s, a leading controller, and nothing else.
func inEvacuation(t *testing.T, cfg Config, story func(*evacuating, *process)) {
	t.Helper()
	inEvacuationOf(t, evacuationIn{nodes: []string{nodeC}}, cfg, story)
}

// inEvacuationOf is inEvacuation in another world.
func inEvacuationOf(t *testing.T, in evacuationIn, cfg Config, story func(*evacuating, *process)) {
	t.Helper()
	options := virtual.Options{
		Placed: true, DRBD: drbd.Options{SyncRate: 100 << 10}, Linstor: linstorsim.Options{TieBreakers: true, Balancing: in.balancing},
	}
	inWorld(t, options, func(w *world) {
		e := &evacuating{world: w}
		for _, node := range in.nodes {
			w.must(w.AddNode(w.ctx, node))
		}
		if in.balancing {
			w.Linstor.SetControllerProperty(linstorsim.PropBalanceInterval, "60")
			w.Linstor.SetControllerProperty(linstorsim.PropBalanceGracePeriod, "60")
		}
		w.Linstor.Intercept(e.note)
		p := w.startProcess("one", cfg)
		e.next = w.startProcess("two", cfg)
		p.leads()
		story(e, p)
	})
}

// note notes what LINSTOR is told by the controller, and lets it through. LINSTOR takes a millisecond for what it is asked: an answer of the moment in which
// something changes would be older than the change.
func (e *evacuating) note(_ http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodGet && !strings.HasPrefix(r.URL.Path, "/v1/events") {
		select {
		case <-time.After(time.Millisecond):
		case <-r.Context().Done():
		case <-e.ctx.Done():
		}
	}
	if r.Method == http.MethodGet || !strings.HasPrefix(r.UserAgent(), "piraeus-ha-controller") {
		return false
	}
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/") // v1, nodes, name, evacuate
	call := "properties"
	switch {
	case len(path) > 3:
		call = path[3]
	case path[1] == "nodes":
		call = "node"
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls = append(e.calls, call+" "+path[2])
	return false
}

// told returns how often LINSTOR was told something, of that node or resource or, without, of any.
func (e *evacuating) told(call evacuation.Call, of string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for _, c := range e.calls {
		if name, ok := strings.CutPrefix(c, string(call)+" "); ok && (of == "" || name == of) {
			n++
		}
	}
	return n
}

// taint taints a node with that value.
func (e *evacuating) taint(node, value string) {
	e.Helper()
	e.editNode(node, func(n *corev1.Node) {
		n.Spec.Taints = append(withoutEvacuate(n.Spec.Taints), corev1.Taint{Key: evacuation.TaintKey, Value: value, Effect: corev1.TaintEffectNoSchedule})
	})
}

func (e *evacuating) untaint(node string) {
	e.Helper()
	e.editNode(node, func(n *corev1.Node) { n.Spec.Taints = withoutEvacuate(n.Spec.Taints) })
}

func withoutEvacuate(taints []corev1.Taint) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(taints), func(t corev1.Taint) bool { return t.Key == evacuation.TaintKey })
}

func (e *evacuating) editNode(name string, change func(*corev1.Node)) {
	e.Helper()
	node := e.node(name)
	before := node.DeepCopy()
	change(node)
	e.must(e.Client().Patch(e.ctx, node, client.MergeFrom(before)))
}

// says is a condition of a node as "status reason"; empty where it has none.
func (e *evacuating) says(node string, kind corev1.NodeConditionType) string {
	e.Helper()
	conditions := cluster.EvacuationConditions(e.node(node))
	c := conditions.Safe
	if kind == evacuation.StorageEvacuated {
		c = conditions.Evacuated
	}
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + string(c.Reason)
}

// safe waits until the node may be drained.
func (e *evacuating) safe(node string, within time.Duration) time.Duration {
	e.Helper()
	return e.until(within, node+" is safe", func() bool { return e.says(node, evacuation.StorageSafe) == "True CopiedElsewhere" })
}

// gone waits until everything has left.
func (e *evacuating) gone(node string, within time.Duration) time.Duration {
	e.Helper()
	return e.until(within, node+" has left", func() bool { return e.says(node, evacuation.StorageEvacuated) == "True NothingLeft" })
}

// returned waits until nothing of an evacuation is left on the node and of resource definitions, but the marks of other nodes, as "pvc-db: node-b".
func (e *evacuating) returned(node string, others ...string) {
	e.Helper()
	e.until(time.Minute, "nothing is left of the evacuation of "+node, func() bool {
		n := e.node(node)
		_, noted := n.Annotations[cluster.AnnotationEvacuation]
		return !noted && !cluster.IsEvacuated(n)
	})
	for _, resource := range []string{"pvc-local", "pvc-db"} {
		props := e.props(resource)
		if mark := props[evacuation.PropMark]; slices.Contains(others, resource+": "+mark) {
			continue
		}
		if props[evacuation.PropMark] != "" || props[evacuation.PropBalance] != "" {
			e.Errorf("%s has still %v", resource, props)
		}
	}
	if flags := e.flags(node); slices.Contains(flags, "EVACUATE") {
		e.Errorf("%s is still flagged %v", node, flags)
	}
}

// drained drains a node and waits until all of its pods have gone.
func (e *evacuating) drained(node string) {
	e.Helper()
	drain := e.Drain(e.ctx, node)
	e.until(2*time.Minute, node+" is drained", func() bool {
		done, err := drain.Done()
		e.must(err)
		return done
	})
}

// props are the properties of a resource definition.
func (e *evacuating) props(resource string) map[string]string {
	e.Helper()
	var d struct {
		Props map[string]string `json:"props"`
	}
	e.ask("/v1/resource-definitions/"+resource, &d)
	if mark := d.Props[evacuation.PropMark]; mark != "" {
		d.Props[evacuation.PropMark] = strings.ReplaceAll(mark, evacuation.Entry("", e.clusterID()), "")
	}
	return d.Props
}

// clusterID is the UID of the namespace kube-system.
func (e *evacuating) clusterID() string {
	e.Helper()
	var system corev1.Namespace
	e.must(e.Client().Get(e.ctx, client.ObjectKey{Name: "kube-system"}, &system))
	return string(system.UID)
}

// flags are the flags of a node in LINSTOR.
func (e *evacuating) flags(node string) []string {
	e.Helper()
	var n struct {
		Flags []string `json:"flags"`
	}
	e.ask("/v1/nodes/"+node, &n)
	return n.Flags
}

// ask asks LINSTOR; what there is not stays empty.
func (e *evacuating) ask(path string, answer any) {
	e.Helper()
	recorder := httptest.NewRecorder()
	e.Linstor.ServeHTTP(recorder, httptest.NewRequestWithContext(e.ctx, http.MethodGet, path, nil))
	if recorder.Code == http.StatusNotFound {
		return
	}
	e.must(json.Unmarshal(recorder.Body.Bytes(), answer))
}
