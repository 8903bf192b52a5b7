package failover

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// wired is a healthy volume in which every replica reports all its connections.
func wired() Input {
	in := healthy()
	wire(&in)
	return in
}

func wire(in *Input) {
	for i := range in.Resource.Replicas {
		r := &in.Resource.Replicas[i]
		r.Connections = map[string]Fact[bool]{}
		for _, peer := range in.Resource.Replicas {
			if peer.Node != r.Node && !(peer.Diskless && r.Diskless) {
				r.Connections[peer.Node] = held(true, time.Hour)
			}
		}
	}
}

// forecast is one case of the table of forecasts.
type forecast struct {
	from    func() Input
	edit    edit
	want    Outlook
	reason  Reason
	message string // what the message contains
}

func forecasts() map[string]forecast {
	quorum := wants
	score := func(node string, value int) edit {
		return at(node, func(r *Replica) { r.Score = held(value, time.Hour) })
	}
	second := func(change func(*Pod)) edit {
		return func(in *Input) {
			in.Pods = append(in.Pods, runningPod("web-1"))
			change(&in.Pods[1])
		}
	}
	halt := func(h Halt) edit { return func(in *Input) { in.Halt = h } }
	other := func(change edit) edit {
		return thePod(func(p *Pod) {
			o := wired()
			change(&o)
			p.Others = append(p.Others, OtherVolume{Name: "pv-2", Resource: o.Resource})
		})
	}
	cut := func(a, b string) edit {
		return edited(
			at(a, func(r *Replica) { r.Connections[b] = held(false, time.Hour) }),
			at(b, func(r *Replica) { r.Connections[a] = held(false, time.Hour) }))
	}
	onlyA := func(in *Input) { in.Resource.Replicas = in.Resource.Replicas[:1] }
	good := func(reason Reason, edits ...edit) forecast {
		return forecast{from: wired, edit: edited(edits...), want: Protected, reason: reason}
	}
	bad := func(reason Reason, message string, edits ...edit) forecast {
		return forecast{from: wired, edit: edited(edits...), want: Unprotected, reason: reason, message: message}
	}
	return map[string]forecast{
		"two disks and a tie-breaker protect": good(PrimaryHealthy),
		"three disks protect": good(PrimaryHealthy, withoutTieBreaker, withThirdDisk, wire,
			score(nodeA, 10103), score(nodeB, 10103), score(nodeC, 10103)),
		"values of an hour ago serve as well": good(PrimaryHealthy, func(in *Input) {
			in.Now = now.Add(time.Hour)
			in.LinstorConfirmed = in.Now
		}),
		"a diskless Primary on a third node is protected": good(PrimaryHealthy, withoutTieBreaker, withThirdDisk, wire,
			at(nodeA, func(r *Replica) {
				r.Diskless = true
			}), everywhereAsListed,
			score(nodeB, 10102), score(nodeC, 10102)),
		"a raw block volume that nobody has opened is protected": good(VolumeUnused, func(in *Input) { in.Volume.Block = true },
			at(nodeA, func(r *Replica) { r.InUse = held(false, time.Hour) }),
			at(nodeB, func(r *Replica) { r.MayPromote = held(true, time.Hour) })),
		"an unsafe volume does not matter where that is allowed": good(PrimaryHealthy,
			thePod(func(p *Pod) { p.UnsafeVolume = "cache" }), func(in *Input) { in.Settings.RemoveUnsafePods = true }),
		"another volume that is protected as well moves along": good(PrimaryHealthy, other(func(*Input) {})),
		"a helper that is bound to its pod's node goes where that pod goes": good(PrimaryHealthy,
			thePod(func(p *Pod) { p.HelperOf, p.Places = "vm", Places{Known: true} })),
		"a node whose kubelet cannot be heard is protected": good(PrimaryHealthy, func(in *Input) { in.Node.LeaseKnown = false }),
		"a satellite that LINSTOR has lost does not matter": {
			from: wired, edit: edited(silent(nodeA), func(in *Input) { in.Resource.Replicas[0].Connections = nil }),
			want: Protected, reason: NoSurvivor,
		},

		"one replica alone":                      bad(NoSurvivor, "there is no other replica", onlyA),
		"two disks and no tie-breaker":           bad(NoSurvivor, "node-b would have no quorum", withoutTieBreaker, wire),
		"the other disk is synchronizing":        bad(NoSurvivor, "node-b would have no up-to-date data", score(nodeB, 10001), score(nodeT, 1)),
		"the other disk's satellite is away":     bad(NoSurvivor, "node-b is not ONLINE in LINSTOR", silent(nodeB), score(nodeT, 1)),
		"the other disk's replica is being left": bad(NoSurvivor, "node-b is being removed", withoutTieBreaker, wire, at(nodeB, func(r *Replica) { r.Leaving = true })),
		"the other disk has no quorum even now":  bad(NoSurvivor, "node-b has no quorum, or no up-to-date data", withoutTieBreaker, wire, score(nodeB, 0)),
		"the other disk says nothing": bad(NoSurvivor, "node-b does not report its state", withoutTieBreaker, wire,
			at(nodeB, func(r *Replica) { r.Score = untold[int](time.Hour) })),
		"disk and tie-breaker are not connected": bad(NoSurvivor, "node-b would have no quorum", cut(nodeB, nodeT), score(nodeT, 1)),
		"quorum all":                             bad(NoSurvivor, "node-b would have no quorum", quorum("all")),
		"a quorum of both disks":                 bad(NoSurvivor, "node-b would have no quorum", quorum("2")),
		"the other replica is Primary too": bad(NoSurvivor, "node-b is Primary itself; node-t is connected to node-b, which is Primary",
			at(nodeB, func(r *Replica) { r.InUse = held(true, time.Hour) })),
		"a Primary that the survivors do not reach": bad(PrimaryConnected, "another node is Primary",
			withThirdDisk, wire, cut(nodeC, nodeB), cut(nodeT, nodeB), score(nodeC, 10102), score(nodeT, 10102),
			at(nodeT, func(r *Replica) { r.Diskless = false }),
			at(nodeB, func(r *Replica) { r.InUse, r.Score = held(true, time.Hour), held(0, time.Hour) }),
			at(nodeA, func(r *Replica) {
				r.Diskless = true
			}), everywhereAsListed),

		"LINSTOR does not list the resource": {
			from: wired, edit: func(in *Input) { in.Resource = Resource{Name: "pvc-1"} }, want: Untold, reason: StateUnknown,
		},
		"LINSTOR is blind": {
			from: wired, edit: edited(blindFor(nodeA), blindFor(nodeB), blindFor(nodeT)), want: Untold, reason: LinstorBlind, message: "no connection",
		},
		"LINSTOR is blind for the others": bad(NoSurvivor, "node-b is ONLINE in LINSTOR, which has no connection to it", blindFor(nodeB), blindFor(nodeT)),
		"a volume without DRBD":           bad(NotDRBD, "no DRBD layer", func(in *Input) { in.Resource.DRBD = false }),
		"an NFS export":                   bad(NFSExport, "by NFS", func(in *Input) { in.Volume.NFSExport = true }),
		"quorum off":                      bad(NoQuorum, "goes on writing", quorum("off")),
		"quorum that is not known":        bad(QuorumUnconfirmed, "not been read", quorum("")),
		"a quorum of one":                 bad(NoQuorum, "goes on writing", quorum("1")),
		"A may not know of its quorum":    bad(QuorumUnconfirmed, "not known that node", mayRun(nodeA, usual("off"), usual("majority"))),
		"no pod asks any more":            bad(NotSelected, "no selected pod", func(in *Input) { in.Pods = nil }, func(in *Input) { in.Attachment = nil }),
		"an exempt pod":                   bad(Exempt, "exempts", thePod(func(p *Pod) { p.Exempt = true })),
		"a helper that is not selected":   bad(HelperNotSelected, "helper of pod vm", thePod(func(p *Pod) { p.Selected, p.HelperOf = false, "vm" })),
		"a pod without an owner":          bad(NoOwner, "no controller", thePod(func(p *Pod) { p.Owned = false })),
		"a pod of a DaemonSet":            bad(NodeBound, "same node", thePod(func(p *Pod) { p.NodeBound = true })),
		"an unsafe volume":                bad(UnsafeVolume, `"cache"`, thePod(func(p *Pod) { p.UnsafeVolume = "cache" })),
		"another volume of one replica": bad(OtherVolumeUnavailable, "pv-2",
			other(func(in *Input) { onlyA(in) })),
		"a pod beside it that is not selected": bad(SharedVolume, "web-1", second(func(p *Pod) { p.Selected = false })),
		"LINSTOR is away":                      bad(LinstorStale, "not confirmed", func(in *Input) { in.LinstorConfirmed = ago(time.Minute) }),
		"a suspect view":                       bad(GuardTripped, "too many", halt(Halt{Guard: "too many"})),
		"node agents":                          bad(NodeAgentRuns, "agents run", halt(Halt{Agents: "agents run"})),
		"a pause":                              bad(Paused, "by hand", halt(Halt{Paused: "by hand"})),
		"a node that is out of service":        bad(OutOfService, "by which Kubernetes itself moves", outOfService),
		"a dry run":                            bad(DryRun, "would remove pod default/web-0", halt(Halt{DryRun: true})),

		"no node that could run the pod": bad(NoReadyNode, "2 because it is cordoned, 1 because it is not ready", thePod(func(p *Pod) {
			p.Places = Places{Known: true, Obstacles: map[string]int{"it is not ready": 1, "it is cordoned": 2}}
		})),
		"no other node at all": bad(NoReadyNode, "there is none", thePod(func(p *Pod) { p.Places = Places{Known: true} })),
		"no node for another pod of the volume": bad(NoReadyNode, "web-1", second(func(p *Pod) {
			p.Places = Places{Known: true, Obstacles: map[string]int{"it is cordoned": 3}}
		})),
		"nodes that are not known": {
			from: wired, edit: thePod(func(p *Pod) { p.Places = Places{} }), want: Untold, reason: StateUnknown, message: "not been read",
		},
		"a node that is lost now while no other could run the pod": {
			from: crashed, edit: thePod(func(p *Pod) { p.Places = Places{Known: true} }), want: Unprotected, reason: NoReadyNode,
		},

		"a pod that has not run on a node without a replica": {
			from: gone, edit: thePod(func(p *Pod) { p.HasRun = false }), want: Starting, reason: VolumeStarting,
		},
		"a node that is lost now":              {from: crashed, want: Failing, reason: NodeUnreachable},
		"a node that is lost now and a pause":  {from: crashed, edit: halt(Halt{Paused: "by hand"}), want: Unprotected, reason: Paused},
		"a Primary without quorum and its pod": {from: isolated, want: Failing, reason: QuorumLost},
	}
}

