package cluster

import (
	"context"
	"fmt"
	"strings"
	"sync"

	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// Satellites remembers under which name LINSTOR knows each node of Kubernetes: the CSI driver on a node tells Kubernetes, which puts it
// into the node's CSINode. It is safe for concurrent use.
type Satellites struct {
	driver string

	mu sync.Mutex
	// names are the last known ones, in lower case, by node. They stay where the driver is not registered any more: its pod is
	// being replaced, or the node is gone.
	names map[string]string
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

// ObserveCSINode records the name by which the driver on a node knows it.
func (s *Satellites) ObserveCSINode(node *storagev1.CSINode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, driver := range node.Spec.Drivers {
		if driver.Name == s.driver {
			s.names[node.Name] = strings.ToLower(driver.NodeID)
		}
	}
}

// Satellite returns the name of a node in LINSTOR, in lower case: what the driver said last, else the same one.
func (s *Satellites) Satellite(node string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name := s.names[node]; name != "" {
		return name
	}
	return strings.ToLower(node)
}

// isNamed reports whether the driver has said by which name it knows a node.
func (s *Satellites) isNamed(node string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names[node] != ""
}

// Registered are the names in LINSTOR of the nodes on which the driver is, or was.
func (s *Satellites) Registered() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := make(map[string]bool)
	for _, name := range s.names {
		if name != "" {
			names[name] = true
		}
	}
	return names
}
