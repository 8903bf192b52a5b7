package check

import (
	"cmp"
	"slices"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// findings returns everything that should be changed, sorted by severity.
func findings(f Facts, rows []Row) []Finding {
	all := slices.Concat(
		// What keeps everything from working comes first, then why pods are not protected, then what else bears on that.
		access(f), sight(f), installation(f), hindrances(f, rows), topology(f, rows), attachments(f.Attaching), beliefs(f),
		drbdOptions(f.Settings), leftovers(f.Evacuations), unselected(f), labelling(f),
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

// access tells what could not be read.
func access(f Facts) []Finding {
	var all []Finding
	if f.KubernetesError != "" {
		all = append(all, Finding{
			Severity: Error, Code: KubernetesUnreadable, Message: f.KubernetesError,
			Remedy: "outside of the cluster, name a kubeconfig file by --kubeconfig whose user may list pods, persistentvolumes, " +
				"volumeattachments, nodes, and the leases in kube-node-lease",
		})
	}
	if f.LinstorError != "" {
		all = append(all, Finding{
			Severity: Error, Code: LinstorUnreachable, Message: f.LinstorError,
			Remedy: wayToLinstor(f),
		})
	}
	return all
}

// installation tells what is wrong with the controller itself.
func installation(f Facts) []Finding {
	var all []Finding
	switch c := f.Controller; {
	case c.Missing:
		all = append(all, Finding{
			Severity: Error, Code: ControllerNotRunning, Message: "there is no Deployment " + c.Name,
			Remedy: "install the controller by deploy/all.yaml, or name its Deployment by --controller=namespace/name",
		})
	case c.Error != "" && f.KubernetesError == "":
		all = append(all, Finding{
			Severity: Info, Code: ControllerUnknown,
			Message: "could not read Deployment " + c.Name + ", its options are taken to be the defaults: " + c.Error,
			Remedy:  "use an account that may get the Deployment, or name it by --controller=namespace/name",
		})
	case c.Arguments != "" && c.Ready == 0:
		all = append(all, Finding{
			Severity: Error, Code: ControllerNotRunning,
			Message: "no replica of Deployment " + c.Name + " is ready, and its arguments are not understood: " + c.Arguments,
			Remedy:  "correct the arguments of the Deployment, with which the controller does not start",
		})
	case c.Arguments != "":
		all = append(all, Finding{
			Severity: Info, Code: ControllerUnknown,
			Message: "the arguments of Deployment " + c.Name + " are not understood, and the defaults are assumed: " + c.Arguments,
			Remedy:  "if its release is another one, use the check of that, by kubectl exec; else correct the arguments, with which the controller does not start again",
		})
	case c.Error == "" && c.Ready == 0:
		all = append(all, Finding{
			Severity: Error, Code: ControllerNotRunning, Message: "no replica of Deployment " + c.Name + " is ready",
			Remedy: "look at its pods and their logs",
		})
	}
	if len(f.Denied) > 0 {
		finding := Finding{
			Severity: Error, Code: MissingPermission, Message: "the controller lacks permissions",
			Remedy: "apply the roles of deploy/all.yaml again, and let nobody else write roles of these names",
		}
		for _, p := range f.Denied {
			finding.Objects = append(finding.Objects, p.String())
		}
		all = append(all, finding)
	}
	if f.PermissionsError != "" && f.KubernetesError == "" {
		all = append(all, Finding{
			Severity: Info, Code: PermissionsUnknown, Message: "could not tell what the controller may do: " + f.PermissionsError,
			Remedy: "run the check inside of the controller's pod, by kubectl exec",
		})
	}
	all = append(all, withObjects(Finding{
		Severity: Warning, Code: ForeignTaint, Objects: f.ForeignTaints,
		Message: "somebody else has set the taint " + cluster.TaintLostQuorum + ", which this controller never takes off: no new pod is placed there",
		Remedy:  filled("once the storage of the node is well: kubectl taint node NODE "+cluster.TaintLostQuorum+"-", "NODE", f.ForeignTaints),
	})...)
	agents := Finding{
		Severity: Warning, Code: NodeAgent, Objects: f.Agents, Remedy: failover.RemedyOf(failover.NodeAgentRuns),
		Message: "there are node agents of 1.x; none runs now, but once one does this controller only observes",
	}
	if len(f.RunningAgents) > 0 {
		agents.Severity = Error
		agents.Message = "node agents of 1.x run and move pods by other rules, also pods that are not selected: this controller only observes, " +
			"and moves nothing until they are removed"
	}
	return append(all, withObjects(agents)...)
}

// topology explains by the replicas of a resource why no other node could take over, or why LINSTOR leaves quorum off.
func topology(f Facts, rows []Row) []Finding {
	few := Finding{
		Severity: Error, Code: TooFewReplicas, Message: "only one node has a disk of these resources, so that no other can take over",
		Remedy: "place another replica: linstor resource-definition auto-place --place-count 2 RESOURCE, and raise the place count of " +
			"the resource group or StorageClass",
	}
	tie := Finding{
		Severity: Error, Code: NoTieBreaker,
		Message: "there are two disks and no diskless replica that breaks the tie, so that the loss of a node takes quorum from both",
		Remedy: "let LINSTOR add a tie-breaker on a third node: linstor resource-definition set-property RESOURCE " +
			"DrbdOptions/auto-add-quorum-tiebreaker true; or place a third replica",
	}
	gone := Finding{
		Severity: Error, Code: TieBreakerGone,
		Message: "the only tie-breaker is on a node that is not ONLINE, so that the loss of another one takes quorum from the rest",
		Remedy:  "bring the node back, or add a vote on a node that is ONLINE: linstor resource create --drbd-diskless NODE RESOURCE",
	}
	var left []string
	for i, r := range rows {
		node, without := f.Uses[i].Input.Resource.TieBreakerGone()
		switch {
		case r.Verdict != failover.Unprotected, r.Reason != failover.NoSurvivor && r.Reason != failover.NoQuorum:
		case without:
			gone.Objects, left = appendNew(gone.Objects, r.Resource+": "+node), appendNew(left, r.Resource)
		case r.Diskful == 1:
			few.Objects = appendNew(few.Objects, r.Resource)
		case r.Diskful == 2 && !breaksTies(f.Uses[i].Input.Resource):
			tie.Objects = appendNew(tie.Objects, r.Resource)
		}
	}
	few.Remedy, tie.Remedy = filled(few.Remedy, "RESOURCE", few.Objects), filled(tie.Remedy, "RESOURCE", tie.Objects)
	gone.Remedy = filled(gone.Remedy, "RESOURCE", left)
	return withObjects(few, tie, gone)
}

// breaksTies tells whether a replica without a disk has a vote.
func breaksTies(r failover.Resource) bool {
	return slices.ContainsFunc(r.Replicas, func(replica failover.Replica) bool { return replica.Diskless && !replica.Client })
}

// labelling tells of pods that are selected in vain.
func labelling(f Facts) []Finding {
	return withObjects(Finding{
		Severity: Info, Code: NoVolume, Objects: f.Idle, Message: "selected, but without a volume of " + f.Driver + ": never moved",
		Remedy: "remove the label, or name the CSI driver by --attacher-name",
	})
}

// withObjects returns the findings that were found of something.
func withObjects(findings ...Finding) []Finding {
	return slices.DeleteFunc(findings, func(f Finding) bool { return len(f.Objects) == 0 })
}

func appendNew[T comparable](list []T, s T) []T {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}
