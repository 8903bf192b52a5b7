package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/piraeusdatastore/piraeus-ha-controller/controllers"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// The invariants, by the names under which they are reported.
const (
	// ruleWritable: no pod is force-deleted whose node could still commit a write to one of its volumes at the fresh
	// read that precedes the deletion.
	ruleWritable = "a pod was deleted by force although its node could still write"
	// ruleHarmless: none is deleted at all unless its node can no longer write one of its volumes.
	ruleHarmless = "a pod was deleted although its node could still write all its volumes"
	// ruleSelected: none is deleted that was not selected, or is exempt.
	ruleSelected = "a pod was deleted that must not be"
	// ruleIdentity: none is deleted whose UID was not the one decided on.
	ruleIdentity = "a pod was deleted that was not the one decided on"
	// ruleDemoted: a pod removed as Demoted did not have its volume open for the whole grace.
	ruleDemoted = "a pod was deleted as Demoted although its volume was open a while ago"
	// ruleFresh: what precedes a deletion is read at most 2 s before.
	ruleFresh = "something was deleted without a fresh read"
	// ruleUnknown: nothing is done on an unknown alone.
	ruleUnknown = "something was done without positive evidence"
	// ruleInUse: no attachment is deleted or released while a pod on its node uses the volume.
	ruleInUse = "a volume was taken from a node under a pod"
	// ruleForeign: nothing of another driver or node is touched.
	ruleForeign = "something was touched that is none of the controller's business"
	// ruleDryRun: a dry run writes nothing.
	ruleDryRun = "a dry run wrote something"
	// ruleTwoPrimaries: fail-over never lets two nodes write.
	ruleTwoPrimaries = "two nodes can write the same volume"
)

// actorOracle is the name under which the oracle reads the API.
const actorOracle = "oracle"

// excuse is how long ago every witness's satellite may have been cut off for its old word to be no fault: LINSTOR
// takes 5 to 7 s to find out.
const excuse = 7 * time.Second

// reading is what one reconciliation has read of one resource, and the truth at that moment.
type reading struct {
	// at is when the list of replicas was asked for.
	at       time.Time
	resource linstor.Resource
	// writable are the nodes that could write both when the reading began and when it ended.
	writable map[string]bool
	// promotable are the nodes that had it closed and could have opened it.
	promotable map[string]bool
	// silent is since when satellites have not been heard; frozen are those that LINSTOR takes for ONLINE all the same.
	silent map[string]time.Time
	frozen map[string]bool
	// unnoticed are the nodes whose DRBD takes a connection for alive that is dead.
	unnoticed map[string]bool
}

// act is what one reconciliation has read so far.
type act struct {
	readings map[string]reading // by resource
	pods     map[types.UID]bool // seen by a live list
	reasons  map[types.UID]failover.Reason
}

// acts keeps the acts of a process, by reconciliation.
type acts struct {
	mu  sync.Mutex
	all map[types.UID]*act
}

