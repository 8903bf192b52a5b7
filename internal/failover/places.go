package failover

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Place is a node other than A as it would receive a pod of A.
type Place struct {
	// NotReady is set where Kubernetes says of the node that it is not, or may not be, ready.
	NotReady bool
	// Cordoned is set where the node takes no new pods and the pod does not tolerate that.
	Cordoned bool
	// Taint is the key of the first taint of the node that the pod does not tolerate; empty where it tolerates all.
	Taint string
	// Unwanted is set where the pod's node selector or its required node affinity rules the node out.
	Unwanted bool
	// Crowded is set where other pods keep the pod away, by its required anti-affinity or its spread (DoNotSchedule).
	Crowded bool
	// Volume names the first volume of the pod that cannot be used on the node by its node affinity; empty where all can.
	Volume string
	// Unattachable names the first volume of the pod that LINSTOR would not let be attached to the node; empty where it would all.
	Unattachable string
}

// Obstacle says why the node could not run the pod; empty where it could. What the node has by itself comes last: it may pass.
func (p Place) Obstacle() string {
	switch {
	case p.Volume != "":
		return fmt.Sprintf("the node affinity of volume %s rules it out", p.Volume)
	case p.Unattachable != "":
		return fmt.Sprintf("LINSTOR has no replica of volume %s there and places none", p.Unattachable)
	case p.Unwanted:
		return "the pod's node selector or affinity rules it out"
	case p.Crowded:
		return "the pod's required anti-affinity to other pods, or its topology spread (DoNotSchedule), rules it out"
	case p.Cordoned:
		return "it is cordoned"
	case p.NotReady:
		return "it is not ready"
	case p.Taint != "":
		return "the pod does not tolerate its taint " + p.Taint
	default:
		return ""
	}
}

// Places are all nodes other than A as they would receive a pod of A.
type Places struct {
	// Known is false while the nodes have not been read.
	Known bool
	// Fit is set when one of them could run the pod.
	Fit bool
	// Obstacles counts the nodes by why they could not, where none could.
	Obstacles map[string]int
}

// nowhere tells why a pod of A could run on no other node, and whether it may be only that the nodes are not known; an empty reason where
// each pod has a node. A helper goes where the pod goes that it is a helper of: KubeVirt binds it to that pod's node, by an affinity that
// the next helper does not have.
func nowhere(pods []Pod) (reason Reason, message string) {
	for _, pod := range pods {
		switch name := pod.Namespace + "/" + pod.Name; {
		case pod.HelperOf != "":
		case !pod.Places.Known:
			return StateUnknown, fmt.Sprintf("the nodes that could run pod %s have not been read", name)
		case !pod.Places.Fit:
			return NoReadyNode, fmt.Sprintf("no other node could run pod %s: %s", name, pod.Places.why())
		}
	}
	return "", ""
}

// why says what the obstacles are, the most frequent first.
func (p Places) why() string {
	if len(p.Obstacles) == 0 {
		return "there is none"
	}
	obstacles := slices.Sorted(maps.Keys(p.Obstacles))
	slices.SortStableFunc(obstacles, func(a, b string) int { return p.Obstacles[b] - p.Obstacles[a] })
	for i, obstacle := range obstacles {
		obstacles[i] = fmt.Sprintf("%d because %s", p.Obstacles[obstacle], obstacle)
	}
	return strings.Join(obstacles, ", ")
}
