package failover

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

// phase is what is so for a while.
type phase struct {
	lasts   time.Duration
	from    func() Input
	edit    edit
	failure string
	pods    []types.UID // "one" where none are named
}

// said plays phases second by second and returns what is said, as "after what time: to whom: reason".
func said(t *testing.T, w *Wait, phases []phase) (said []string) {
	t.Helper()
	passed := time.Duration(0)
	for _, p := range phases {
		in := scenario{from: p.from, edit: p.edit}.input()
		d := Decide(in)
		if p.pods == nil {
			p.pods = []types.UID{"one"}
		}
		var pods []Pod
		for _, uid := range p.pods {
			pods = append(pods, Pod{UID: uid})
		}
		age := in.Now.Sub(in.LinstorConfirmed)
		for end := passed + p.lasts; passed < end; passed += time.Second {
			in.Now = now.Add(passed)
			in.LinstorConfirmed = in.Now.Add(-age)
			word := w.Observe(in, d, p.failure, pods)
			for _, pod := range word.Pods {
				said = append(said, fmt.Sprintf("%s: %s: %s", passed, pod.UID, word.Reason))
				if word.Message == "" {
					t.Errorf("%s is explained by nothing", word.Reason)
				}
			}
			if waits := !w.Over(); waits != (word.After > 0) {
				t.Errorf("waits: %t, and is looked at again after %s", waits, word.After)
			}
		}
	}
	return said
}

// noSurvivor is a node that crashed whose peers have no quorum.
func noSurvivor(in *Input) {
	for _, node := range []string{nodeB, nodeT} {
		at(node, func(r *Replica) { r.MayPromote, r.Score = held(false, time.Minute), held(0, time.Minute) })(in)
	}
}

