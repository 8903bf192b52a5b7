package linstor

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// atOnce is how many resources are read at a time, and standbyAtOnce where this process does not lead: it leaves a slow LINSTOR to the
	// one that does. 1,000 are read within MaxGap all the same where an answer takes 40 ms.
	atOnce        = 16
	standbyAtOnce = 5
	// spared is how many of them are left to what nobody waits for while others wait.
	spared = 6
	// wantedEvery is how often a resource that somebody wants is read, and the nodes with it; standbyEvery is the former where this process
	// does not lead.
	wantedEvery  = time.Second
	standbyEvery = 5 * time.Second
	// nodesEvery is how often the nodes are read when nobody wants a resource, and nodesHinted for hintFor after LINSTOR has lost a
	// replica's state or has received one again: a satellite that restarts is back after 6 s.
	nodesEvery  = 5 * time.Second
	nodesHinted = 400 * time.Millisecond
	hintFor     = 10 * time.Second
	// levelsEvery is how often the groups and the controller's properties are read: LINSTOR changes all definitions with the
	// controller's, and no event reports it.
	levelsEvery = 20 * time.Second
	// definitionsEvery is how often all definitions are read, and definitionsWanted while more resources are wanted than can be read at a
	// time: what is done about them rests on their definitions as well, and one by one that would take as long again.
	definitionsEvery  = time.Minute
	definitionsWanted = 4 * time.Second
	// evidenceEvery is how often the store is asked which resources must be read for evidence.
	evidenceEvery = 500 * time.Millisecond
	// failedAgain is when a failed reading is repeated, and resyncAgain when the view is, which costs LINSTOR more.
	failedAgain = time.Second
	resyncAgain = 5 * time.Second
	// passesApart is how far two passes of the loop are apart if it has much to look through, so that what changes at about the same
	// time is read together.
	passesApart = 5 * time.Millisecond
	never       = time.Hour
)

// list is something that LINSTOR has one of. The loop reads it by the clock.
type list struct {
	read func(context.Context) error
	// every is how long it may be from the begin of one reading to the next, and again how long after a failure.
	every func(now time.Time) time.Duration
	again time.Duration

	// asked is set while somebody wants it at once. begun is when the newest reading began, and ended is when the newest one failed;
	// zero unless it did.
	asked, busy   bool
	begun, failed time.Time
}

func (l *list) due(now time.Time) time.Time {
	switch {
	case l.busy:
		return now.Add(never)
	case l.asked || l.begun.IsZero():
		return now
	case !l.failed.IsZero():
		return l.failed.Add(l.again)
	}
	return l.begun.Add(l.every(now))
}

// single is a resource that somebody wants.
type single struct {
	name string
	// asked is set while somebody wants it read once, and until is when the last want ends that has it read every second.
	asked bool
	until time.Time
	// next is when it is to be read at the earliest.
	next time.Time
	// queued is set until its reading begins, and busy until that ends.
	queued, busy bool
}

func (s *single) due(now time.Time) time.Time {
	if s.queued || s.busy || !s.asked && !s.until.After(now) {
		return now.Add(never)
	}
	return s.next
}

// schedule has everything that the loop reads.
type schedule struct {
	lists map[string]*list
	// wake ends the loop's sleep.
	wake chan struct{}

	mu      sync.Mutex
	running bool
	singles map[string]*single // by folded name
	// turns are the readings that somebody waits for. They come first.
	turns []*turn
	// urgent and regular are what waits for its turn after that, the oldest first: what somebody has asked for comes before what is read
	// every second. One may be in both.
	urgent, regular []*single
	// acting is how many resources are read for those who wait, and reading how many of at most atMost for the others.
	acting, reading, atMost int
	// hinted is until when the nodes are read often.
	hinted time.Time
}

// Names of the lists.
const (
	listNodes       = "nodes"
	listController  = "controller"
	listGroups      = "groups"
	listDefinitions = "definitions"
	listEvidence    = "evidence"
	listResync      = "resync"
)

func newSchedule(lists map[string]*list) schedule {
	return schedule{lists: lists, wake: make(chan struct{}, 1), singles: map[string]*single{}}
}

