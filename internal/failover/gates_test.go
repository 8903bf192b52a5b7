package failover

import (
	"strings"
	"testing"
	"time"
)

func TestGates(t *testing.T) {
	t.Parallel()
	runScenarios(t, gateScenarios())
}

// gateScenarios are losses whose grace has passed.
func gateScenarios() map[string]scenario {
	nobody := func(in *Input) { in.Pods = nil }
	second := func(change func(*Pod)) edit {
		return func(in *Input) {
			in.Pods = append(in.Pods, runningPod("web-1"))
			change(&in.Pods[1])
		}
	}
	unselected := func(p *Pod) { p.Selected = false }
	noSurvivor := edited(
		at(nodeB, func(r *Replica) { r.MayPromote = held(false, time.Minute) }),
		at(nodeT, func(r *Replica) { r.MayPromote = held(false, time.Minute) }))

	ofOther := func(change func(*OtherVolume)) edit {
		return thePod(func(p *Pod) { change(&p.Others[0]) })
	}
	inUseElsewhere := func(score int, online bool) edit {
		return at(nodeB, func(r *Replica) {
			r.InUse, r.Score, r.Online = held(true, time.Minute), held(score, time.Minute), held(online, time.Minute)
		})
	}

	blocked := func(reason Reason, edits ...edit) scenario {
		return scenario{from: crashed, edit: edited(edits...), want: Blocked, reason: reason}
	}
	open := func(edits ...edit) scenario {
		return scenario{from: crashed, edit: edited(edits...), want: Lost, reason: NodeUnreachable}
	}
	return map[string]scenario{
		"quorum off does not fence":               blocked(NoQuorum, wants("off")),
		"a quorum that is not known is no fence":  blocked(QuorumUnconfirmed, wants("")),
		"quorum all fences":                       open(wants("all")),
		"a number above half of the disks fences": open(wants("2")),
		"a number of half of the disks does not":  blocked(NoQuorum, wants("1")),
		"a word that is no setting does not":      blocked(NoQuorum, wants("most")),
		"no quorum is asked of a replica that went while its node was ONLINE": {
			from: gone, edit: mayRun(nodeB, usual("off")), want: Lost, reason: ReplicaGone,
		},

		"nobody asks for a volume without pods":                blocked(NotSelected, nobody),
		"nobody asks for a volume without pods and attachment": blocked(NotSelected, nobody, func(in *Input) { in.Attachment = nil }),
		"a fail-over that has begun is finished":               open(nobody, func(in *Input) { in.Attachment.Marked = true }),
		"a volume that a pod elsewhere awaits is freed":        open(nobody, func(in *Input) { in.Attachment.Awaited = true }),

		"a pod that is not selected stays":                        blocked(NotSelected, thePod(unselected)),
		"a helper that is not selected stays, whatever its owner": blocked(HelperNotSelected, thePod(func(p *Pod) { p.Selected, p.HelperOf = false, "vm" })),
		"a helper that is selected moves":                         open(thePod(func(p *Pod) { p.HelperOf = "vm" })),
		"a pod that is not selected stays although the attachment is marked": blocked(NotSelected, thePod(unselected),
			func(in *Input) { in.Attachment.Marked = true }),
		"an exempt pod stays":               blocked(Exempt, thePod(func(p *Pod) { p.Exempt = true })),
		"a pod without a controller stays":  blocked(NoOwner, thePod(func(p *Pod) { p.Owned = false })),
		"a pod of a DaemonSet stays":        blocked(NodeBound, thePod(func(p *Pod) { p.NodeBound = true })),
		"a pod with an unsafe volume stays": blocked(UnsafeVolume, thePod(func(p *Pod) { p.UnsafeVolume = "cache" })),
		"a pod with an unsafe volume goes when allowed": open(thePod(func(p *Pod) { p.UnsafeVolume = "cache" }),
			func(in *Input) { in.Settings.RemoveUnsafePods = true }),
		"a pod with a claim without a volume stays": blocked(OtherVolumeUnavailable, thePod(func(p *Pod) { p.UnboundClaim = "shop/wal" })),
		"also where unsafe volumes are allowed": blocked(OtherVolumeUnavailable, thePod(func(p *Pod) { p.UnboundClaim = "shop/wal" }),
			func(in *Input) { in.Settings.RemoveUnsafePods = true }),
		"a terminating pod passes the same gates": blocked(Exempt, thePod(func(p *Pod) { p.Exempt, p.Terminating = true, true })),

		"another volume with a survivor moves along":             open(otherVolume(func(*Input) {})),
		"another volume without a survivor stays on a dead node": blocked(OtherVolumeUnavailable, otherVolume(noSurvivor)),
		"another volume that was never read stays":               blocked(OtherVolumeUnavailable, otherVolume(func(in *Input) { in.Resource = Resource{} })),
		"another volume with old values stays": blocked(OtherVolumeUnavailable, otherVolume(edited(
			at(nodeB, func(r *Replica) { r.MayPromote.Confirmed = ago(MaxAge + 1) }),
			at(nodeT, func(r *Replica) { r.MayPromote.Confirmed = ago(MaxAge + 1) })))),
		"another volume that A would hand over in peace moves along": {
			from: isolated, edit: otherVolume(edited(noSurvivor, connectedTo(nodeA, true))), want: Lost, reason: QuorumLost,
		},
		"another volume that has neither quorum nor data elsewhere stays": {
			from: isolated, edit: otherVolume(edited(noSurvivor,
				at(nodeB, func(r *Replica) { r.Score = held(0, time.Minute) }), at(nodeT, func(r *Replica) { r.Score = held(0, time.Minute) }))),
			want: Blocked, reason: OtherVolumeUnavailable,
		},
		"another volume whose only other replica is leaving stays": {
			from: isolated, edit: otherVolume(edited(noSurvivor, withoutTieBreaker, at(nodeB, func(r *Replica) { r.Leaving = true }))),
			want: Blocked, reason: OtherVolumeUnavailable,
		},
		"a volume that is mounted by NFS moves along": open(otherVolume(noSurvivor), ofOther(func(o *OtherVolume) { o.NFSExport = true })),
		"a generic ephemeral volume is re-created":    open(otherVolume(noSurvivor), ofOther(func(o *OtherVolume) { o.Ephemeral = true })),
		"a shared volume that is in use elsewhere moves along": open(
			otherVolume(edited(noSurvivor, inUseElsewhere(10102, true))), ofOther(func(o *OtherVolume) { o.Shared = true })),
		"a volume of one node that is in use elsewhere stays": blocked(OtherVolumeUnavailable, otherVolume(edited(noSurvivor, inUseElsewhere(10102, true)))),
		"a shared volume that nobody uses elsewhere stays": blocked(OtherVolumeUnavailable,
			otherVolume(noSurvivor), ofOther(func(o *OtherVolume) { o.Shared = true })),
		"a shared volume that is in use without quorum elsewhere stays": blocked(OtherVolumeUnavailable,
			otherVolume(edited(noSurvivor, inUseElsewhere(0, true))), ofOther(func(o *OtherVolume) { o.Shared = true })),
		"a shared volume that was in use with quorum elsewhere too long ago stays": blocked(OtherVolumeUnavailable,
			otherVolume(edited(noSurvivor, inUseElsewhere(10102, true), at(nodeB, func(r *Replica) { r.Score.Confirmed = ago(MaxAge + 1) }))),
			ofOther(func(o *OtherVolume) { o.Shared = true })),
		"a shared volume that is in use on another node that is away stays": blocked(OtherVolumeUnavailable,
			otherVolume(edited(noSurvivor, inUseElsewhere(10102, false))), ofOther(func(o *OtherVolume) { o.Shared = true })),
		"a shared volume that is in use on the lost node alone stays": blocked(OtherVolumeUnavailable,
			otherVolume(edited(noSurvivor, at(nodeA, func(r *Replica) {
				r.Online, r.InUse, r.Score = held(true, time.Minute), held(true, time.Minute), held(10102, time.Minute)
			}))), ofOther(func(o *OtherVolume) { o.Shared = true })),
		"one volume of several keeps the pod": blocked(OtherVolumeUnavailable, otherVolume(func(*Input) {}), otherVolume(noSurvivor)),

		"another volume is looked up by the name that LINSTOR has for the node": blocked(OtherVolumeUnavailable,
			otherVolume(noSurvivor), func(in *Input) { in.Node.Name, in.Node.Satellite = "a.example.com", nodeA }),

		"two pods that may go both go":                   open(second(func(*Pod) {})),
		"one pod that may not go keeps the other":        blocked(SharedVolume, second(unselected)),
		"the first pod that may not go keeps the second": blocked(SharedVolume, second(func(*Pod) {}), thePod(unselected)),
		"another volume of the second pod keeps the first": blocked(SharedVolume, second(func(p *Pod) {
			p.Others = []OtherVolume{{Name: "pv-2"}}
		})),

		"a pod that may not go keeps the other volume of the pod, and so the pod": blocked(SharedVolume, otherVolume(func(*Input) {}),
			ofOther(func(o *OtherVolume) { o.Users = []Pod{{UID: "user", Selected: true, Owned: true, Exempt: true}} })),
		"so does one of several, and one with a volume that may not survive a move": blocked(SharedVolume, otherVolume(func(*Input) {}),
			ofOther(func(o *OtherVolume) {
				o.Users = []Pod{{UID: "user", Selected: true, Owned: true}, {UID: "user", Selected: true, Owned: true, UnsafeVolume: "cache"}}
			})),
		"a pod that may go keeps none": open(otherVolume(func(*Input) {}),
			ofOther(func(o *OtherVolume) { o.Users = []Pod{{UID: "user", Selected: true, Owned: true}} })),
		"a pod that would stay with a volume that is not lost keeps the pod": blocked(SharedVolume,
			func(in *Input) { *in = isolated() }, otherVolume(func(in *Input) { *in = healthy() }), ofOther(func(o *OtherVolume) { o.Users = []Pod{{UID: "user", Selected: true, Owned: true}} })),
		"so does one with a volume whose quorum does not fence": blocked(SharedVolume,
			otherVolume(wants("1")), ofOther(func(o *OtherVolume) { o.Users = []Pod{{UID: "user", Selected: true, Owned: true}} })),
		"nor does one that shares both volumes, and goes with this one": {
			from: isolated, want: Lost, reason: QuorumLost,
			edit: edited(thePod(func(p *Pod) { p.UID = "one" }), second(func(p *Pod) { p.UID = "two" }), otherVolume(func(in *Input) { *in = healthy() }),
				ofOther(func(o *OtherVolume) { o.Users = []Pod{{UID: "two", Selected: true, Owned: true}} })),
		},
		"none keeps an other volume that both nodes may use": open(otherVolume(func(*Input) {}),
			ofOther(func(o *OtherVolume) { o.Shared, o.Users = true, []Pod{{}} })),
		"none keeps an other volume that is mounted by NFS": open(otherVolume(func(*Input) {}),
			ofOther(func(o *OtherVolume) { o.NFSExport, o.Users = true, []Pod{{}} })),

		"LINSTOR's last word is just recent enough": open(func(in *Input) { in.LinstorConfirmed = ago(10 * time.Second) }),
		"LINSTOR's last word is too old":            blocked(LinstorStale, func(in *Input) { in.LinstorConfirmed = ago(10*time.Second + 1) }),
		"LINSTOR has never said anything":           blocked(LinstorStale, func(in *Input) { in.LinstorConfirmed = time.Time{} }),

		"a suspect view of the cluster stops everything":                                  blocked(GuardTripped, func(in *Input) { in.Halt.Guard = "3 of 4 nodes are lost" }),
		"pods of a node that is out of service are left to Kubernetes":                    blocked(OutOfService, outOfService),
		"and while Kubernetes has not deleted each of them":                               blocked(OutOfService, outOfService, deleted(time.Minute), second(func(*Pod) {})),
		"and where it has only just done so, and may do so again":                         blocked(OutOfService, outOfService, deleted(5*time.Second-1)),
		"and where it does not call the node Ready and will end them":                     blocked(OutOfService, outOfService, deleted(time.Minute), func(in *Input) { in.Node.NotReady = true }),
		"but not those that it has deleted, and cannot end while it calls the node Ready": open(outOfService, deleted(5*time.Second)),
		"but not one that tolerates the taint, which Kubernetes never deletes":            open(outOfService, thePod(stays)),
		"also where another one of the volume has been deleted":                           open(outOfService, deleted(time.Minute), second(stays)),
		"unless somebody has deleted it, and Kubernetes will end it": blocked(OutOfService, outOfService, thePod(stays), deleted(time.Minute), func(in *Input) {
			in.Node.NotReady = true
		}),
		"nor where another one of the volume has not been deleted yet": blocked(OutOfService, outOfService, second(stays)),
		"nor those of a node whose taint evicts nobody":                open(func(in *Input) { in.Node.OutOfService = true }),
		"but for one that Kubernetes ends, since somebody has deleted it": blocked(OutOfService, deleted(time.Minute), func(in *Input) {
			in.Node.OutOfService, in.Node.NotReady = true, true
		}),
		"what is left of a node that is out of service is finished": open(nobody, func(in *Input) {
			in.Node.OutOfService, in.Attachment.Marked = true, true
		}),
		"also once Kubernetes has missed the node": open(nobody, func(in *Input) {
			in.Node.OutOfService, in.Node.NotReady, in.Attachment.Marked = true, true, true
		}),
		"a pause stops everything":   blocked(Paused, func(in *Input) { in.Halt.Paused = "by the annotation" }),
		"node agents are left to it": blocked(NodeAgentRuns, func(in *Input) { in.Halt.Agents = "agents run" }),
		"a dry run acts on nothing":  blocked(DryRun, func(in *Input) { in.Halt.DryRun = true }),
	}
}

