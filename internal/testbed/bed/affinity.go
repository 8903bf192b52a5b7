package bed

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/affinity"
)

// KeepAffinity runs a linstor-affinity-controller for some PersistentVolumes, by their names, until ctx ends or stop is called: each that is
// pinned is replaced by one that allows the nodes where LINSTOR has its disks. It looks at once, and every [affinity.Period]. The volumes
// count as old enough, whereas a real one lets those of the last minute be. When stop returns, no look is under way: a PersistentVolume that
// is deleted then is not made again.
func (b *Bed) KeepAffinity(ctx context.Context, volumes ...string) (stop func()) {
	disks := func(handle string) []string {
		if !slices.Contains(volumes, handle) {
			return nil // that of somebody else
		}
		return b.LINSTOR.DiskNodes(handle)
	}
	ctx, cancel := context.WithCancel(ctx)
	var looks sync.WaitGroup
	looks.Go(func() {
		ticker := time.NewTicker(affinity.Period)
		defer ticker.Stop()
		for {
			// What fails is tried again at the next look.
			_ = affinity.Look(ctx, b.Client, time.Now().Add(affinity.Age), disks)
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	})
	return func() {
		cancel()
		looks.Wait()
	}
}