func (a *acts) of(ctx context.Context, f func(*act)) {
	id := controller.ReconcileIDFromContext(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil {
		a.all = make(map[types.UID]*act)
	}
	if a.all[id] == nil {
		a.all[id] = &act{
			readings: make(map[string]reading), pods: make(map[types.UID]bool), reasons: make(map[types.UID]failover.Reason),
		}
	}
	f(a.all[id])
}

// witness is LINSTOR's word as the controllers hear it; it notes the truth behind every fresh reading.
type witness struct {
	memory
	process *process
}

var _ controllers.Linstor = (*witness)(nil)

// Refresh is the reading that precedes a deletion.
func (l *witness) Refresh(ctx context.Context, name string) (linstor.Resource, error) {
	w := l.process.world
	before := w.writers(name)
	r, err := l.memory.Refresh(ctx, name)
	if err != nil {
		return r, err
	}
	after := w.writers(name)
	writable := make(map[string]bool)
	for node := range before {
		writable[node] = after[node]
	}
	w.mu.Lock()
	silent, frozen := maps.Clone(w.silent), maps.Clone(w.frozen)
	w.mu.Unlock()
	promotable, unnoticed := make(map[string]bool), make(map[string]bool)
	for node, truth := range w.DRBD.Inspect(name) {
		unnoticed[node] = truth.Unnoticed
		promotable[node] = truth.MayPromote && !truth.Unnoticed && truth.Open == 0
	}
	l.process.acts.of(ctx, func(a *act) {
		a.readings[strings.ToLower(name)] = reading{r.Confirmed, r, writable, promotable, silent, frozen, unnoticed}
	})
	return r, nil
}

// reading returns what an act has read of a resource, and whether that is fresh. A poll may have read it again since.
func (p *process) reading(a *act, resource string) (reading, bool) {
	r, ok := a.readings[strings.ToLower(resource)]
	if !ok {
		return r, false
	}
	if again, known := p.store.Resource(resource); known && time.Since(r.at) > failover.MaxAge {
		r.at, r.resource = again.Confirmed, again
		now := p.world.writers(resource)
		maps.DeleteFunc(r.writable, func(node string, _ bool) bool { return !now[node] })
	}
	return r, time.Since(r.at) <= failover.MaxAge
}

// writers returns the nodes that can write a resource now.
func (w *world) writers(resource string) map[string]bool {
	nodes := make(map[string]bool)
	for _, node := range w.history.World.Nodes {
		if w.DRBD.CanWrite(resource, node) {
			nodes[node] = true
		}
	}
	return nodes
}

// auditedClient is the API as the controllers write to it. Each write is held against the invariants.
type auditedClient struct {
	client.Client
	process *process
}

func (c *auditedClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := c.Client.List(ctx, list, opts...); err != nil {
		return err
	}
	if pods, ok := list.(*corev1.PodList); ok {
		c.process.acts.of(ctx, func(a *act) {
			for i := range pods.Items {
				a.pods[pods.Items[i].UID] = true
			}
		})
	}
	return nil
}

func (c *auditedClient) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
	c.process.world.auditWrite(o)
	return c.Client.Patch(ctx, o, patch, opts...)
}

func (c *auditedClient) Status() client.SubResourceWriter {
	return &auditedStatus{SubResourceWriter: c.Client.Status(), process: c.process}
}

func (c *auditedClient) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	w := c.process.world
	w.auditWrite(o)
	options := new(client.DeleteOptions).ApplyOptions(opts)
	switch o := o.(type) {
	case *corev1.Pod:
		var pod corev1.Pod
		if err := w.oracle.Get(ctx, client.ObjectKeyFromObject(o), &pod); err != nil {
			return c.Client.Delete(ctx, o, opts...)
		}
		err := c.Client.Delete(ctx, o, opts...)
		if err == nil {
			c.process.acts.of(ctx, func(a *act) { w.auditRemoval(c.process, a, &pod, options) })
		}
		return err
	case *storagev1.VolumeAttachment:
		var va storagev1.VolumeAttachment
		if err := w.oracle.Get(ctx, client.ObjectKeyFromObject(o), &va); err != nil {
			return c.Client.Delete(ctx, o, opts...)
		}
		users := w.users(ctx, va.Spec.NodeName, *va.Spec.Source.PersistentVolumeName)
		err := c.Client.Delete(ctx, o, opts...)
		if err == nil {
			w.count("attachment deleted")
			c.process.acts.of(ctx, func(a *act) { w.auditDetach(c.process, a, &va, users) })
		}
		return err
	}
	w.violated(ruleForeign, "%T %s was deleted", o, o.GetName())
	return c.Client.Delete(ctx, o, opts...)
}

// auditedStatus is the status of the API's objects as the controllers write it.
type auditedStatus struct {
	client.SubResourceWriter
	process *process
}

func (s *auditedStatus) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	w := s.process.world
	w.auditWrite(o)
	data, err := patch.Data(o)
	w.must(err)
	var content struct {
		Status struct {
			Conditions   []corev1.PodCondition     `json:"conditions"`
			VolumesInUse []corev1.UniqueVolumeName `json:"volumesInUse"`
		} `json:"status"`
	}
	w.must(json.Unmarshal(data, &content))
	switch o := o.(type) {
	case *corev1.Pod:
		for _, condition := range content.Status.Conditions {
			s.process.acts.of(ctx, func(a *act) { a.reasons[o.UID] = failover.Reason(condition.Reason) })
		}
	case *corev1.Node:
		var node corev1.Node
		w.must(w.oracle.Get(ctx, client.ObjectKeyFromObject(o), &node))
		var released []string
		var inUse []string
		for _, name := range node.Status.VolumesInUse {
			if slices.Contains(content.Status.VolumesInUse, name) {
				continue
			}
			released = append(released, string(name))
			inUse = append(inUse, w.usersOfHandle(ctx, o.Name, string(name))...)
		}
		err := s.SubResourceWriter.Patch(ctx, o, patch, opts...)
		if err == nil {
			w.auditRelease(o.Name, released, inUse)
		}
		return err
	}
	return s.SubResourceWriter.Patch(ctx, o, patch, opts...)
}