func outOfService(in *Input) { in.Node.OutOfService, in.Node.Evicts = true, true }

func stays(p *Pod) { p.StaysOutOfService = true }

// deleted has somebody delete the pod so long ago.
func deleted(age time.Duration) func(*Input) {
	return thePod(func(p *Pod) { p.Terminating, p.Deleting, p.Grace = true, ago(age), 30*time.Second })
}

// What a gate says is why it is shut.
func TestAGateThatIsOpenSaysNothing(t *testing.T) {
	t.Parallel()

	for _, g := range gates {
		for _, from := range []func() Input{crashed, isolated, ioErrors, demoted, gone} {
			if reason, message := g.check(assess(from())); reason != "" || message != "" {
				t.Errorf("%s: %q, %q", g.name, reason, message)
			}
		}
	}
}

// Who selects the pod must know that this alone would not move it.
func TestAPodThatIsNotSelectedIsToldThatItHasNoController(t *testing.T) {
	t.Parallel()

	for _, owned := range []bool{true, false} {
		_, message := gatePod(assess(crashed()), Pod{Owned: owned})
		if strings.Contains(message, "no controller") == owned {
			t.Errorf("owned: %t, and is told %q", owned, message)
		}
	}
}

// The order of the gates is part of the policy: a volume that stands before all of them names the first,
// and each one that opens uncovers the next. The grace comes before every gate.
func TestOrderOfGates(t *testing.T) {
	t.Parallel()

	in := crashed()
	in.LinstorConfirmed = ago(time.Minute)
	in.Halt = Halt{Guard: "too many", Paused: "by hand", Agents: "agents run", DryRun: true}
	in.Pods[0] = Pod{Exempt: true, NodeBound: true, UnboundClaim: "shop/wal", UnsafeVolume: "cache", Others: []OtherVolume{{Name: "pv-2"}}}
	in.Resource.Quorum = "off"
	mayRun(nodeA, usual("off"), usual("majority"))(&in)
	at(nodeT, func(r *Replica) { r.Connections[nodeA] = held(false, time.Second) })(&in)

	steps := []struct {
		change edit
		want   Reason
	}{
		// A grace that runs names the loss and the verdict is pending; from the second step on the gates speak.
		{thePod(func(p *Pod) { p.HasRun = true }), NodeUnreachable},
		{at(nodeT, func(r *Replica) { r.Connections[nodeA] = held(false, time.Minute) }), NoQuorum},
		{func(in *Input) { in.Resource.Quorum = "majority" }, QuorumUnconfirmed},
		{mayRun(nodeA, usual("majority")), NotSelected},
		{thePod(func(p *Pod) { p.Selected = true }), Exempt},
		{thePod(func(p *Pod) { p.Exempt = false }), NoOwner},
		{thePod(func(p *Pod) { p.Owned = true }), NodeBound},
		{thePod(func(p *Pod) { p.NodeBound = false }), OtherVolumeUnavailable},
		{thePod(func(p *Pod) { p.UnboundClaim = "" }), UnsafeVolume},
		{thePod(func(p *Pod) { p.UnsafeVolume = "" }), OtherVolumeUnavailable},
		{thePod(func(p *Pod) { p.Others = nil }), LinstorStale},
		{func(in *Input) { in.LinstorConfirmed = now }, GuardTripped},
		{func(in *Input) { in.Halt.Guard = "" }, Paused},
		{func(in *Input) { in.Halt.Paused = "" }, NodeAgentRuns},
		{func(in *Input) { in.Halt.Agents = "" }, DryRun},
	}
	for i, step := range steps {
		step.change(&in)
		want := Blocked
		if i == 0 {
			want = Pending
		}
		if d := Decide(in); d.Verdict != want || d.Reason != step.want {
			t.Fatalf("step %d: %s (%s: %s), want %s (%s)", i, d.Verdict, d.Reason, d.Message, want, step.want)
		}
	}
	in.Halt.DryRun = false
	if d := Decide(in); d.Verdict != Lost {
		t.Errorf("with every gate open: %s (%s: %s), want %s", d.Verdict, d.Reason, d.Message, Lost)
	}
}
