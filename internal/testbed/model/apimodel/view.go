package apimodel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// View is a cache of the API as informers keep one: what it returns was true a while ago, all of it at the same time.
// It holds what was written since it was made, and what Know tells it of before. It is safe for concurrent use.
type View struct {
	selects   func(client.Object) bool
	transform toolscache.TransformFunc
	lag       time.Duration

	mu       sync.Mutex
	kinds    map[string]toolscache.Indexer
	handlers []*func(Update)
	queue    []Change
	relisted []Update // known to the View, and not told yet
	paused   bool
	draining bool
	// started is closed once the View has listed everything for the first time; nil means that it has.
	started chan struct{}
	// untold is set when what the View has must be told again once it is no longer paused.
	untold bool
}

// Update is one change of a View; Old or New is nil for an object that was not or is no longer in it.
type Update struct{ Old, New client.Object }

var (
	_ client.Reader       = (*View)(nil)
	_ client.FieldIndexer = (*View)(nil)
)

// View returns a new cache of the objects for which selects returns true (nil: all), which runs behind the API by
// the lag.
func (m *Model) View(lag time.Duration, selects func(client.Object) bool) *View {
	if selects == nil {
		selects = func(client.Object) bool { return true }
	}
	v := &View{selects: selects, lag: lag, kinds: make(map[string]toolscache.Indexer)}
	m.OnChange(v.take)
	return v
}

// Transform lets the View keep of each object what f makes of a copy. It must be called before any object is written.
func (v *View) Transform(f toolscache.TransformFunc) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.transform = f
}

// Know takes in an object that was written before the View was made, as the first list of an informer does, unless the View has it already.
func (v *View) Know(o client.Object) {
	v.mu.Lock()
	defer v.mu.Unlock()
	indexer := v.kind(kindOf(o))
	if _, ok, _ := indexer.GetByKey(keyOf(o.GetNamespace(), o.GetName())); !ok && v.selects(o) {
		_ = indexer.Add(v.transformed(o))
	}
}

// OnUpdate calls f after each update, in order and with no lock held; the objects must not be changed. What is
// in the View already comes first, as for a new informer. The returned function ends that.
func (v *View) OnUpdate(f func(Update)) (stop func()) {
	v.mu.Lock()
	key := &f
	v.handlers = append(v.handlers, key)
	var present []client.Object
	for _, indexer := range v.kinds {
		if v.started != nil {
			break // it comes with the first list
		}
		for _, o := range indexer.List() {
			present = append(present, o.(client.Object))
		}
	}
	v.mu.Unlock()
	for _, o := range present {
		f(Update{New: o})
	}
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.handlers = slices.DeleteFunc(v.handlers, func(h *func(Update)) bool { return h == key })
	}
}

// StartLate lets the View begin only after a while, like informers whose first list takes its time: until then it tells nothing,
// and whoever reads from it waits.
func (v *View) StartLate(d time.Duration) {
	started := make(chan struct{})
	v.mu.Lock()
	v.started = started
	v.mu.Unlock()
	time.AfterFunc(d, func() {
		v.mu.Lock()
		v.started, v.untold = nil, true
		paused := v.paused
		v.mu.Unlock()
		close(started)
		if !paused {
			v.Resume()
		}
	})
}

// wait waits until the View has started.
func (v *View) wait(ctx context.Context) error {
	v.mu.Lock()
	started := v.started
	v.mu.Unlock()
	if started == nil {
		return nil
	}
	select {
	case <-started:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// WaitForCacheSync waits until the View has started, and tells whether it has.
func (v *View) WaitForCacheSync(ctx context.Context) bool { return v.wait(ctx) == nil }

// Pause lets the View see nothing more, like a watch that is dead and does not know it.
func (v *View) Pause() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.paused = true
}

// Resume undoes Pause: everything that was missed comes at once.
func (v *View) Resume() {
	v.mu.Lock()
	v.paused = false
	untold := v.untold && v.started == nil
	v.untold = v.untold && !untold
	v.mu.Unlock()
	if untold {
		v.Relist()
		return
	}
	v.drain()
}

// Relist ends a Pause as an informer does whose watch has ended with 410 (Gone): what happened meanwhile never comes, and all
// is listed anew. An object that is gone is told with the last state that the View knew; one that was replaced by another of its name
// is told as changed; one that came and went is not told at all; and all others are told again.
func (v *View) Relist() {
	v.mu.Lock()
	v.paused = false
	type object struct{ kind, key string }
	last := make(map[object]Change)
	for _, c := range v.queue {
		last[object{c.Kind, keyOf(c.Namespace, c.Name)}] = c
	}
	v.queue = nil
	for _, kind := range slices.Sorted(maps.Keys(v.kinds)) {
		for _, o := range v.kinds[kind].List() {
			o := o.(client.Object)
			if _, changed := last[object{kind, keyOf(o.GetNamespace(), o.GetName())}]; !changed {
				v.relisted = append(v.relisted, Update{Old: o, New: o})
			}
		}
	}
	for _, c := range last {
		if update := v.apply(c); update != (Update{}) {
			v.relisted = append(v.relisted, update)
		}
	}
	v.mu.Unlock()
	v.drain()
}

func (v *View) take(c Change) {
	v.mu.Lock()
	v.queue = append(v.queue, c)
	v.mu.Unlock()
	if v.lag > 0 {
		time.AfterFunc(v.lag, v.drain)
		return
	}
	v.drain()
}

// drain applies what is old enough by now.
func (v *View) drain() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.draining {
		return
	}
	v.draining = true
	defer func() { v.draining = false }()
	for {
		update, ok := v.next()
		if !ok {
			return
		}
		if update == (Update{}) {
			continue
		}
		handlers := slices.Clone(v.handlers)
		v.mu.Unlock()
		for _, f := range handlers {
			(*f)(update)
		}
		v.mu.Lock()
	}
}

