package forecast

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// findings returns everything that should be changed, sorted by severity.
func (e *Evaluation) findings() []Finding {
	f := e.facts
	all := slices.Concat(
		// What keeps everything from working comes first, then why pods are not protected, then what else bears on that.
		access(f), sight(f), installation(f), hindrances(f, e.volumes), e.tiebreakers.findings(), e.interrupted.findings(), unended(f, e.unended), attachments(f.Attaching, e.strays),
		quorums(f, e.without), e.options.findings(), eviction(f), fleet(f), leftovers(f.Evacuations), unselected(f, len(e.volumes)), labelling(f, e.idle),
	)
	order := []Severity{Error, Warning, Info}
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Compare(slices.Index(order, a.Severity), slices.Index(order, b.Severity))
	})
	if all == nil {
		return []Finding{} // an empty list in JSON, not null
	}
	return all
}

// access says what could not be read.
func access(f Facts) []Finding {
	var all []Finding
	if f.KubernetesError != "" {
		all = append(all, Finding{
			Severity: Error, Code: KubernetesUnreadable, Message: f.KubernetesError,
			Remedy: "look at the API server, and at the controller's log; missing permissions have a finding of their own",
		})
	}
	if f.LinstorError != "" {
		all = append(all, Finding{
			Severity: Error, Code: LinstorUnreachable, Message: f.LinstorError,
			Remedy: "let LS_CONTROLLERS of the controller's Deployment name the LINSTOR controllers, and check LS_ROOT_CA_FILE and the other " +
				"LS_* variables; without LINSTOR nothing is ever moved",
		})
	}
	return all
}

// sight names the nodes for which LINSTOR is blind.
func sight(f Facts) []Finding {
	return withObjects(Finding{
		Severity: Error, Code: Code(failover.LinstorBlind), Objects: f.Blind, Remedy: failover.RemedyOf(failover.LinstorBlind),
		Message: "LINSTOR calls these nodes ONLINE and has no connection to them: it would not notice that one is lost",
	})
}

// installation says what is wrong with the controller itself.
func installation(f Facts) []Finding {
	all := withObjects(Finding{
		Severity: Error, Code: MissingPermission, Message: "the controller lacks permissions", Objects: f.Denied,
		Remedy: "apply the roles of deploy/all.yaml again, and let nobody else write roles of these names",
	})
	if f.PermissionsError != "" && f.KubernetesError == "" {
		all = append(all, Finding{
			Severity: Info, Code: PermissionsUnknown, Message: "could not tell what the controller may do: " + f.PermissionsError,
			Remedy: "look at the API server: everybody may ask it for their own permissions",
		})
	}
	agents := Finding{
		Severity: Warning, Code: NodeAgent, Objects: f.Agents, Remedy: failover.RemedyOf(failover.NodeAgentRuns),
		Message: "there are node agents of 1.x; none runs now, but once one does this controller only observes",
	}
	if len(f.RunningAgents) > 0 {
		agents.Severity = Error
		agents.Message = "node agents of 1.x run and move pods by other rules, also pods that are not selected: this controller only observes, " +
			"and moves nothing until they are removed"
	}
	return append(all, withObjects(Finding{
		Severity: Warning, Code: ForeignTaint, Objects: f.ForeignTaints,
		Message: "somebody else has set the taint " + cluster.TaintLostQuorum + ", which this controller never takes off: no new pod is placed there",
		Remedy:  filled("once the storage of the node is well: kubectl taint node NODE "+cluster.TaintLostQuorum+"-", "NODE", f.ForeignTaints),
	}, agents)...)
}

// tiebreakers explains by the replicas of a resource why no other node could take over, or why LINSTOR leaves quorum off.
type tiebreakers struct{ few, tie, gone, left names }

func newTiebreakers() tiebreakers { return tiebreakers{names{}, names{}, names{}, names{}} }

func (t tiebreakers) add(r Row, resource failover.Resource) {
	node, without := resource.TieBreakerGone()
	switch {
	case r.Verdict != failover.Unprotected, r.Reason != failover.NoSurvivor && r.Reason != failover.NoQuorum:
	case without:
		t.gone[r.Resource+": "+node], t.left[r.Resource] = true, true
	case r.Diskful == 1:
		t.few[r.Resource] = true
	case r.Diskful == 2 && !breaksTies(resource):
		t.tie[r.Resource] = true
	}
}

