package failover

import (
	"testing"
	"time"
)

func TestStateOf(t *testing.T) {
	t.Parallel()

	cases := map[string]struct {
		from func() Input
		edit edit
		want State
	}{
		"a Primary with a score is healthy":                      {from: healthy, want: PrimaryUp},
		"a Primary with score 0 has no quorum":                   {from: isolated, want: PrimaryWithoutQuorum},
		"a replica with score 0 that is not in use fails its IO": {from: ioErrors, want: IOErrors},
		"a replica with a score that is not in use is Secondary": {from: demoted, want: Secondary},
		"a list without the node has no replica there":           {from: gone, want: NoReplica},
		"a replica that left once and is back is believed": {
			from: isolated, edit: func(in *Input) { in.Resource.Left = []string{nodeA} }, want: PrimaryWithoutQuorum,
		},
		"a replica that LINSTOR has forgotten is unreachable, whatever it said last": {
			from: isolated, edit: at(nodeA, func(r *Replica) { r.Gone = true }), want: Unreachable,
		},
		"a node that LINSTOR does not list is unknown, not one without a replica": {
			from: gone, edit: func(in *Input) { in.Node.Unlisted = true }, want: Unknown,
		},
		"a node that LINSTOR does not list any more is unreachable while its replica is remembered": {
			from: crashed, edit: func(in *Input) { in.Node.Unlisted = true }, want: Unreachable,
		},
		"a node is found by the name that LINSTOR has for it": {
			from: isolated, edit: func(in *Input) { in.Node.Name, in.Node.Satellite = "a.example.com", nodeA }, want: PrimaryWithoutQuorum,
		},
		"a kubelet that renews every 30 s is not silent after 57 s": {
			from: isolated, edit: edited(theLease(57*time.Second), theGap(30*time.Second)), want: PrimaryWithoutQuorum,
		},
		"a kubelet that renews every 30 s is silent after 58 s": {
			from: isolated, edit: edited(theLease(58*time.Second), theGap(30*time.Second)), want: Unreachable,
		},
		"a kubelet that renews every 5 s is silent when every other one is": {
			from: isolated, edit: edited(theLease(20*time.Second), theGap(5*time.Second)), want: Unreachable,
		},
		"a list that was never read says nothing of an absent replica": {
			from: gone, edit: func(in *Input) { in.Resource.Known = false }, want: Unknown,
		},
		"an OFFLINE satellite is unreachable": {from: crashed, want: Unreachable},
		"an OFFLINE satellite is unreachable whatever its last values were": {
			from: healthy, edit: at(nodeA, func(r *Replica) { r.Online = held(false, time.Second) }), want: Unreachable,
		},
		"an ONLINE satellite without any state of the resource is unreachable": {
			from: crashed,
			edit: edited(theLease(time.Second), at(nodeA, func(r *Replica) { r.Online = held(true, time.Hour) })),
			want: Unreachable,
		},
		"an ONLINE node is unreachable when no peer reaches it and its kubelet is silent": {
			from: isolated, edit: theLease(20 * time.Second), want: Unreachable,
		},
		"witnesses and a silent kubelet overrule LINSTOR's word of a healthy Primary": {
			from: healthy, edit: edited(takeover, theLease(20*time.Second)), want: Unreachable,
		},
		"an ONLINE node whose kubelet is not silent long enough is believed": {
			from: isolated, edit: theLease(20*time.Second - 1), want: PrimaryWithoutQuorum,
		},
		"an ONLINE node whose Lease nobody knows is believed": {
			from: isolated,
			edit: func(in *Input) { in.Node.LeaseKnown, in.Node.LeaseSilence = false, time.Hour },
			want: PrimaryWithoutQuorum,
		},
		"an ONLINE node that one peer still reaches is believed although its kubelet is silent": {
			from: isolated,
			edit: edited(theLease(time.Minute), at(nodeT, func(r *Replica) { r.Connections[nodeA] = held(true, time.Minute) })),
			want: PrimaryWithoutQuorum,
		},
		"a silent kubelet does not stand for a satellite that LINSTOR says nothing of": {
			from: isolated,
			edit: edited(theLease(time.Minute), at(nodeA, func(r *Replica) { r.Online = untold[bool](time.Minute) })),
			want: Unknown,
		},
		"a Primary without a score is unknown": {
			from: isolated, edit: at(nodeA, func(r *Replica) { r.Score = untold[int](time.Minute) }), want: Unknown,
		},
		"a score that DRBD never gives is unknown": {
			from: isolated, edit: at(nodeA, func(r *Replica) { r.Score = held(-1, time.Minute) }), want: Unknown,
		},
		"a score without a role is unknown": {
			from: isolated, edit: at(nodeA, func(r *Replica) { r.InUse = untold[bool](time.Minute) }), want: Unknown,
		},
		"values of a satellite that LINSTOR says nothing of are unknown": {
			from: healthy, edit: at(nodeA, func(r *Replica) { r.Online = untold[bool](time.Minute) }), want: Unknown,
		},
		"nothing known at all is unknown": {from: func() Input { return Input{Now: now} }, want: Unknown},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := StateOf((scenario{from: c.from, edit: c.edit}).input()); got != c.want {
				t.Errorf("StateOf = %s, want %s", got, c.want)
			}
		})
	}
}

// The newest values count for a report, however old they are; they do not count for a decision.
func TestStateOfIgnoresAge(t *testing.T) {
	t.Parallel()

	in := healthy()
	in.Now = now.Add(time.Hour)
	if got := StateOf(in); got != PrimaryUp {
		t.Errorf("StateOf = %s, want %s", got, PrimaryUp)
	}
	if got := StateOf(in.freshened()); got != Unknown {
		t.Errorf("StateOf of the freshened input = %s, want %s", got, Unknown)
	}
}
