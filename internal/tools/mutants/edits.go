package main

const (
	attachmentsFile   = "internal/cluster/attachments.go"
	fenceFile         = "internal/evidence/fence.go"
	fencingFile       = "internal/failover/quorum.go"
	memoryFile        = "controllers/quorum_memory.go"
	nodeEvidenceFile  = "internal/evidence/node.go"
	storeEvidenceFile = "internal/linstor/evidence.go"
	votesFile         = "internal/evidence/votes.go"
	haltFile          = "controllers/halt.go"
	inUseFile         = "controllers/volumes_in_use.go"
	inputsFile        = "internal/cluster/inputs.go"
	leaseFile         = "internal/cluster/lease.go"
	liveFile          = "internal/cluster/live.go"
	liveReadsFile     = "controllers/live_reads.go"
	marksFile         = "internal/evacuation/marks.go"
	gatherFile        = "controllers/node_gather.go"
	nodeFile          = "controllers/node_controller.go"
	patchFile         = "controllers/patch.go"
	planFile          = "internal/failover/plan.go"
	podsFile          = "internal/cluster/pods.go"
	reportFile        = "controllers/report.go"
	taintsFile        = "controllers/taints.go"
	volumesFile       = "internal/cluster/volumes.go"
	writesFile        = "controllers/writes.go"
)

