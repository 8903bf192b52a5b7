package controllers

import (
	"context"
	"fmt"
	"strings"
	"sync"

	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// Satellites remembers under which name LINSTOR knows each node of Kubernetes: the CSI driver on a node tells Kubernetes, which puts it
// into the node's CSINode. It is safe for concurrent use.
type Satellites struct {
	mu sync.Mutex
	// names are the last known ones, in lower case, by node and driver. They stay where a driver is not registered any more: its pod is
	// being replaced, or the node is gone.
	names map[string]map[string]string
}

func newSatellites() *Satellites {
	return &Satellites{names: make(map[string]map[string]string)}
}

// +kubebuilder:rbac:groups=storage.k8s.io,resources=csinodes,verbs=list;watch

func (s *Satellites) follow(ctx context.Context, informers cache.Informers) error {
	nodes, err := informers.GetInformer(ctx, &storagev1.CSINode{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching CSINodes: %w", err)
	}
	if _, err := nodes.AddEventHandler(onChange(s.ObserveCSINode, func(*storagev1.CSINode) {})); err != nil {
		return fmt.Errorf("watching CSINodes: %w", err)
	}
	return nil
}

// ObserveCSINode records the names by which the drivers on a node know it.
func (s *Satellites) ObserveCSINode(node *storagev1.CSINode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, driver := range node.Spec.Drivers {
		if s.names[node.Name] == nil {
			s.names[node.Name] = make(map[string]string)
		}
		s.names[node.Name][driver.Name] = strings.ToLower(driver.NodeID)
	}
}

// Satellite returns the name of a node in LINSTOR, in lower case: what the driver said last, else the same one.
func (s *Satellites) Satellite(node, driver string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name := s.names[node][driver]; name != "" {
		return name
	}
	return strings.ToLower(node)
}

// Registered are the names in LINSTOR of the nodes on which a driver is, or was.
func (s *Satellites) Registered(driver string) map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := make(map[string]bool)
	for _, drivers := range s.names {
		if name := drivers[driver]; name != "" {
			names[name] = true
		}
	}
	return names
}

// node returns what is known of a node now.
func (g *gatherer) node(name string) failover.Node {
	node := g.kubelets.Node(name)
	node.Satellite = g.kubelets.Satellite(name, g.driver)
	_, listed := g.linstor.Node(node.Satellite)
	node.Unlisted = !listed
	return node
}

// satellites returns a set of nodes by their names in LINSTOR.
func (g *gatherer) satellites(nodes map[string]bool) map[string]bool {
	named := make(map[string]bool, len(nodes))
	for node, is := range nodes {
		named[g.kubelets.Satellite(node, g.driver)] = is
	}
	return named
}
