package linstor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// Refresh reads a resource definition's replicas now, along with everything that decides on their state
// and quorum (nodes, which concurrent callers share and which are at most 300 ms old; definition, group and
// controller properties, which are at most one second old), and returns the outcome. It works whether or not the event stream
// does. The error matches ErrNotFound when LINSTOR has no such definition; after any other error LINSTOR
// could not be asked, and nothing may be concluded.
func (f *Feed) Refresh(ctx context.Context, resource string) (Resource, error) {
	name := f.store.displayName(resource)
	notBefore := time.Now().Add(-sharedAge)
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return f.readNodesSince(groupCtx, time.Now().Add(-nodesAge)) })
	group.Go(func() error {
		return f.shared(groupCtx, "controller", notBefore, f.store.controllerReadAt, f.readControllerProps)
	})
	group.Go(func() error { return f.readLevels(groupCtx, name, notBefore) })
	if err := group.Wait(); err != nil {
		return Resource{}, fmt.Errorf("refresh resource %s: %w", name, err)
	}
	if err := f.readResources(ctx, name); err != nil {
		return Resource{}, fmt.Errorf("refresh resource %s: %w", name, err)
	}
	if err := f.settleDoubt(ctx, name); err != nil {
		return Resource{}, fmt.Errorf("refresh resource %s: %w", name, err)
	}
	r, ok := f.store.Resource(name)
	if !ok {
		return Resource{}, fmt.Errorf("refresh resource %s: %w", name, ErrNotFound)
	}
	return r, nil
}

// readNodes reads the node list, or joins a read that is under way.
func (f *Feed) readNodes(ctx context.Context) error { return f.readNodesSince(ctx, time.Now()) }

func (f *Feed) readNodesSince(ctx context.Context, notBefore time.Time) error {
	return f.shared(ctx, "nodes", notBefore, f.store.nodesReadAt, func(ctx context.Context) error {
		at := span{start: time.Now()}
		nodes, err := f.client.Nodes(ctx)
		if err != nil {
			return err
		}
		at.end = time.Now()
		f.confirmed(at.start)
		if f.store.applyNodes(nodes, at) {
			f.lists.hope()
		}
		return nil
	})
}

func (f *Feed) readControllerProps(ctx context.Context) error {
	at := span{start: time.Now()}
	props, err := f.client.ControllerProps(ctx)
	if err != nil {
		return err
	}
	at.end = time.Now()
	f.store.applyControllerProps(props, at)
	return nil
}

// readLevels reads the properties of a definition and of its group.
func (f *Feed) readLevels(ctx context.Context, name string, notBefore time.Time) error {
	definitionReadAt := func() time.Time { return f.store.definitionReadAt(name) }
	err := f.shared(ctx, "definition/"+fold(name), notBefore, definitionReadAt, func(ctx context.Context) error {
		return f.readDefinition(ctx, name)
	})
	if err != nil {
		return err
	}
	group := f.store.groupOf(name)
	if group == "" {
		return nil
	}
	return f.readGroup(ctx, group, notBefore)
}

// readGroup reads the properties of a group.
func (f *Feed) readGroup(ctx context.Context, group string, notBefore time.Time) error {
	groupReadAt := func() time.Time { return f.store.groupReadAt(group) }
	return f.shared(ctx, "group/"+group, notBefore, groupReadAt, func(ctx context.Context) error {
		at := span{start: time.Now()}
		g, err := f.client.Group(ctx, group)
		if err != nil {
			return err
		}
		at.end = time.Now()
		f.store.applyGroup(g, at)
		return nil
	})
}

// readDefinition reads a resource definition, alone or, where many are wanted, with others.
func (f *Feed) readDefinition(ctx context.Context, name string) error {
	defer f.wantedDefinitions.Add(-1)
	many := f.wantedDefinitions.Add(1) > crowd
	if many {
		f.definitions.try(context.WithoutCancel(ctx), name)
	}
	if many && !f.store.definitionReadAt(name).IsZero() && f.definitions.join(ctx, name) {
		return nil
	}
	select {
	case f.singles <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-f.singles }()
	at := span{start: time.Now()}
	definition, err := f.client.Definition(ctx, name)
	at.end = time.Now()
	if errors.Is(err, ErrNotFound) {
		f.store.remove(name, at)
	}
	if err != nil {
		return err
	}
	f.store.applyDefinition(definition, at)
	return nil
}

// readSomeDefinitions reads many resource definitions by one request.
func (f *Feed) readSomeDefinitions(ctx context.Context, names []string) (map[string]bool, error) {
	at := span{start: time.Now()}
	list, err := f.client.Definitions(ctx, names...)
	at.end = time.Now()
	if err != nil {
		return nil, err
	}
	read := make(map[string]bool, len(list))
	for _, definition := range list {
		f.store.applyDefinition(definition, at)
		read[fold(definition.Name)] = true
	}
	return read, nil
}

// shared runs read unless readAt is at or after notBefore already. Concurrent callers share one read.
func (f *Feed) shared(
	ctx context.Context, key string, notBefore time.Time, readAt func() time.Time, read func(context.Context) error,
) error {
	for {
		if at := readAt(); !at.IsZero() && !at.Before(notBefore) {
			return nil
		}
		flight := f.flights.DoChan(key, func() (any, error) {
			if at := readAt(); !at.IsZero() && !at.Before(notBefore) {
				return nil, nil // by a flight that ended in between
			}
			return nil, read(ctx)
		})
		select {
		case <-ctx.Done():
			return ctx.Err()
		case result := <-flight:
			// A shared read ends with the context of the caller that began it, and may have begun too
			// early for this one: then it is this caller's turn.
			othersEnd := result.Shared && ctx.Err() == nil &&
				(errors.Is(result.Err, context.Canceled) || errors.Is(result.Err, context.DeadlineExceeded))
			if result.Err != nil && !othersEnd {
				return result.Err
			}
		}
	}
}