// edits are the protections that the source does not show as conditions. What stands between « and » in the source is what
// is changed; … in the text is what it was before, and makes the edit a switch.
var edits = []edit{
	// Preconditions.
	{
		"a pod is deleted by its name alone", writesFile,
		"«client.Preconditions{UID: &d.pod.UID, ResourceVersion: &version}»", "mutantInstead(§, client.Preconditions{}, …)",
	},
	{
		"a pod is deleted in any version", writesFile,
		"ResourceVersion: «&version»", "mutantInstead(§, nil, …)",
	},
	{
		"a pod's status is written by its name alone", writesFile,
		"mergePatch(«pod.UID», version", `mutantInstead(§, "", …)`,
	},
	{
		"an attachment is annotated by its name alone", writesFile,
		"failOverPatch(«v.in.Attachment.UID», string(text))", `mutantInstead(§, "", …)`,
	},
	{
		"an annotation is taken off an attachment by its name alone", writesFile,
		"failOverPatch(«v.in.Attachment.UID», nil)", `mutantInstead(§, "", …)`,
	},
	{
		"an attachment is deleted by its name alone", writesFile,
		"«client.Preconditions{UID: &attachment.UID}»", "mutantInstead(§, client.Preconditions{}, …)",
	},
	{
		"volumesInUse is replaced whatever it has become", patchFile,
		`operation(«"test"», path, before)`, `mutantInstead(§, "replace", …)`,
	},
	{
		"volumesInUse of another node of that name is replaced", patchFile,
		`operation(«"test"», "/metadata/uid"`, `mutantInstead(§, "replace", …)`,
	},
	{
		"taints are replaced in any version", taintsFile,
		"«client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})»", "mutantInstead(§, client.MergeFrom(before), …)",
	},

	// Fresh reads.
	{
		"LINSTOR is not asked before a removal", liveReadsFile,
		"«a.linstor.Refresh(ctx, resource, 0)»", "func() (any, error) { if mutantIs(§) { return nil, nil }; return … }()",
	},
	{
		"only selected pods are looked at before a removal", liveFile,
		"if «uses(&all[i], claims)» {", "(… && (!mutantIs(§) || all[i].Labels[\"linstor.csi.linbit.com/on-storage-lost\"] == \"remove\"))",
	},
	{
		"the attachment is taken from the cache before a removal", liveFile,
		"«l.Reader».Get(ctx, client.ObjectKey{Name: name}, &va)", "mutantInstead(§, l.volumes.cache, …)",
	},
	{
		"attachments are listed from the cache before the removals for many", liveFile,
		"«l.Reader».List(ctx, &list)", "mutantInstead(§, l.volumes.cache, …)",
	},
	{
		"a list of pods counts from its answer", liveReadsFile,
		"v.listed, v.off = «began»", "mutantInstead(§, r.clock.Now(), …)",
	},
	{
		"an attachment is deleted by the pods that were listed before the release", writesFile,
		"«r.live.UsersOf(timed, v.pv, pods)»", "func() ([]corev1.Pod, error) { if mutantIs(§) { return nil, nil }; return … }()",
	},
	{
		"volumesInUse is taken from an old read", inUseFile, "«overtaken = true»", "if !mutantIs(§) { … }",
	},

	{
		"LINSTOR is restarted by a Lease of the cache", "controllers/linstor_sight.go",
		"if err := «l.live.Lease(ctx, node)»; err != nil {", "func() error { if mutantIs(§) { return nil }; return … }()",
	},

	// What is decided, read and remembered again, because a process may stand still and an act takes time.
	{
		"nothing is decided again before a kind of write", liveReadsFile,
		"v.in = «r.inputs.Again(v.in, v.off)»", "mutantInstead(§, v.in, …)",
	},
	{
		"LINSTOR is not polled during an act", nodeFile,
		"time.Now().Add(«wait+pollFor»)", "func() time.Duration { if mutantIs(§) && wait > 0 { return 0 }; return … }()",
	},
	{
		"that a fail-over has begun is only known once the cache shows it", writesFile,
		"progress.begun = «v.in.Attachment.UID»", `mutantInstead(§, "", …)`,
	},
	{
		"a deleted attachment is forgotten before Kubernetes has noticed", gatherFile,
		"«v.lingering(r.clock.Now())»", "mutantInstead(§, nil, …)",
	},
	{
		"a volume is forgotten while its PersistentVolume is created again", gatherFile,
		"; «recreated» {", "(… && !mutantIs(§))",
	},
	{
		"a pod of LINSTOR is deleted by what was decided before its node was tainted", recoveryFile,
		"d = «failover.Recover(in)»\n\t\tif until", "func() failover.Decision { if mutantIs(§) { return d }; return … }()",
	},

	// The order of the steps.
	{
		"a volume is detached while a pod uses it", planFile, "case «len(in.Pods) > 0»:\n\t\t\tv.Step", "(… && !mutantIs(§))",
	},
	{
		"a volume that is not lost has a step", planFile, "case «v.Verdict != Lost»:", "(… && !mutantIs(§))",
	},
	{
		"a pod is removed once for each of its lost volumes", planFile, "if «!ok» {\n\t\tknown[pod.UID]", "(… || mutantIs(§))",
	},
	{
		"a pod goes before all its lost volumes are marked", planFile,
		"«removal.Volumes = append(removal.Volumes, volume)»", "if !mutantIs(§) { … }",
	},
	{
		"the first way to remove a pod wins", planFile,
		"if «slices.Index(strongest, how) < slices.Index(strongest, removal.How)» {", "(… && !mutantIs(§))",
	},
	{
		"the last way to remove a pod wins", planFile,
		"if «slices.Index(strongest, how) < slices.Index(strongest, removal.How)» {", "(… || mutantIs(§))",
	},
	{
		"pods are removed and nothing keeps the next away", writesFile,
		"«r.taints.keepAway(ctx, node, used)»", "func() error { if mutantIs(§) { return nil }; return … }()",
	},
	{
		"pods are removed although the next can not be kept away", writesFile,
		"«v.failed(&keepAwayError{err})»", "if !mutantIs(§) { … }",
	},
	{
		"pods are removed without an annotation", writesFile,
		"«r.annotateOne(ctx, missing[i])»", "func() error { if mutantIs(§) { return nil }; return … }()",
	},

	{
		"a reconcile does not take over what others have written that nodes may run", gatherFile,
		"«r.memory.take(name, resource, attachments, r.clock.Now())»", "func() error { if mutantIs(§) { return nil }; return … }()",
	},

	// What is said.
	{
		"a node is not reconciled when its kubelet falls silent", "controllers/node_events.go",
		"«r.kubelets.Silent(span, span+2*silenceInterval)»", "mutantInstead(§, nil, …)",
	},
	{
		"a rejected step is reported to nobody", reportFile,
		"failure = «v.err.Error()»", `mutantInstead(§, "", …)`,
	},
	{
		"an Event of a node does not say which", reportFile,
		"node.Name, «node.UID»", `mutantInstead(§, "", …)`,
	},
	{
		"an Event of the Deployment does not say which", haltFile,
		"name.Name, «deployment.UID»)", `mutantInstead(§, "", …)`,
	},

	// Whose it is.
	{
		"attachments of any driver are ours", attachmentsFile,
		"return «va.Spec.Attacher == a.driver» && va", "(… || mutantIs(§))",
	},
	{
		"pods that do not use the volume count", liveFile,
		"if «uses(&all[i], claims)» {", "(… || mutantIs(§))",
	},
	{
		"a volume that was released is the claim's", volumesFile,
		"«pv.Status.Phase != corev1.VolumeBound»", "(… && !mutantIs(§))",
	},
	{
		"the claim is not read where it may be another's", liveFile,
		"return «claim.UID == ref.UID && claim.Spec.VolumeName == pv.Name», nil", "(… || mutantIs(§))",
	},
	{
		"every pod is selected", podsFile, "Selected:  «selector.Matches(labels.Set(pod.Labels))»,", "(… || mutantIs(§))",
	},
	{
		"no pod is exempt", podsFile, "Exempt:    «isExempt(pod)»,", "(… && !mutantIs(§))",
	},
	{
		"every pod has an owner", podsFile, "Owned:     «owner != nil»,", "(… || mutantIs(§))",
	},
	{
		"every volume of a pod may move", podsFile,
		"return «source.ConfigMap != nil || source.Secret != nil || source.Projected != nil || source.DownwardAPI != nil || source.EmptyDir != nil ||\n\t\t" +
			"source.Image != nil || source.CSI != nil || source.NFS != nil || source.HostPath != nil && isReadOnly(pod, volume.Name)»",
		"(… || mutantIs(§))",
	},
	{
		"a directory of the node that some container can write may move", podsFile,
		"«!slices.ContainsFunc(mounts, func(m corev1.VolumeMount) bool { return !m.ReadOnly })»", "(… || mutantIs(§))",
	},
	{
		"every volume of another driver that many nodes may use is a file system", podsFile, "«!isBlock(pv)»", "(… || mutantIs(§))",
	},

	// A kernel without a kubelet, and volumes with two Primaries.
	{
		"a node without a kubelet is lost while a peer may not be promoted", "internal/failover/verdict.go",
		"case knowsOfPrimary(replica), «to.is(true) && !replica.MayPromote.is(true)»:", "(… && !mutantIs(§))",
	},
	{
		"a node without a kubelet is lost with raw block", "internal/failover/verdict.go",
		"(s.cond.state == Unreachable || s.cond.state == Secondary) && «!s.Volume.Block» && !s.readOnly()\n}", "(… || mutantIs(§))",
	},
	{
		"a shared volume has no longer grace", decideFile, "if «s.shared() && s.cond.state == Unreachable» {", "(… && !mutantIs(§))",
	},
	{
		"a shared volume is detached while it is in use", planFile,
		"return s.shared() && !s.isAway() && !s.Resource.hasLeft(s.Node.satellite()) && «!replica.InUse.is(false)»", "(… && !mutantIs(§))",
	},
	{
		"a shared volume is taken by force from a node that is heard", "internal/failover/removal.go",
		"«s.shared() && !s.isAway()»:", "(… && !mutantIs(§))",
	},
	{
		"a fail-over goes on for pods that it has not begun for", decideFile,
		"«!slices.ContainsFunc(in.Pods, func(pod Pod) bool { return !begun(pod) })»", "(… || mutantIs(§))",
	},
	{
		"the grace before a removal by force counts from the first deletion", "internal/failover/input.go",
		"return «latest(p.GraceEnds(), p.Begun.Add(grace))»", "mutantInstead(§, p.GraceEnds(), …)",
	},
	{
		"a move is announced that a gate forbids", "internal/failover/wait.go",
		"if reason, message := gated(assess(in)); «reason != \"\"» {", "(… && !mutantIs(§))",
	},
	{
		"a pod goes without one that holds a volume of it that is not lost", "internal/failover/gates.go",
		"} else if «s.otherFenced(other)» {", "(… || mutantIs(§))",
	},
	{
		"a node stays newly lost for good", "internal/failover/guard.go",
		"«!v.Up.IsZero() && v.Now.Sub(latest(after.lost, v.Up)) >= GuardQuiet»:", "(… && !mutantIs(§))",
	},

	// What holds everything back.
	{
		"what holds back is not asked for before a removal", liveReadsFile,
		"v.in.Halt = «hold»", "mutantInstead(§, v.in.Halt, …)",
	},
	{
		"an unreadable pause is none", haltFile,
		`return «fmt.Sprintf("cannot read whether Deployment %s pauses fail-over: %v", name, err)»`,
		`mutantInstead(§, "", …)`,
	},
	{
		"a dry run is none", haltFile, "Agents: h.agents(), DryRun: «h.dryRun»}", "(… && !mutantIs(§))",
	},
	{
		"nodes with a lost volume are not counted", haltFile, "LostVolume: «lost[node.Name]»,", "(… && !mutantIs(§))",
	},

	// Clocks of our own.
	{
		"a Lease is judged by the kubelet's clock", leaseFile,
		"leaseSeen{renewed: renewed, seen: «now»,", "mutantInstead(§, renewed, …)",
	},

	// What a node runs: what is asked of it.
	{"a node need not be known to run quorum", fencingFile, "case «!a.Confirmed»:", "(… && !mutantIs(§))"},
	{"a node may count more disks than LINSTOR shows", fencingFile, "case «!a.Gone && !evidence.Outvotes(r.Quorum, mine)»:", "(… && !mutantIs(§))"},
	{"a disk beside a node without one may run anything", fencingFile, "near := «evidence.MayLackDisk(mine, a.Node) && !replica.Diskless && !t.heard[replica.Node] && evidence.Counts(mine, replica.Node)»", "(… && !mutantIs(§))"},
	{"a survivor may run anything", fencingFile, "(«survives(replica)» || r.lendsData(replica))", "(… && !mutantIs(§))"},
	{"whose data a survivor takes may run anything", fencingFile, "(survives(replica) || «r.lendsData(replica)»)", "(… && !mutantIs(§))"},
	{"a survivor need not run quorum", fencingFile, "case «!replica.Confirmed»:", "(… && !mutantIs(§))"},
	{"a survivor may count other replicas", fencingFile, "case «!evidence.Alike(mine, r.votesOf(replica))»:", "(… && !mutantIs(§))"},
	{"who may count other replicas counts the same", votesFile, "return «!v.certain()» }", "(… && !mutantIs(§))"},
	{"a node without a disk has only the votes that it knows", votesFile, "half := «!hasDisk» &&", "(… && !mutantIs(§))"},
	{"a node without quorum survives", witnessFile, "if contradicted || «isWithoutQuorum(r, replica, node)» {", "(… && !mutantIs(§))"},

	// What shows that it has applied what LINSTOR wants.
	{"the first reading is believed at once", nodeEvidenceFile, "case «s.LastOnline >= n.first+beginAfter» &&", "(… || mutantIs(§))"},
	{"the first reading is believed of a node whose Lease is not renewed", nodeEvidenceFile, "&& «s.Alive > n.first» &&", "(… || mutantIs(§))"},
	{"every replica counts as created while LINSTOR was followed", nodeEvidenceFile, "case «n.Created»:", "(… || mutantIs(§))"},
	{"a peer that came with the node shows what is applied", nodeEvidenceFile, "&& «p.Lacked > x.Lacked» {", "(… || mutantIs(§))"},
	{"a peer that was there shows what is applied", nodeEvidenceFile, "&& «n.peers[at].first >= p.Listed» &&", "(… || mutantIs(§))"},
	{"a person's quorum counts as applied with the next replica", nodeEvidenceFile, "if «person» {\n", "(… && !mutantIs(§))"},
	{"a node need not list each peer", nodeEvidenceFile, "n.first == 0 || «!n.listsAll(x)» {", "(… && !mutantIs(§))"},
	{"a node that is back shows at once what is applied", nodeEvidenceFile, "max(s.Back, x.Since, s.Sighted)+«adjustedAfter»", "mutantInstead(§, 0, …)"},
	{
		"error reports say nothing", nodeEvidenceFile, "(!f.NeedsReports() || «s.Reports.clear(x.Resource, s.Away, s.Back+adjustedAfter)»)",
		"(… || mutantIs(§))",
	},
	{"error reports of an older satellite count", "internal/evidence/reports.go", "«process(one.ID) == present» &&", "(… || mutantIs(§))"},
	{"a disk that LINSTOR has changed is counted as it is now", nodeEvidenceFile, "if «p.Toggled > n.applied» &&", "(… && !mutantIs(§))"},
	{"a node that sees each disk may not count one", nodeEvidenceFile, "x.UpToDate > 0 && «x.UpToDate == n.visible(x)» {", "(… && !mutantIs(§))"},
	{"a peer that LINSTOR has forgotten has no vote", nodeEvidenceFile, "&& «forgotten(p.node) <= n.applied» })", "(… || mutantIs(§))"},
	{"a replica that is back runs what LINSTOR wants", nodeEvidenceFile, "if «n.gone && !n.frozen» {", "(… && !mutantIs(§))"},
	{"a quorum that a person sets anew was applied before", fenceFile, "turned := «r.Marked && !f.last.Marked»", "(… && !mutantIs(§))"},
	{
		"a replica that was there counts as created by an event", storeEvidenceFile,
		"case «replica.listed != 0 && !replica.returned && (!replica.Reports.Value || stampOf(at)-replica.listed <= stamp(announceFor))»:",
		"(… || mutantIs(§))",
	},
	{"a replica that is back counts as created by an event", storeEvidenceFile, "case replica.listed != 0 && «!replica.returned» &&", "(… || mutantIs(§))"},
	{"an event that says nothing new has nothing read", "internal/linstor/stream.go", "«f.pollUnlessReplayed(ev, at)»", "if !mutantIs(§) { … }"},
	{"a replay has every resource read", "internal/linstor/reading.go", "case «one.early»:", "(… && !mutantIs(§))"},
	{"what has changed in Kubernetes is not decided", "controllers/node_events.go", "«r.changed.addAll(node)»\n\t\t\tq.AddAfter", "if !mutantIs(§) { … }"},
	{"timers of other volumes end with a reconcile of some", nodeFile, "«state.others = state.due»", "if !mutantIs(§) { … }"},

	// How that is remembered.
	{"which nodes are unconfirmed is not kept", memoryFile, "if «text != \"\"» {", "(… && !mutantIs(§))"},
	{"what other processes have kept is not taken over", memoryFile, "«m.linstor.Tell(resource, news, now)»", "if !mutantIs(§) { … }"},
	{
		"nothing is kept of a replica that LINSTOR forgot", goneFile,
		"case «!online || r.read < s.events || inUse || !r.InUse.Known && !r.Leaving»:", "(… && !mutantIs(§))",
	},
	{
		"the definition may be older than the replicas", storeFile, "return d == nil || «d.read < e.reshaped»", "(… && !mutantIs(§))",
	},
	{
		"the definition is not read again when replicas have changed", refreshFile, "«!f.store.settingsInDoubt(name)»", "(… || mutantIs(§))",
	},
	{
		"the definition is not read again once a replica has gone", "internal/linstor/apply_settings.go",
		"|| «e.shrunk != 0 && d.read < e.shrunk+stamp(shrunkApart)»", "(… && !mutantIs(§))",
	},

	// Nodes that leave on purpose.
	{
		"LINSTOR is told to evacuate by an old look", evacGatesFile,
		"return «s.Now.Sub(s.Linstor.Asked) <= MaxAge»", "(… || mutantIs(§))",
	},
	{
		"any look is new enough for any call", "internal/evacuation/rules.go",
		"«s.Now.Sub(s.Linstor.Asked) > plan.Step.Call.MaxAge()» {", "(… && !mutantIs(§))",
	},
	{
		"LINSTOR is told to evacuate by the attachments in the cache", leaveFile,
		"Attachments: «s.Now.Sub(s.Attachments.Read) > MaxAge»,", "(… && !mutantIs(§))",
	},
	{
		"LINSTOR's balancing is not kept from a copy", marksFile, "set[«PropBalance»] = balanceOff",
		`mutantInstead(§, "none", …)`,
	},
	{
		"a copy has no mark by which the balancing is found again", marksFile, "set[«PropMark»] = strings.Join",
		`mutantInstead(§, "none", …)`,
	},
	{
		"what a person has set since goes with the mark", marksFile, "if «m.Balance == balanceOff» {", "(… || mutantIs(§))",
	},
	{
		"LINSTOR is asked for a copy on any node", copyFile, "Targets: «targets», Mark:", "mutantInstead(§, nil, …)",
	},
	{
		"nothing notes that LINSTOR was told to evacuate", leaveFile,
		"progress.Asked, progress.Asks = «&now», progress.Asks+1", "mutantInstead(§, nil, …)",
	},
}
