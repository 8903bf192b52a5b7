package main

import "regexp"

const (
	satellitesFile = "internal/cluster/satellites.go"
	recoveryFile   = "controllers/recovery_controller.go"
	decideFile     = "internal/failover/decide.go"
	copiesFile     = "internal/evacuation/copies.go"
	copyFile       = "internal/evacuation/copy.go"
	evacInputFile  = "internal/evacuation/input.go"
	evacGatesFile  = "internal/evacuation/gates.go"
	leaveFile      = "internal/evacuation/leave.go"
	returnFile     = "internal/evacuation/return.go"
	stateFile      = "internal/failover/state.go"
	witnessFile    = "internal/failover/witness.go"
	readingFile    = "internal/linstor/reading.go"
	goneFile       = "internal/linstor/gone.go"
	refreshFile    = "internal/linstor/refresh.go"
	storeFile      = "internal/linstor/store.go"
)

// simulated are the rules that the random simulation has to miss by itself, however well other tests know them: what is switched off
// must lead to a history that ends badly.
var simulated = []edit{
	{
		"the guard is off", "internal/failover/guard.go",
		"if «!limit.exceeded(len(lost), len(lost)+healthy)» {", "(… || mutantIs(§))",
	},

	{
		"one answer shows that LINSTOR is blind", "internal/failover/blind.go",
		"return «u.last.Sub(u.first) >= BlindApart»", "mutantInstead(§, !u.last.IsZero(), …)",
	},

	// What is done again, because the world changes amid an act. Something else holds the others that edits.go names as well, so that only stories
	// show them: the live read of LINSTOR, as no decision rests on anything older than two seconds; the age of the live list and the second list, as
	// a pod that has just come does not run on a node without storage; the memories of a begun fail-over, of a deleted attachment and of a
	// PersistentVolume that is created again.
	{
		"a pod is deleted by its name alone", writesFile, "«client.Preconditions{UID: &d.pod.UID, ResourceVersion: &version}»",
		"mutantInstead(§, client.Preconditions{}, …)",
	},
	{
		"a pod is deleted in any version", writesFile, "ResourceVersion: «&version»", "mutantInstead(§, nil, …)",
	},
	{
		"nothing is decided again before a kind of write", liveReadsFile, "v.in = «r.inputs.Again(v.in, v.off)»", "mutantInstead(§, v.in, …)",
	},
	{
		"a request is sent however long ago it was decided on", writesFile, "if «r.clock.Now().Sub(v.in.Now) > failover.ActAge» {",
		"(… && !mutantIs(§))",
	},
	{
		"LINSTOR is not polled during an act", nodeFile, "time.Now().Add(«wait+pollFor»)",
		"func() time.Duration { if mutantIs(§) && wait > 0 { return 0 }; return … }()",
	},
	{
		"a pod of LINSTOR is deleted by what was decided before its node was tainted", recoveryFile, "d = «failover.Recover(in)»\n\t\tif until",
		"func() failover.Decision { if mutantIs(§) { return d }; return … }()",
	},

	// Who is meant.
	{
		"a volume that was released is the claim's", volumesFile,
		"«pv.Status.Phase != corev1.VolumeBound»", "(… && !mutantIs(§))",
	},
	{
		"the claim is not read where it may be another's", liveFile,
		"return «claim.UID == ref.UID && claim.Spec.VolumeName == pv.Name», nil", "(… || mutantIs(§))",
	},
	{
		"volumes of one resource have pods of their own", volumesFile, "if «resource == \"\"» {\n\t\treturn bound, nil", "(… || mutantIs(§))",
	},
	{
		"nodes have the same names in LINSTOR", satellitesFile, `name := s.names[node]; «name != ""» {`, "(… && !mutantIs(§))",
	},
	{
		"a pod that has ended holds its volumes", podsFile, "if «Ended(pod) && !Disrupted(pod)» {", "(… && !mutantIs(§))",
	},
	{
		"a pod that others have disrupted is marked by a fail-over", podsFile,
		"«strings.HasPrefix(c.Message, DisruptedBy)»", "(… || mutantIs(§))",
	},
	{
		"init containers do not count as having run", podsFile,
		"«slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)»", "mutantInstead(§, pod.Status.ContainerStatuses, …)",
	},

	{
		"a taint that was forgotten says that the node is off", "internal/failover/gates.go", "s.Node.SwitchedOff || «s.Node.TakenOut»)",
		"mutantInstead(§, s.Node.OutOfService, …)",
	},

	{
		"a claim without a volume keeps no pod", "internal/failover/gates.go", "case «pod.UnboundClaim != \"\"»:", "(… && !mutantIs(§))",
	},
	{
		"a pod that stays keeps no other one on its volume", "internal/failover/gates.go",
		"if reason, message := gateAlone(s, user); «reason != \"\"» {", "(… && !mutantIs(§))",
	},

	// Still there.
	{
		"nobody waits until the others are still there", decideFile,
		"missed, ok := s.missedSince(); «ok && !s.othersStillThere(missed.Add(stillThere))» {", "(… && !mutantIs(§))",
	},

	// The unanimous grace.
	{
		"LINSTOR need not miss a node for its loss to be unanimous", "internal/failover/unanimous.go",
		"return !replica.Gone && «replica.Online.is(false)»\n", "(… || mutantIs(§))",
	},
	{
		"the unanimous grace applies where it is off", "internal/failover/unanimous.go",
		"max(«s.Settings.UnanimousGrace»-s.Now.Sub(f.since),", "mutantInstead(§, 0, …)",
	},

	// Whose word counts.
	{
		"a replica that LINSTOR forgot denies that it is connected", witnessFile, "«!t.heard[peer] && !r.hasLeft(peer)»\n",
		"(… && !(mutantIs(§) && func() bool { known, ok := r.Replica(peer); return !ok || known.Gone }()))",
	},
	{
		"a pod is removed by force whatever its other volumes run", "internal/failover/removal.go",
		"s.Node.LeaseSilent(ForceSilence) && «s.othersFenced(pod)»", "(… || mutantIs(§))",
	},

	// Who has set a quorum.
	{
		"a person's quorum on the controller counts as LINSTOR's own", "internal/linstor/store.go", "|| «l[2].byUser»\n",
		"(… && !mutantIs(§))",
	},

	// How it is read.
	{
		"definitions are not read by themselves", readingFile, "listDefinitions: {read: «f.readDefinitions»",
		"func(ctx context.Context, at time.Time) error { if mutantIs(§) { return nil }; return …(ctx, at) }",
	},
	{
		"groups are not read by themselves", readingFile, "listGroups:      {read: «f.readGroups»",
		"func(ctx context.Context, at time.Time) error { if mutantIs(§) { return nil }; return …(ctx, at) }",
	},
	{
		"the controller's properties are not read by themselves", readingFile, "listController:  {read: «f.readController»",
		"func(ctx context.Context, at time.Time) error { if mutantIs(§) { return nil }; return …(ctx, at) }",
	},
	{
		"the definition is not read at once when replicas have changed", refreshFile, "«!f.store.settingsInDoubt(name)»", "(… || mutantIs(§))",
	},

	// Nodes that leave on purpose: the gates.
	{
		"LINSTOR is told something for a node that is lost", evacGatesFile, "return when(«s.FailOver != \"\"», FailingOver, s.FailOver)",
		"(… && !mutantIs(§))",
	},
	{
		"LINSTOR is told something for a node that it does not reach", evacGatesFile, "return when(«s.self.Online != Yes», SatelliteOffline,",
		"(… && !mutantIs(§))",
	},
	{
		"a node with a volume in use, or attached, is evacuated", evacGatesFile, "of our volumes is attached\", «gateDrained»}",
		"mutantInstead(§, func(situation) (Reason, string) { return \"\", \"\" }, …)",
	},
	{
		"a node with a volume that syncs is evacuated", evacGatesFile, "is being created or toggles\", «gateSettled»}",
		"mutantInstead(§, func(situation) (Reason, string) { return \"\", \"\" }, …)",
	},
	{
		"a node that somebody else evacuates is evacuated, too", evacGatesFile, "return when(«s.byOther()», EvacuatedByOther,", "(… && !mutantIs(§))",
	},

	{
		"LINSTOR is told something while most nodes are lost", evacGatesFile, "return when(«s.Halt.Guard != \"\"», GuardTripped,", "(… && !mutantIs(§))",
	},
	{
		"LINSTOR is told something while fail-over is paused", evacGatesFile, "return when(«s.Halt.Paused != \"\"», Paused,", "(… && !mutantIs(§))",
	},
	{
		"a dry run tells LINSTOR something", evacGatesFile, "return when(«s.Halt.DryRun», DryRun,", "(… && !mutantIs(§))",
	},
	{
		"a LINSTOR that does not answer has nothing on the node", evacGatesFile, "return when(«s.Linstor.Problem != \"\"», LinstorStale,",
		"(… && !mutantIs(§))",
	},

	// What a good copy is. Not all of it is here, since something else holds it as well, so that no history but only a test of the policy shows
	// it: LINSTOR has no word on a disk whose satellite is not ONLINE, and a replica is EVICTED or flagged EVACUATE together with its node. One
	// that is INACTIVE by itself no history of the first 2,000 needs. The same holds for gates: what has no good copy is copied before the
	// second one is asked, and the age of a look is asked for three times.
	{
		"a volume needs no good copy elsewhere", copiesFile,
		"return «slices.ContainsFunc(v.Replicas, func(r Replica) bool {\n\t\treturn r.Node != s.self.Satellite && s.good(v, r) && v.keepsUp(r, here)\n\t})»",
		"(… || mutantIs(§))",
	},
	{
		"a good copy may be about to go", copiesFile, "return v.upToDate(r) && «staying(r)» && !r.Moves && s.node(r.Node).steady()", "(… || mutantIs(§))",
	},
	{
		"a good copy may be flagged DELETE", copiesFile, "return !r.has(«flagDelete», flagDRBDDelete, flagEvicted,", "mutantOther(§, …)",
	},
	{
		"a good copy may be flagged DRBD_DELETE", copiesFile, "return !r.has(flagDelete, «flagDRBDDelete», flagEvicted,", "mutantOther(§, …)",
	},
	{
		"a good copy need not be connected", copiesFile, "return v.isBehind(here) || «joined(here, r)»", "(… || mutantIs(§))",
	},
	{
		"a good copy may be on a node that is not Ready", evacInputFile, "return n.Online == Yes && «n.Ready == Yes»", "(… || mutantIs(§))",
	},
	{
		"a good copy need not be UpToDate", copiesFile, "return «v.upToDate(r)» && staying(r) && !r.Moves && s.node(r.Node).steady()", "(… || mutantIs(§))",
	},
	{
		"a good copy may be on a node that leaves", evacInputFile, "return «len(n.Evacuate) > 0» || n.Going", "(… && !mutantIs(§))",
	},
	{
		"a volume needs no quorum without the node", copiesFile, "return «v.needsNone()» || slices", "(… || mutantIs(§))",
	},

	// Where copies go, and that they stay.
	{
		"a copy may be on a node that the resource group does not list", copyFile, "return «len(d.Nodes) > 0» && !slices.Contains(d.Nodes, name)",
		"(… && !mutantIs(§))",
	},
	{
		"LINSTOR may evacuate to a node that leaves", leaveFile, "plan.Step.DoNotTarget = «s.otherLeaving()»", "mutantInstead(§, nil, …)",
	},
	{
		"LINSTOR's balancing removes copies", copyFile, "Mark: «v.Definition.Mark.With(s.entry()) != nil»", "(… && !mutantIs(§))",
	},
	{
		"a node is restored that somebody else has evacuated", returnFile, "if s.self.Evacuating && «s.ours(s.self)» {", "(… || mutantIs(§))",
	},

	// What LINSTOR forgets.
	{
		"a replica that LINSTOR forgot has gone", goneFile, "case «!online || r.read < s.events || inUse || !r.InUse.Known && !r.Leaving»:",
		"((…) && !mutantIs(§))",
	},
}

// failingSeed is how the simulation names the history that has ended badly.
var failingSeed = regexp.MustCompile(`seed (\d+): `)
