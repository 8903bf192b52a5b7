package linstor

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

const (
	// atOnce is how many resources are read at a time.
	atOnce = 16
	// spared is how many of them are reserved for events and polls while acts wait.
	spared = 6
	// pollEvery is how often a polled resource is read, and the nodes with it. What failed is repeated after as long.
	pollEvery = time.Second
	// standbyEvery is the same in a process that does not lead. It begins no more than atOnce readings a second, standbyApart apart. It is also
	// how often the nodes are read if nothing is polled that may change, and when a failed resync is repeated, which costs LINSTOR more than others.
	standbyEvery = 5 * time.Second
	standbyApart = pollEvery / atOnce
	// calmEvery is how often a polled resource is read that has not changed for calmAfter. It is below MaxGap, so each reading
	// confirms the one before.
	calmEvery = 8 * time.Second
	calmAfter = 2 * time.Minute
	// nodesHinted is how often the nodes are read for hintFor after LINSTOR has lost the state of a replica or has received one again: a
	// satellite that restarts is back after 6 s.
	nodesHinted = 400 * time.Millisecond
	hintFor     = MaxGap
	// levelsEvery is how often the groups and the controller's properties are read. No event reports their changes.
	levelsEvery = 20 * time.Second
	// definitionsEvery is how often all definitions are read, and definitionsPolled while more resources are polled than are read at a
	// time: an act needs their definitions, too, and would have to read them one by one.
	definitionsEvery  = time.Minute
	definitionsPolled = definitionAge - pollEvery
	// evidenceEvery is how often the store is asked which resources must be read for evidence.
	evidenceEvery = pollEvery / 2
	// replayLasts is how long the values of one resource may take that LINSTOR sends again because a stream was opened.
	replayLasts = pollEvery / 2
)

// list is something that LINSTOR has one of. The loop reads it by the clock.
type list struct {
	read func(ctx context.Context, notBefore time.Time) error
	// every returns the time between the beginnings of two readings, and again is the time after a failure.
	every func(now time.Time) time.Duration
	again time.Duration

	// asked is set if it must be read at once. begun is when the newest reading began, and failed is when that ended if it failed.
	asked, busy   bool
	begun, failed time.Time
}

func (l *list) due(now time.Time) time.Time {
	switch {
	case l.asked || l.begun.IsZero():
		return now
	case !l.failed.IsZero():
		return l.failed.Add(l.again)
	}
	return l.begun.Add(l.every(now))
}

// single is a resource that is read by itself.
type single struct {
	name string
	// asked is when somebody asked for a reading, which a later one answers; zero if there is none to come.
	asked time.Time
	// early is set if nothing but an early event has asked, or a value that was sent again.
	early bool
	// again are the nodes whose values were sent again, and againSince is when the first of them was.
	again      []string
	againSince time.Time
	// until is when polling ends. every is how often it is read until then, and next is when it is next.
	until, next time.Time
	every       time.Duration
	// changed is when the store last changed, or when polling began.
	changed time.Time
	busy    bool
}

func (s *single) isAsked(now time.Time) bool { return !s.asked.IsZero() && !s.asked.After(now) }

func (s *single) isPolled(now time.Time) bool { return s.until.After(now) }

func (s *single) due(now time.Time) time.Time {
	switch {
	case s.asked.IsZero():
		return s.next
	case !s.isPolled(now):
		return s.asked
	}
	return earlier(s.asked, s.next)
}

// before reports whether a resource is read before another one: if it was asked for, or else if it is due for longer.
func (s *single) before(other *single, now time.Time) bool {
	if asked := s.isAsked(now); asked != other.isAsked(now) {
		return asked
	}
	return s.due(now).Before(other.due(now))
}

