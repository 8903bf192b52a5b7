package failover

import (
	"testing"
	"time"
)

// deadLinstor is the LINSTOR controller on a node that is gone, in a cluster of three.
func deadLinstor() Recovery {
	return Recovery{
		Now: now, Silence: 20 * time.Second,
		Node:     Node{Name: nodeA, LeaseKnown: true, LeaseSilence: 20 * time.Second},
		Kubelets: 3, Silent: 1, Limit: Limit{Percent: true, Value: 50},
		ReadyNode: true, Pod: RecoveryPod{Replaced: true},
	}
}

func TestRecover(t *testing.T) {
	t.Parallel()
	answers := func(in *Recovery, online Fact[bool]) { in.Answers, in.Online = true, online }
	for name, tc := range map[string]struct {
		change  func(*Recovery)
		verdict Verdict
		reason  Reason
	}{
		"a pod on a silent node goes when LINSTOR does not answer": {
			func(*Recovery) {}, Lost, LinstorGone,
		},
		"a pod on a silent node goes when LINSTOR does not reach the node either": {
			func(in *Recovery) { answers(in, held(false, time.Second)) }, Lost, LinstorGone,
		},
		"a kubelet that was heard of a moment ago": {
			func(in *Recovery) { in.Node.LeaseSilence -= time.Nanosecond }, NotLost, NodeAlive,
		},
		"a kubelet that was never heard of": {
			func(in *Recovery) { in.Node.LeaseKnown = false }, NotLost, NodeAlive,
		},
		"LINSTOR answers and calls the node ONLINE": {
			func(in *Recovery) { answers(in, held(true, time.Hour)) }, NotLost, LinstorAnswers,
		},
		"LINSTOR answers and says nothing of the node": {
			func(in *Recovery) { answers(in, Fact[bool]{}) }, NotLost, LinstorAnswers,
		},
		"LINSTOR answers, and what it says of the node is old": {
			func(in *Recovery) {
				answers(in, Fact[bool]{Known: true, Since: ago(time.Hour), Confirmed: ago(MaxAge + time.Nanosecond)})
			}, NotLost, LinstorAnswers,
		},
		"a pod that is being replaced": {
			func(in *Recovery) { in.Pod.Leaving = true }, NotLost, PodLeaving,
		},
		"a pod that no ReplicaSet owns": {
			func(in *Recovery) { in.Pod.Replaced = false }, Blocked, NoOwner,
		},
		"a pod with a volume of LINSTOR": {
			func(in *Recovery) { in.Pod.Storage = "db" }, Blocked, NeedsStorage,
		},
		"more kubelets silent at once than may be": {
			func(in *Recovery) { in.Silent = 2 }, Blocked, GuardTripped,
		},
		"as many kubelets silent at once as may be": {
			func(in *Recovery) { in.Kubelets, in.Silent = 4, 2 }, Lost, LinstorGone,
		},
		"LINSTOR's view is suspect while it answers": {
			func(in *Recovery) { answers(in, held(false, time.Second)); in.Halt.Guard = "too many" }, Blocked, GuardTripped,
		},
		"LINSTOR's last view was suspect and it is gone": {
			func(in *Recovery) { in.Halt.Guard = "too many" }, Lost, LinstorGone,
		},
		"no other node is ready": {
			func(in *Recovery) { in.ReadyNode = false }, Blocked, NoReadyNode,
		},
		"what attaches volumes while LINSTOR does not answer": {
			func(in *Recovery) { in.Pod.Attaches, in.Nodes, in.OnlineNodes = true, 3, 2 }, Blocked, LinstorFirst,
		},
		"what attaches volumes while LINSTOR answers and has none of its nodes": {
			func(in *Recovery) {
				answers(in, held(false, time.Second))
				in.Pod.Attaches, in.Nodes = true, 3
			}, Blocked, LinstorFirst,
		},
		"what attaches volumes while half of the nodes are ONLINE": {
			func(in *Recovery) {
				answers(in, held(false, time.Second))
				in.Pod.Attaches, in.Nodes, in.OnlineNodes = true, 4, 2
			}, Blocked, LinstorFirst,
		},
		"what attaches volumes once most nodes are ONLINE": {
			func(in *Recovery) {
				answers(in, held(false, time.Second))
				in.Pod.Attaches, in.Nodes, in.OnlineNodes = true, 3, 2
			}, Lost, LinstorGone,
		},
		"fail-over is paused": {
			func(in *Recovery) { in.Halt.Paused = "by hand" }, Blocked, Paused,
		},
		"node agents run": {
			func(in *Recovery) { in.Halt.Agents = "agents run" }, Blocked, NodeAgentRuns,
		},
		"a dry run": {
			func(in *Recovery) { in.Halt.DryRun = true }, Blocked, DryRun,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := deadLinstor()
			tc.change(&in)
			d := Recover(in)
			if d.Verdict != tc.verdict || d.Reason != tc.reason {
				t.Errorf("Recover() = %s %s (%s), want %s %s", d.Verdict, d.Reason, d.Message, tc.verdict, tc.reason)
			}
			if d.Message == "" {
				t.Error("the decision says nothing in words")
			}
		})
	}
}

