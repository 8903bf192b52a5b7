package forecast

import (
	"fmt"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
)

// interrupted collects the pods whose node had no quorum for a while and has it again: "pod, volume", and the pods alone.
type interrupted struct{ uses, pods names }

// Interrupted takes in that a node had no quorum for a volume in use by a pod, so that writes have failed.
func (e *Evaluation) Interrupted(namespace, pod, volume string) {
	name := cluster.Key(namespace, pod)
	e.interrupted.uses[fmt.Sprintf("pod %s, volume %s", name, volume)], e.interrupted.pods[name] = true, true
}

func (i interrupted) findings() []Finding {
	finding := Finding{
		Severity: Warning, Code: StorageInterrupted, Objects: i.uses.sorted(),
		Message: "the node of these pods had no quorum for a while, and writes have failed (on-no-quorum is io-error): the file system may be read-only, " +
			"although DRBD is healthy again",
		Remedy: "restart the pod if its file system is read-only: kubectl -n NAMESPACE delete pod POD",
	}
	if len(i.pods) == 1 {
		finding.Remedy = named(finding.Remedy, i.pods.sorted()[0], "POD")
	}
	return withObjects(finding)
}
