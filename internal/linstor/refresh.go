package linstor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
)

const (
	// sharedAge is how old a shared read of settings may be for a decision that leads to a deletion, and nodesAge one of the
	// nodes, by which that may be done for MaxAge.
	sharedAge = time.Second
	nodesAge  = 300 * time.Millisecond
	// pollNodesAge is how old the node list may be when a resource is polled. Who polls every second must
	// not find a gap of more than MaxGap between two node lists.
	pollNodesAge = 500 * time.Millisecond
	// reshapedAgain is when a resource is read again whose replicas have changed: by then its nodes report their connections to new
	// ones, and LINSTOR has carried out what follows.
	reshapedAgain = time.Second
)

// readers read all that LINSTOR is asked for by name, and what there is one of, which has none.
type readers struct {
	nodes, controller, groups *reader
	definitions               *reader
	// lists read resources for those who must not wait, and polls for all others.
	lists, polls *reader
}

func (f *Feed) newReaders() readers {
	common := func(read func(context.Context) error, newest *span) *reader {
		read = again(read)
		one := func(ctx context.Context, _ string) error { return read(ctx) }
		return &reader{one: one, readAt: func(string) time.Time { return f.store.readAt(newest) }, atOnce: 1}
	}
	spare := func() *rate.Limiter { return rate.NewLimiter(aloneRate, 2*crowd) }
	lists := &bulk{read: f.readSomeResources, known: f.store.hasReplicas}
	return readers{
		nodes:      common(f.fetchNodes, &f.store.nodesRead),
		controller: common(f.fetchController, &f.store.controllerRead),
		groups:     common(f.fetchGroups, &f.store.groupsRead),
		definitions: &reader{
			one: f.readDefinition, readAt: f.store.definitionReadAt, atOnce: crowd, spare: spare(),
			bulk: &bulk{read: f.readSomeDefinitions, known: func(name string) bool { return !f.store.definitionReadAt(name).IsZero() }},
		},
		lists: &reader{one: f.readList, readAt: f.store.listReadAt, atOnce: crowd, spare: spare(), bulk: lists},
		polls: &reader{
			one: f.readList, atOnce: workers / 2, bulk: lists,
			limiter: rate.NewLimiter(readsPerSecond, workers),
		},
	}
}

// Refresh reads a resource definition's replicas, unless a reading that has ended or is under way began no longer ago than maxAge; with 0
// it reads them now. Along with them it reads everything that decides on their state and quorum (nodes, which concurrent callers share and
// which are at most 300 ms old; definition, groups and controller properties, which are at most one second old), and returns the outcome.
// It works whether or not the event stream does. The error matches ErrNotFound when LINSTOR has no such definition, and the nodes have
// been asked for then, too; after any other error LINSTOR could not be asked, and nothing may be concluded.
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
	notBefore := time.Now().Add(-sharedAge)
	var all errgroup.Group // that there is no such definition must not end the read of the nodes
	all.Go(func() error { return f.readNodesSince(ctx, time.Now().Add(-nodesAge)) })
	all.Go(func() error { return f.controller.read(ctx, "", notBefore) })
	all.Go(func() error { return f.readLevels(ctx, name, notBefore) })
	if err := all.Wait(); err != nil {
		return err
	}
	if err := f.lists.read(ctx, name, time.Now().Add(-maxAge)); err != nil {
		return err
	}
	return f.settleDoubt(ctx, name)
}

// settleDoubt reads the settings of a resource where they may have changed since they were read: LINSTOR adapts the quorum when replicas
// come and go. Whether a person has set a quorum stands where they have set it, which is read before the definition, so that a quorum is not
// taken for LINSTOR's own.
func (f *Feed) settleDoubt(ctx context.Context, name string) error {
	if !f.store.settingsInDoubt(name) {
		return nil
	}
	if err := f.readUpperLevels(ctx); err != nil {
		return err
	}
	return f.definitions.read(ctx, name, time.Now())
}

// readLevels reads the properties of a definition and of the groups.
func (f *Feed) readLevels(ctx context.Context, name string, notBefore time.Time) error {
	if err := f.definitions.read(ctx, name, notBefore); err != nil {
		return err
	}
	return f.groups.read(ctx, "", notBefore)
}

// readNodesSince has the list of nodes read, unless that has begun since.
func (f *Feed) readNodesSince(ctx context.Context, notBefore time.Time) error {
	return f.nodes.read(ctx, "", notBefore)
}

func (f *Feed) fetchNodes(ctx context.Context) error {
	at := span{start: time.Now()}
	nodes, err := f.client.Nodes(ctx)
	if err != nil {
		return err
	}
	at.end = time.Now()
	f.confirmed(at.start)
	if f.store.applyNodes(nodes, at) {
		f.lists.bulk.ended(nil) // the satellite that kept LINSTOR waiting may have been given up
	}
	return nil
}

func (f *Feed) fetchController(ctx context.Context) error {
	at := span{start: time.Now()}
	props, err := f.client.ControllerProps(ctx)
	if err != nil {
		return err
	}
	at.end = time.Now()
	f.confirmed(at.start)
	f.raised(f.store.applyControllerProps(props, at))
	return nil
}

func (f *Feed) fetchGroups(ctx context.Context) error {
	at := span{start: time.Now()}
	groups, err := f.client.Groups(ctx)
	if err != nil {
		return err
	}
	at.end = time.Now()
	f.raised(f.store.applyGroups(groups, at))
	return nil
}

// raised notes that a quorum has changed above the definitions. Of the resources of which a node may run another setting than LINSTOR
// wants it asks for a read: a replica that came before the quorum changed must not be found long after it, as if it proved that
// the quorum was applied.
func (f *Feed) raised(names []string) {
	if len(names) > 0 {
		f.levelsChanged.Store(true)
	}
	for _, name := range f.store.unsettledOf(names) {
		f.Poll(name)
	}
}

func (f *Feed) readDefinition(ctx context.Context, name string) error {
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

// readList reads the replicas of one resource definition into the store.
func (f *Feed) readList(ctx context.Context, name string) error {
	// A difference counts against the stream only if it was there when the read began.
	watch := f.watch.Load()
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
		if err := f.readNodesSince(ctx, at.end); err != nil {
			return err
		}
	}
	if f.store.applyResources(name, list, at) {
		f.pollLater(name, reshapedAgain)
	}
	f.doubt(watch, list, at)
	return nil
}

// readSomeResources reads the replicas of many resource definitions into the store by one request.
func (f *Feed) readSomeResources(ctx context.Context, names []string) (map[string]bool, error) {
	watch := f.watch.Load()
	at := span{start: time.Now()}
	list, err := f.client.View(ctx, names...)
	at.end = time.Now()
	if err != nil {
		return nil, err
	}
	f.confirmed(at.start)
	complete := f.store.applySome(list, at)
	f.doubt(watch, list, at)
	return complete, nil
}
