package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
)

const (
	// tieBreakerAfter is how long after a volume has moved its tie-breaker is looked for: LINSTOR makes one while the volume is detached.
	tieBreakerAfter = 10 * time.Second
	// tieBreakerEnd is when that is given up for volumes of which nothing could be read.
	tieBreakerEnd = 30 * tieBreakerAfter
)

// arrival is a volume that was taken off a lost node and is attached elsewhere.
type arrival struct {
	volume, node string
	at           time.Time
}

// lookForTieBreakers tells the pods of a volume that was moved when its only tie-breaker is on the node that was lost: LINSTOR makes one of
// the replica of a user without a disk.
func (a *Attaching) lookForTieBreakers(ctx context.Context) error {
	a.moved = append(a.moved, a.arrivals.take()...)
	now := a.clock.Now()
	var failed error
	a.moved = slices.DeleteFunc(a.moved, func(moved arrival) bool {
		if failed != nil || now.Sub(moved.at) < tieBreakerAfter {
			return false
		}
		if err := a.lookForTieBreaker(ctx, moved); err != nil {
			failed = err
			return now.Sub(moved.at) > tieBreakerEnd
		}
		return true
	})
	return failed
}

func (a *Attaching) lookForTieBreaker(ctx context.Context, moved arrival) error {
	pv, err := a.volumes.Get(ctx, moved.volume)
	if err != nil || pv == nil {
		return err
	}
	name := a.volumes.Resource(pv)
	if _, err := a.linstor.Refresh(ctx, name, 0); errors.Is(err, linstor.ErrNotFound) {
		return nil
	} else if err != nil {
		return fmt.Errorf("reading resource %s: %w", name, err)
	}
	node, gone := a.inputs.Resource(name).TieBreakerGone()
	if !gone || node != a.kubelets.Satellite(moved.node) {
		return nil
	}
	pods, err := a.pods.Of(ctx, pv)
	if err != nil {
		return fmt.Errorf("looking up the pods of volume %s: %w", pv.Name, err)
	}
	note := fmt.Sprintf("the only tie-breaker of resource %s is on node %s, which is not ONLINE: the loss of another node would take its quorum; "+
		"bring the node back, or add one on a node that is ONLINE: linstor resource create --drbd-diskless NODE %s", name, node, name)
	for i := range pods {
		if pods[i].DeletionTimestamp == nil {
			a.tell(ctx, &pods[i], pv, EventTieBreakerGone, name, note)
		}
	}
	return nil
}

// arrivals are the volumes that have arrived elsewhere since somebody asked.
type arrivals struct {
	mu  sync.Mutex
	all []arrival
}

func (a *arrivals) add(one arrival) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, one)
}

func (a *arrivals) take() []arrival {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.all
	a.all = nil
	return all
}