// auditWrite: a dry run writes nothing.
func (w *world) auditWrite(o client.Object) {
	if w.history.World.DryRun {
		w.violated(ruleDryRun, "%T %s", o, o.GetName())
	}
}

// volumesOf returns the volumes behind a pod's claims.
func (w *world) volumesOf(pod *corev1.Pod) []Volume {
	var volumes []Volume
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			volumes = append(volumes, w.volume(strings.TrimPrefix(v.PersistentVolumeClaim.ClaimName, "data-")))
		}
	}
	return volumes
}

// auditRemoval holds the deletion of a pod against the invariants.
func (w *world) auditRemoval(p *process, a *act, pod *corev1.Pod, options *client.DeleteOptions) {
	node, reason := pod.Spec.NodeName, a.reasons[pod.UID]
	forced := options.GracePeriodSeconds != nil && *options.GracePeriodSeconds == 0
	what := fmt.Sprintf("pod %s on %s (%s, by force: %t)", pod.Name, node, reason, forced)
	w.count(fmt.Sprintf("removed: %s", reason))
	w.count(fmt.Sprintf("removed by force: %t", forced))

	if uid := options.Preconditions; uid == nil || uid.UID == nil || !a.pods[*uid.UID] {
		w.violated(ruleIdentity, "%s: its UID was not among those read", what)
	}
	spec, known := w.workload(pod.Name)
	if pod.Labels[selectedLabel] != "remove" || known && (spec.Exempt || spec.Unsafe || spec.Owner != "") {
		w.violated(ruleSelected, "%s", what)
	}
	var writable []string
	lost, excused, evidence, open := false, true, false, time.Duration(0)
	for _, v := range w.volumesOf(pod) {
		if v.Kind == NFSExport {
			continue
		}
		r, ok := p.reading(a, v.Resource())
		if !ok {
			w.violated(ruleFresh, "%s: resource %s was read at %s", what, v.Resource(), r.at.Sub(w.started)-settling)
			continue
		}
		if r.writable[node] {
			writable = append(writable, v.Resource())
			excused = excused && r.excused(node)
		} else if reason == failover.Demoted || !r.promotable[node] {
			lost = true
		}
		evidence = evidence || w.positive(r, node)
		open = max(open, w.closedFor(v.Resource(), node))
	}
	if !lost {
		w.breach(ruleHarmless, what, writable, excused)
	} else if forced && len(writable) > 0 {
		w.breach(ruleWritable, what, writable, excused)
	}
	if !evidence {
		w.violated(ruleUnknown, "%s", what)
	}
	if reason == failover.Demoted && open < grace.KnownGrace && !w.switchedOff(node) {
		w.violated(ruleDemoted, "%s: closed for %s", what, open)
	}
}

// breach reports what is only excused while every witness's word may have been old without LINSTOR's knowing.
func (w *world) breach(rule, what string, writable []string, excused bool) {
	if excused {
		w.count("excused: " + rule)
		w.note(fmt.Sprintf("EXCUSED %s: %s can write %v", rule, what, writable))
		return
	}
	w.violated(rule, "%s can write %v", what, writable)
}

// excused tells whether no witness that was asked could tell the truth: its satellite had been cut off a moment before,
// or LINSTOR wrongly takes it for ONLINE, or its DRBD has not noticed yet that a connection is gone.
func (r reading) excused(node string) bool {
	for _, replica := range r.resource.Replicas {
		connection, ok := replica.Connections[node]
		if replica.Node == node || !ok || !connection.Known || !replica.Online.Known || !replica.Online.Value {
			continue
		}
		since, silent := r.silent[replica.Node]
		if old := silent && (r.at.Sub(since) < excuse || r.frozen[replica.Node]); !old && !r.unnoticed[replica.Node] {
			return false
		}
	}
	return true
}

