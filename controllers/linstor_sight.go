package controllers

import (
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// sightCalm is how often LINSTOR is asked while it is connected to the nodes whose kubelets are silent: it asks all its satellites for that.
const sightCalm = 30 * time.Second

// linstorSight finds out whether LINSTOR is blind: whether it has no connection to a node that it calls ONLINE. It asks only while a kubelet is
// silent whose node LINSTOR calls ONLINE, and as long as LINSTOR is blind. It runs on every replica, since the words of a blind LINSTOR are
// void for all, and changes nothing.
type linstorSight struct {
	shared

	sight LinstorSight

	mu     sync.Mutex
	memory failover.Blindness

	// The following is of one goroutine only.

	asked time.Time
	// about are the nodes for which LINSTOR was asked then.
	about []string
}

// due reports whether LINSTOR is to be asked now.
func (l *linstorSight) due() bool {
	doubtful := l.doubtful()
	known := !slices.ContainsFunc(doubtful, func(node string) bool { return !slices.Contains(l.about, node) })
	now := l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.memory.Suspects():
	case len(doubtful) == 0:
		l.about = nil
		return false
	case known && now.Sub(l.asked) < sightCalm:
		return false
	}
	l.asked, l.about = now, doubtful
	return true
}

// doubtful returns the nodes whose kubelets are silent and that LINSTOR calls ONLINE.
func (l *linstorSight) doubtful() []string {
	return slices.DeleteFunc(l.kubelets.Silent(l.settings.KubeletSilence, math.MaxInt64), func(name string) bool {
		node, _ := l.linstor.Node(l.kubelets.Satellite(name))
		return !node.Online.Known || !node.Online.Value
	})
}

// check asks LINSTOR to which nodes it has a connection, if that is due.
func (l *linstorSight) check(ctx context.Context) error {
	if !l.due() {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, answersWithin) // if LINSTOR gives up a satellite, that takes it 7 s
	defer cancel()
	sight, err := l.sight.Sight(asking)
	l.mu.Lock()
	before := l.memory.Nodes()
	if err == nil {
		l.memory.Observe(sight)
	} else {
		l.memory.Unanswered()
	}
	after := l.memory.Nodes()
	l.mu.Unlock()
	l.sight.Void(after, l.clock.Now())
	l.metrics.Blind(len(after))
	l.tell(ctx, before, after, err)
	return nil
}

func (*linstorSight) tell(ctx context.Context, before, after map[string]time.Time, err error) {
	log := ctrl.LoggerFrom(ctx)
	switch {
	case err != nil:
		log.V(1).Info("LINSTOR does not say to which nodes it has a connection", "reason", err.Error())
	case len(before) == 0 && len(after) > 0:
		log.Info("LINSTOR is blind: it calls nodes ONLINE to which it has no connection. Nothing follows from what it shows of them until "+
			"it is restarted", "reason", failover.LinstorBlind, "nodes", slices.Sorted(maps.Keys(after)))
	case len(before) > 0 && len(after) == 0:
		log.Info("LINSTOR sees its nodes again")
	}
}

// blindness is a node to which LINSTOR is proven to have no connection, and until when that may be acted on.
type blindness struct {
	node  string
	until time.Time
}

// proof returns a node that LINSTOR is proven to be blind for; an empty one if there is none. The Lease of each such node is read past the cache
// first.
func (l *linstorSight) proof(ctx context.Context) (blind blindness, err error) {
	l.mu.Lock()
	memory := l.memory.Clone()
	l.mu.Unlock()
	proven := func(node string) (is bool) {
		blind.until, is = memory.Proof(l.inputs.Node(node), l.clock.Now(), l.settings.KubeletSilence)
		return is
	}
	silent := l.kubelets.Silent(l.settings.KubeletSilence, math.MaxInt64)
	slices.Sort(silent)
	for _, node := range silent {
		if !proven(node) {
			continue
		}
		if err := l.live.Lease(ctx, node); err != nil {
			return blindness{}, err
		}
		if proven(node) {
			blind.node = node
			return blind, nil
		}
	}
	return blindness{}, nil
}
