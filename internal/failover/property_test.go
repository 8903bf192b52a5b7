package failover

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

func TestAnythingIsDecidedAndNothingIsModified(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := eitherInput(t)
		before := snapshot(t, in)
		d := Decide(in)
		StateOf(in)
		for _, pod := range in.Pods {
			RemovalOf(in, pod)
		}
		TaintCauseOf(in.Now, in.Node, in.Settings, anyBool(t), &in.Resource)
		if diff := cmp.Diff(before, snapshot(t, in)); diff != "" {
			t.Fatalf("the input was modified (-before +after):\n%s", diff)
		}
		if diff := cmp.Diff(d, Decide(in)); diff != "" {
			t.Fatalf("the same input was decided differently (-first +second):\n%s", diff)
		}
		if d.Reason == "" || d.Message == "" || d.Verdict == "" || d.State == "" {
			t.Fatalf("the decision is incomplete: %+v", d)
		}
		if d.After < 0 || d.After > time.Second || d.After == 0 && (d.Verdict == Pending || d.Verdict == Lost) {
			t.Fatalf("the decision %s is taken again in %s, want more than 0 and at most 1s", d.Verdict, d.After)
		}
	})
}

func snapshot(t *rapid.T, in Input) string {
	text, err := json.Marshal(in)
	if err != nil {
		t.Fatalf("marshal the input: %v", err)
	}
	return string(text)
}

// Whatever else holds, a loss has a fresh survivor, a fence, a recent word of LINSTOR and pods that may go; no
// replica that still speaks of A, and no healthy Primary on a living node.
func TestLossHasItsEvidence(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := eitherInput(t)
		d := Decide(in)
		if d.Verdict != Lost {
			return
		}
		survivor := false
		for _, r := range in.Resource.Replicas {
			fresh := in.Resource.freshened(in.Now)
			r, _ := fresh.Replica(r.Node)
			if r.Node == nodeA {
				continue
			}
			if r.Online.is(true) && r.MayPromote.is(true) && !r.Leaving {
				survivor = true
			}
			speaks := r.Online.is(true) && (r.Connections[nodeA].is(true) || r.InUse.is(true))
			closed := d.Reason == NodeUnreachable && in.Node.LeaseSilent(in.Settings.KubeletSilence) && r.MayPromote.is(true) && !r.InUse.is(true)
			if speaks && !closed && d.Reason != ForcedIOErrors && d.Reason != Demoted {
				t.Fatalf("%s although %s is connected to the node or Primary", d.Reason, r.Node)
			}
		}
		if !survivor {
			t.Fatalf("%s without a survivor", d.Reason)
		}
		if d.State == PrimaryUp || d.State == Unknown {
			t.Fatalf("%s in the state %s", d.Reason, d.State)
		}
		if !in.Resource.DRBD || !in.Resource.Known || in.Volume.NFSExport || in.Now.Sub(in.LinstorConfirmed) > MaxSilence {
			t.Fatalf("%s of a volume that cannot be judged", d.Reason)
		}
		if s := mayWriteBy(in); s != "" && !in.Node.TakenOut && !in.Node.SwitchedOff {
			t.Fatalf("%s although %s", d.Reason, s)
		}
		for _, p := range in.Pods {
			if !p.Selected || p.Exempt || !p.Owned || p.NodeBound || p.UnsafeVolume != "" || p.UnboundClaim != "" {
				t.Fatalf("%s of a pod that may not be removed: %+v", d.Reason, p)
			}
		}
		if len(in.Pods) == 0 && (in.Attachment == nil || !in.Attachment.Marked && !in.Attachment.Awaited) {
			t.Fatalf("%s of a volume that nobody asks for", d.Reason)
		}
	})
}

func TestNothingIsLostOnUnknownsOnly(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := eitherInput(t)
		for _, forget := range facts(&in) {
			forget(false)
		}
		if d := Decide(in); d.Verdict == Lost || d.Verdict == Pending {
			t.Fatalf("%s (%s) although nothing is known", d.Verdict, d.Reason)
		}
	})
}