// next returns what is to be told next, if anything is; the lock is held.
func (v *View) next() (Update, bool) {
	if len(v.relisted) > 0 {
		update := v.relisted[0]
		v.relisted = v.relisted[1:]
		return update, true
	}
	if len(v.queue) == 0 || v.paused || v.started != nil || time.Since(v.queue[0].Time) < v.lag {
		return Update{}, false
	}
	c := v.queue[0]
	v.queue = v.queue[1:]
	return v.apply(c), true
}

// apply stores one change; the lock is held.
func (v *View) apply(c Change) Update {
	indexer := v.kind(c.Kind)
	var update Update
	if old, ok, _ := indexer.GetByKey(keyOf(c.Namespace, c.Name)); ok {
		update.Old = old.(client.Object)
	}
	if c.New != nil && v.selects(c.New) {
		update.New = v.transformed(c.New)
		_ = indexer.Update(update.New)
	} else if update.Old != nil {
		_ = indexer.Delete(update.Old)
	}
	return update
}

// transformed returns what the View keeps of an object; the lock is held.
func (v *View) transformed(o client.Object) client.Object {
	if v.transform == nil {
		return o
	}
	kept, err := v.transform(o.DeepCopyObject())
	if err != nil {
		panic(fmt.Sprintf("transform %T: %v", o, err))
	}
	return kept.(client.Object)
}

// kind returns the store of a kind; the lock is held.
func (v *View) kind(kind string) toolscache.Indexer {
	if v.kinds[kind] == nil {
		v.kinds[kind] = toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{})
	}
	return v.kinds[kind]
}

// IndexField lets List find objects of a kind by a field, those that the View has already included.
func (v *View) IndexField(_ context.Context, o client.Object, field string, extract client.IndexerFunc) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.kind(kindOf(o)).AddIndexers(toolscache.Indexers{
		field: func(o any) ([]string, error) { return extract(o.(client.Object)), nil },
	})
}

// Get reads one object from the cache.
func (v *View) Get(ctx context.Context, key client.ObjectKey, out client.Object, _ ...client.GetOption) error {
	if err := v.wait(ctx); err != nil {
		return err
	}
	v.mu.Lock()
	found, ok, err := v.kind(kindOf(out)).GetByKey(keyOf(key.Namespace, key.Name))
	v.mu.Unlock()
	if err != nil {
		return err
	}
	if !ok {
		return notFound(out, key.Name)
	}
	copied := found.(client.Object).DeepCopyObject()
	reflect.ValueOf(out).Elem().Set(reflect.ValueOf(copied).Elem())
	return nil
}

// List reads objects from the cache, sorted by name. It knows namespaces, label selectors and one indexed field. It returns copies, unless
// client.UnsafeDisableDeepCopy asks for the cache's own objects.
func (v *View) List(ctx context.Context, out client.ObjectList, opts ...client.ListOption) error {
	if err := v.wait(ctx); err != nil {
		return err
	}
	options := new(client.ListOptions).ApplyOptions(opts)
	gvk, err := apiutil.GVKForObject(out, scheme.Scheme)
	if err != nil {
		return err
	}
	found, err := v.find(strings.TrimSuffix(gvk.Kind, "List"), options)
	if err != nil {
		return err
	}
	slices.SortFunc(found, func(a, b client.Object) int {
		return strings.Compare(keyOf(a.GetNamespace(), a.GetName()), keyOf(b.GetNamespace(), b.GetName()))
	})
	items := make([]runtime.Object, 0, len(found))
	for _, o := range found {
		if options.UnsafeDisableDeepCopy != nil && *options.UnsafeDisableDeepCopy {
			items = append(items, o)
		} else {
			items = append(items, o.DeepCopyObject())
		}
	}
	return meta.SetList(out, items)
}

func (v *View) find(kind string, options *client.ListOptions) ([]client.Object, error) {
	v.mu.Lock()
	indexer := v.kind(kind)
	v.mu.Unlock()
	var all []any
	if options.FieldSelector != nil && !options.FieldSelector.Empty() {
		requirements := options.FieldSelector.Requirements()
		if len(requirements) != 1 {
			return nil, errors.New("a cache is searched by one field only")
		}
		var err error
		if all, err = indexer.ByIndex(requirements[0].Field, requirements[0].Value); err != nil {
			return nil, fmt.Errorf("searching the cache of kind %s: %w", kind, err)
		}
	} else {
		all = indexer.List()
	}
	var found []client.Object
	for _, item := range all {
		o := item.(client.Object)
		if options.Namespace != "" && o.GetNamespace() != options.Namespace {
			continue
		}
		if options.LabelSelector != nil && !options.LabelSelector.Matches(labelsOf(o)) {
			continue
		}
		found = append(found, o)
	}
	return found, nil
}

func labelsOf(o client.Object) labels.Set { return o.GetLabels() }

// keyOf is toolscache.MetaNamespaceKeyFunc of the named object.
func keyOf(namespace, name string) string {
	return toolscache.ObjectName{Namespace: namespace, Name: name}.String()
}
