package failover

import (
	"testing"
	"time"
)

// Where nothing can follow unless something changes, nothing is read again, however old the values are; where a
// loss may follow without an event to announce it, R is read every second.
func TestOnlyWhatMayBecomeALossIsReadAgain(t *testing.T) {
	t.Parallel()

	noSurvivor := edited(
		at(nodeB, func(r *Replica) { r.MayPromote = held(false, time.Minute) }),
		at(nodeT, func(r *Replica) { r.MayPromote = held(false, time.Minute) }))
	block := func(in *Input) { in.Volume.Block = true }
	cases := map[string]struct {
		from func() Input
		edit edit
		want time.Duration
	}{
		"a healthy Primary among healthy peers":                     {from: healthy},
		"a dead node without a survivor":                            {from: crashed, edit: edited(noSurvivor, theLease(time.Second))},
		"an unknown state without a survivor":                       {from: healthy, edit: func(in *Input) { in.Resource.Known = false }},
		"a closed raw block volume":                                 {from: demoted, edit: block},
		"a read-only volume":                                        {from: demoted, edit: func(in *Input) { in.Volume.ReadOnly = true }},
		"an NFS export":                                             {from: crashed, edit: edited(theLease(time.Second), func(in *Input) { in.Volume.NFSExport = true })},
		"a volume without DRBD":                                     {from: crashed, edit: edited(theLease(time.Second), func(in *Input) { in.Resource.DRBD = false })},
		"a closed raw block volume on a node with a silent kubelet": {from: demoted, edit: edited(block, theLease(time.Minute)), want: time.Second},
		"a healthy Primary beside a replica that may be promoted":   {from: healthy, edit: takeover, want: time.Second},
		"an unknown state beside a survivor": {
			from: isolated, edit: at(nodeA, func(r *Replica) { r.Score = untold[int](time.Minute) }), want: time.Second,
		},
		"a replica that may be promoted where LINSTOR does not yet call the satellite ONLINE": {
			from: crashed, edit: edited(theLease(time.Second), at(nodeT, func(r *Replica) { r.MayPromote = untold[bool](time.Minute) }),
				at(nodeB, func(r *Replica) { r.Online = held(false, time.Minute) })), want: time.Second,
		},
		"a dead node that itself may be promoted": {from: crashed, edit: edited(noSurvivor, theLease(time.Second),
			at(nodeA, func(r *Replica) { r.MayPromote = held(true, time.Minute) }))},
		"a Secondary with a file system":   {from: demoted, want: time.Second},
		"a dead node with a survivor":      {from: crashed, want: time.Second},
		"a loss that a gate holds back":    {from: crashed, edit: thePod(func(p *Pod) { p.Exempt = true }), want: time.Second},
		"a dead node that a peer reaches":  {from: crashed, edit: connectedTo(nodeA, true), want: time.Second},
		"a node that too few testify upon": {from: crashed, edit: edited(silent(nodeT), theLease(time.Second)), want: time.Second},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := (scenario{from: c.from, edit: c.edit}).input()
			for _, age := range []time.Duration{0, time.Hour} {
				in.Now = now.Add(age)
				if d := Decide(in); d.After != c.want {
					t.Errorf("with values %s old: %s (%s) again in %s, want %s", age, d.Verdict, d.Reason, d.After, c.want)
				}
			}
		})
	}
}
