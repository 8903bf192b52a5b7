package check

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
)

const (
	// sightApart is how far apart LINSTOR is asked again where it seems to be blind, from memory then, and sightTimeout how long it may take
	// to answer. One that gives a satellite up takes 7 s, and sees by that.
	sightApart   = 2 * time.Second
	sightTimeout = 5 * time.Second
)

// blindFor asks LINSTOR to which nodes it has a connection, and again until it is known to be blind for some, or not to be. It returns
// these nodes, for which its words are void from now on. Who does not answer sees: LINSTOR waits for a satellite that it gives up.
func blindFor(ctx context.Context, feed *linstor.Feed, memory *linstor.Store) []string {
	var blindness failover.Blindness
	for {
		asking, cancel := context.WithTimeout(ctx, sightTimeout)
		sight, err := feed.Sight(asking)
		cancel()
		if err != nil {
			return nil
		}
		blindness.Observe(sight)
		if nodes := blindness.Nodes(); len(nodes) > 0 {
			memory.Void(nodes, time.Now())
			return slices.Sorted(maps.Keys(nodes))
		}
		if !blindness.Suspects() {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(sightApart):
		}
	}
}

// sight tells where LINSTOR is blind.
func sight(f Facts) []Finding {
	return withObjects(Finding{
		Severity: Error, Code: Code(failover.LinstorBlind), Objects: f.Blind, Remedy: failover.RemedyOf(failover.LinstorBlind),
		Message: "LINSTOR calls these nodes ONLINE and has no connection to them: it would not notice that one is lost",
	})
}
