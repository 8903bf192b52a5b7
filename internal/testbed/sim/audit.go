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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/piraeusdatastore/piraeus-ha-controller/controllers"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

// reading is what one reconciliation has read of one resource, and the truth at that moment.
type reading struct {
	// at is when the list of replicas was asked for.
	at       time.Time
	resource linstor.Resource
	// silent is since when satellites have not been heard; frozen are those that LINSTOR takes for ONLINE all the same.
	silent map[string]time.Time
	frozen map[string]bool
	// truth is what DRBD knew when the reading ended, by node.
	truth map[string]drbd.Truth
}

// promotable tells whether the node had it closed and could have opened it.
func (r reading) promotable(node string) bool {
	truth := r.truth[node]
	return truth.MayPromote && !truth.Unnoticed && truth.Open == 0
}

// act is what one reconciliation has read so far.
type act struct {
	readings map[string]reading // by resource
	reasons  map[types.UID]failover.Reason
}

// acts keeps the acts of a process, by reconciliation.
type acts struct {
	mu  sync.Mutex
	all map[types.UID]*act
	// removable are the pods that were not to stay by a live list, and when the last one was asked for. One list may serve several acts.
	removable map[types.UID]time.Time
}

// listed notes that a live list had pods.
func (a *acts) listed(asked time.Time, pods []corev1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.removable == nil {
		a.removable = make(map[types.UID]time.Time)
	}
	for i := range pods {
		if !isSpared(&pods[i]) && !helpsExempt(&pods[i], pods) {
			a.removable[pods[i].UID] = asked
		}
	}
}

// actAge is how old a live list may be that a deletion rests on: it names the version of the pod that it has seen, and a slow API takes
// its time.
const actAge = 40 * time.Second

// factsAge is how old the facts may be that explain a needless restart, or a volume that was taken from under a pod that has just come.
const factsAge = 5 * time.Second

// stays reports whether a pod was to stay by each live list that a deletion may rest on.
func (a *acts) stays(uid types.UID) bool { return time.Since(a.removable[uid]) > actAge }

// helpsExempt tells whether a pod of the node is exempt of which this one is the helper.
func helpsExempt(helper *corev1.Pod, node []corev1.Pod) bool {
	return slices.ContainsFunc(node, func(pod corev1.Pod) bool {
		_, exempt := pod.Annotations[cluster.AnnotationIgnore]
		return exempt && metav1.IsControlledBy(helper, &pod)
	})
}