func TestForesee(t *testing.T) {
	t.Parallel()
	for name, c := range forecasts() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := c.from()
			if c.edit != nil {
				c.edit(&in)
			}
			f := Foresee(in)
			if f.Outlook != c.want || f.Reason != c.reason || !strings.Contains(f.Message, c.message) || f.Message == "" {
				t.Errorf("got %s (%s: %s), want %s (%s: ...%s...)", f.Outlook, f.Reason, f.Message, c.want, c.reason, c.message)
			}
		})
	}
}

// Every hindrance that is announced is met, and none other.
func TestEveryHindranceIsForeseen(t *testing.T) {
	t.Parallel()
	met := map[Reason]bool{}
	for _, c := range forecasts() {
		in := c.from()
		if c.edit != nil {
			c.edit(&in)
		}
		if f := Foresee(in); f.Outlook == Unprotected || f.Outlook == Untold {
			met[f.Reason] = true
		}
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(Hindrances())), slices.Sorted(maps.Keys(met))); diff != "" {
		t.Errorf("hindrances (-announced +met):\n%s", diff)
	}
}

// What is imagined must not leak into what is known.
func TestForeseeLeavesItsInputAlone(t *testing.T) {
	t.Parallel()
	in, before := wired(), wired()
	Foresee(in)
	if diff := cmp.Diff(before, in); diff != "" {
		t.Errorf("the input has changed (-before +after):\n%s", diff)
	}
}

