package failover

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

// usedBy lets pods of these names use the volume, each with its name as UID.
func usedBy(names ...string) edit {
	return func(in *Input) {
		in.Pods = nil
		for _, name := range names {
			pod := runningPod(name)
			pod.UID = types.UID(name)
			in.Pods = append(in.Pods, pod)
		}
	}
}

// markedOnly lets the volume be attached for a fail-over that has begun and whose pods are gone.
var markedOnly = edited(usedBy(), func(in *Input) {
	attachment := *in.Attachment
	attachment.Marked = true
	in.Attachment = &attachment
})

func detached(in *Input) { in.Attachment = nil }

// halfSilent lets A's Lease be silent for long enough for force where LINSTOR has lost A too, and for nothing where it has not.
var halfSilent = theLease(15 * time.Second)

// stopped lets the pods have had their time to stop.
func stopped(in *Input) {
	for i := range in.Pods {
		terminates(-time.Second)(&in.Pods[i])
	}
}

// planned is what a plan is compared by: the step of each volume, and of each removal the pod, how, and by which of which volumes.
type planned struct {
	Steps    []Step
	Removals []string
}

func summary(plan Plan) (p planned) {
	for _, v := range plan.Volumes {
		p.Steps = append(p.Steps, v.Step)
	}
	for _, r := range plan.Removals {
		p.Removals = append(p.Removals, fmt.Sprintf("%s %s by %d of %v", r.Pod.Name, r.How, r.By, r.Volumes))
	}
	return p
}

func TestPlanFor(t *testing.T) {
	t.Parallel()
	db, both := usedBy("db"), usedBy("both")
	lost, cutOff := scenario{from: crashed, edit: db}, scenario{from: isolated, edit: edited(both, halfSilent)}
	cases := map[string]struct {
		look []scenario
		want planned
	}{
		"a lost volume with a pod is a removal": {
			[]scenario{lost}, planned{[]Step{StepRemove}, []string{"db Force by 0 of [0]"}},
		},
		"each pod of a lost volume is removed": {
			[]scenario{{from: crashed, edit: usedBy("db", "backup")}},
			planned{[]Step{StepRemove}, []string{"db Force by 0 of [0]", "backup Force by 0 of [0]"}},
		},
		"its pods come before its attachment, though that is marked": {
			[]scenario{{from: crashed, edit: edited(markedOnly, db)}},
			planned{[]Step{StepRemove}, []string{"db Force by 0 of [0]"}},
		},
		"a lost volume without a pod and with an attachment is a detach": {
			[]scenario{{from: crashed, edit: markedOnly}}, planned{Steps: []Step{StepDetach}},
		},
		"the detach of one volume does not wait for the pods of another": {
			[]scenario{lost, {from: crashed, edit: markedOnly}}, planned{[]Step{StepRemove, StepDetach}, []string{"db Force by 0 of [0]"}},
		},
		"a volume without a pod and without an attachment needs nothing": {
			[]scenario{{from: crashed, edit: edited(usedBy(), detached)}}, planned{Steps: []Step{""}},
		},
		"a volume without a pod whose attachment nobody asks for needs nothing": {
			[]scenario{{from: crashed, edit: usedBy()}}, planned{Steps: []Step{""}},
		},
		"a volume that is not lost has no step": {
			[]scenario{{from: healthy, edit: db}}, planned{Steps: []Step{""}},
		},
		"a volume whose grace has not passed has no step": {
			[]scenario{{from: crashed, edit: edited(db, graceBegan(time.Second))}}, planned{Steps: []Step{""}},
		},
		"a volume whose pod may not go has no step": {
			[]scenario{{from: crashed, edit: edited(db, thePod(func(p *Pod) { p.Exempt = true }))}}, planned{Steps: []Step{""}},
		},
		"a volume that one pod of several may not leave has no step, and all of them stay": {
			[]scenario{{from: crashed, edit: edited(usedBy("db", "guest"), thePod(func(p *Pod) { p.Selected = false }))}},
			planned{Steps: []Step{""}},
		},
		"a volume that is not lost holds up none that is": {
			[]scenario{{from: healthy, edit: usedBy("web")}, lost}, planned{[]Step{"", StepRemove}, []string{"db Force by 1 of [1]"}},
		},
		"a pod with two lost volumes is removed once, for both": {
			[]scenario{{from: crashed, edit: both}, {from: crashed, edit: both}},
			planned{[]Step{StepRemove, StepRemove}, []string{"both Force by 0 of [0 1]"}},
		},
		"a pod with a lost volume and one that is not is removed for the lost one": {
			[]scenario{{from: isolated, edit: both}, {from: healthy, edit: both}},
			planned{[]Step{StepRemove, ""}, []string{"both Graceful by 0 of [0]"}},
		},
		"the volume that can do most decides how, where it comes first": {
			[]scenario{{from: crashed, edit: edited(both, halfSilent)}, cutOff},
			planned{[]Step{StepRemove, StepRemove}, []string{"both Force by 0 of [0 1]"}},
		},
		"the volume that can do most decides how, where it comes last": {
			[]scenario{cutOff, {from: crashed, edit: edited(both, halfSilent)}},
			planned{[]Step{StepRemove, StepRemove}, []string{"both Force by 1 of [0 1]"}},
		},
		"a pod that is stuck by one volume goes by another": {
			[]scenario{{from: demoted, edit: edited(both, stopped)}, {from: isolated, edit: edited(both, stopped)}},
			planned{[]Step{StepRemove, StepRemove}, []string{"both Force by 1 of [0 1]"}},
		},
		"a pod that may have its time to stop is planned, as it holds its volume": {
			[]scenario{{from: isolated, edit: edited(db, thePod(terminates(5*time.Second)))}},
			planned{[]Step{StepRemove}, []string{"db Running by 0 of [0]"}},
		},
		"a shared volume stays attached to a node that is heard while it is in use there": {
			[]scenario{{from: isolated, edit: edited(markedOnly, twoPrimaries)}}, planned{[]Step{""}, nil},
		},
		"and is detached once it is not": {
			[]scenario{{from: ioErrors, edit: edited(markedOnly, twoPrimaries)}}, planned{[]Step{StepDetach}, nil},
		},
		"a node without volumes needs nothing": {},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var look []Input
			for _, s := range c.look {
				look = append(look, s.input())
			}
			if diff := cmp.Diff(c.want, summary(PlanFor(look))); diff != "" {
				t.Errorf("PlanFor (-want +got):\n%s", diff)
			}
		})
	}
}