// positive tells whether LINSTOR's answer has a survivor and says something about the node, or the kubelet has
// been silent.
func (w *world) positive(r reading, node string) bool {
	survivor, about := false, true
	for _, replica := range r.resource.Replicas {
		if replica.Node == node {
			// A replica is there: something must be known of it, by itself or by others.
			about = about && replica.Score.Known
			continue
		}
		online := replica.Online.Known && replica.Online.Value
		survivor = survivor || online && replica.MayPromote.Known && replica.MayPromote.Value
	}
	for _, replica := range r.resource.Replicas {
		connection, ok := replica.Connections[node]
		about = about || replica.Node != node && ok && connection.Known && !connection.Value
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return survivor && (about || time.Since(w.renewed[node]) >= grace.KubeletSilence)
}

// switchedOff tells whether somebody has said that the node was switched off: then there is no grace.
func (w *world) switchedOff(name string) bool {
	var node corev1.Node
	w.must(w.oracle.Get(w.ctx, client.ObjectKey{Name: name}, &node))
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == shutdownTaint })
}

// closedFor is how long a resource has not been open for writing on a node.
func (w *world) closedFor(resource, node string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	since, ok := w.closed[place{resource, node}]
	if !ok || since.IsZero() {
		return 0
	}
	return time.Since(since)
}

func (w *world) workload(name string) (Workload, bool) {
	for _, p := range w.history.World.Workloads {
		if p.Name == name {
			return p, true
		}
	}
	return Workload{}, false
}

// users returns the pods on a node that use a volume.
func (w *world) users(ctx context.Context, node, volume string) []string {
	var pods corev1.PodList
	w.must(w.oracle.List(context.WithoutCancel(ctx), &pods, client.MatchingFields{"spec.nodeName": node}))
	var names []string
	for i := range pods.Items {
		for _, v := range w.volumesOf(&pods.Items[i]) {
			if v.Name == volume {
				names = append(names, pods.Items[i].Name)
			}
		}
	}
	return names
}

func (w *world) usersOfHandle(ctx context.Context, node, unique string) []string {
	for _, v := range w.history.World.Volumes {
		if unique == "kubernetes.io/csi/"+virtual.Driver+"^"+v.Handle {
			return w.users(ctx, node, v.Name)
		}
	}
	w.violated(ruleForeign, "%s was released from %s", unique, node)
	return nil
}

// auditRelease holds it against the invariants that a volume was taken out of a node's list.
func (w *world) auditRelease(node string, released, users []string) {
	w.count("volumes released")
	if len(users) > 0 {
		w.violated(ruleInUse, "%v were released from %s under %v", released, node, users)
	}
}

// auditDetach holds the deletion of an attachment against the invariants.
func (w *world) auditDetach(p *process, a *act, va *storagev1.VolumeAttachment, users []string) {
	node, name := va.Spec.NodeName, *va.Spec.Source.PersistentVolumeName
	if va.Spec.Attacher != virtual.Driver {
		w.violated(ruleForeign, "attachment %s of %s was deleted", va.Name, va.Spec.Attacher)
		return
	}
	if len(users) > 0 {
		w.violated(ruleInUse, "attachment %s was deleted under %v", va.Name, users)
	}
	v := w.volume(name)
	r, ok := p.reading(a, v.Resource())
	if !ok {
		w.violated(ruleFresh, "attachment %s", va.Name)
		return
	}
	if r.writable[node] && v.Kind != NFSExport && !w.usedByOther(v, node) {
		w.breach(ruleForeign, "attachment "+va.Name, []string{v.Resource()}, r.excused(node))
	}
	if !w.positive(r, node) {
		w.violated(ruleUnknown, "attachment %s was deleted", va.Name)
	}
}

// usedByOther tells whether another volume of the same resource is used on the node: DRBD has one role for all.
func (w *world) usedByOther(v Volume, node string) bool {
	for _, other := range w.history.World.Volumes {
		if other.Name != v.Name && other.Resource() == v.Resource() && len(w.users(w.ctx, node, other.Name)) > 0 {
			return true
		}
	}
	return false
}
