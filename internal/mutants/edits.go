package main

const (
	actionsFile  = "controllers/failover_actions.go"
	gatherFile   = "controllers/gather.go"
	haltFile     = "controllers/halt.go"
	inUseFile    = "controllers/volumes_in_use.go"
	keepAwayFile = "controllers/keepaway.go"
	kubeletsFile = "controllers/kubelets.go"
	podsFile     = "controllers/pods.go"
)

// edits are the protections that the source does not show as conditions.
var edits = []edit{
	// Preconditions.
	{
		"a pod is deleted by its name alone", actionsFile,
		"client.GracePeriodSeconds(grace), client.Preconditions{UID: &facts.UID})", "client.GracePeriodSeconds(grace))",
	},
	{
		"a pod's condition is set by its name alone", actionsFile,
		`"metadata": map[string]any{"uid": pod.UID}, "status": status`, `"status": status`,
	},
	{
		"an attachment is marked by its name alone", actionsFile,
		`"uid": in.Attachment.UID, "annotations": map[string]string{`, `"annotations": map[string]string{`,
	},
	{
		"a mark is taken off an attachment by its name alone", actionsFile,
		`"uid": in.Attachment.UID, "annotations": map[string]any{`, `"annotations": map[string]any{`,
	},
	{
		"an attachment is deleted by its name alone", actionsFile,
		"r.client.Delete(ctx, va, client.Preconditions{UID: &in.Attachment.UID})", "r.client.Delete(ctx, va)",
	},
	{
		"volumesInUse is replaced whatever it has become", inUseFile,
		`"metadata": map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion},`, "",
	},
	{
		"volumesInUse is replaced in any version", inUseFile, `, "resourceVersion": node.ResourceVersion`, "",
	},
	{
		"volumesInUse of another node of that name is replaced", inUseFile, `"uid": node.UID, `, "",
	},
	{
		"taints are replaced in any version", keepAwayFile,
		"client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})", "client.MergeFrom(before)",
	},

	// Fresh reads.
	{
		"nothing is confirmed before a removal", actionsFile,
		"in, err := r.confirm(ctx, pv, in.Node.Name)", "in, err := in, error(nil)",
	},
	{
		"LINSTOR is not asked before a removal", gatherFile,
		"if _, err := g.linstor.Refresh(readsCtx, resource); err != nil {", "if err := ctx.Err(); err != nil {",
	},
	{
		"only selected pods are looked at before a removal", gatherFile,
		"if uses(&all[i], claimOf(pv)) {", "if uses(&all[i], claimOf(pv)) && g.selector.Matches(labels.Set(all[i].Labels)) {",
	},
	{
		"the attachment is taken from the cache before a removal", gatherFile,
		"g.live.Get(ctx, client.ObjectKeyFromObject(&va), &fresh)", "g.cache.Get(ctx, client.ObjectKeyFromObject(&va), &fresh)",
	},
	{
		"pods are removed by a reading that has become old", actionsFile,
		"if r.clock.Now().Sub(in.Now) > failover.MaxAge {", "if false {",
	},
	{
		"the pods may be read long before LINSTOR", gatherFile, "if g.clock.Now().Sub(begin) > failover.MaxAge {", "if g.clock.Now().Sub(begin) > 1000*failover.MaxAge {",
	},
	{
		"a list of pods may be sent before it is asked for", "controllers/batches.go", "own := b.next[object]\n\tif own == nil ||",
		"own := b.next[object]\n\tif own == nil {\n\t\town = b.running[object]\n\t}\n\tif own == nil ||",
	},
	{
		"volumesInUse is taken from an old read", inUseFile,
		"return retry.RetryOnConflict(retry.DefaultBackoff, func() error {\n\t\tvar node corev1.Node\n\t\tif err :=",
		"var node corev1.Node\n\treturn retry.RetryOnConflict(retry.DefaultBackoff, func() error {\n\t\tif node.Name != \"\" {\n\t\t} else if err :=",
	},
	{
		"every word of LINSTOR is taken for fresh", "internal/failover/fresh.go",
		"return !confirmed.IsZero() && now.Sub(confirmed) <= MaxAge", "return !confirmed.IsZero()",
	},

	// The order of the steps.
	{
		"the volume is detached under pods", actionsFile, "if len(in.Pods) == 0 {", "if true {",
	},
	{
		"pods are removed and nothing keeps the next away", actionsFile,
		"if err := r.keepAway.Ensure(ctx, in, d); err != nil {", "if err := ctx.Err(); err != nil {",
	},
	{
		"pods are removed although the next can not be kept away", actionsFile,
		"d.Verdict, d.Reason, d.Message, d.After = failover.Blocked, failover.KeepAwayFailed, err.Error(), retryAct", "return d",
	},
	{
		"pods are removed without a mark", actionsFile, "if err := r.mark(ctx, in, d); err != nil {", "if err := ctx.Err(); err != nil {",
	},
	{
		"two pods are removed by one confirmation", actionsFile,
		"return true, r.remove(ctx, pv, in, d, pod, removal)", "if err := r.remove(ctx, pv, in, d, pod, removal); err != nil {\n\t\t\t\treturn true, err\n\t\t\t}",
	},
	{
		"every pod is removed by force", actionsFile, "if removal == failover.RemoveForce {", "if true {",
	},
	{
		"the phase of a pod that is asked to stop becomes Failed", actionsFile, "\tif force {\n", "\tif true {\n",
	},
	{
		"the volume is not released from its node", actionsFile, "if r.fastDetach {", "if false {",
	},

	// Whose it is.
	{
		"attachments of any driver are ours", gatherFile,
		"return slices.DeleteFunc(attachments.Items, func(va storagev1.VolumeAttachment) bool { return va.Spec.Attacher != g.driver }), nil",
		"return attachments.Items, nil",
	},
	{
		"pods that do not use the volume count", gatherFile,
		"if uses(&all[i], claimOf(pv)) {", "if true {",
	},
	{
		"every pod is selected", podsFile, "Selected:  selector.Matches(labels.Set(pod.Labels)),", "Selected:  true,",
	},
	{
		"no pod is exempt", podsFile, "Exempt:    exempt,", "Exempt:    exempt && false,",
	},
	{
		"every pod has an owner", podsFile, "Owned:     owner != nil,", "Owned:     true,",
	},
	{
		"every volume of a pod may move", podsFile,
		"return source.ConfigMap != nil || source.Secret != nil || source.Projected != nil ||\n\t\tsource.DownwardAPI != nil || source.EmptyDir != nil",
		"return true",
	},
	{
		"every volume that many nodes may use counts as not attached", podsFile,
		"return !slices.ContainsFunc(attachments.Items, func(va storagev1.VolumeAttachment) bool { return va.Spec.NodeName == node }), nil",
		"return len(attachments.Items) >= 0, nil",
	},

	// What holds everything back.
	{
		"what holds back is not asked for before a removal", actionsFile, "\t\tin.Halt = r.halt.now(ctx)\n\t\td = ", "\t\td = ",
	},
	{
		"an unreadable pause is none", haltFile,
		`return fmt.Sprintf("cannot read whether Deployment %s pauses fail-over (name it by --pause-deployment): %v", h.deployment, err)`,
		`return ""`,
	},
	{
		"a dry run is none", haltFile, "DryRun: h.dryRun}", "DryRun: false}",
	},
	{
		"nodes with a lost volume are not counted", haltFile, "LostVolume: lost[node.Name],", "LostVolume: len(lost) < 0,",
	},

	// Clocks of our own.
	{
		"a Lease is judged by the kubelet's clock", kubeletsFile,
		"leaseSeen{renewed: renewed, seen: k.clock.Now()}", "leaseSeen{renewed: renewed, seen: renewed}",
	},
}
