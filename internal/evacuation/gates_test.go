package evacuation

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestGates asks each gate alone: all let an input pass in which all is well, and one just does not let the edited one.
func TestGates(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		gate func(situation) (Reason, string)
		edit edit
		want Reason
	}{
		"1: a node that is lost":               {gateWell, func(in *Input) { in.FailOver = "it is lost" }, FailingOver},
		"1: LINSTOR's answer is too old":       {gateWell, func(in *Input) { in.Linstor.Asked = now.Add(-MaxAge - 1) }, LinstorStale},
		"1: LINSTOR was not asked":             {gateWell, func(in *Input) { in.Linstor.Asked = time.Time{} }, LinstorStale},
		"1: LINSTOR did not answer":            {gateWell, func(in *Input) { in.Linstor.Problem = "no answer" }, LinstorStale},
		"1: LINSTOR does not list everything":  {gateWell, func(in *Input) { in.Linstor.Missing = "pvc-9" }, LinstorStale},
		"1: the node is not ONLINE":            {gateWell, the(nodeA, func(n *Node) { n.Online = No }), SatelliteOffline},
		"1: it is not known whether it is":     {gateWell, the(nodeA, func(n *Node) { n.Online = Unknown }), SatelliteOffline},
		"1: the guard is closed":               {gateWell, func(in *Input) { in.Halt.Guard = "x" }, GuardTripped},
		"1: somebody has paused it":            {gateWell, func(in *Input) { in.Halt.Paused = "x" }, Paused},
		"1: node agents run":                   {gateWell, func(in *Input) { in.Halt.Agents = "x" }, NodeAgentRuns},
		"1: it is a dry run":                   {gateWell, func(in *Input) { in.Halt.DryRun = true }, DryRun},
		"2: a volume has no copy elsewhere":    {gateCopies, with(volume("pvc-1", disk(nodeA))), Copying},
		"2: the second volume has none":        {gateCopies, with(volume("pvc-1", disk(nodeA), disk(nodeB)), volume("pvc-2", disk(nodeA))), Copying},
		"2: the copy still syncs":              {gateCopies, with(volume("pvc-1", disk(nodeA), disk(nodeB, syncing(99)))), Copying},
		"2: the disk here is being removed":    {gateCopies, with(volume("pvc-1", func() Replica { r := diskless(nodeA); r.Flags = []string{"DISK_REMOVING"}; return r }())), Copying},
		"3: a volume is in use":                {gateDrained, with(volume("pvc-1", disk(nodeA, inUse), disk(nodeB))), WaitingForDrain},
		"3: it is not known whether it is":     {gateDrained, with(volume("pvc-1", disk(nodeA, func(r *Replica) { r.InUse = Unknown }), disk(nodeB))), WaitingForDrain},
		"3: a volume without a disk is in use": {gateDrained, with(volume("pvc-1", func() Replica { r := diskless(nodeA); r.InUse = Yes; return r }(), disk(nodeB))), WaitingForDrain},
		"3: a volume is attached":              {gateDrained, func(in *Input) { in.Attachments.Volumes = []string{"pvc-1"} }, WaitingForDrain},
		"3: a volume is attached by its name":  {gateDrained, func(in *Input) { in.Volumes[0].Claims[0].Attached = true }, WaitingForDrain},
		"4: a volume syncs elsewhere":          {gateSettled, with(volume("pvc-1", disk(nodeA), disk(nodeB), disk(nodeC, syncing(1)))), Leaving},
		"4: a volume syncs without saying where": {
			gateSettled, with(volume("pvc-1", disk(nodeA), disk(nodeB, func(r *Replica) { r.Syncing = true }))), Leaving,
		},
		"4: a replica has not been synced":        {gateSettled, with(volume("pvc-1", disk(nodeA), disk(nodeB), disk(nodeC, state(diskInconsistent)))), Leaving},
		"4: a replica is being created":           {gateSettled, with(volume("pvc-1", disk(nodeA), disk(nodeB), disk(nodeC, state("")))), Leaving},
		"4: a tie-breaker is being created":       {gateSettled, with(volume("pvc-1", disk(nodeA), disk(nodeB), Replica{Node: nodeC, Diskless: true})), Leaving},
		"4: a tie-breaker is about to get a disk": {gateSettled, with(volume("pvc-1", disk(nodeA), disk(nodeB), disk(nodeC, flagged("DISK_ADD_REQUESTED")))), Leaving},
		"4: a replica is losing its disk":         {gateSettled, with(volume("pvc-1", disk(nodeA), disk(nodeB), disk(nodeC, flagged("DISK_REMOVE_REQUESTED")))), Leaving},
		"5: the node has a flag that is not ours": {gateOwn, the(nodeA, func(n *Node) { n.Evacuating = true }), EvacuatedByOther},
		"5: a replica has a flag that is not ours": {
			gateOwn, with(volume("pvc-1", disk(nodeA, flagged("EVACUATE")), disk(nodeB))), EvacuatedByOther,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if reason, message := row.gate(assess(tainted(Everything, safely))); reason != "" {
				t.Fatalf("the gate is closed where all is well: %s, %s", reason, message)
			}
			in := tainted(Everything, safely, row.edit)
			if reason, message := row.gate(assess(in)); reason != row.want {
				t.Errorf("got %q (%s), want %q", reason, message, row.want)
			}
			if reason, _ := first(gates, assess(in)); reason == "" {
				t.Error("it is not in the table")
			}
			if plan := PlanFor(in); plan.Step.Call == Evacuate {
				t.Error("LINSTOR is told to evacuate the node")
			}
		})
	}
}