func (a *acts) of(ctx context.Context, f func(*act)) {
	id := controller.ReconcileIDFromContext(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil {
		a.all = make(map[types.UID]*act)
	}
	if a.all[id] == nil {
		a.all[id] = &act{readings: make(map[string]reading), reasons: make(map[types.UID]failover.Reason)}
	}
	f(a.all[id])
}

// witness is LINSTOR's word as the controllers hear it; it notes the truth behind every fresh reading.
type witness struct {
	memory
	process *process
}

var _ controllers.Feed = (*witness)(nil)

// Resource is what the controllers decide on.
func (l *witness) Resource(name string) (linstor.Resource, bool) {
	r, known := l.memory.Resource(name)
	l.process.hasDecided()
	return r, known
}

// Refresh is the reading that precedes a deletion.
func (l *witness) Refresh(ctx context.Context, name string, maxAge time.Duration) (linstor.Resource, error) {
	w := l.process.world
	r, err := l.memory.Refresh(ctx, name, maxAge)
	if err != nil {
		return r, err
	}
	w.mu.Lock()
	silent, frozen := maps.Clone(w.silent), w.oldWords()
	w.mu.Unlock()
	truth := w.DRBD.Inspect(name)
	l.process.acts.of(ctx, func(a *act) {
		a.readings[strings.ToLower(name)] = reading{r.Confirmed, r, silent, frozen, truth}
	})
	return r, nil
}

// reading returns what a process knows of a resource in an act: what the act has read, or what a poll has since. How old that is does not count,
// but what it leads to.
func (p *process) reading(a *act, resource string) reading {
	r, ok := a.readings[strings.ToLower(resource)]
	if ok && time.Since(r.at) <= failover.ActAge {
		return r
	}
	w := p.world
	again, known := p.store.Resource(resource)
	if !ok {
		w.mu.Lock()
		r.silent, r.frozen = maps.Clone(w.silent), w.oldWords()
		w.mu.Unlock()
		r.truth = w.DRBD.Inspect(resource)
	}
	if known || !ok {
		r.at, r.resource = again.Confirmed, again
	}
	return r
}

// basis is what a deletion rests on, as it is when the request is sent: the API may take its time.
type basis struct {
	readings map[string]reading // by resource
	reason   failover.Reason
	// writes are the resources that the node can write, and healthy those that it could write during all of the last moments.
	writes, healthy map[string]bool
	// spared is set if the pod was to stay by each live list of the last moments.
	spared bool
	// keptBy is a pod that is to stay and uses a volume of the pod, too.
	keptBy string
	// lost and well are how many nodes must be taken for lost, and how many may be taken for well.
	lost, well int
}

// basis returns what the act rests on that ctx belongs to.
func (p *process) basis(ctx context.Context, node string, volumes []Volume, pod *corev1.Pod) basis {
	b := basis{readings: make(map[string]reading), writes: make(map[string]bool), healthy: make(map[string]bool)}
	p.world.watchSatellites()
	b.lost, b.well = p.world.lostNodes()
	p.acts.of(ctx, func(a *act) {
		for _, v := range volumes {
			at := place{v.Resource(), node}
			b.readings[at.what] = p.reading(a, at.what)
			b.writes[at.what], b.healthy[at.what] = p.world.writesNow(at), p.world.hasWritten(at)
		}
		if pod == nil {
			return
		}
		b.reason = a.reasons[pod.UID]
		b.spared = p.acts.stays(pod.UID)
	})
	if pod != nil && b.reason == "" { // what is begun is repeated by the mark
		p.world.mu.Lock()
		b.reason = p.world.marks[pod.UID]
		p.world.mu.Unlock()
	}
	if pod != nil {
		b.keptBy = p.world.keptBy(pod, func(uid types.UID) bool {
			p.acts.mu.Lock()
			defer p.acts.mu.Unlock()
			return p.acts.stays(uid)
		})
	}
	return b
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

// send lets a write wait while the process is frozen, and what waits for that write happen. What is late by then is not sent.
func (p *process) send(ctx context.Context, verb string, o client.Object) error {
	p.world.auditWrite(o)
	return p.sendAnyway(ctx, verb, o)
}

func (p *process) sendAnyway(ctx context.Context, verb string, o client.Object) error {
	p.sends(ctx, o)
	if err := p.freezer.wait(ctx); err != nil {
		return err
	}
	_, kind, _ := strings.Cut(fmt.Sprintf("%T", o), ".")
	p.world.changesNow(verb+" "+kind, o)
	return nil
}

func (c *auditedClient) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if key == deployment {
		defer c.process.decides(ctx)
	}
	if err := c.process.freezer.wait(ctx); err != nil {
		return err
	}
	if err := c.Client.Get(ctx, key, o, opts...); err != nil {
		return err
	}
	return c.process.freezer.wait(ctx)
}

func (c *auditedClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := c.process.freezer.wait(ctx); err != nil {
		return err
	}
	asked := time.Now()
	if err := c.Client.List(ctx, list, opts...); err != nil {
		return err
	}
	if pods, ok := list.(*corev1.PodList); ok {
		c.process.acts.listed(asked, pods.Items)
	}
	return c.process.freezer.wait(ctx)
}

func (c *auditedClient) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
	w := c.process.world
	if err := c.process.send(ctx, "patch", o); err != nil {
		return err
	}
	if va, ok := o.(*storagev1.VolumeAttachment); ok {
		data, err := patch.Data(va)
		w.must(err)
		c.noteReason(ctx, data)
	}
	defer c.process.decides(ctx)
	return c.Client.Patch(ctx, o, patch, opts...)
}

// noteReason notes the reason in the mark of an attachment for each of its pods.
func (c *auditedClient) noteReason(ctx context.Context, patch []byte) {
	var content metav1.PartialObjectMetadata
	c.process.world.must(json.Unmarshal(patch, &content))
	text := content.Annotations[cluster.AnnotationFailOver]
	if text == "" {
		return // a mark is taken off
	}
	var mark struct {
		Pods   []types.UID     `json:"pods"`
		Reason failover.Reason `json:"reason"`
	}
	c.process.world.must(json.Unmarshal([]byte(text), &mark))
	c.process.acts.of(ctx, func(a *act) {
		for _, uid := range mark.Pods {
			a.reasons[uid] = mark.Reason
		}
	})
	w := c.process.world
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, uid := range mark.Pods {
		w.marks[uid] = mark.Reason
	}
}

