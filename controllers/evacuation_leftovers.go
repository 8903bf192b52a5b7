package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
)

// leftMarks takes marks off resource definitions that nobody else takes off: those for nodes that are not evacuated any more, and have not returned by
// themselves, such as because the Node object was deleted. LINSTOR is asked for them once when a process begins to lead, whenever a node is forgotten, and
// when LINSTOR was away: it may have an old database since.
type leftMarks struct {
	shared

	places LinstorPlaces
	reader cluster.Evacuations
	marker *marker
	halt   *haltSwitch

	// idle is since when this process has seen nodes without a flag, of which LINSTOR says that this cluster has evacuated them.
	idle map[string]time.Time
	// flags is LINSTOR's last refusal to restore a node.
	flags evacuation.Failure
	// synced is since when LINSTOR had been followed when it was last looked.
	synced time.Time

	mu sync.Mutex
	// wanted counts the occasions, done is how many of them are over.
	wanted, done int
	// again is when they are looked for once more: LINSTOR may set a property minutes after it was told. It is zero if they need not be.
	again   time.Time
	failure evacuation.Failure
}

// lateFor is for how long LINSTOR may still begin to evacuate a node, whoever waits for its answer.
const lateFor = 10 * time.Minute

// leftAgain is after how long marks are looked for once more. It is longer than the controller waits for LINSTOR's answer.
const leftAgain = 4 * time.Minute

// takeBack takes back what is left in LINSTOR.
func (l *leftMarks) takeBack(ctx context.Context) error {
	return errors.Join(l.takeOff(ctx), l.restore(ctx))
}

// restore takes back flags that have come after their node had returned, and forgets nodes to which none can come any more.
func (l *leftMarks) restore(ctx context.Context) error {
	id, err := l.reader.Cluster(ctx)
	if err != nil {
		return err
	}
	ours := slices.DeleteFunc(l.linstor.Nodes(), func(n linstor.Node) bool { return n.Evacuator != id })
	if len(ours) == 0 || l.halt.now(ctx, haltAge) != (failover.Halt{}) {
		return nil
	}
	nodes, err := l.reader.Stages(ctx)
	if err != nil {
		return err
	}
	for _, n := range ours {
		stage, known := nodes[n.Name]
		l.takeBackFrom(ctx, n, stage, known && !stage.Evacuated)
	}
	return nil
}

// takeBackFrom takes a flag of this cluster off a node that is to stay; else, once none can come any more, what says that it is this cluster's.
func (l *leftMarks) takeBackFrom(ctx context.Context, n linstor.Node, stage cluster.Stage, stays bool) {
	now := l.clock.Now()
	switch since := l.idle[n.Name]; {
	case n.Evacuating || stage.Leaves:
		delete(l.idle, n.Name)
		if online := n.Word(); stays && online.Known && online.Value && !l.flags.Holds(now) {
			ctrl.LoggerFrom(ctx).Info("LINSTOR has begun to evacuate a node that is to stay by now: restoring it", "node", n.Name)
			answer, err := l.places.Restore(ctx, n.Name)
			l.flags = l.flags.Again(now, answered(ctx, l.metrics, evacuation.Restore, n.Name, answer, err))
			if l.flags.Words == "" {
				l.flags = evacuation.Failure{}
			}
		}
	case since.IsZero():
		l.idle[n.Name] = now
	case now.Sub(since) >= lateFor:
		answer, err := l.places.OwnNode(ctx, n.Name, "")
		answered(ctx, l.metrics, evacuation.Properties, n.Name, answer, err)
		delete(l.idle, n.Name)
	}
}

// ask has marks looked for soon.
func (l *leftMarks) ask() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wanted, l.failure, l.again = l.wanted+1, evacuation.Failure{}, l.clock.Now().Add(leftAgain)
}

// due returns which occasion is to be looked at; false where none is, or it is too early after a failure.
func (l *leftMarks) due() (occasion int, is bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.clock.Now(); !l.again.IsZero() && !now.Before(l.again) {
		l.wanted, l.again = l.wanted+1, time.Time{}
	}
	return l.wanted, l.wanted > l.done && !l.failure.Holds(l.clock.Now())
}

// takeOff takes off what is left.
func (l *leftMarks) takeOff(ctx context.Context) error {
	since := l.linstor.Status().SyncedSince
	if since.IsZero() {
		return nil
	}
	if !since.Equal(l.synced) {
		l.synced = since
		l.ask()
	}
	occasion, is := l.due()
	if !is || l.halt.now(ctx, haltAge) != (failover.Halt{}) {
		return nil
	}
	asked := l.clock.Now()
	inTime := func() bool { return l.clock.Now().Sub(asked) <= evacuation.Properties.MaxAge() }
	var gone []string
	refused, err := l.marker.change(ctx, inTime, func(ctx context.Context) (marks []evacuation.Mark, err error) {
		if marks, err = l.places.Marks(ctx); err != nil {
			return nil, err
		}
		gone, err = l.orphans(ctx, marks)
		return marks, err
	}, func(mark evacuation.Mark) *evacuation.Change { return mark.Without(gone...) })
	words := ""
	if err == nil {
		words = notDone(ctx, refused, nil)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && words == "" {
		if l.failure = (evacuation.Failure{}); len(refused) == 0 { // else the next time tells LINSTOR of the rest
			l.done = occasion
		}
		return nil
	}
	l.failure = l.failure.Again(l.clock.Now(), words)
	return err
}

// errUnknownName is why no mark is taken off for the time being.
var errUnknownName = errors.New("LINSTOR knows no node of that name: a mark may be for it by another one")

// orphans are the entries of this cluster's nodes in marks that are not evacuated any more. Marks are read first, and then nodes: what is marked was tainted
// before. The cache is asked whether there are any, and the API whether that is so.
func (l *leftMarks) orphans(ctx context.Context, marks []evacuation.Mark) (gone []string, err error) {
	id, err := l.reader.Cluster(ctx)
	if err != nil {
		return nil, err
	}
	for _, mark := range marks { // those of other clusters are theirs
		gone = append(gone, slices.DeleteFunc(slices.Clone(mark.Nodes), func(entry string) bool { return !strings.HasSuffix(entry, evacuation.Entry("", id)) })...)
	}
	for _, reader := range []client.Reader{l.cache, l.api} {
		if len(gone) == 0 {
			return nil, nil
		}
		var nodes corev1.NodeList
		if err := reader.List(ctx, &nodes); err != nil {
			return nil, fmt.Errorf("listing nodes to tell which marks are left: %w", err)
		}
		for i := range nodes.Items {
			node := &nodes.Items[i]
			if !cluster.IsEvacuated(node) {
				continue
			}
			satellite := l.kubelets.Satellite(node.Name)
			gone = slices.DeleteFunc(gone, func(name string) bool { return name == evacuation.Entry(satellite, id) })
			if known, is := l.linstor.Node(satellite); len(gone) > 0 && (!is || !known.Satellite) {
				return nil, fmt.Errorf("evacuated node %s: %w", node.Name, errUnknownName)
			}
		}
	}
	ctrl.LoggerFrom(ctx).Info("Taking off the marks of nodes that are not evacuated any more", "nodes", gone)
	return gone, nil
}
