package bed

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

// Step is something that happened in the cluster.
type Step struct {
	// At is when it was seen.
	At time.Time
	// Who did it: a part of the control plane, a node's kubelet or DRBD, LINSTOR, or whoever was named.
	Who string
	// What happened.
	What string
}

// Timeline records what happens to pods, attachments, nodes and DRBD.
type Timeline struct {
	bed *Bed

	mu      sync.Mutex
	steps   []observation
	filling map[replica]bool // that had a disk without data when last seen
}

// replica is the part of a node in a resource.
type replica struct{ resource, node string }

// observation is a step, possibly one whose author the audit log knows.
type observation struct {
	Step
	by author
}

// author is the request that causes a step. The zero author is none.
type author struct{ verb, resource, namespace, name string }

// Record begins to record the pods of some namespaces, all attachments and all nodes, until ctx ends.
func (b *Bed) Record(ctx context.Context, namespaces ...string) (*Timeline, error) {
	client, err := b.clientset()
	if err != nil {
		return nil, err
	}
	t := &Timeline{bed: b, filling: map[replica]bool{}}
	factory := informers.NewSharedInformerFactory(client, 0)
	for _, w := range []struct {
		informer cache.SharedIndexInformer
		diff     func(before, after any)
	}{
		{factory.Core().V1().Pods().Informer(), podDiff(t, namespaces)},
		{factory.Storage().V1().VolumeAttachments().Informer(), typed(t.attachment)},
		{factory.Core().V1().Nodes().Informer(), typed(t.node)},
	} {
		if _, err := w.informer.AddEventHandler(handler(w.diff)); err != nil {
			return nil, fmt.Errorf("record: %w", err)
		}
	}
	factory.StartWithContext(ctx)
	if err := factory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		return nil, fmt.Errorf("record: first read of pods, attachments and nodes: %w", err)
	}
	b.DRBD.OnChange(func(resource, node string) {
		if state, ok := b.DRBD.Replica(resource, node); ok && ctx.Err() == nil {
			t.replica(resource, node, state)
		}
	})
	go t.watchLINSTOR(ctx)
	return t, nil
}

// handler calls diff with the states before and after each change; nil stands for no object.
func handler(diff func(before, after any)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if !initial {
				diff(nil, obj)
			}
		},
		UpdateFunc: func(before, after any) { diff(before, after) },
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			diff(obj, nil)
		},
	}
}

// typed adapts a diff of one type of object.
func typed[T any](diff func(before, after *T)) func(before, after any) {
	return func(before, after any) {
		old, _ := before.(*T)
		current, _ := after.(*T)
		diff(old, current)
	}
}

// watchLINSTOR records when LINSTOR changes its mind about a node.
func (t *Timeline) watchLINSTOR(ctx context.Context) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	was := map[string]string{}
	for {
		for _, node := range t.bed.DRBD.Nodes() {
			is := t.bed.LINSTOR.ConnectionStatus(node)
			if before, known := was[node]; known && before != is && is != linstorsim.Joining {
				t.Note("LINSTOR", "node "+node+" is "+is)
			}
			was[node] = is
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Note records a step of the caller's own.
func (t *Timeline) Note(who, what string) { t.add(who, author{}, "%s", what) }

// add records a step. Who is overridden by what the audit log says of by.
func (t *Timeline) add(who string, by author, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.steps = append(t.steps, observation{Step: Step{At: time.Now(), Who: who, What: fmt.Sprintf(format, args...)}, by: by})
}

// settled is how long after a step its author is known: the API server may write its audit log after it tells watchers.
const settled = time.Second

// Follow tells each step since a time, in order, as soon as its author is known, which the API server's audit log names. Once ctx has
// ended it tells the rest. Repetitions of a step by the same author are left out.
func (t *Timeline) Follow(ctx context.Context, since time.Time, tell func(Step)) error {
	ticker := time.NewTicker(2 * pollInterval)
	defer ticker.Stop()
	told := 0
	for over := false; ; {
		steps, err := t.since(since)
		if err != nil {
			return err
		}
		for ; told < len(steps); told++ {
			step := steps[told]
			if !over && step.by != (author{}) && time.Since(step.At) < settled {
				break
			}
			tell(step.Step)
		}
		if over {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			over = true
			time.Sleep(settled)
		}
	}
}

// since returns what happened since a time, in order, with the authors that are known by now.
func (t *Timeline) since(since time.Time) ([]observation, error) {
	requests, err := t.bed.Requests(since)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var steps []observation
	for _, o := range t.steps {
		if o.At.Before(since) {
			continue
		}
		if who := o.by.find(requests, o.At); who != "" {
			o.Who = who
		}
		same := func(s observation) bool { return s.Who == o.Who && s.What == o.What }
		if !slices.ContainsFunc(steps, same) {
			steps = append(steps, o)
		}
	}
	return steps, nil
}

// find returns who sent such a request at about the time a step was seen. The audit log's time is that of the
// answer, which may come before or after watchers are told.
func (a author) find(requests []Request, seen time.Time) string {
	or := a
	if a.verb == "delete" && a.resource == "pods" {
		or.verb, or.resource = "create", "pods/eviction"
	}
	who, nearest := "", time.Second
	for _, r := range requests {
		distance := r.At.Sub(seen).Abs()
		by := author{r.Verb, r.Resource, r.Namespace, r.Name}
		if (by == a || by == or) && r.Code < 300 && distance < nearest {
			who, nearest = r.User, distance
		}
	}
	return who
}
