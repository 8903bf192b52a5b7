package linstor

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

// streamWatch finds out that an event stream is dead although its connection stands: it holds against
// what REST reads say what the stream said last. One belongs to one connection.
type streamWatch struct {
	// dead is closed once the stream is found dead.
	dead chan struct{}
	once sync.Once

	mu sync.Mutex
	// said is the last word of the stream on each replica.
	said map[replicaKey]utterance
	// doubts are what REST said differently, without an event in between.
	doubts map[replicaKey]utterance
}

// replicaKey names a replica, folded.
type replicaKey struct{ resource, node string }

// utterance is a word on one replica, and when it was said.
type utterance struct {
	word word
	at   stamp
}

// word is a three-valued may promote.
type word struct{ value, known bool }

func wordOf(mayPromote *bool) word {
	if mayPromote == nil {
		return word{}
	}
	return word{*mayPromote, true}
}

func newStreamWatch() *streamWatch {
	return &streamWatch{dead: make(chan struct{}), said: map[replicaKey]utterance{}, doubts: map[replicaKey]utterance{}}
}

// event notes what the stream says.
func (w *streamWatch) event(ev client.Event, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := replicaKey{fold(ev.Resource), fold(ev.Node)}
	w.said[key] = utterance{wordOf(ev.MayPromote), stampOf(at)}
	delete(w.doubts, key)
}

// look compares a list with what the stream said, and returns the resources that need a second look.
// Where the stream has said nothing yet, the list becomes its word: from then on a change must come
// as an event. The second look that still finds the same difference declares the stream dead.
func (w *streamWatch) look(list []client.Resource, at span) (doubtful []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range list {
		if !r.IsDRBD() {
			continue
		}
		key, now := replicaKey{fold(r.Name), fold(r.NodeName)}, wordOf(r.Values().MayPromote)
		said, ok := w.said[key]
		doubt, doubted := w.doubts[key]
		switch {
		case !ok:
			w.said[key] = utterance{now, stampOf(at.end)}
		case stampOf(at.start) < said.at:
			// The event is newer than the read.
		case said.word == now:
			delete(w.doubts, key)
		case !doubted || doubt.word != now:
			w.doubts[key] = utterance{now, stampOf(at.end)}
			doubtful = append(doubtful, r.Name)
		case stampOf(at.start)-doubt.at >= stamp(confirmDead):
			w.once.Do(func() { close(w.dead) })
		}
	}
	return doubtful
}

// prune forgets the resources that are not in the store any more.
func (w *streamWatch) prune(store *Store) {
	w.mu.Lock()
	defer w.mu.Unlock()
	gone := func(key replicaKey, _ utterance) bool { return !store.has(key.resource, key.node) }
	maps.DeleteFunc(w.said, gone)
	maps.DeleteFunc(w.doubts, gone)
}

// doubt compares a list with the stream, and asks for the second look.
func (f *Feed) doubt(watch *streamWatch, list []client.Resource, at span) {
	if watch == nil {
		return
	}
	for _, name := range watch.look(list, at) {
		f.pollLater(name, confirmDead)
	}
}

const (
	// compareInterval is how often the settings (definitions, groups, controller properties) are read, and a sample of compareSample
	// resources is compared with what the event stream said.
	compareInterval = time.Minute
	compareSample   = 5
	// confirmDead is how long a difference between REST and the event stream must last for the stream to count as dead: an event may be
	// on its way.
	confirmDead = 5 * time.Second
	// compareQuiet is how long no event must have come before the settings are read: the list of all definitions is long, and while
	// events come the decisions on them come first. They also show that the stream is alive.
	compareQuiet = time.Second
	// compareDelay is how much later the settings are read for that at most.
	compareDelay = 15 * time.Second
)

// compareRegularly reads the settings and a sample of resources, each time the next ones. Their reads
// compare them with the stream.
func (f *Feed) compareRegularly(ctx context.Context) {
	for sleep(ctx, compareInterval) && f.untilQuiet(ctx) {
		if err := f.readSettings(ctx); err != nil {
			f.failed(err)
		}
		if watch := f.watch.Load(); watch != nil {
			watch.prune(f.store)
		}
		for _, name := range f.nextSample() {
			f.Poll(name)
		}
	}
}

// untilQuiet waits until no event has come for a moment, but not for long, or until ctx is done, which it reports as false.
func (f *Feed) untilQuiet(ctx context.Context) bool {
	for until := time.Now().Add(compareDelay); ; {
		rest := min(compareQuiet-time.Since(f.Status().LastEvent), time.Until(until))
		if rest <= 0 {
			return true
		}
		if !sleep(ctx, rest) {
			return false
		}
	}
}

// nextSample returns the next few DRBD resources in turn.
func (f *Feed) nextSample() []string {
	names := f.store.Names()
	var sample []string
	for range names {
		name := names[f.sample%len(names)]
		f.sample++
		if r, ok := f.store.Resource(name); ok && r.DRBD {
			sample = append(sample, name)
		}
		if len(sample) == compareSample {
			break
		}
	}
	return sample
}
