package apimodel

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Verb says what a request does.
type Verb string

// The verbs of requests. Requests for a subresource have the verb of the main resource.
const (
	VerbGet    Verb = "get"
	VerbList   Verb = "list"
	VerbCreate Verb = "create"
	VerbUpdate Verb = "update"
	VerbPatch  Verb = "patch"
	VerbDelete Verb = "delete"
)

// Request is a request to the API, as a fault sees it.
type Request struct {
	// Actor is the name of the client.
	Actor string
	// Verb says what it does.
	Verb Verb
	// Kind is the object's kind, such as "Pod"; of a list it is that of the items.
	Kind string
	// Namespace and Name name the object; both are empty for lists of everything.
	Namespace, Name string
	// Node is the node whose pods a list asks for; empty for any other request.
	Node string
	// Status is set for requests to the status subresource.
	Status bool
	// Eviction is set for the creation of a pod's eviction. The Kind is that of the pod.
	Eviction bool
}

// Change is one write that happened.
type Change struct {
	Request
	// Time is when it happened.
	Time time.Time
	// Old and New are the object before and after; nil where there was or is none. Both must not be changed.
	Old, New client.Object
	// GracePeriodSeconds is the grace that a deletion asked for; nil when it left that to the API.
	GracePeriodSeconds *int64
}

// Model is the API. It is safe for concurrent use.
type Model struct {
	store   client.WithWatch
	tracker clienttesting.ObjectTracker

	// writing is held during each write, so that its preconditions hold until it is done.
	writing sync.Mutex
	uids    int

	mu         sync.Mutex
	fault      func(Request) error
	delay      func(Request) time.Duration
	cutOff     func(Request) bool
	listeners  []*func(Change)
	changes    []Change
	delivering bool
	ahead      time.Duration
}

// New returns an API without objects.
func New() *Model {
	codecs := serializer.NewCodecFactory(scheme.Scheme)
	m := &Model{tracker: clienttesting.NewObjectTracker(scheme.Scheme, codecs.UniversalDecoder())}
	m.store = fake.NewClientBuilder().
		WithScheme(scheme.Scheme).
		WithObjectTracker(m.tracker).
		WithGlobalResourceVersionCounter().
		Build()
	return m
}