// Whatever is known, the forecast is complete, and gives no reason that is not announced; and no workload counts as
// protected that a gate would keep.
func TestAnythingIsForeseen(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := eitherInput(t)
		f := Foresee(in)
		if f.Outlook == "" || f.State == "" || f.Reason == "" || f.Message == "" {
			t.Fatalf("the forecast is incomplete: %+v", f)
		}
		hindered := f.Outlook == Unprotected || f.Outlook == Untold
		if hindered && !slices.Contains(Hindrances(), f.Reason) {
			t.Fatalf("%s for the reason %s, which is not announced", f.Outlook, f.Reason)
		}
		if f.Outlook != Protected && f.Outlook != Failing {
			return
		}
		if in.Halt != (Halt{}) {
			t.Fatalf("%s although everything is halted: %+v", f.Outlook, in.Halt)
		}
		if a, ok := in.Resource.Replica(in.Node.Name); ok && !in.Node.TakenOut && !a.provesQuorum(in.Resource) {
			if !a.Confirmed {
				t.Fatalf("%s although the node is not known to run quorum", f.Outlook)
			}
		}
		for _, pod := range in.Pods {
			if !pod.Selected || pod.Exempt || !pod.Owned || pod.NodeBound {
				t.Fatalf("%s although a pod may not be removed: %+v", f.Outlook, pod)
			}
			if !pod.Places.Known || !pod.Places.Fit {
				t.Fatalf("%s although no other node is known to run a pod: %+v", f.Outlook, pod)
			}
		}
	})
}

// The grace that is announced is the one that applies.
func TestForeseenGrace(t *testing.T) {
	t.Parallel()
	in := wired()
	if f := Foresee(in); f.Grace != in.Settings.ConfirmedGrace {
		t.Errorf("with all peers as witnesses the grace is %s, want %s", f.Grace, in.Settings.ConfirmedGrace)
	}
}

// A pod that is stuck gets the same reason by its forecast as by the decision, which its Event has.
func TestTheForecastOfALostVolumeSaysWhatTheDecisionSays(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]edit{
		"the survivor runs without quorum": edited(
			at(nodeB, func(r *Replica) {
				r.Connections = map[string]Fact[bool]{nodeA: held(false, time.Minute), nodeT: held(false, time.Minute)}
			}),
			at(nodeT, func(r *Replica) { r.MayPromote = held(false, time.Minute) })),
		"nobody can take over": edited(
			at(nodeB, func(r *Replica) { r.MayPromote, r.Score = held(false, time.Minute), held(0, time.Minute) }),
			at(nodeT, func(r *Replica) { r.MayPromote, r.Score = held(false, time.Minute), held(0, time.Minute) })),
		"quorum is off": wants("off"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := crashed()
			edit(&in)
			d, f := Decide(in), Foresee(in)
			if d.Reason != f.Reason || !f.Lost {
				t.Errorf("decided: %s: %s\nforetold: %s: %s (lost: %t)", d.Reason, d.Message, f.Reason, f.Message, f.Lost)
			}
		})
	}
}