// breaksTies reports whether a replica without a disk has a vote.
func breaksTies(r failover.Resource) bool {
	return slices.ContainsFunc(r.Replicas, func(replica failover.Replica) bool { return replica.Diskless && !replica.Client })
}

func (t tiebreakers) findings() []Finding {
	few := Finding{
		Severity: Error, Code: TooFewReplicas, Message: "only one node has a disk of these resources, so that no other can take over", Objects: t.few.sorted(),
		Remedy: "place another replica: linstor resource-definition auto-place --place-count 2 RESOURCE, and raise the place count of " +
			"the resource group or StorageClass",
	}
	tie := Finding{
		Severity: Error, Code: NoTieBreaker, Objects: t.tie.sorted(),
		Message: "there are two disks and no diskless replica that breaks the tie, so that the loss of a node takes quorum from both",
		Remedy: "let LINSTOR add a tie-breaker on a third node: linstor resource-definition set-property RESOURCE " +
			"DrbdOptions/auto-add-quorum-tiebreaker true; or place a third replica",
	}
	gone := Finding{
		Severity: Error, Code: TieBreakerGone, Objects: t.gone.sorted(),
		Message: "the only tie-breaker is on a node that is not ONLINE, so that the loss of another one takes quorum from the rest",
		Remedy:  "bring the node back, or add a vote on a node that is ONLINE: linstor resource create --drbd-diskless NODE RESOURCE",
	}
	few.Remedy, tie.Remedy = filled(few.Remedy, "RESOURCE", few.Objects), filled(tie.Remedy, "RESOURCE", tie.Objects)
	gone.Remedy = filled(gone.Remedy, "RESOURCE", t.left.sorted())
	return withObjects(few, tie, gone)
}

// fleet says where the controller's replicas and LINSTOR's nodes may be lost together.
func fleet(f Facts) []Finding {
	var all []Finding
	if node := f.onOneNode(); node != "" {
		all = append(all, Finding{
			Severity: Warning, Code: ReplicasOnOneNode, Objects: []string{node},
			Message: fmt.Sprintf("all %d replicas of the controller run on one node: if that is lost, nothing is moved before Kubernetes has started another", len(f.Replicas)),
			Remedy:  "let topologySpreadConstraints of the Deployment spread them, as deploy/all.yaml does, then delete one of the pods",
		})
	}
	return append(all, withObjects(Finding{
		Severity: Warning, Code: LostTogether, Objects: f.Together,
		Message: fmt.Sprintf("these zones have more nodes than --max-lost-nodes=%s allows to be lost at once: if such a zone is lost, nothing is moved for two minutes", f.MaxLostNodes),
		Remedy:  "if a zone is lost as a whole where you are, raise --max-lost-nodes to its share of the nodes",
	})...)
}

// onOneNode returns the node on which all replicas of the controller run, if there are several; empty if they are spread.
func (f Facts) onOneNode() string {
	if len(f.Replicas) < 2 || slices.ContainsFunc(f.Replicas, func(node string) bool { return node != f.Replicas[0] }) {
		return ""
	}
	return f.Replicas[0]
}

// unended says what does not end although it should have: a use without a pod, and pods past their grace.
func unended(f Facts, pods names) []Finding {
	return withObjects(Finding{
		Severity: Error, Code: InUseWithoutPod, Objects: f.Unclaimed,
		Message: "these volumes are in use on a node where Kubernetes knows no pod that uses them: no pod elsewhere can use them",
		Remedy:  "look on the node for what holds the volume, such as a process or a mount that a pod has left (fuser, findmnt), and end it, or restart the node",
	}, Finding{
		Severity: Warning, Code: RuntimeStuck, Objects: pods.sorted(),
		Message: "the container runtime does not end these pods: their grace is over for a minute, their kubelet is up, and a container runs",
		Remedy:  "look at the logs of the kubelet and of the container runtime on the node, and for processes in state D; restart the node if nothing else ends them",
	})
}

// labelling lists the pods that are selected in vain.
func labelling(f Facts, idle names) []Finding {
	return withObjects(Finding{
		Severity: Info, Code: NoVolume, Objects: idle.sorted(), Message: "selected, but without a volume of " + f.Driver + ": never moved",
		Remedy: "remove the label, or name the CSI driver by --attacher-name",
	})
}