// TestNothingHoldsUp has what closes no gate.
func TestNothingHoldsUp(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]edit{
		"a peer that is offline and shows no state": edited(
			with(volume("pvc-1", disk(nodeA), disk(nodeB), disk(nodeC, state("")))), the(nodeC, func(n *Node) { n.Online = No })),
		"a peer whose disk has failed":  with(volume("pvc-1", disk(nodeA), disk(nodeB), disk(nodeC, state("Failed")))),
		"a peer whose disk is Outdated": with(volume("pvc-1", disk(nodeA), disk(nodeB), disk(nodeC, state("Outdated")))),
		"a volume elsewhere that syncs": with(volume("pvc-1", disk(nodeA), disk(nodeB)), volume("pvc-2", disk(nodeC), disk(nodeD, syncing(1)))),
		"a flag that is ours":           edited(asked(10*time.Minute, 1), unchangedFrom(time.Hour)),
		"a volume here that has no DRBD layer": func(in *Input) {
			in.Volumes = append(in.Volumes, Volume{Resource: "pvc-2", Replicas: []Replica{{Node: nodeA}}})
		},
		"the disk here is not UpToDate any more":   with(volume("pvc-1", disk(nodeA, state("Failed")), disk(nodeB))),
		"another node that has begun after this":   alsoLeaving(nodeD, time.Minute, Conditions{}),
		"another node that has only been told off": the(nodeD, func(n *Node) { n.Evacuate = []Taint{{"", "NoExecute"}} }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := tainted(Everything, safely, edit)
			if plan := PlanFor(in); plan.Step.Call != Evacuate {
				t.Errorf("LINSTOR is not told to evacuate the node: %+v", plan)
			}
		})
	}
}

// TestAskReadsFirst has what must have been read before LINSTOR is told.
func TestAskReadsFirst(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		edit edit
		want Needs
	}{
		"attachments from the cache":  {func(in *Input) { in.Attachments.Read = time.Time{} }, Needs{Attachments: true}},
		"attachments that are old":    {func(in *Input) { in.Attachments.Read = now.Add(-MaxAge - 1) }, Needs{Attachments: true}},
		"LINSTOR's version":           {func(in *Input) { in.Version = Version{} }, Needs{Version: true}},
		"snapshots":                   {func(in *Input) { in.Snapshots = Count{} }, Needs{Snapshots: true}},
		"snapshots where it has left": {edited(with(), func(in *Input) { in.Snapshots = Count{} }), Needs{Snapshots: true}},
	} {
		plan := PlanFor(tainted(Everything, safely, row.edit))
		if plan.Step.Call != Nothing || plan.Needs.Attachments != row.want.Attachments || plan.Needs.Version != row.want.Version ||
			plan.Needs.Snapshots != row.want.Snapshots {
			t.Errorf("%s: %+v, want %+v", name, plan, row.want)
		}
	}
}