// blindLinstor is the LINSTOR controller, which is blind, on a node that lives, in a cluster of three of which another node's kubelet is
// silent.
func blindLinstor() Recovery {
	in := deadLinstor()
	in.Node.LeaseSilence, in.Answers, in.Online = time.Second, true, held(true, time.Hour)
	in.Blind, in.Pod.Controller = nodeB, true
	return in
}

func TestRecoverABlindLinstor(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change  func(*Recovery)
		verdict Verdict
		reason  Reason
	}{
		"it is restarted":                      {func(*Recovery) {}, Lost, LinstorBlind},
		"it has no other node to go to":        {func(in *Recovery) { in.ReadyNode = false }, Lost, LinstorBlind},
		"LINSTOR's view is suspect":            {func(in *Recovery) { in.Halt.Guard = "too many" }, Lost, LinstorBlind},
		"another pod that is selected":         {func(in *Recovery) { in.Pod.Controller = false }, NotLost, NodeAlive},
		"LINSTOR is not proven to be blind":    {func(in *Recovery) { in.Blind = "" }, NotLost, NodeAlive},
		"it is being replaced":                 {func(in *Recovery) { in.Pod.Leaving = true }, NotLost, PodLeaving},
		"it was restarted a moment ago":        {func(in *Recovery) { in.Pod.Restarted = true }, Blocked, LinstorBlind},
		"its own node's kubelet is silent":     {func(in *Recovery) { in.Node.LeaseSilence = ForceSilence }, Blocked, LinstorBlind},
		"its own node's kubelet is not known":  {func(in *Recovery) { in.Node.LeaseKnown = false }, Blocked, LinstorBlind},
		"no ReplicaSet owns it":                {func(in *Recovery) { in.Pod.Replaced = false }, Blocked, NoOwner},
		"it has a volume of LINSTOR":           {func(in *Recovery) { in.Pod.Storage = "db" }, Blocked, NeedsStorage},
		"more kubelets are silent than may be": {func(in *Recovery) { in.Silent = 2 }, Blocked, GuardTripped},
		"fail-over is paused":                  {func(in *Recovery) { in.Halt.Paused = "by hand" }, Blocked, Paused},
		"node agents run":                      {func(in *Recovery) { in.Halt.Agents = "agents run" }, Blocked, NodeAgentRuns},
		"a dry run":                            {func(in *Recovery) { in.Halt.DryRun = true }, Blocked, DryRun},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := blindLinstor()
			tc.change(&in)
			d := Recover(in)
			if d.Verdict != tc.verdict || d.Reason != tc.reason || d.Message == "" {
				t.Errorf("Recover() = %s %s (%s), want %s %s", d.Verdict, d.Reason, d.Message, tc.verdict, tc.reason)
			}
		})
	}
}