// What is told in Events is shown in metrics until it is over.
func TestWhatBlocks(t *testing.T) {
	t.Parallel()
	const told = 40 * time.Second
	stillSeen := edited(theLease(time.Second), at(nodeB, func(r *Replica) { r.Connections[nodeA] = held(true, time.Minute) }))
	for name, tc := range map[string]struct {
		phases []phase
		want   Reason
	}{
		"nothing where nothing waits":                  {[]phase{{lasts: told, from: healthy}}, ""},
		"nothing before it is told":                    {[]phase{{lasts: 20 * time.Second, from: crashed, edit: noSurvivor}}, ""},
		"what was told":                                {[]phase{{lasts: told, from: crashed, edit: noSurvivor}}, NoSurvivor},
		"nothing while it is acted on":                 {[]phase{{lasts: told, from: crashed}}, ""},
		"a step that fails":                            {[]phase{{lasts: told, from: crashed, failure: "forbidden"}}, StepFailed},
		"nothing where another reason is not told yet": {[]phase{{lasts: told, from: crashed, edit: noSurvivor}, {lasts: 4 * time.Second, from: crashed, edit: stillSeen}}, ""},
		"what one pod was told, though another was not yet": {
			[]phase{
				{lasts: told, from: crashed, edit: noSurvivor},
				{lasts: 4 * time.Second, from: crashed, edit: stillSeen, pods: []types.UID{"one", "two"}},
			}, PrimaryConnected,
		},
		"nothing once it is over": {
			[]phase{{lasts: told, from: crashed, edit: noSurvivor}, {lasts: 2 * waitOver, from: healthy}}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var w Wait
			said(t, &w, tc.phases)
			if got := w.Blocks(); got != tc.want {
				t.Errorf("Blocks = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestWhatALossThatWaitsIsSaidOf(t *testing.T) {
	t.Parallel()
	fresh := theLease(time.Second) // the kubelet lives
	stillSeen := edited(fresh, at(nodeB, func(r *Replica) { r.Connections[nodeA] = held(true, time.Minute) }))
	partly := edited(fresh, silent(nodeB), withThirdDisk)
	young := edited(fresh, at(nodeB, func(r *Replica) { r.MayPromote = held(true, time.Second) }))
	migrated := edited(fresh, at(nodeB, func(r *Replica) { r.InUse = held(true, time.Minute) }))
	starting := thePod(func(p *Pod) { p.HasRun, p.Runs = false, false })
	stale := func(in *Input) { in.LinstorConfirmed = in.Now.Add(-time.Minute) }
	cannotWrite := func(in *Input) { noSurvivor(in) }
	exempt := thePod(func(p *Pod) { p.Exempt = true })
	vague := at(nodeA, func(r *Replica) { r.Score = untold[int](time.Minute) })
	long := 3 * time.Minute
	for name, tc := range map[string]struct {
		phases []phase
		want   []string
	}{
		"nothing of a volume that is well": {[]phase{{lasts: long, from: healthy}}, nil},
		"nobody can take over": {
			[]phase{{lasts: long, from: crashed, edit: noSurvivor}}, []string{"30s: one: NoSurvivor"},
		},
		"the node answers and cannot write, and neither can the others": {
			[]phase{{lasts: long, from: isolated, edit: cannotWrite}}, []string{"30s: one: NoSurvivor"},
		},
		"a witness still sees the node": {
			[]phase{{lasts: long, from: crashed, edit: stillSeen}}, []string{"30s: one: PrimaryConnected"},
		},
		"the other side of a live migration is Primary": {
			[]phase{{lasts: long, from: crashed, edit: migrated}}, []string{"30s: one: PrimaryConnected"},
		},
		"too few can be asked": {
			[]phase{{lasts: long, from: crashed, edit: partly}}, []string{"30s: one: TooFewWitnesses"},
		},
		"a grace is long": {
			[]phase{{lasts: long, from: crashed, edit: edited(young, func(in *Input) { in.Settings.ConfirmedGrace = time.Hour })}},
			[]string{"30s: one: NodeUnreachable"},
		},
		"a gate is told of at once": {
			[]phase{{lasts: long, from: crashed, edit: thePod(func(p *Pod) { p.Exempt = true })}}, []string{"0s: one: Exempt"},
		},
		"what another reason follows is told of by that one when it has lasted": {
			[]phase{{lasts: 40 * time.Second, from: crashed, edit: noSurvivor}, {lasts: long, from: crashed, edit: stillSeen}},
			[]string{"30s: one: NoSurvivor", "45s: one: PrimaryConnected"},
		},
		"reasons that pass by while the node comes back are not told": {
			[]phase{
				{lasts: 40 * time.Second, from: crashed, edit: noSurvivor},
				{lasts: 4 * time.Second, from: crashed, edit: stillSeen},
				{lasts: 4 * time.Second, from: crashed, edit: partly},
				{lasts: long, from: healthy},
			},
			[]string{"30s: one: NoSurvivor"},
		},
		"reasons that come back are told once": {
			slices.Repeat([]phase{
				{lasts: 20 * time.Second, from: crashed, edit: noSurvivor}, {lasts: 20 * time.Second, from: crashed, edit: stillSeen},
			}, 5),
			[]string{"30s: one: PrimaryConnected", "45s: one: NoSurvivor"},
		},
		"a flap does not begin the wait anew": {
			[]phase{
				{lasts: 20 * time.Second, from: crashed, edit: noSurvivor},
				{lasts: 8 * time.Second, from: healthy},
				{lasts: long, from: crashed, edit: noSurvivor},
			},
			[]string{"30s: one: NoSurvivor"},
		},
		"a node that is well for a while does": {
			[]phase{
				{lasts: 20 * time.Second, from: crashed, edit: noSurvivor},
				{lasts: 15 * time.Second, from: healthy},
				{lasts: long, from: crashed, edit: noSurvivor},
			},
			[]string{"1m5s: one: NoSurvivor"},
		},
		"a second loss is told of like the first": {
			[]phase{
				{lasts: 40 * time.Second, from: crashed, edit: noSurvivor},
				{lasts: 20 * time.Second, from: healthy},
				{lasts: long, from: crashed, edit: noSurvivor},
			},
			[]string{"30s: one: NoSurvivor", "1m30s: one: NoSurvivor"},
		},
		"what is not known is told where something speaks for a loss": {
			[]phase{{lasts: 20 * time.Second, from: crashed, edit: noSurvivor}, {lasts: long, from: healthy, edit: vague}},
			[]string{"30s: one: StateUnknown"},
		},
		"and not where nothing does": {[]phase{{lasts: long, from: healthy, edit: vague}}, nil},
		"the first reason is told whenever it came": {
			[]phase{{lasts: 28 * time.Second, from: crashed, edit: stillSeen}, {lasts: long, from: crashed, edit: noSurvivor}},
			[]string{"30s: one: NoSurvivor"},
		},
		"a gate is told of at once also where another reason was told": {
			[]phase{{lasts: 40 * time.Second, from: crashed, edit: noSurvivor}, {lasts: long, from: crashed, edit: exempt}},
			[]string{"30s: one: NoSurvivor", "40s: one: Exempt"},
		},
		"a gate of a node that answers": {[]phase{{lasts: long, from: demoted, edit: exempt}}, []string{"0s: one: Exempt"}},
		"a step that fails before a gate is asked waits like others": {
			[]phase{{lasts: long, from: crashed, edit: exempt, failure: "no"}}, []string{"30s: one: StepFailed"},
		},
		"a step that fails late in a loss": {
			[]phase{{lasts: 20 * time.Second, from: crashed, edit: noSurvivor}, {lasts: long, from: crashed, failure: "no"}},
			[]string{"30s: one: StepFailed"},
		},
		"a pod that has not run is on a node that LINSTOR does not hear": {
			[]phase{{lasts: long, from: crashed, edit: edited(noSurvivor, fresh, starting)}}, []string{"30s: one: NoSurvivor"},
		},
		"LINSTOR has no word of the replica on a node that it hears": {
			[]phase{{lasts: long, from: crashed, edit: edited(noSurvivor, fresh, at(nodeA, func(r *Replica) { r.Online = held(true, time.Hour) }))}},
			[]string{"30s: one: NoSurvivor"},
		},
		"the replica is gone, and nobody can take over": {
			[]phase{{lasts: long, from: gone, edit: noSurvivor}}, []string{"30s: one: NoSurvivor"},
		},
		"the list of a resource was not read, on a node that LINSTOR does not hear": {
			[]phase{{lasts: long, from: crashed, edit: edited(fresh, func(in *Input) { in.Resource.Known, in.Resource.DRBD = false, false })}},
			[]string{"30s: one: StateUnknown"},
		},
		"nothing while nothing was read of LINSTOR": {
			[]phase{{lasts: long, from: healthy, edit: func(in *Input) { in.Node.Unlisted, in.Resource = true, Resource{} }}}, nil,
		},
		"nothing of a volume that is read only": {
			[]phase{{lasts: long, from: ioErrors, edit: func(in *Input) {
				in.Volume.ReadOnly = true
				replicaOf(in, nodeA).LastInUse = time.Time{}
			}}}, nil,
		},
		"a pod that comes later is told, too": {
			[]phase{
				{lasts: time.Minute, from: crashed, edit: noSurvivor},
				{lasts: long, from: crashed, edit: noSurvivor, pods: []types.UID{"one", "two"}},
			},
			[]string{"30s: one: NoSurvivor", "1m0s: two: NoSurvivor"},
		},
		"a step is rejected": {
			[]phase{{lasts: long, from: crashed, failure: "no"}}, []string{"30s: one: StepFailed"},
		},
		"a step is rejected for a moment only": {
			[]phase{{lasts: 20 * time.Second, from: crashed, failure: "no"}, {lasts: 25 * time.Second, from: crashed}}, nil,
		},
		"a fail-over that has begun does not come to an end": {
			[]phase{{lasts: long, from: crashed}}, []string{"30s: one: NodeUnreachable"},
		},
		"a fail-over that begins when its grace has passed is no news": {
			[]phase{
				{lasts: 25 * time.Second, from: crashed, edit: func(in *Input) { in.Settings.ConfirmedGrace = 2 * time.Minute }},
				{lasts: 25 * time.Second, from: crashed},
			}, nil,
		},
		"a fail-over that begins late is no news": {
			[]phase{{lasts: 40 * time.Second, from: crashed, edit: noSurvivor}, {lasts: 25 * time.Second, from: crashed}},
			[]string{"30s: one: NoSurvivor"},
		},
		"LINSTOR hears a node whose kubelet is silent": {
			[]phase{{lasts: long, from: healthy, edit: theLease(time.Minute)}}, []string{"30s: one: PrimaryHealthy"},
		},
		"LINSTOR does not answer while a kubelet is silent": {
			[]phase{{lasts: long, from: healthy, edit: edited(stale, theLease(time.Minute))}}, []string{"30s: one: LinstorStale"},
		},
		"nothing while LINSTOR does not answer and the kubelets live": {
			[]phase{{lasts: long, from: healthy, edit: stale}}, nil,
		},
		"LINSTOR stops to answer in a loss": {
			[]phase{{lasts: 20 * time.Second, from: crashed, edit: noSurvivor}, {lasts: long, from: crashed, edit: edited(noSurvivor, stale)}},
			[]string{"30s: one: LinstorStale"},
		},
		"nothing of a pod that waits for its first volume": {
			[]phase{{lasts: long, from: healthy, edit: edited(starting, func(in *Input) {
				in.Attachment, in.Resource.Replicas = nil, in.Resource.Replicas[1:]
			})}}, nil,
		},
		"LINSTOR knows no node of that name": {
			[]phase{{lasts: long, from: crashed, edit: edited(fresh, func(in *Input) {
				in.Node.Unlisted, in.Resource.Replicas = true, in.Resource.Replicas[1:]
			})}}, []string{"30s: one: StateUnknown"},
		},
		"nothing of a raw block volume that nobody has opened": {
			[]phase{{lasts: long, from: ioErrors, edit: func(in *Input) {
				in.Volume.Block = true
				replicaOf(in, nodeA).LastInUse = time.Time{}
			}}}, nil,
		},
		"nothing of the replica on the node of a pod that mounts the volume by NFS": {
			[]phase{{lasts: long, from: crashed, edit: edited(fresh, func(in *Input) { in.Volume.NFSExport = true })}}, nil,
		},
		"a pod that mounts a volume by NFS is on a silent node": {
			[]phase{{lasts: long, from: crashed, edit: func(in *Input) { in.Volume.NFSExport = true }}}, []string{"30s: one: NFSExport"},
		},
		"nothing of a node without DRBD that LINSTOR does not hear": {
			[]phase{{lasts: long, from: crashed, edit: edited(fresh, func(in *Input) { in.Resource.DRBD = false })}}, nil,
		},
		"a mounted volume fails its IO, and nobody has seen it in use": {
			[]phase{{lasts: long, from: ioErrors, edit: at(nodeA, func(r *Replica) { r.LastInUse = time.Time{} })}},
			[]string{"30s: one: VolumeUnused"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var w Wait
			if diff := cmp.Diff(tc.want, said(t, &w, tc.phases)); diff != "" {
				t.Errorf("said (-want +got):\n%s", diff)
			}
		})
	}
}

// A wait is over when the node has been well for a while, and nothing of it is kept then.
func TestNothingIsKeptOfAWaitThatIsOver(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		after time.Duration
		over  bool
	}{
		"while the node seems lost":         {0, false},
		"right after it has seemed so":      {waitOver - time.Second, false},
		"when it has been well for a while": {waitOver + time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var w Wait
			said(t, &w, []phase{{lasts: time.Minute, from: crashed, edit: noSurvivor}, {lasts: tc.after, from: healthy}})
			if w.Over() != tc.over {
				t.Errorf("over: %t, want %t", w.Over(), tc.over)
			}
		})
	}
}

// What waits is looked at again when something is to be said of it, and every few seconds until then.
func TestWhenAWaitIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	in := scenario{from: crashed, edit: noSurvivor}.input()
	d, began := Decide(in), in.Now
	var w Wait
	for _, step := range []struct{ passed, want time.Duration }{
		{0, waitLook}, {20 * time.Second, waitLook}, {28 * time.Second, 2 * time.Second}, {30 * time.Second, waitLook}, {time.Minute, waitLook},
	} {
		in.Now = began.Add(step.passed)
		in.LinstorConfirmed = in.Now
		if word := w.Observe(in, d, "", []Pod{{UID: "one"}}); word.After != step.want {
			t.Errorf("after %s it is looked at again in %s, want %s", step.passed, word.After, step.want)
		}
	}
	well := healthy()
	well.Now = began.Add(time.Minute)
	w.Observe(well, Decide(well), "", nil)
	well.Now = well.Now.Add(4 * time.Second)
	if word := w.Observe(well, Decide(healthy()), "", nil); word.After != waitOver-4*time.Second {
		t.Errorf("a wait that may be over is looked at again in %s", word.After)
	}
}

// A pod is told who stands in the way, and what ends it.
func TestAWordNamesWhoStandsInTheWay(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		from    func() Input
		edit    edit
		failure string
		want    []string
	}{
		"nobody can take over": {crashed, noSurvivor, "", []string{"node-b has no quorum, or no up-to-date data", "node-t has no quorum", "is back"}},
		"a witness sees the node": {
			crashed, oneSeesAPrimary, "", []string{": node-t is connected to node-a;"},
		},
		"the other side of a migration": {
			crashed, at(nodeB, func(r *Replica) { r.InUse = held(true, time.Minute) }), "", []string{": node-b is Primary itself;"},
		},
		"who could not be asked": {
			crashed, edited(theLease(0), silent(nodeB), withThirdDisk), "", []string{": node-b is not ONLINE in LINSTOR;", "kubelet is silent too"},
		},
		"a webhook":                  {crashed, nil, `admission webhook "x" denied the request: not on Fridays`, []string{"not on Fridays", "tried again"}},
		"a fail-over that has begun": {crashed, nil, "", []string{"has not come to the pod yet"}},
		"a fail-over whose pods are gone": {
			crashed, func(in *Input) { in.Pods, in.Attachment.Marked = nil, true }, "", []string{"has not detached the volume yet"},
		},
		"LINSTOR hears the node": {
			healthy, theLease(45 * time.Second), "", []string{"silent for 45s, but LINSTOR hears the node"},
		},
		"the kubelet is silent and nobody can take over": {crashed, noSurvivor, "", []string{"no other node could take over the volume: "}},
		"how long a grace is": {
			crashed, func(in *Input) { in.Settings.ConfirmedGrace = 90 * time.Second }, "", []string{"it is moved in 30s"},
		},
		"a grace after which a gate forbids the move": {
			crashed, edited(wants("off"), func(in *Input) { in.Settings.ConfirmedGrace = 90 * time.Second }), "", []string{"goes on writing: it ends when"},
		},
		"a system disk is dead, and DRBD goes on in the kernel": {
			healthy, edited(theLease(time.Minute), at(nodeA, func(r *Replica) { r.Online, r.Reports = held(false, time.Minute), held(false, time.Minute) })),
			"",
			[]string{"switch the node off"},
		},
		"the same, and a peer may be promoted for LINSTOR": {
			crashed, oneSeesAPrimary, "", []string{"switch the node off"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := scenario{from: tc.from, edit: tc.edit}.input()
			d, pods := Decide(in), []Pod{{UID: "one"}}
			var w Wait
			w.Observe(in, d, tc.failure, pods)
			in.Now, in.LinstorConfirmed = in.Now.Add(WaitLimit), in.Now.Add(WaitLimit)
			message := w.Observe(in, d, tc.failure, pods).Message
			for _, words := range tc.want {
				if !strings.Contains(message, words) {
					t.Errorf("%q does not say %q", message, words)
				}
			}
		})
	}
}