// TestOldLook has that no step rests on an old look, and that what is so is told all the same.
func TestOldLook(t *testing.T) {
	t.Parallel()
	old := func(in *Input) { in.Linstor.Asked = now.Add(-slowAge - 1) }
	slow := func(in *Input) { in.Linstor.Asked = now.Add(-slowAge) }
	for name, edit := range map[string]edit{"a copy": func(*Input) {}, "a return": edited(untainted, asked(time.Hour, 1))} {
		if plan := PlanFor(tainted(Everything, edit, old)); plan.Step.Call != Nothing || plan.Again != Interval {
			t.Errorf("%s rests on an old look: %+v", name, plan)
		}
		if plan := PlanFor(tainted(Everything, edit, slow)); plan.Step.Call == Nothing {
			t.Errorf("%s waits for a LINSTOR that is slow: %+v", name, plan)
		}
	}
	if plan := PlanFor(tainted(Everything, safely, func(in *Input) { in.Linstor.Asked = now.Add(-MaxAge - 1) })); plan.Step.Call != Nothing || Evacuate.MaxAge() != MaxAge {
		t.Errorf("an evacuation rests on an old look: %+v", plan)
	}
	if plan := PlanFor(tainted(Everything, untainted, func(in *Input) { in.Progress, in.Linstor = nil, Linstor{} })); plan.Again != 0 {
		t.Errorf("a node that is nobody's is looked at again after %s", plan.Again)
	}
	if plan := PlanFor(tainted(LastCopies, safely, old)); conditionText(plan.Conditions.Safe) != "True CopiedElsewhere" {
		t.Errorf("a slow LINSTOR makes the node unsafe: %+v", plan)
	}
}

// TestNameInLinstor has that what LINSTOR is told and asked names the node as the look has found it there.
func TestNameInLinstor(t *testing.T) {
	t.Parallel()
	renamed := edited(with(volume("pvc-1", disk("linstor-a"), disk(nodeB, connected("linstor-a")))), the(nodeA, func(n *Node) { n.Satellite = "linstor-a" }))
	for name, test := range map[string]struct {
		edit edit
		want Call
	}{
		"evacuate": {renamed, Evacuate},
		"restore":  {edited(renamed, asked(time.Hour, 1), untainted), Restore},
	} {
		in := tainted(Everything, test.edit)
		if step := PlanFor(in).Step; step.Call != test.want || step.Node != "linstor-a" {
			t.Errorf("%s: LINSTOR is told %+v", name, step)
		}
		if in.Satellite() != "linstor-a" {
			t.Errorf("%s: it is asked about %q", name, in.Satellite())
		}
	}
}

// TestLinstorIsAskedLast has when LINSTOR need not be asked.
func TestLinstorIsAskedLast(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edit edit
		asks bool
	}{
		"a node that is evacuated":             {func(*Input) {}, true},
		"a node that returns":                  {untainted, true},
		"a taint that means nothing":           {the(nodeA, func(n *Node) { n.Evacuate[0].Effect = "NoExecute" }), false},
		"a node that is lost":                  {func(in *Input) { in.FailOver = "x" }, false},
		"a pause":                              {func(in *Input) { in.Halt.Paused = "x" }, false},
		"a node that is nobody's":              {edited(untainted, func(in *Input) { in.Progress = nil }), false},
		"a node that returns, while all waits": {edited(untainted, func(in *Input) { in.Halt.Guard = "x" }), false},
	} {
		plan := PlanFor(tainted(Everything, func(in *Input) { in.Linstor, in.Volumes = Linstor{}, nil }, test.edit))
		if plan.Needs.Placed != test.asks {
			t.Errorf("%s: LINSTOR is asked %t, want %t", name, plan.Needs.Placed, test.asks)
		}
	}
}

// TestEvery holds what must hold whatever the input.
func TestEvery(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := anyInput().Draw(t, "in")
		plan := PlanFor(in)
		s := assess(in)
		if plan.Needs.Any() && plan.Step.Call != Nothing {
			t.Fatal("something is done before it is known")
		}
		if plan.Step.Call != Nothing {
			if plan.Step.Call == Properties && !s.self.Listed {
				s.self.Online = Yes // LINSTOR has forgotten it
			}
			if len(s.self.Evacuate) == 0 {
				s.Linstor.Missing = "" // nothing of a return rests on that
			}
			if reason, message := first(slices.Concat(halts, hindrances, doubts), s); reason != "" || s.Now.Sub(s.Linstor.Asked) > slowAge {
				t.Fatalf("LINSTOR is told %s although %s: %s", plan.Step.Call, reason, message)
			}
		}
		switch plan.Step.Call {
		case Evacuate:
			evacuates(t, s, plan)
		case Autoplace:
			places(t, s, plan)
		case Restore:
			if s.self.Evacuator != in.Cluster || !s.self.Evacuating {
				t.Fatal("a flag is taken off that is not ours")
			}
		case Properties, Nothing:
		default:
			t.Fatalf("there is no call %q", plan.Step.Call)
		}
		if c := plan.Conditions.Safe; c != nil && c.Status == True {
			trulySafe(t, s)
		}
		if c := plan.Conditions.Evacuated; c != nil && c.Status == True && len(s.disks()) > 0 {
			t.Fatal("a disk is left on a node that has left")
		}
	})
}