// schedule has everything that the loop reads.
type schedule struct {
	lists map[string]*list
	// wake ends the loop's sleep.
	wake chan struct{}

	mu      sync.Mutex
	singles map[string]*single // by folded name
	// polled is how many of them are polled that are not calm.
	polled int
	// turns are the readings that acts wait for. They come first.
	turns []*turn
	// acting is how many resources are read for acts, and reading how many for others.
	acting, reading int
	// hinted is until when the nodes are read often.
	hinted time.Time
	// wasPolled is set if the newest reading that nobody waits for was of a polled resource.
	wasPolled bool
	// ready is when a standby may begin its next reading.
	ready time.Time
}

// Names of the lists.
const (
	listNodes       = "nodes"
	listController  = "controller"
	listGroups      = "groups"
	listDefinitions = "definitions"
	listEvidence    = "evidence"
	listReports     = "error reports"
	listResync      = "resync"
)

func newSchedule(lists map[string]*list) schedule {
	return schedule{lists: lists, wake: make(chan struct{}, 1), singles: map[string]*single{}}
}

// lists returns everything that is read by the clock.
func (f *Feed) lists() map[string]*list {
	every := func(d time.Duration) func(time.Time) time.Duration { return func(time.Time) time.Duration { return d } }
	return map[string]*list{
		listNodes:       {read: f.readNodes, every: f.schedule.nodesEvery, again: pollEvery},
		listController:  {read: f.readController, every: every(levelsEvery), again: pollEvery},
		listGroups:      {read: f.readGroups, every: every(levelsEvery), again: pollEvery},
		listDefinitions: {read: f.readDefinitions, every: f.definitionsEvery, again: pollEvery},
		listEvidence:    {read: f.awaitEvidence, every: every(evidenceEvery), again: pollEvery},
		listReports:     {read: f.awaitReports, every: every(evidenceEvery), again: pollEvery},
		// The first one follows the first stream.
		listResync: {read: f.resync, every: every(f.opts.ResyncInterval), again: standbyEvery, begun: time.Now()},
	}
}

// Poll asks for a reading of one resource definition at once. It never blocks.
func (f *Feed) Poll(resource string) {
	f.schedule.change(resource, func(s *single) { s.asked, s.early = time.Now(), false })
}

// pollEarly asks for a reading at once, unless everything is read before.
func (f *Feed) pollEarly(resource string) {
	f.schedule.change(resource, func(s *single) {
		if s.asked.IsZero() {
			s.asked, s.early = time.Now(), true
		}
	})
}

// answered takes back what early events have asked for: everything has just been read.
func (s *schedule) answered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.singles {
		if one.early {
			one.asked, one.early = time.Time{}, false
		}
	}
}

// pollUnlessReplayed asks for a reading in a moment, because a value was sent again: a replica has got a disk, or lost it. If the values of all replicas are
// sent again by then, somebody has opened a stream, and nothing is read, unless the volume is not known to be in use: its opening may have been missed.
func (f *Feed) pollUnlessReplayed(ev client.Event, at time.Time) {
	r, _ := f.store.Resource(ev.Resource)
	s := &f.schedule
	s.mu.Lock()
	defer s.mu.Unlock() // the loop wakes soon enough by itself
	one := s.single(ev.Resource)
	if at.Sub(one.againSince) > replayLasts {
		one.again, one.againSince = nil, at
	}
	if node := fold(ev.Node); !slices.Contains(one.again, node) {
		one.again = append(one.again, node)
	}
	switch {
	case len(one.again) < len(r.Replicas) || !slices.ContainsFunc(r.Replicas, isInUse):
		if one.asked.IsZero() && !(one.isPolled(at) && one.every <= pollEvery) {
			one.asked, one.early = at.Add(replayLasts), true
		}
	case one.early:
		one.asked, one.early = time.Time{}, false
	}
}

func isInUse(r failover.Replica) bool { return r.InUse.Value }

// pollAgain asks for a reading after a second, if none is asked for.
func (f *Feed) pollAgain(resource string) {
	f.schedule.change(resource, func(s *single) {
		if s.asked.IsZero() {
			s.asked = time.Now().Add(pollEvery)
		}
	})
}

