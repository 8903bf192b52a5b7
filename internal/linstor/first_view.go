package linstor

import (
	"sync"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

const (
	// readsBeforeView is how many resources are read one by one although the first view is to bring them: all of a
	// small cluster, which so need not wait for a view that hangs because a satellite does.
	readsBeforeView = 100
	// viewPatience is how long the others wait for the first view.
	viewPatience = 20 * time.Second
)

// firstView keeps the feed of a large cluster from reading every resource by itself when it starts: LINSTOR begins a
// stream of events with all that it knows, and the view of all resources, which brings the same, takes seconds to come.
type firstView struct {
	mu sync.Mutex
	// done is set once the view came, or took too long.
	done  bool
	reads int
	// events are those of replicas that the view is to bring.
	events map[replicaKey]client.Event
}

// brings tells whether a replica that the store does not have is to be expected of the first view, and not to be read.
func (v *firstView) brings(ev client.Event) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.done {
		return false
	}
	if v.reads < readsBeforeView {
		v.reads++
		return false
	}
	if v.events == nil {
		v.events = map[replicaKey]client.Event{}
	}
	v.events[replicaKey{fold(ev.Resource), fold(ev.Node)}] = ev
	return true
}

// end returns the events of all replicas that the first view was to bring; from now on none waits for it.
func (v *firstView) end() map[replicaKey]client.Event {
	v.mu.Lock()
	defer v.mu.Unlock()
	events := v.events
	v.done, v.events = true, nil
	return events
}

// pollUnseen asks for a read of what the first view was to bring and did not.
func (f *Feed) pollUnseen() {
	for at, ev := range f.view.end() {
		r, _ := f.store.Resource(at.resource)
		if _, ok := r.Replica(at.node); !ok {
			f.Poll(ev.Resource)
		}
	}
}
