// Package processors leaves the processors to whoever acts.
package processors

import (
	"context"
	"runtime"
)

// Standby leaves a process one processor until it leads: what it only follows can wait, and a Go program that takes in one small
// message after the other on several processors spends much of its time on waking and parking threads. It is a Runnable of
// controller-runtime's manager, and must not be used where the user has set GOMAXPROCS.
type Standby struct {
	// Elected is closed when the process leads.
	Elected <-chan struct{}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (Standby) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable. It returns when the process leads or ctx ends, with the processors that Go takes by itself.
func (s Standby) Start(ctx context.Context) error {
	runtime.GOMAXPROCS(1)
	defer runtime.SetDefaultGOMAXPROCS()
	select {
	case <-s.Elected:
	case <-ctx.Done():
	}
	return nil
}
