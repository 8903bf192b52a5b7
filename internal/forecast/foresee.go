package forecast

import (
	"fmt"
	"slices"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// Foresee foresees what the loss of its node would mean for a pod, by each of its volumes. The Forecast of a volume without a node is zero.
//
// A pod is moved as soon as one of its volumes is lost and no gate is closed. The gates of that volume check the others, too. Another volume that could
// not be used elsewhere and closes none of them is no obstacle: a generic ephemeral volume is deleted and created with its pod.
func Foresee(uses []cluster.Use) []failover.Forecast {
	all := make([]failover.Forecast, len(uses))
	for i := range uses {
		if uses[i].Input.Node.Name != "" {
			all[i] = failover.Foresee(uses[i].Input)
		}
	}
	moved := slices.IndexFunc(all, func(f failover.Forecast) bool { return f.Outlook == failover.Protected })
	for i := range all {
		if f := &all[i]; moved >= 0 && f.Outlook == failover.Unprotected && !f.Lost {
			f.Outlook, f.Grace = failover.Protected, all[moved].Grace
			f.Message = fmt.Sprintf("the pod is moved for volume %s, whatever becomes of this one: %s", uses[moved].Volume, f.Message)
		}
	}
	return all
}
