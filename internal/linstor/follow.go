package linstor

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

const (
	// readsBeforeView is how many resources are read one by one although the first view is to bring them: all of a small cluster, which
	// so need not wait for a view that hangs because a satellite does. More would keep LINSTOR from the view: of 10,000 volumes all
	// must be read 10 s after a restart.
	readsBeforeView = 100
	// viewPatience is how long the others wait for the first view.
	viewPatience = 20 * time.Second
)

// streamSettle is how long a stream without events must stand before it counts as connected: where LINSTOR
// refuses it, that comes sooner.
const streamSettle = time.Second

var (
	errStreamDead    = errors.New("the event stream is silent although LINSTOR's values have changed")
	errEndpointMoved = errors.New("another LINSTOR controller has taken over")
)

// follow makes one connection to LINSTOR's event stream and stays until that ends.
//
// The order matters. A cheap REST request finds the endpoint that answers. Then the stream is opened,
// and as soon as its request is on the wire everything is read by REST: a change after that read
// comes as an event, and LINSTOR begins the stream with every resource's value. The headers of the
// stream are no sign of anything: LINSTOR sends them with the first event.
func (f *Feed) follow(parent context.Context) error {
	if err := f.readNodesSince(parent, time.Now()); err != nil {
		return err
	}
	base, moved := f.client.Endpoint()

	ctx, end := context.WithCancelCause(parent)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer end(nil)

	watch := newStreamWatch()
	f.watch.Store(watch)
	defer f.watch.Store(nil)

	sent := make(chan struct{})
	events := newMailbox()
	tasks.Go(func() {
		end(f.client.Promotions(ctx, base, f.handler(sent, events)))
	})
	select {
	case <-sent:
		f.store.hears(time.Now())
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	tasks.Go(func() { f.handleEvents(ctx, watch, events) })
	tasks.Go(func() { f.keepSynced(ctx) })
	tasks.Go(func() { f.compareRegularly(ctx) })
	tasks.Go(func() { f.readLevelsRegularly(ctx) })
	tasks.Go(func() { f.awaitEvidence(ctx) })
	select {
	case <-watch.dead:
		end(errStreamDead)
	case <-moved:
		end(errEndpointMoved)
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}

// handler takes what the stream brings off the wire at once, and leaves the work to others.
func (f *Feed) handler(sent chan<- struct{}, events *mailbox) client.Handler {
	var logged sync.Once
	return client.Handler{
		Sent: func() { close(sent) },
		Open: f.connected,
		Promotion: func(ev client.Event) {
			f.metrics.events.WithLabelValues(client.EventMayPromote).Inc()
			events.put(arrival{ev, time.Now()})
		},
		Skipped: func(eventType string, err error) {
			label := eventLabelUnknown
			if err != nil {
				label = eventLabelUndecodable
			}
			f.metrics.events.WithLabelValues(label).Inc()
			logged.Do(func() {
				f.log.Info("Skipping an event of LINSTOR that can not be understood, and all like it",
					"type", client.OneLine(eventType), "reason", errorText(err))
			})
		},
	}
}

// handleEvents applies events in the order in which they came. LINSTOR begins a stream with all that it knows, which the first view brings
// as well: of a large cluster it is not read one by one before that.
func (f *Feed) handleEvents(ctx context.Context, watch *streamWatch, events *mailbox) {
	expected, patience := f.viewed, time.After(viewPatience)
	var unseen []client.Event // of replicas that the view is to bring
	early := 0
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			// What came before the stream ended counts.
			ended = true
		case <-events.ready:
		case <-expected:
			expected = nil
		case <-patience:
			expected = nil
		}
		for _, a := range events.take() {
			switch known, changed := f.hear(a, watch); {
			case !known && expected != nil && early >= readsBeforeView:
				unseen = append(unseen, a.event)
			case !known:
				early++
				f.pollAfterEvent(a.event)
			case changed:
				f.pollAfterEvent(a.event)
			}
		}
		if expected == nil {
			f.pollUnseen(unseen)
			unseen = nil
		}
	}
}

// hear takes over an event, and tells whether the store has the replica that it is of, and whether it brought news.
func (f *Feed) hear(a arrival, watch *streamWatch) (known, changed bool) {
	f.heard(a.at)
	watch.event(a.event, a.at)
	if f.Status().Synced {
		f.store.announce(a.event, a.at)
	}
	if a.event.MayPromote == nil {
		f.missing.Store(a.at.UnixNano())
	}
	return f.store.ApplyEvent(a.event, a.at)
}

// pollUnseen asks for a read of what the first view was to bring and did not.
func (f *Feed) pollUnseen(events []client.Event) {
	for _, ev := range events {
		if !f.store.has(fold(ev.Resource), fold(ev.Node)) {
			f.Poll(ev.Resource)
		}
	}
}

// keepSynced reads everything now and regularly. A failure does not end the stream, which may be fine.
func (f *Feed) keepSynced(ctx context.Context) {
	delay := backoff()
	for {
		pause := f.opts.ResyncInterval
		if err := f.resync(ctx); err != nil {
			f.failed(err)
			pause = delay()
		} else if f.Status().Connected || sleep(ctx, streamSettle) {
			f.synced()
		}
		if !sleep(ctx, pause) {
			return
		}
	}
}

// resync reads everything. The settings are read again where replicas have changed meanwhile: LINSTOR adapts the quorum to them.
func (f *Feed) resync(ctx context.Context) error {
	begin := time.Now()
	if err := errors.Join(f.readNodesSince(ctx, begin), f.readSettings(ctx)); err != nil {
		return err
	}
	if err := f.readView(ctx); err != nil {
		// The view fails when a satellite does. One by one the lists still come from LINSTOR's memory.
		f.pollAll()
		return err
	}
	if f.store.anyInDoubt() {
		if err := f.readSettings(ctx); err != nil {
			return err
		}
	}
	f.metrics.resync.Observe(time.Since(begin).Seconds())
	return nil
}

// readView reads all resources.
func (f *Feed) readView(ctx context.Context) error {
	at := span{start: time.Now()}
	all, err := f.client.View(ctx)
	at.end = time.Now()
	if err != nil {
		return err
	}
	f.confirmed(at.start)
	for _, name := range f.store.applyView(all, at) {
		f.Poll(name)
	}
	select {
	case <-f.viewed:
	default:
		close(f.viewed)
	}
	f.doubt(f.watch.Load(), all, at)
	return nil
}

func errorText(err error) string {
	if err == nil {
		return "unknown type"
	}
	return client.OneLine(err.Error())
}
