// Package cluster says what Kubernetes knows of volumes, of the pods that use them and of the nodes that these are on, in the terms of
// internal/failover. It only reads: from the cache by [Volumes], [Pods], [Attachments] and [Inputs], past the cache by [Live], and from
// what this process has seen change by [Kubelets] and [Sightings].
package cluster

import (
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
)

// shared lets the cache hand out its own objects, which must not be changed: each event of LINSTOR leads to several lists, of
// which copies would cost more than all the rest.
const shared = client.UnsafeDisableDeepCopy

// Linstor is LINSTOR's last word, which the input of a decision joins with what Kubernetes says. It answers from memory.
type Linstor interface {
	Resource(name string) (linstor.Resource, bool)
	Node(name string) (linstor.Node, bool)
	Status() linstor.Status
}

// Config says where to read, and what concerns us there. Every field is required unless it says otherwise.
type Config struct {
	// Cache has the indexes of AddIndexes, and selected pods at least.
	Cache client.Reader
	// Live reads past the cache; nil where nothing is confirmed.
	Live client.Reader
	// Driver is the CSI driver's name, which is also the attacher's.
	Driver string
	// Selector selects the pods that may be removed.
	Selector labels.Selector
	// Settings are the policy's settings.
	Settings failover.Settings
	// Linstor is LINSTOR's word.
	Linstor Linstor
	// Kubelets is what was seen of the nodes.
	Kubelets *Kubelets
	// Clock defaults to the real one.
	Clock clock.PassiveClock
	// Sightings are when objects were first seen; nil if all that there is counts as known for long.
	Sightings *Sightings
	// Neighbours are all pods, for a survey that is to know which nodes they keep each other from; nil where that is not asked for.
	Neighbours *Neighbours
	// Renewed tells when this process began the newest renewal of its own Lease, that of the leader election; nil where it has none.
	Renewed func() time.Time
}

// Readers are the ways to read.
type Readers struct {
	Volumes     Volumes
	Pods        Pods
	Attachments Attachments
	Inputs      Inputs
	Live        Live
}

// NewReaders returns the readers of a configuration.
func NewReaders(cfg Config) Readers {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	volumes := Volumes{cache: cfg.Cache, driver: cfg.Driver}
	pods := Pods{cache: cfg.Cache, volumes: volumes, selector: cfg.Selector}
	attachments := Attachments{cache: cfg.Cache, driver: cfg.Driver}
	return Readers{
		Volumes: volumes, Pods: pods, Attachments: attachments,
		Inputs: Inputs{
			Linstor: cfg.Linstor, volumes: volumes, pods: pods, attachments: attachments, kubelets: cfg.Kubelets, clock: cfg.Clock,
			sightings: cfg.Sightings, settings: cfg.Settings, renewed: cfg.Renewed,
		},
		Live: Live{Reader: cfg.Live, Clock: cfg.Clock, volumes: volumes, kubelets: cfg.Kubelets, sightings: cfg.Sightings},
	}
}
