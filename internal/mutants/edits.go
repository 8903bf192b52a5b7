package main

const (
	actionsFile  = "controllers/failover_actions.go"
	confirmFile  = "controllers/confirm.go"
	detachFile   = "controllers/failover_detach.go"
	gatherFile   = "controllers/gather.go"
	haltFile     = "controllers/halt.go"
	inUseFile    = "controllers/volumes_in_use.go"
	keepAwayFile = "controllers/keepaway.go"
	claimsFile   = "controllers/claims.go"
	leaseFile    = "controllers/lease.go"
	podsFile     = "controllers/pods.go"
	removalFile  = "controllers/failover_removal.go"
)

// edits are the protections that the source does not show as conditions. What stands between « and » in the source is what
// is changed; … in the text is what it was before, and makes the edit a switch.
var edits = []edit{
	// Preconditions.
	{
		"a pod is deleted by its name alone", removalFile,
		"«client.Preconditions{UID: &facts.UID}»", "mutantInstead(§, client.Preconditions{}, …)",
	},
	{
		"a pod of LINSTOR is deleted by its name alone", "controllers/recovery_controller.go",
		"«client.Preconditions{UID: &pod.UID}»", "mutantInstead(§, client.Preconditions{}, …)",
	},
	{
		"a pod's condition is set by its name alone", removalFile,
		`"metadata": map[string]any{«"uid"»: pod.UID}`, `mutantInstead(§, "none", …)`,
	},
	{
		"an attachment is marked by its name alone", detachFile,
		`«"uid"»: in.Attachment.UID, "annotations": map[string]string{`, `mutantInstead(§, "none", …)`,
	},
	{
		"a mark is taken off an attachment by its name alone", detachFile,
		`«"uid"»: in.Attachment.UID, "annotations": map[string]any{`, `mutantInstead(§, "none", …)`,
	},
	{
		"an attachment is deleted by its name alone", detachFile,
		"«client.Preconditions{UID: &in.Attachment.UID}»", "mutantInstead(§, client.Preconditions{}, …)",
	},
	{
		"volumesInUse is replaced whatever it has become", inUseFile,
		`{«"test"», "/status/volumesInUse"`, `mutantInstead(§, "replace", …)`,
	},
	{
		"volumesInUse of another node of that name is replaced", inUseFile, `{«"test"», "/metadata/uid"`, `mutantInstead(§, "replace", …)`,
	},
	{
		"taints are replaced in any version", keepAwayFile,
		"«client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})»", "mutantInstead(§, client.MergeFrom(before), …)",
	},

	// Fresh reads.
	{
		"nothing is confirmed before a removal", actionsFile,
		"return «r.confirm(ctx, pv, in.Node.Name)»\n}",
		"func() (failover.Input, error) { if mutantIs(§) { return in, nil }; return … }()",
	},
	{
		"LINSTOR is not asked before a removal", confirmFile,
		"_, err := «g.linstor.Refresh(readsCtx, resource)»\n",
		"func() (any, error) { if mutantIs(§) { return nil, nil }; return … }()",
	},
	{
		"only selected pods are looked at before a removal", confirmFile,
		"if «uses(&all[i], claims)» {", "(… && (!mutantIs(§) || all[i].Labels[\"linstor.csi.linbit.com/on-storage-lost\"] == \"remove\"))",
	},
	{
		"the attachment is taken from the cache before a removal", confirmFile,
		"g.confirmAttachment(readsCtx, pv, node, «g.attachments».read)", "mutantInstead(§, newAttachmentReader(g.cache), …)",
	},
	{
		"the attachment is taken from the cache before a removal in a crowd", confirmFile,
		"g.confirmAttachment(readsCtx, pv, in.Node.Name, «g.attachments».get)", "mutantInstead(§, newAttachmentReader(g.cache), …)",
	},
	{
		"something is deleted by a reading that has become old", actionsFile,
		"return «r.age(in) > failover.MaxAge»", "(… && !mutantIs(§))",
	},
	{
		"a detach may rest on an old confirmation", confirmFile, "if «g.clock.Now().Sub(in.Asked) > recent» {", "(… && !mutantIs(§))",
	},
	{
		"a list of pods may be sent before it is asked for", "controllers/batches.go", "own := «b.next[object]»\n\tif own == nil ||",
		"mutantInstead(§, b.running[object], …)",
	},
	{
		"volumesInUse is taken from an old read", inUseFile,
		"return retry.OnError(releaseRetry, again, func() error {\n\t\tvar node corev1.Node\n\t\tif err :=",
		"var node corev1.Node\n\treturn retry.OnError(releaseRetry, again, func() error {\n\t\tif node.Name != \"\" {\n\t\t} else if err :=",
	},

	{
		"LINSTOR is restarted by a Lease of the cache", "controllers/lookout.go",
		"if err := «l.hear(ctx, node)»; err != nil {", "func() error { if mutantIs(§) { return nil }; return … }()",
	},

	// The order of the steps.
	{
		"the volume is detached under pods", actionsFile, "if «len(in.Pods) == 0» {\n\t\t\temptied = false", "mutantInstead(§, true, …)",
	},
	{
		"pods are removed and nothing keeps the next away", actionsFile,
		"if err := «r.keepAway.Ensure(ctx, in, d)»; err != nil {", "func() error { if mutantIs(§) { return nil }; return … }()",
	},
	{
		"pods are removed although the next can not be kept away", actionsFile,
		"«d.Verdict, d.Reason, d.Message, d.After = failover.Blocked, failover.KeepAwayFailed, err.Error(), retryAct»",
		"if !mutantIs(§) { … }",
	},
	{
		"pods are removed without a mark", actionsFile, "if in.Attachment, err = «r.mark(ctx, *in, d)»; err != nil {",
		"func() (*failover.Attachment, error) { if mutantIs(§) { return in.Attachment, nil }; return … }()",
	},
	{
		"pods in a crowd are removed without a mark", "controllers/crowd_removal.go",
		"if «by.Attachment != nil && !by.Attachment.Noted» {", "(… && !mutantIs(§))",
	},
	{
		"a pod in a crowd counts as gone although it has changed since it was read", removalFile,
		"as.ResourceVersion = «&facts.ResourceVersion»", "mutantInstead(§, nil, …)",
	},
	{
		"every pod is removed by force", removalFile, "if «how.removal == failover.RemoveForce» {", "(… || mutantIs(§))",
	},
	{
		"the phase of a pod that is asked to stop becomes Failed", removalFile, "if «force» {", "(… || mutantIs(§))",
	},
	{
		"the volume is not released from its node", detachFile, "if «r.fastDetach» {", "(… && !mutantIs(§))",
	},

	// What is said.
	{
		"nobody looks at the volumes of a node whose kubelet falls silent", "controllers/explain.go",
		"range «r.kubelets.silent(r.settings.KubeletSilence, r.settings.KubeletSilence+2*vigilInterval)» {", "mutantInstead(§, nil, …)",
	},
	{
		"a rejected step is told to nobody", "controllers/failover_controller.go",
		"next.add(«r.explain(ctx, pv, in, d, err)»)", "func() time.Duration { if mutantIs(§) && err != nil { return 0 }; return … }()",
	},
	{
		"an Event of a node does not say which", "controllers/events.go",
		"corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: «node.UID»}}", `mutantInstead(§, "", …)`,
	},
	{
		"an Event of the Deployment does not say which", haltFile,
		"Name: h.deployment.Name, UID: «uid»,", `mutantInstead(§, "", …)`,
	},

	// Whose it is.
	{
		"attachments of any driver are ours", gatherFile,
		"bool { return «va.Spec.Attacher != g.driver» }), nil", "(… && !mutantIs(§))",
	},
	{
		"pods that do not use the volume count", confirmFile,
		"if «uses(&all[i], claims)» {", "(… || mutantIs(§))",
	},
	{
		"a volume that was released is the claim's", claimsFile,
		"«pv.Status.Phase != corev1.VolumeBound»", "(… && !mutantIs(§))",
	},
	{
		"the claim is not read where it may be another's", claimsFile,
		"return «claim.UID == ref.UID && claim.Spec.VolumeName == pv.Name», nil", "(… || mutantIs(§))",
	},
	{
		"every pod is selected", podsFile, "Selected:  «selector.Matches(labels.Set(pod.Labels))»,", "(… || mutantIs(§))",
	},
	{
		"no pod is exempt", podsFile, "Exempt:    «exempt»,", "(… && !mutantIs(§))",
	},
	{
		"every pod has an owner", podsFile, "Owned:     «owner != nil»,", "(… || mutantIs(§))",
	},
	{
		"every volume of a pod may move", podsFile,
		"return «source.ConfigMap != nil || source.Secret != nil || source.Projected != nil ||\n\t\tsource.DownwardAPI != nil || source.EmptyDir != nil»",
		"(… || mutantIs(§))",
	},
	{
		"every volume that many nodes may use counts as not attached", podsFile,
		"«!slices.ContainsFunc(attachments.Items, func(va storagev1.VolumeAttachment) bool { return va.Spec.NodeName == node })», nil",
		"(… || mutantIs(§))",
	},

	// What holds everything back.
	{
		"what holds back is not asked for before a removal", actionsFile, "in.Halt = «r.halt.now(ctx)»\n\t\tin, d = ", "mutantInstead(§, in.Halt, …)",
	},
	{
		"an unreadable pause is none", haltFile,
		`return «fmt.Sprintf("cannot read whether Deployment %s pauses fail-over (name it by --pause-deployment): %v", h.deployment, err)»`,
		`mutantInstead(§, "", …)`,
	},
	{
		"a dry run is none", haltFile, "Paused: h.paused(ctx), DryRun: «h.dryRun»}", "(… && !mutantIs(§))",
	},
	{
		"nodes with a lost volume are not counted", haltFile, "LostVolume: «lost[node.Name]»,", "(… && !mutantIs(§))",
	},

	// Clocks of our own.
	{
		"a Lease is judged by the kubelet's clock", leaseFile,
		"leaseSeen{renewed: renewed, seen: «now»,", "mutantInstead(§, renewed, …)",
	},

	// What a node may run, as far as no history but a test alone can show it: each of these is held by another rule as well.
	{
		"a first setting is believed of a node that is not ONLINE any more", mayRunFile, "|| «!isTrue(n.Online)»:", "(… && !mutantIs(§))",
	},
	{
		"a first setting is believed of a node that reports nothing", mayRunFile,
		"case «!r.reports.value» ||", "(… && !mutantIs(§))",
	},
	{
		"a replica that was there counts as created by an event", wantedFile,
		"case «replica.listed != 0 && !replica.returned && (!replica.reports.value || stampOf(at)-replica.listed <= stamp(announceFor))»:",
		"(… || mutantIs(§))",
	},
	{
		"a replica that is back counts as created by an event", wantedFile,
		"case replica.listed != 0 && «!replica.returned» &&", "(… || mutantIs(§))",
	},
	{
		"a node that is back shows what is applied before it reports", mayRunFile,
		"|| «!r.reports.value || r.read < n.back» {", "((…) && !mutantIs(§))",
	},
	{
		"nothing is kept of a replica that LINSTOR forgot", goneFile,
		"case «!online || r.read < s.events || inUse || !r.inUse.known && !r.leaving»:", "(… && !mutantIs(§))",
	},
	{
		"the definition may be older than the replicas", storeFile, "return d == nil || «d.read < e.reshaped»", "(… && !mutantIs(§))",
	},
	{
		"the definition is not read again when replicas have changed", pollFile, "if «!f.store.settingsInDoubt(name)» {", "(… || mutantIs(§))",
	},
	{
		"the definition is not read again once a replica has gone", "internal/linstor/apply_settings.go",
		"|| «e.shrunk != 0 && d.read < e.shrunk+stamp(shrunkApart)»", "(… && !mutantIs(§))",
	},
	{
		"a node that has left shows what is applied", mayRunFile, "|| «n.back <= n.away» ||", "(… && !mutantIs(§))",
	},
}