// graceBegan lets the peers have lost A so short a time ago.
func graceBegan(d time.Duration) edit {
	return func(in *Input) {
		for i := range in.Resource.Replicas {
			if r := &in.Resource.Replicas[i]; r.Node != nodeA {
				r.MayPromote, r.Connections = held(true, d), map[string]Fact[bool]{nodeA: held(false, d)}
			}
		}
	}
}

func TestAStepIsLookedAtAgainSoonAndWhenAPodHasHadItsTime(t *testing.T) {
	t.Parallel()
	const none = time.Duration(0)
	for name, c := range map[string]struct {
		left []time.Duration // until the end of the time that a pod was given to stop, none where it was given none
		want time.Duration
	}{
		"a detach has no pod":                  {nil, lookAgain},
		"a pod was not deleted yet":            {[]time.Duration{none}, lookAgain},
		"a pod has more time than that":        {[]time.Duration{10 * time.Second}, lookAgain},
		"the time of one of two is nearly up":  {[]time.Duration{300 * time.Millisecond, 10 * time.Second}, 300 * time.Millisecond},
		"the time of both is nearly up":        {[]time.Duration{300 * time.Millisecond, 200 * time.Millisecond}, 200 * time.Millisecond},
		"a pod's time is up at this moment":    {[]time.Duration{-1}, lookAgain},
		"a pod's time has been up for a while": {[]time.Duration{-time.Minute}, lookAgain},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := scenario{from: isolated, edit: markedOnly}.input()
			for i, left := range c.left {
				pod := runningPod(fmt.Sprint("web-", i))
				if pod.UID = types.UID(pod.Name); left != none {
					terminates(left)(&pod)
				}
				in.Pods = append(in.Pods, pod)
			}
			plan := PlanFor([]Input{in})
			if plan.Volumes[0].Step == "" {
				t.Fatalf("nothing is planned: %+v", plan.Volumes[0])
			}
			if got := plan.Volumes[0].After; got != c.want {
				t.Errorf("looked at again in %s, want %s", got, c.want)
			}
		})
	}
}
