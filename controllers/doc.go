// Package controllers gives what LINSTOR and Kubernetes report to the policy of internal/failover, and does what the policy decides.
//
// Everything that a fail-over touches belongs to a node: its pods, its taint, its volumes in use, its Lease, its attachments. There are two
// reconcilers, both keyed by node name:
//
//   - NodeReconciler runs on every replica. It decides each volume on the node; the leader acts on what is lost there.
//   - EvacuationReconciler runs on the leader only and lets nodes leave on purpose, and come back (internal/evacuation, PlanFor).
//
// Recovery brings LINSTOR's own pods back if they were lost together with a node, or if linstorSight, on every replica, has found that LINSTOR has no
// connection to its satellites any more.
package controllers

import (
	"context"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
)

// Linstor is what every part of the controller may ask of LINSTOR. Refresh and Answers ask LINSTOR now, Poll soon, and Keep every second. Everything
// else answers from memory.
type Linstor interface {
	Resource(name string) (linstor.Resource, bool)
	Refresh(ctx context.Context, name string, maxAge time.Duration) (linstor.Resource, error)
	Poll(name string)
	Keep(name string, until time.Time)
	Status() linstor.Status
	Subscribe(changed func(resource string)) (unsubscribe func())
	Node(name string) (linstor.Node, bool)
	Nodes() []linstor.Node
	Counts() (replicas, reporting int)
	Undecided(name string, before time.Time) (arrivals []time.Time)
	Answers(ctx context.Context) error
}

// Feed is all that the parts together need of LINSTOR.
type Feed interface {
	Linstor
	LinstorSight
	Confirmations
	GoneReplicas
	LinstorPlaces
	// Unanswering returns the nodes that LINSTOR calls ONLINE and that do not answer it.
	Unanswering(ctx context.Context) ([]string, error)
	// Alive records a sign of life of a node that does not come from LINSTOR.
	Alive(node string, at time.Time)
}

// LinstorSight is to which satellites LINSTOR has a connection.
type LinstorSight interface {
	// Sight asks to which nodes LINSTOR has a connection.
	Sight(ctx context.Context) (failover.Sight, error)
	// Void makes unknown what LINSTOR reports of nodes to which it has had no connection since then.
	Void(nodes map[string]time.Time, now time.Time)
}

// Confirmations carries over from one process to the other which nodes are not known to run the quorum of a resource, and since when.
type Confirmations interface {
	Unconfirmed(resource string) map[string]time.Time
	Tell(resource string, nodes map[string]time.Time, at time.Time)
	Untell(resource string, still []string, at time.Time)
}

// GoneReplicas are replicas that LINSTOR no longer lists, and that are kept in mind until Forget.
type GoneReplicas interface {
	Gone() []linstor.Place
	Forget(place linstor.Place)
}

// LinstorPlaces is what nodes that are taken out on purpose need of LINSTOR: which replicas are where, and the only changes that the controller makes
// there.
type LinstorPlaces interface {
	Placed(ctx context.Context) (volumes []evacuation.Volume, asked time.Time, err error)
	CopyDefinitions(ctx context.Context, names []string) (map[string]evacuation.Definition, error)
	Marks(ctx context.Context) ([]evacuation.Mark, error)
	Moves(ctx context.Context) ([]linstor.Place, error)
	MarksOf(ctx context.Context, names []string) ([]evacuation.Mark, error)
	SnapshotsOn(ctx context.Context, node string) (int, error)
	CanSpareNodes(ctx context.Context) (bool, error)

	Autoplace(ctx context.Context, resource string, nodes []string) (linstor.Answer, error)
	Evacuate(ctx context.Context, node string, doNotTarget []string) (linstor.Answer, error)
	Restore(ctx context.Context, node string) (linstor.Answer, error)
	OwnNode(ctx context.Context, node, cluster string) (linstor.Answer, error)
	ChangeDefinition(ctx context.Context, change evacuation.Change) (linstor.Answer, error)
}