// Keep has a resource polled until then. Each call extends that. It never blocks.
func (f *Feed) Keep(resource string, until time.Time) {
	f.schedule.change(resource, func(s *single) {
		switch now := time.Now(); {
		case !s.isPolled(now):
			s.next, s.changed = now, now
		case s.every > calmEvery && f.leads():
			s.every, s.next = calmEvery, now
		}
		if until.After(s.until) {
			s.until = until
		}
	})
}

// change changes what is wanted of a resource.
func (s *schedule) change(resource string, change func(*single)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s.single(resource))
	s.ring()
}

// single returns what is wanted of a resource, at first nothing. The lock must be held.
func (s *schedule) single(resource string) *single {
	one := s.singles[fold(resource)]
	if one == nil {
		one = &single{name: resource, every: pollEvery}
		s.singles[fold(resource)] = one
	}
	return one
}

// changed ends the calm of a resource that is polled.
func (s *schedule) changed(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one := s.singles[fold(resource)]; one != nil {
		one.changed = time.Now()
		if one.every >= calmEvery {
			one.next = one.changed
			s.ring()
		}
	}
}

// ask has a list read at once.
func (s *schedule) ask(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists[name].asked = true
	s.ring()
}

// hint has the nodes read often for a while.
func (s *schedule) hint(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.hinted.After(now) {
		s.lists[listNodes].asked = true
	}
	s.hinted = now.Add(hintFor)
	s.ring()
}

func (s *schedule) ring() {
	select {
	case s.wake <- struct{}{}:
	default: // it wakes already
	}
}

// nodesEvery returns how often the nodes are read. The lock must be held.
func (s *schedule) nodesEvery(now time.Time) time.Duration {
	switch {
	case s.hinted.After(now):
		return nodesHinted
	case s.polled > 0:
		return pollEvery
	}
	return standbyEvery
}

// definitionsEvery returns how often all definitions are read. The schedule's lock must be held.
func (f *Feed) definitionsEvery(time.Time) time.Duration {
	if f.schedule.polled > atOnce && f.leads() {
		return definitionsPolled
	}
	return definitionsEvery
}

// leads reports whether this process leads.
func (f *Feed) leads() bool {
	if f.opts.Elected == nil {
		return true
	}
	select {
	case <-f.opts.Elected:
		return true
	default:
		return false
	}
}

// pollNext sets when a polled resource is read next, and returns when its newest reading began. While an event may have been missed since
// then, standbys read it every second, too: only that shows that it has not changed.
func (f *Feed) pollNext(s *single) (read time.Time) {
	read = f.store.listReadAt(s.name)
	calm := time.Since(s.changed) >= calmAfter
	switch {
	case f.store.isUnsure(s.name) || !calm && f.leads():
		s.every = pollEvery
	case !calm:
		s.every = standbyEvery
	case f.leads():
		s.every = calmEvery
	default:
		s.every = definitionsEvery // a leader that has just begun reads it at once
	}
	s.next = read.Add(s.every)
	return read
}

// take returns the lists and the resources to be read now, and when the next one is. A resource that somebody else has read since it was
// asked for, or a moment ago, needs no reading.
func (f *Feed) take(now time.Time) (lists []*list, singles []*single, next time.Time) {
	s := &f.schedule
	s.mu.Lock()
	defer s.mu.Unlock()
	next = now.Add(definitionsEvery)
	for s.mayRead() {
		if s.ready.After(now) {
			next = earlier(next, s.ready)
			break
		}
		polled, asked, due := s.first(now)
		if len(polled)+len(asked) == 0 {
			next = earlier(next, due)
			break
		}
		singles = append(singles, f.begin(polled, asked, now)...)
	}
	for _, l := range s.lists {
		if l.busy {
			continue
		}
		if due := l.due(now); due.After(now) {
			next = earlier(next, due)
			continue
		}
		l.busy, l.asked, l.begun = true, false, now
		lists = append(lists, l)
	}
	return lists, singles, next
}