// Client returns a client that reads and writes the API itself, past every cache. Its changes carry the
// actor's name. Lists can be selected by label and, for pods, by the field spec.nodeName.
func (m *Model) Client(actor string) client.Client {
	w := writer{m, actor}
	return interceptor.NewClient(m.store, interceptor.Funcs{
		Get:    w.get,
		List:   w.list,
		Create: w.create,
		Update: func(ctx context.Context, store client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return w.update(ctx, o, false, func() error { return store.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, store client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return w.patch(ctx, o, p, false, func() error { return store.Patch(ctx, o, p, opts...) })
		},
		Delete: w.delete,
		DeleteAllOf: func(context.Context, client.WithWatch, client.Object, ...client.DeleteAllOfOption) error {
			return errors.New("the model has no deletion of collections")
		},
		SubResourceCreate: func(ctx context.Context, _ client.Client, sub string, o, body client.Object, _ ...client.SubResourceCreateOption) error {
			return w.evict(ctx, sub, o, body)
		},
		SubResourceUpdate: func(ctx context.Context, store client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return w.update(ctx, o, true, func() error { return store.SubResource(sub).Update(ctx, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, store client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return w.patch(ctx, o, p, true, func() error { return store.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
	})
}

// Fail makes each request fail for which f returns an error, such as one of package
// k8s.io/apimachinery/pkg/api/errors; nil ends that. f is called with no lock held: it may take its time, and may use
// the API itself by a client that it does not let fail.
func (m *Model) Fail(f func(Request) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = f
}

// Delay makes each request take as long as f says before it has any effect, or until its context ends; nil ends that. f
// is called with no lock held.
func (m *Model) Delay(f func(Request) time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.delay = f
}

// CutOff ends each deletion of a pod half-way for which f is true; nil ends that. The API server deletes in two writes: the pod
// has its deletion timestamp, and no grace, but its object stays until it is deleted once more. The client gets a timeout.
func (m *Model) CutOff(f func(Request) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cutOff = f
}

func (m *Model) cutsOff(r Request) bool {
	m.mu.Lock()
	f := m.cutOff
	m.mu.Unlock()
	return f != nil && f(r)
}

// arrive lets the request's time pass and tells whether it fails.
func (m *Model) arrive(ctx context.Context, r Request) error {
	if err := ctx.Err(); err != nil {
		return err // nothing is sent any more
	}
	m.mu.Lock()
	fault, delay := m.fault, m.delay
	m.mu.Unlock()
	if delay != nil {
		if d := delay(r); d > 0 {
			timer := time.NewTimer(d)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	if fault == nil {
		return nil
	}
	return fault(r)
}

// OnChange calls f after each write that changed something, in order and never twice at a time, with no lock held.
// A write returns after its change was delivered, unless another goroutine is delivering already. The returned
// function ends that.
func (m *Model) OnChange(f func(Change)) (stop func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := &f
	m.listeners = append(m.listeners, key)
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.listeners = slices.DeleteFunc(m.listeners, func(l *func(Change)) bool { return l == key })
	}
}

// changed queues a change for the listeners; writing is held.
func (m *Model) changed(c Change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes = append(m.changes, c)
}

func (m *Model) deliver() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.delivering {
		return
	}
	m.delivering = true
	defer func() { m.delivering = false }()
	for len(m.changes) > 0 {
		next := m.changes[0]
		m.changes = m.changes[1:]
		listeners := slices.Clone(m.listeners)
		m.mu.Unlock()
		for _, f := range listeners {
			(*f)(next)
		}
		m.mu.Lock()
	}
}

// read reads an object as it is stored, or its metadata alone. The fake client would encode and decode it.
func (m *Model) read(key client.ObjectKey, into client.Object) error {
	gvk, err := apiutil.GVKForObject(into, scheme.Scheme)
	if err != nil {
		return err
	}
	gvr, _ := meta.UnsafeGuessKindToResource(gvk)
	stored, err := m.tracker.Get(gvr, key.Namespace, key.Name)
	if err != nil {
		return err
	}
	if partial, ok := into.(*metav1.PartialObjectMetadata); ok {
		o, err := meta.Accessor(stored)
		if err != nil {
			return err
		}
		partial.ObjectMeta = meta.AsPartialObjectMetadata(o).ObjectMeta
		return nil
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(stored).Elem())
	into.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return nil
}

// readAll reads the selected objects of a kind. The fake client would encode and decode all of them.
func (m *Model) readAll(gvk schema.GroupVersionKind, into client.ObjectList, selects func(client.Object) bool) error {
	gvr, _ := meta.UnsafeGuessKindToResource(gvk)
	all, err := m.tracker.List(gvr, gvk, "")
	if err != nil {
		return err
	}
	selected := []runtime.Object{}
	err = meta.EachListItem(all, func(item runtime.Object) error {
		if o, ok := item.(client.Object); ok && selects(o) {
			conceal(o)
			o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
			selected = append(selected, o)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if listed, err := meta.ListAccessor(all); err == nil {
		into.SetResourceVersion(listed.GetResourceVersion())
	}
	return meta.SetList(into, selected)
}

// current returns the object as it is stored, nil when there is none.
func (m *Model) current(like client.Object) (client.Object, error) {
	o, ok := reflect.TypeAssert[client.Object](reflect.New(reflect.TypeOf(like).Elem()))
	if !ok {
		return nil, fmt.Errorf("%T is not an object", like)
	}
	err := m.read(client.ObjectKeyFromObject(like), o)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // no object is an answer
	}
	return o, err
}

// nextUID returns a UID that depends on nothing but how many were given out before.
func (m *Model) nextUID() types.UID {
	m.uids++
	return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", m.uids))
}

func requestFor(actor string, verb Verb, o client.Object, status bool) Request {
	return Request{Actor: actor, Verb: verb, Kind: kindOf(o), Namespace: o.GetNamespace(), Name: o.GetName(), Status: status}
}

func kindOf(o client.Object) string {
	gvk, err := apiutil.GVKForObject(o, scheme.Scheme)
	if err != nil {
		return fmt.Sprintf("%T", o)
	}
	return gvk.Kind
}

func resourceOf(o client.Object) schema.GroupVersionResource {
	gvk, _ := apiutil.GVKForObject(o, scheme.Scheme)
	gvr, _ := meta.UnsafeGuessKindToResource(gvk)
	return gvr
}

func conflict(o client.Object, format string, args ...any) error {
	return apierrors.NewConflict(resourceOf(o).GroupResource(), o.GetName(), fmt.Errorf(format, args...))
}

func notFound(o client.Object, name string) error {
	return apierrors.NewNotFound(resourceOf(o).GroupResource(), name)
}

// SetClock lets the API's clock be ahead by so much from now on.
func (m *Model) SetClock(ahead time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ahead = ahead
}

// Clock is how far the API's clock is ahead.
func (m *Model) Clock() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ahead
}

// Now is the time by the API's clock, in whole seconds.
func (m *Model) Now() metav1.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return metav1.NewTime(time.Now().Add(m.ahead).Truncate(time.Second))
}