func (c *auditedClient) Status() client.SubResourceWriter {
	return &auditedStatus{SubResourceWriter: c.Client.Status(), process: c.process}
}

func (c *auditedClient) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	w := c.process.world
	if err := c.process.send(ctx, "delete", o); err != nil {
		return err
	}
	w.auditPlannedDeletion(ctx, o)
	options := new(client.DeleteOptions).ApplyOptions(opts)
	switch o := o.(type) {
	case *corev1.Pod:
		var pod corev1.Pod
		if err := w.oracle.Get(ctx, client.ObjectKeyFromObject(o), &pod); err != nil {
			return c.Client.Delete(ctx, o, opts...)
		}
		basis := c.process.basis(ctx, home(&pod), w.volumesOf(&pod), &pod)
		silence := w.silentFor(home(&pod)) // when the request was sent, however long it is under way
		err := c.Client.Delete(ctx, o, opts...)
		switch {
		case err != nil:
		case pod.Labels[componentLabel] != "":
			w.auditRecovery(&pod, silence, options)
		default:
			w.auditRemoval(basis, o.GetUID(), &pod, silence, options)
		}
		return err
	case *storagev1.VolumeAttachment:
		var va storagev1.VolumeAttachment
		if err := w.oracle.Get(ctx, client.ObjectKeyFromObject(o), &va); err != nil {
			return c.Client.Delete(ctx, o, opts...)
		}
		v := w.volumeNamed(*va.Spec.Source.PersistentVolumeName)
		users, basis := w.users(ctx, va.Spec.NodeName, v.Handle), c.process.basis(ctx, w.Satellite(va.Spec.NodeName), []Volume{v}, nil)
		err := c.Client.Delete(ctx, o, opts...)
		if err == nil {
			w.count("attachment deleted")
			w.auditDetach(basis, v, &va, users)
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
	send := s.process.send
	if w.isCondition(ctx, o) {
		send = s.process.sendAnyway
	}
	if err := send(ctx, "patch", o); err != nil {
		return err
	}
	data, err := patch.Data(o)
	w.must(err)
	if patch.Type() == types.JSONPatchType {
		return s.release(ctx, o, patch, data, opts...)
	}
	var content struct {
		Status struct {
			Conditions []corev1.PodCondition `json:"conditions"`
		} `json:"status"`
	}
	w.must(json.Unmarshal(data, &content))
	for _, condition := range content.Status.Conditions {
		s.process.acts.of(ctx, func(a *act) { a.reasons[o.GetUID()] = failover.Reason(condition.Reason) })
	}
	defer s.process.decides(ctx)
	return s.SubResourceWriter.Patch(ctx, o, patch, opts...)
}

// release audits the patch of a node's volumes in use.
func (s *auditedStatus) release(
	ctx context.Context, o client.Object, patch client.Patch, data []byte, opts ...client.SubResourcePatchOption,
) error {
	w := s.process.world
	var operations []struct {
		Op, Path string
		Value    json.RawMessage
	}
	w.must(json.Unmarshal(data, &operations))
	var left []corev1.UniqueVolumeName
	for _, operation := range operations {
		if operation.Op == "replace" && operation.Path == "/status/volumesInUse" {
			w.must(json.Unmarshal(operation.Value, &left))
		}
	}
	var node corev1.Node
	w.must(w.oracle.Get(ctx, client.ObjectKeyFromObject(o), &node))
	var released []string
	var inUse []user
	for _, name := range node.Status.VolumesInUse {
		if !slices.Contains(left, name) {
			released = append(released, string(name))
			inUse = append(inUse, w.usersOfHandle(ctx, o.GetName(), string(name))...)
		}
	}
	defer s.process.decides(ctx)
	err := s.SubResourceWriter.Patch(ctx, o, patch, opts...)
	if err == nil {
		w.auditRelease(o.GetName(), released, inUse)
	}
	return err
}