// evacuates checks what must hold before LINSTOR is told to evacuate a node, by words of its own.
func evacuates(t *rapid.T, s situation, plan Plan) {
	for _, g := range gates {
		if reason, message := g.check(s); reason != "" {
			t.Fatalf("%s: %s, %s", g.name, reason, message)
		}
	}
	if s.Now.Sub(s.Linstor.Asked) > 2*time.Second || s.Now.Sub(s.Attachments.Read) > 2*time.Second || len(s.Attachments.Volumes) > 0 {
		t.Fatal("it rests on an old look, or something is attached")
	}
	for _, v := range s.Volumes {
		here, ok := v.on(s.self.Satellite)
		if !ok || !v.DRBD {
			continue
		}
		if here.InUse != No {
			t.Fatalf("%s is not known to be unused", v.Resource)
		}
		if !here.Diskless {
			independentlyGood(t, s, v)
		}
	}
	for _, n := range s.Nodes {
		if n.Name != s.Node && n.Listed && len(n.Evacuate) > 0 && s.Version.Spares && !slices.Contains(plan.Step.DoNotTarget, n.Satellite) {
			t.Fatalf("a replica may land on %s, which leaves", n.Name)
		}
	}
	if asking := plan.Step.Asking; asking == nil || asking.Asked == nil || !asking.Asked.Equal(s.Now) || asking.Asks == 0 {
		t.Fatal("nobody would know whose flag it is")
	}
	if was := s.Progress; plan.Progress.asked() != was.asked() || was.asked() && plan.Progress.Asks != was.Asks {
		t.Fatal("a call counts that was not sent")
	}
}

// independentlyGood fails where a volume has no copy elsewhere by words of its own.
func independentlyGood(t *rapid.T, s situation, v Volume) {
	for _, r := range v.Replicas {
		n := s.node(r.Node)
		if r.Node == s.self.Satellite || r.Diskless || len(r.Flags) > 0 && !onlyToggling(r.Flags) || n.Online != Yes || n.Ready != Yes ||
			len(n.Evacuate) > 0 || n.Going || n.Evacuating || n.Evicted || len(r.Disks) == 0 {
			continue
		}
		all := true
		for _, word := range r.Disks {
			all = all && word == "UpToDate"
		}
		if all {
			return
		}
	}
	t.Fatalf("%s has no good copy elsewhere: %+v", v.Resource, v.Replicas)
}

func onlyToggling(flags []string) bool {
	for _, f := range flags {
		if !slices.Contains(toggling, f) {
			return false
		}
	}
	return true
}

// places checks what must hold before LINSTOR is told to place copies.
func places(t *rapid.T, s situation, plan Plan) {
	if len(plan.Step.Copies)+s.copying() > s.Settings.MaxCopies {
		t.Fatalf("%d copies are too many beside %d", len(plan.Step.Copies), s.copying())
	}
	if len(plan.Step.Copies) == 0 {
		t.Fatal("nothing is placed")
	}
	for _, c := range plan.Step.Copies {
		if len(c.Targets) == 0 {
			t.Fatal("LINSTOR takes an empty list for no filter")
		}
		for _, target := range c.Targets {
			n := s.node(target)
			if !n.Listed || n.Online != Yes || n.Ready != Yes || n.Cordoned || n.leaving() {
				t.Fatalf("a copy may land on %+v", n)
			}
		}
	}
}

// trulySafe checks what StorageSafe promises.
func trulySafe(t *rapid.T, s situation) {
	if s.Linstor.Problem != "" || s.Linstor.Missing != "" {
		t.Fatal("not all is known")
	}
	for _, v := range s.Volumes {
		here, ok := v.on(s.self.Satellite)
		if !ok || here.Diskless {
			continue
		}
		if !v.DRBD {
			t.Fatalf("%s exists only here", v.Resource)
		}
		independentlyGood(t, s, v)
		disks := slices.DeleteFunc(slices.Clone(v.Replicas), func(r Replica) bool { return r.Diskless && !r.has(toggling...) })
		copies := slices.DeleteFunc(slices.Clone(disks), func(r Replica) bool { return r.Node == s.self.Satellite || !s.good(v, r) && !s.comes(v, r) })
		if v.Mark.Balance == "" && len(disks)-len(copies) >= max(v.PlaceCount, 1) {
			t.Fatalf("LINSTOR's balancing may remove the copy of %s", v.Resource)
		}
		for _, pv := range v.Claims {
			if pv.Attached && !pv.Elsewhere {
				t.Fatalf("the pod of %s can run nowhere else", pv.Name)
			}
		}
	}
}