// A gate is told of at once, with what opens it.
func TestAWordOnAGateSaysWhatOpensIt(t *testing.T) {
	t.Parallel()
	beside := func(change func(*Pod)) edit {
		return func(in *Input) {
			other := in.Pods[0]
			other.Name, other.UID = "backup", "two"
			change(&other)
			in.Pods = append(in.Pods, other)
		}
	}
	for name, tc := range map[string]struct {
		edit edit
		want []string
	}{
		"a pod beside is not selected": {
			beside(func(p *Pod) { p.Selected = false }), []string{"/backup uses the resource too", "not selected", "is gone", "may be removed as well"},
		},
		"a pod beside is exempt": {
			beside(func(p *Pod) { p.Exempt = true }), []string{"/backup uses the resource too", "exempts the pod", "is gone", "may be removed as well"},
		},
		"somebody has paused fail-over": {func(in *Input) { in.Halt.Paused = "paused" }, []string{"takes the annotation off"}},
		"quorum is off":                 {wants("off"), []string{"goes on writing", "is back", "switch that node off", "quorum to majority"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := scenario{from: crashed, edit: tc.edit}.input()
			var w Wait
			message := w.Observe(in, Decide(in), "", []Pod{{UID: "one"}}).Message
			for _, words := range tc.want {
				if !strings.Contains(message, words) {
					t.Errorf("%q does not say %q", message, words)
				}
			}
		})
	}
}