// lists returns everything that is read by the clock.
func (f *Feed) lists() map[string]*list {
	every := func(d time.Duration) func(time.Time) time.Duration { return func(time.Time) time.Duration { return d } }
	return map[string]*list{
		listNodes:       {read: f.readNodes, every: f.schedule.nodesEvery, again: failedAgain},
		listController:  {read: f.readController, every: every(levelsEvery), again: failedAgain},
		listGroups:      {read: f.readGroups, every: every(levelsEvery), again: failedAgain},
		listDefinitions: {read: f.readDefinitions, every: f.definitionsEvery, again: failedAgain},
		listEvidence:    {read: f.awaitEvidence, every: every(evidenceEvery), again: failedAgain},
		// The first one follows the first stream.
		listResync: {read: f.resync, every: every(f.opts.ResyncInterval), again: resyncAgain, begun: time.Now()},
	}
}

// Poll asks for a reading of one resource definition at once. It never blocks. Before the feed has started it does nothing: the first
// thing a feed does is to read everything.
func (f *Feed) Poll(resource string) { f.pollAt(resource, time.Now()) }

// pollAt asks for a reading at a time, or earlier.
func (f *Feed) pollAt(resource string, at time.Time) {
	f.schedule.change(resource, func(s *single) {
		if !s.asked && !s.until.After(at) || at.Before(s.next) {
			s.next = at
		}
		if s.queued && !s.asked {
			f.schedule.urgent = append(f.schedule.urgent, s)
		}
		s.asked = true
	})
}

// Keep has a resource read every second until then, or every five where this process does not lead, first when the last reading is as old
// as that. Each call puts that off.
// It never blocks.
func (f *Feed) Keep(resource string, until time.Time) {
	next := f.wantedAt(resource)
	f.schedule.change(resource, func(s *single) {
		if now := time.Now(); !s.asked && !s.until.After(now) {
			s.next = next
		}
		if until.After(s.until) {
			s.until = until
		}
	})
}

// change changes what is known of a resource that somebody wants.
func (s *schedule) change(resource string, change func(*single)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running {
		return
	}
	one := s.singles[fold(resource)]
	if one == nil {
		one = &single{name: resource}
		s.singles[fold(resource)] = one
	}
	change(one)
	s.ring()
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
	default: // it has rung
	}
}

