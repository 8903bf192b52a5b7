package linstor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

const (
	// sharedAge is how old the settings of groups and controller may be in a live read, definitionAge a definition, and nodesAge the nodes.
	sharedAge     = pollEvery
	definitionAge = 5 * time.Second
	nodesAge      = 300 * time.Millisecond
	// flightsAtMost is how often a request is sent that is not answered within pollEvery: LINSTOR answers from memory, and a request that was
	// lost with its connection is never answered.
	flightsAtMost = 3
)

// Refresh reads a resource definition's replicas, unless a reading that began no longer ago than maxAge has ended. It also reads what decides
// on their state and quorum, if that is older than a moment: the nodes, groups, controller properties and the definition. Concurrent callers
// share requests; a caller that asks for many resources is served before the next one (see [Together]). It works whether or not the event
// stream does. The error matches ErrNotFound if LINSTOR has no such definition. After any other error nothing may be concluded.
func (f *Feed) Refresh(ctx context.Context, resource string, maxAge time.Duration) (Resource, error) {
	name := f.store.displayName(resource)
	if err := f.refresh(ctx, name, maxAge); err != nil {
		return Resource{}, fmt.Errorf("refresh resource %s: %w", name, err)
	}
	r, ok := f.store.Resource(name)
	if !ok {
		return Resource{}, fmt.Errorf("refresh resource %s: %w", name, ErrNotFound)
	}
	return r, nil
}

func (f *Feed) refresh(ctx context.Context, name string, maxAge time.Duration) error {
	asked := time.Now()
	f.schedule.changed(name) // an act decides again before each of its writes, by what is polled
	done, err := f.schedule.turn(ctx)
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, failover.ActAge) // an older answer would be useless
	defer cancel()
	now := time.Now()
	var all errgroup.Group // that there is no such definition must not end the read of the nodes
	all.Go(func() error { return f.readNodes(ctx, now.Add(-nodesAge)) })
	all.Go(func() error { return f.readUpperLevels(ctx, now.Add(-sharedAge)) })
	all.Go(func() error { return f.readDefinition(ctx, name, now.Add(-definitionAge)) })
	all.Go(func() error {
		return f.readReplicas(ctx, "act", name, asked.Add(-maxAge), func() time.Time { return f.store.listReadAt(name) })
	})
	return all.Wait()
}

// readReplicas reads the replicas of a resource, and then its settings if they may have changed: LINSTOR adapts the quorum when replicas come
// and go. The levels above are read before the definition, so a quorum that a person has set there does not pass for LINSTOR's own. Acts and
// polls are of different kinds and share no request: an act would first wait for a poll to end.
func (f *Feed) readReplicas(ctx context.Context, kind, name string, notBefore time.Time, readAt func() time.Time) error {
	err := f.share(ctx, kind+" "+fold(name), flightsAtMost, notBefore, readAt, func(ctx context.Context) error { return f.fetchList(ctx, name) })
	if err != nil || !f.store.settingsInDoubt(name) {
		return err
	}
	if err := f.readUpperLevels(ctx, time.Now()); err != nil {
		return err
	}
	return f.readDefinition(ctx, name, time.Now())
}

// share has something read, unless a reading of it began at notBefore or later, which readAt returns. Callers share a request, but none that
// began before they want: sharing makes nothing older. A request that is not answered within a second is sent again, atMost times in all.
func (f *Feed) share(
	ctx context.Context, key string, atMost int, notBefore time.Time, readAt func() time.Time, read func(context.Context) error,
) error {
	results := make(chan singleflight.Result, atMost)
	for flights := 0; readAt().Before(notBefore); {
		var again <-chan time.Time
		if flights < atMost {
			flight := f.flights.DoChan(key, func() (any, error) {
				began := time.Now()
				if !readAt().Before(notBefore) { // by one that has just ended
					return time.Time{}, nil
				}
				return began, read(f.life)
			})
			go func() { results <- <-flight }()
			again = time.After(pollEvery)
			flights++
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-again:
			f.flights.Forget(key)
		case result := <-results:
			flights--
			if began, _ := result.Val.(time.Time); !began.Before(notBefore) || f.life.Err() != nil {
				return result.Err
			}
		}
	}
	return nil
}

// readAt returns when the newest reading of one of the store's lists began.
func (f *Feed) readAt(list *span) func() time.Time {
	return func() time.Time { return f.store.readAt(list) }
}

func (f *Feed) readNodes(ctx context.Context, notBefore time.Time) error {
	return f.share(ctx, listNodes, flightsAtMost, notBefore, f.readAt(&f.store.nodesRead), func(ctx context.Context) error {
		return fetch(ctx, f, f.client.Nodes, func(nodes []client.Node, at span) { f.store.applyNodes(nodes, at) })
	})
}

func (f *Feed) readController(ctx context.Context, notBefore time.Time) error {
	return f.share(ctx, listController, flightsAtMost, notBefore, f.readAt(&f.store.controllerRead), func(ctx context.Context) error {
		return fetch(ctx, f, f.client.ControllerProps, func(props map[string]string, at span) { f.raised(f.store.applyControllerProps(props, at)) })
	})
}