// What LINSTOR ceases to say, or says too old, makes no loss of what was none, and shortens no grace.
func TestForgettingAFactNeverMakesALoss(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := eitherInput(t)
		in.Node.Shutdown = false // which waits for nothing
		for i := range in.Resource.Replicas {
			speakWithOneVoice(&in.Resource.Replicas[i])
		}
		before, grace := Decide(in), graceOf(in)
		if before.Verdict == Pending && graceOver(in) {
			return // A's own state is about to settle, and may do so by another of its signs
		}
		all := facts(&in)
		if len(all) == 0 {
			return
		}
		all[rapid.IntRange(0, len(all)-1).Draw(t, "fact")](rapid.Bool().Draw(t, "stale"))
		after := Decide(in)
		if after.Verdict != Lost {
			return
		}
		if before.State == Unreachable && after.State == IOErrors {
			return // witnesses no longer overrule A's own word, which is a loss by its own evidence
		}
		if before.Verdict != Lost {
			t.Fatalf("%s (%s) became %s (%s)", before.Verdict, before.Reason, after.Verdict, after.Reason)
		}
		if got := graceOf(in); got < grace {
			t.Fatalf("the grace of %s became %s (%s, %s)", grace, got, before.Reason, after.Reason)
		}
	})
}

func TestAConnectedWitnessPreventsALoss(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := eitherInput(t)
		in.Resource.Replicas = append(in.Resource.Replicas, Replica{
			Node: "node-w", Diskless: rapid.Bool().Draw(t, "diskless witness"),
			Online: held(true, 0), MayPromote: anyBool(t), Connections: map[string]Fact[bool]{nodeA: held(true, 0)},
		})
		d := Decide(in)
		if d.Verdict == Lost && d.Reason != ForcedIOErrors && d.Reason != Demoted {
			t.Fatalf("%s (%s) although a witness is connected", d.Verdict, d.Reason)
		}
		for _, pod := range in.Pods {
			in.Resource.DRBD = true
			terminates(-time.Minute)(&pod)
			if _, ok := in.Resource.Replica(nodeA); !ok || RemovalOf(in, pod) != RemoveForce {
				continue
			}
			if a, _ := in.Resource.freshened(now).Replica(nodeA); d.State != Unreachable && !a.Score.is(0) {
				t.Fatalf("the pod goes by force in the state %s, connected and with the score %+v", d.State, a.Score)
			}
		}
	})
}

func TestAHealthyPrimaryOnALivingNodeIsNeverLost(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := eitherInput(t)
		theLease(rapid.SampledFrom([]time.Duration{0, 12 * time.Second, 20*time.Second - 1}).Draw(t, "silence"))(&in)
		at(nodeA, func(r *Replica) {
			r.Online, r.InUse, r.Score = held(true, anyAge(t)), held(true, anyAge(t)), held(10102, anyAge(t))
			r.Reports = held(true, anyAge(t))
			r.Gone = false // a replica that LINSTOR no longer has says nothing
		})(&in)
		if _, ok := in.Resource.Replica(nodeA); !ok {
			return
		}
		if d := Decide(in); d.Verdict == Lost || d.Verdict == Pending || d.Verdict == Blocked {
			t.Fatalf("%s (%s)", d.Verdict, d.Reason)
		}
	})
}

// A loss stays one when time passes and every reading confirms it.
func TestALossThatIsConfirmedLasts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := anyStory(t)
		if d := Decide(in); d.Verdict != Lost || d.Reason == Demoted {
			return
		}
		later := now.Add(time.Second)
		in.Now, in.LinstorConfirmed, in.Resource.Confirmed = later, later, later
		for i := range in.Resource.Replicas {
			confirm(&in.Resource.Replicas[i], later)
		}
		if in.Node.LeaseKnown {
			in.Node.LeaseSilence += time.Second
		}
		if d := Decide(in); d.Verdict != Lost {
			t.Fatalf("a second later: %s (%s: %s)", d.Verdict, d.Reason, d.Message)
		}
	})
}