// nodesEvery is how often the nodes are read. The lock must be held.
func (s *schedule) nodesEvery(now time.Time) time.Duration {
	switch {
	case s.hinted.After(now):
		return nodesHinted
	case len(s.singles) > 0:
		return wantedEvery
	}
	return nodesEvery
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

// wantedEvery is how often a resource is read that somebody wants. A standby, too, reads it a second after news: the reading that the news has
// caused may have begun before it, and nothing else would show within newsGap that the news still holds.
func (f *Feed) wantedEvery(resource string) time.Duration {
	if f.leads() || f.store.hasNews(resource) {
		return wantedEvery
	}
	return standbyEvery
}

// wantedAt is when a resource is to be read that somebody wants.
func (f *Feed) wantedAt(resource string) time.Time {
	return f.store.listReadAt(resource).Add(f.wantedEvery(resource))
}

// definitionsEvery is how often all definitions are read. The schedule's lock must be held.
func (f *Feed) definitionsEvery(time.Time) time.Duration {
	if len(f.schedule.singles) > atOnce && f.leads() {
		return definitionsWanted
	}
	return definitionsEvery
}

// take returns the lists that are to be read now, queues the resources, each every so often, and returns when the next thing is due.
func (s *schedule) take(now time.Time, leads bool, wantedAt func(resource string) time.Time) (lists []*list, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.atMost = atOnce
	if !leads {
		s.atMost = standbyAtOnce
	}
	next = now.Add(never)
	before := len(s.regular)
	for key, one := range s.singles {
		if !one.queued && !one.busy && !one.asked && !one.until.After(now) {
			delete(s.singles, key)
			continue
		}
		due := one.due(now)
		if !due.After(now) && !one.asked { // somebody else may have read it
			one.next = wantedAt(one.name)
			due = one.due(now)
		}
		if due.After(now) {
			next = earlier(next, due)
			continue
		}
		if one.queued = true; one.asked {
			s.urgent = append(s.urgent, one)
		} else {
			s.regular = append(s.regular, one)
		}
	}
	slices.SortFunc(s.regular[before:], func(a, b *single) int { return a.next.Compare(b.next) })
	for _, l := range s.lists {
		if due := l.due(now); due.After(now) {
			next = earlier(next, due)
			continue
		}
		l.busy, l.asked, l.begun = true, false, now
		lists = append(lists, l)
	}
	return lists, next
}

// begin returns the resource whose turn it is; nil if none waits, or others come first. What has been read since it was queued, because
// somebody has asked for it, is not read every so often as well.
func (s *schedule) begin(now time.Time, wantedAt func(resource string) time.Time) *single {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.mayRead() && len(s.urgent)+len(s.regular) > 0 {
		queue := &s.urgent
		if len(*queue) == 0 {
			queue = &s.regular
		}
		one := (*queue)[0]
		*queue = (*queue)[1:]
		if !one.queued {
			continue
		}
		if next := wantedAt(one.name); !one.asked && next.After(now) {
			one.queued, one.next = false, next
			continue
		}
		one.queued, one.busy, one.asked = false, true, false
		s.reading++
		return one
	}
	return nil
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// readWanted reads what is wanted until ctx is done.
func (f *Feed) readWanted(ctx context.Context) {
	f.schedule.run(true)
	defer f.schedule.run(false)
	var tasks sync.WaitGroup
	var reading errgroup.Group
	reading.SetLimit(atOnce)
	defer func() { tasks.Wait(); _ = reading.Wait() }()
	for {
		lists, next := f.schedule.take(time.Now(), f.leads(), f.wantedAt)
		for _, l := range lists {
			tasks.Go(func() { f.readOneOf(ctx, l) })
		}
		for f.schedule.waits() && reading.TryGo(func() error { return f.readQueued(ctx) }) {
		}
		if f.schedule.isLong() {
			sleep(ctx, passesApart)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(next)):
		case <-f.schedule.wake:
		}
	}
}

// waits reports whether a resource waits for its turn.
func (s *schedule) waits() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mayRead() && len(s.urgent)+len(s.regular) > 0
}

// isLong reports whether more is wanted than can be read at a time.
func (s *schedule) isLong() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.singles) > atOnce
}

func (s *schedule) run(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = on
}

func (f *Feed) readOneOf(ctx context.Context, l *list) {
	err := l.read(ctx)
	if err != nil && ctx.Err() == nil {
		f.failed(err)
	}
	if f.schedule.ended(l, err) {
		f.recovered()
	}
}

// ended takes down what became of the reading of a list, and reports whether all lists were read last time.
func (s *schedule) ended(l *list, err error) (all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.busy, l.failed = false, time.Time{}
	if err != nil {
		l.failed = time.Now()
	}
	s.ring()
	for _, other := range s.lists {
		if !other.failed.IsZero() {
			return false
		}
	}
	return true
}

// readQueued reads what waits for its turn, one after the other.
func (f *Feed) readQueued(ctx context.Context) error {
	defer f.schedule.ring() // for what was queued just now
	for ctx.Err() == nil {
		one := f.schedule.begin(time.Now(), f.wantedAt)
		if one == nil {
			return nil
		}
		f.readSingle(ctx, one)
	}
	return nil
}

// readSingle reads a resource, and its settings where they may have changed with it. If that fails, it is repeated for as long as somebody
// wants it, or the event stream stands: the resync that follows a reconnect reads everything.
func (f *Feed) readSingle(ctx context.Context, one *single) {
	began := time.Now()
	name := f.store.displayName(one.name)
	err := f.readReplicas(ctx, name, began, func() time.Time { return time.Time{} })
	if err != nil && ctx.Err() == nil {
		f.failed(err)
	}
	connected := f.Status().Connected
	f.schedule.mu.Lock()
	defer f.schedule.mu.Unlock()
	one.busy = false
	f.schedule.reading--
	switch failed := err != nil && !errors.Is(err, ErrNotFound); {
	case failed:
		one.next = time.Now().Add(failedAgain)
		one.asked = one.asked || connected
	case !one.asked:
		one.next = began.Add(f.wantedEvery(one.name))
	}
	f.schedule.ring()
}