// begin has as many of the resources read as may be, in turn one that is polled and one that is not: neither thousands of events nor thousands of
// polls hold up the others. The schedule's lock must be held.
func (f *Feed) begin(polled, asked []*single, now time.Time) (begun []*single) {
	s := &f.schedule
	for s.mayRead() && !s.ready.After(now) && len(polled)+len(asked) > 0 {
		from := &polled
		if len(polled) == 0 || s.wasPolled && len(asked) > 0 {
			from = &asked
		}
		one := (*from)[0]
		*from = (*from)[1:]
		read := f.pollNext(one)
		if one.isAsked(now) {
			one.busy = !read.After(one.asked)
			one.asked, one.early = time.Time{}, false
		}
		if one.busy = one.busy || one.isPolled(now) && !one.next.After(now); !one.busy {
			continue
		}
		s.reading++
		s.wasPolled = from == &polled
		begun = append(begun, one)
		if !f.leads() {
			s.ready = now.Add(standbyApart)
		}
	}
	return begun
}

// first returns the resources to be read first, those that are polled and others that were asked for, and when the next one is due. The lock must
// be held.
func (s *schedule) first(now time.Time) (polled, asked []*single, next time.Time) {
	next = now.Add(definitionsEvery)
	s.polled = 0
	for key, one := range s.singles {
		if one.isPolled(now) && one.every < calmEvery {
			s.polled++
		}
		switch due := one.due(now); {
		case one.busy:
		case one.asked.IsZero() && !one.isPolled(now):
			delete(s.singles, key)
		case due.After(now):
			next = earlier(next, due)
		case one.isPolled(now):
			polled = one.among(polled, now)
		default:
			asked = one.among(asked, now)
		}
	}
	return polled, asked, next
}

// among adds a resource to the first of those that are due, of which no more are read at a time.
func (s *single) among(first []*single, now time.Time) []*single {
	at, _ := slices.BinarySearchFunc(first, s, func(other, s *single) int {
		if s.before(other, now) {
			return 1
		}
		return -1
	})
	if at == atOnce {
		return first
	}
	return slices.Insert(first, at, s)[:min(len(first)+1, atOnce)]
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// readWanted reads what is wanted until ctx is done.
func (f *Feed) readWanted(ctx context.Context) {
	var tasks sync.WaitGroup
	defer tasks.Wait()
	for {
		lists, singles, next := f.take(time.Now())
		for _, l := range lists {
			tasks.Go(func() { f.readList(ctx, l) })
		}
		for _, one := range singles {
			tasks.Go(func() { f.readSingle(ctx, one) })
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(next)):
		case <-f.schedule.wake:
		}
	}
}

func (f *Feed) readList(ctx context.Context, l *list) {
	err := l.read(ctx, time.Now())
	f.failed(err)
	f.schedule.mu.Lock()
	defer f.schedule.mu.Unlock()
	l.busy, l.failed = false, time.Time{}
	if err != nil {
		l.failed = time.Now()
	}
	f.schedule.ring()
}

// readSingle reads a resource, and its settings if they may have changed with it. A failed reading is repeated while somebody wants it, or
// while the event stream is open: the resync that follows a reconnect reads everything.
func (f *Feed) readSingle(ctx context.Context, one *single) {
	began := time.Now()
	name := f.store.displayName(one.name)
	never := func() time.Time { return time.Time{} } // whatever else has read it
	err := f.readReplicas(ctx, "poll", name, began, never)
	f.failed(err)
	connected := f.Status().Connected
	f.schedule.mu.Lock()
	defer f.schedule.mu.Unlock()
	f.schedule.reading--
	one.busy = false
	f.pollNext(one)
	one.next = began.Add(one.every)
	if err != nil && !errors.Is(err, ErrNotFound) {
		if one.next = time.Now().Add(pollEvery); connected || !one.asked.IsZero() {
			one.asked = one.next
		}
	}
	f.schedule.ring()
}