func (f *Feed) readGroups(ctx context.Context, notBefore time.Time) error {
	return f.share(ctx, listGroups, flightsAtMost, notBefore, f.readAt(&f.store.groupsRead), func(ctx context.Context) error {
		return fetch(ctx, f, f.client.Groups, func(groups []client.Group, at span) { f.raised(f.store.applyGroups(groups, at)) })
	})
}

// readUpperLevels reads the properties of the controller and of the groups.
func (f *Feed) readUpperLevels(ctx context.Context, notBefore time.Time) error {
	if err := f.readController(ctx, notBefore); err != nil {
		return err
	}
	return f.readGroups(ctx, notBefore)
}

// readDefinitions reads all definitions. They are many: nobody asks for them again before LINSTOR has answered. The resources whose quorum has
// changed are read, too: their replicas may have changed.
func (f *Feed) readDefinitions(ctx context.Context, notBefore time.Time) error {
	all := func(ctx context.Context) ([]client.Definition, error) { return f.client.Definitions(ctx) }
	return f.share(ctx, listDefinitions, 1, notBefore, f.readAt(&f.store.definitionsRead), func(ctx context.Context) error {
		return fetch(ctx, f, all, func(definitions []client.Definition, at span) { f.pollAll(f.store.applyDefinitions(definitions, at)) })
	})
}

// readDefinition reads one definition.
func (f *Feed) readDefinition(ctx context.Context, name string, notBefore time.Time) error {
	readAt := func() time.Time { return f.store.definitionReadAt(name) }
	return f.share(ctx, "definition "+fold(name), flightsAtMost, notBefore, readAt, func(ctx context.Context) error {
		began := time.Now()
		read := func(ctx context.Context) (client.Definition, error) { return f.client.Definition(ctx, name) }
		err := fetch(ctx, f, read, f.store.applyDefinition)
		if errors.Is(err, ErrNotFound) {
			f.store.remove(name, span{start: began, end: time.Now()})
		}
		return err
	})
}

// fetch reads something and applies it.
func fetch[T any](ctx context.Context, f *Feed, read func(context.Context) (T, error), apply func(T, span)) error {
	at := span{start: time.Now()}
	value, err := read(ctx)
	if err != nil {
		return err
	}
	at.end = time.Now()
	f.confirmed(at.start)
	apply(value, at)
	return nil
}

func (f *Feed) pollAll(names []string) {
	for _, name := range names {
		f.Poll(name)
	}
}

// raised follows a change of a quorum above the definitions: LINSTOR rewrites them with it. The resources of which evidence is
// awaited are read as well: a replica that came before the quorum changed must not be found long after it, as if it
// proved that the quorum was applied.
func (f *Feed) raised(names []string) {
	if len(names) > 0 {
		f.schedule.ask(listDefinitions)
		f.pollAll(f.store.unsettledOf(names))
	}
}

// fetchList reads the replicas of one resource definition into the store.
func (f *Feed) fetchList(ctx context.Context, name string) error {
	at := span{start: time.Now()}
	list, err := f.client.Resources(ctx, name)
	at.end = time.Now()
	if errors.Is(err, ErrNotFound) {
		f.confirmed(at.start)
		f.store.remove(name, at)
	}
	if err != nil {
		return err
	}
	f.confirmed(at.start)
	if f.store.lacks(name, list) {
		// A node that is ONLINE in a list of nodes from after that has let its replica go. One that a person gave up is in none.
		if err := f.readNodes(ctx, at.end); err != nil {
			return err
		}
	}
	if f.store.applyResources(name, list, at) {
		f.pollAgain(name) // by then its nodes report their connections to new replicas, and LINSTOR has carried out what follows
	}
	return nil
}

// resync reads everything. The settings are read again if replicas have changed meanwhile: LINSTOR adapts the quorum to them.
func (f *Feed) resync(ctx context.Context, began time.Time) error {
	if !f.store.follows(began) {
		return nil // the next stream asks for a resync
	}
	if err := errors.Join(f.readNodes(ctx, began), f.readUpperLevels(ctx, began), f.readDefinitions(ctx, began)); err != nil {
		return err
	}
	err := fetch(ctx, f, f.client.View, func(all []client.Resource, at span) { f.pollAll(f.store.applyView(all, at)) })
	if err != nil {
		// The view fails when a satellite does. One by one the lists still come from LINSTOR's memory.
		f.pollAll(f.store.listedNames())
		return err
	}
	if f.store.anyInDoubt() {
		again := time.Now()
		if err := errors.Join(f.readUpperLevels(ctx, again), f.readDefinitions(ctx, again)); err != nil {
			return err
		}
	}
	f.metrics.resync.Observe(time.Since(began).Seconds())
	if f.Status().Connected || sleep(ctx, streamSettle) {
		f.synced(began)
	}
	return nil
}