func graceOf(in Input) time.Duration {
	s := assess(in.freshened())
	return tempered(s, find(s)).grace
}

func graceOver(in Input) bool {
	s := assess(in.freshened())
	f := tempered(s, find(s))
	return s.Now.Sub(f.since) >= f.grace
}

// mayWriteBy says what A may run, for all that is known, that does not fence it; empty where there is nothing like that.
func mayWriteBy(in Input) string {
	a, ok := in.Resource.Replica(nodeA)
	switch {
	case !ok && slices.Contains(in.Resource.Left, nodeA):
		return ""
	case !ok || !a.Confirmed && !a.provesQuorum(in.Resource):
		return "nobody knows what the node runs"
	case a.provesQuorum(in.Resource):
		return ""
	}
	return ""
}

// anyLook is what was seen of some volumes of a node, which may have pods in common.
func anyLook(t *rapid.T) []Input {
	look := make([]Input, rapid.IntRange(0, 4).Draw(t, "volumes"))
	for i := range look {
		look[i] = eitherInput(t)
		uids := rapid.Permutation([]types.UID{"a", "b", "c"}).Draw(t, "pods")
		look[i].Pods = slices.Clone(look[i].Pods[:min(len(look[i].Pods), len(uids))])
		for j := range look[i].Pods {
			look[i].Pods[j].UID = uids[j]
		}
	}
	return look
}

// Whatever is seen, a plan does nothing without a loss, nothing twice, and takes no volume from under a pod.
func TestAPlanDoesNothingTwiceAndNothingWithoutALoss(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		look := anyLook(t)
		plan := PlanFor(look)
		if len(plan.Volumes) != len(look) {
			t.Fatalf("%d volumes are planned, want %d", len(plan.Volumes), len(look))
		}
		users := 0
		for i, v := range plan.Volumes {
			switch {
			case v.Step != "" && v.Verdict != Lost:
				t.Fatalf("%s of a volume that is %s", v.Step, v.Verdict)
			case v.Step == StepDetach && (len(look[i].Pods) > 0 || look[i].Attachment == nil):
				t.Fatalf("detach with %d pods and attachment %v", len(look[i].Pods), look[i].Attachment)
			case v.Step == StepRemove:
				users += len(look[i].Pods)
			}
		}
		seen := make(map[types.UID]bool)
		for _, r := range plan.Removals {
			if seen[r.Pod.UID] {
				t.Fatalf("pod %s is removed twice", r.Pod.UID)
			}
			seen[r.Pod.UID] = true
			if !slices.Contains(r.Volumes, r.By) {
				t.Fatalf("pod %s is removed by volume %d, which is none of %v", r.Pod.UID, r.By, r.Volumes)
			}
			wantUses(t, look, plan, r)
			users -= len(r.Volumes)
		}
		if users != 0 {
			t.Fatalf("of the uses of volumes that are removed from pods, %d are in no removal", users)
		}
	})
}

// wantUses fails unless the pod uses all volumes that it is removed for, each of which is lost, and goes as one of them says.
func wantUses(t *rapid.T, look []Input, plan Plan, r PodRemoval) {
	for _, i := range r.Volumes {
		uses := func(pod Pod) bool { return pod.UID == r.Pod.UID }
		if plan.Volumes[i].Step != StepRemove || !slices.ContainsFunc(look[i].Pods, uses) {
			t.Fatalf("pod %s is removed for volume %d, which it does not use or which is not lost", r.Pod.UID, i)
		}
	}
	if how := RemovalOf(look[r.By], r.Pod); how != r.How {
		t.Fatalf("pod %s is removed by %s, and its volume says %s", r.Pod.UID, r.How, how)
	}
}
