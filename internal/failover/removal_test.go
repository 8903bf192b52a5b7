package failover

import (
	"testing"
	"time"
)

func TestRemovalOf(t *testing.T) {
	t.Parallel()

	deleteBy := func(left time.Duration) edit { return thePod(terminates(left)) }
	over := deleteBy(-1)
	alive := theLease(3 * time.Second)
	twoVolumes := func(in *Input) { in.Resource.Volumes = 2 }
	scoreOf := func(v int) edit { return at(nodeA, func(r *Replica) { r.Score = held(v, time.Minute) }) }
	noScore := at(nodeA, func(r *Replica) { r.Score = untold[int](time.Minute) })
	noSurvivor := edited(
		at(nodeB, func(r *Replica) { r.MayPromote = held(false, time.Minute) }),
		at(nodeT, func(r *Replica) { r.MayPromote = held(false, time.Minute) }))

	theOther := func(change func(*OtherVolume)) edit { return thePod(func(p *Pod) { change(&p.Others[0]) }) }
	shared := theOther(func(o *OtherVolume) { o.Shared = true })
	// Another node has the volume in use, and nobody else may take it.
	usedOnB := edited(unreachable, noSurvivor, at(nodeB, func(r *Replica) { r.InUse = held(true, time.Minute) }))
	reachedBy := func(node string) edit {
		return at(node, func(r *Replica) { r.Connections[nodeA] = held(true, time.Minute) })
	}
	dry := func(node string) edit { return at(node, func(r *Replica) { r.Score = held(0, time.Minute) }) }
	forgotten := func(in *Input) { in.Resource.Left = nil }
	isGone := at(nodeA, func(r *Replica) { r.Gone = true })

	forced := thePod(func(p *Pod) { p.Forced, p.Terminating, p.Deleting = true, true, ago(time.Minute) })
	cases := map[string]struct {
		from func() Input
		edit edit
		want Removal
	}{
		"a pod on a dead node goes by force":                      {from: crashed, want: RemoveForce},
		"a pod on a dead node goes by force from 12 s of silence": {from: crashed, edit: theLease(12 * time.Second), want: RemoveForce},
		"a pod on a node that was silent for less than 12 s goes in peace": {
			from: crashed, edit: theLease(12*time.Second - 1), want: RemoveGracefully,
		},
		"a pod on a node whose kubelet renews every 30 s goes in peace after 34 s": {
			from: crashed, edit: edited(theLease(34*time.Second), theGap(30*time.Second)), want: RemoveGracefully,
		},
		"a pod on a node whose kubelet renews every 30 s goes by force after 35 s": {
			from: crashed, edit: edited(theLease(35*time.Second), theGap(30*time.Second)), want: RemoveForce,
		},
		"a pod on a node whose Lease nobody knows goes in peace": {
			from: crashed, edit: func(in *Input) { in.Node.LeaseKnown = false }, want: RemoveGracefully,
		},
		"a pod on a node with a silent kubelet that LINSTOR still reaches goes in peace": {
			from: isolated, edit: theLease(19 * time.Second), want: RemoveGracefully,
		},
		"a pod on a node that only LINSTOR's view keeps ONLINE goes by force": {
			from: isolated, edit: theLease(20 * time.Second), want: RemoveForce,
		},
		"an old word of OFFLINE is no reason for force": {
			from: crashed, edit: func(in *Input) { in.Now = now.Add(MaxAge + 1) }, want: RemoveGracefully,
		},
		"nor is one that is older than an act may rest on": {
			from: crashed, edit: func(in *Input) { in.Now, in.Live = now.Add(ActAge+1), true }, want: RemoveGracefully,
		},
		"a terminating pod on a dead node is finished by force": {
			from: crashed, edit: deleteBy(time.Hour), want: RemoveForce,
		},
		"a terminating pod has its time":            {from: isolated, edit: deleteBy(10 * time.Second), want: RemovalRunning},
		"a terminating pod has its time to the end": {from: isolated, edit: deleteBy(1), want: RemovalRunning},
		"a longer time to terminate is shortened":   {from: isolated, edit: deleteBy(10*time.Second + 1), want: RemoveGracefully},
		"the time that it was just given is not, even if that was seen a moment later": {
			from: isolated, edit: thePod(func(p *Pod) { p.Terminating, p.Grace, p.Deleting = true, 10*time.Second, now.Add(1) }), want: RemovalRunning,
		},
		"a pod that cannot write any more goes by force when its time is over": {
			from: isolated, edit: over, want: RemoveForce,
		},
		"its time is over at its very end":                    {from: isolated, edit: deleteBy(0), want: RemoveForce},
		"failed IO does not write":                            {from: ioErrors, edit: over, want: RemoveForce},
		"a missing replica does not write":                    {from: gone, edit: over, want: RemoveForce},
		"a Secondary could write again: its pod stays":        {from: demoted, edit: over, want: RemovalStuck},
		"a score above 0 could write, whatever its peers say": {from: isolated, edit: edited(over, scoreOf(1)), want: RemovalStuck},
		"a score of 0 says nothing of several volumes": {
			from: isolated, edit: edited(over, twoVolumes), want: RemovalStuck,
		},
		"a score of 0 says nothing of an unknown number of volumes": {
			from: isolated, edit: edited(over, func(in *Input) { in.Resource.Volumes = 0 }), want: RemovalStuck,
		},
		"a score of 0 proves it even with too few witnesses": {from: isolated, edit: edited(over, silent(nodeT)), want: RemoveForce},
		"an old score proves nothing": {
			from: isolated, edit: edited(over, silent(nodeT), at(nodeA, func(r *Replica) { r.Score.Confirmed = ago(MaxAge + 1) })),
			want: RemovalStuck,
		},
		"nor does one that is older than an act may rest on": {
			from: isolated, edit: edited(over, silent(nodeT), func(in *Input) { in.Live = true }, at(nodeA, func(r *Replica) { r.Score.Confirmed = ago(ActAge + 1) })),
			want: RemovalStuck,
		},
		"without a score the witnesses prove it": {from: crashed, edit: edited(over, alive), want: RemoveForce},
		"without a score too few witnesses prove nothing": {
			from: crashed, edit: edited(over, alive, silent(nodeT)), want: RemovalStuck,
		},
		"without a score a witness that reaches the node disproves it": {
			from: crashed, edit: edited(over, alive, connectedTo(nodeA, true)), want: RemovalStuck,
		},
		"witnesses prove nothing when quorum does not fence": {
			from: crashed, edit: edited(over, alive, wants("off")), want: RemovalStuck,
		},
		"witnesses prove nothing when the node may not know its quorum": {
			from: crashed, edit: edited(over, alive, unborne), want: RemovalStuck,
		},
		"a list that was not read proves nothing": {
			from: isolated, edit: edited(over, func(in *Input) { in.Resource.Known = false }), want: RemovalStuck,
		},

		"an absence that nobody can explain proves nothing": {from: gone, edit: edited(over, forgotten), want: RemovalStuck},
		"a score of 0 proves nothing once LINSTOR has forgotten the replica": {
			from: isolated, edit: edited(over, isGone, unborne), want: RemovalStuck,
		},
		"a pod on a dead node that has finalizers goes by force as well": {
			from: crashed, edit: thePod(func(p *Pod) { p.Finalizers = true }), want: RemoveForce,
		},

		"a pod that was deleted without grace is left to its finalizers": {
			from: crashed, edit: edited(forced, thePod(func(p *Pod) { p.Finalizers = true })), want: RemovalRunning,
		},
		"a pod that was deleted without grace and that nothing keeps is deleted again": {from: crashed, edit: forced, want: RemoveForce},
		"the same where the node answers, as it cannot write any more":                 {from: isolated, edit: forced, want: RemoveForce},
		"not where the node could still write":                                         {from: demoted, edit: forced, want: RemovalStuck},

		"another volume that is cut off too goes by force": {from: crashed, edit: otherVolume(unreachable), want: RemoveForce},
		"another volume that a peer reaches asks for peace": {
			from: crashed, edit: otherVolume(edited(unreachable, oneSeesAPrimary)), want: RemoveGracefully,
		},
		"another volume that a peer reaches and no node has open asks for nothing": {
			from: crashed, edit: otherVolume(edited(unreachable, connectedTo(nodeA, true))), want: RemoveForce,
		},
		"another raw block volume that a peer reaches asks for peace": {
			from: crashed, edit: edited(otherVolume(edited(unreachable, connectedTo(nodeA, true))), thePod(func(p *Pod) { p.Others[0].Block = true })),
			want: RemoveGracefully,
		},
		"a shared volume on a node that LINSTOR hears is never taken by force": {
			from: isolated, edit: edited(twoPrimaries, thePod(terminates(-time.Second))), want: RemovalStuck,
		},
		"a node without a kubelet, whose containers are dead": {from: kubeletDead, want: RemoveForce},
		"a pod that stops since somebody else's deletion has the grace since ours": {
			from: isolated, edit: thePod(func(p *Pod) {
				p.Terminating, p.Grace, p.Deleting, p.Begun = true, time.Second, ago(9*time.Second), ago(9*time.Second)
			}),
			want: RemovalRunning,
		},
		"and is removed by force after it": {
			from: isolated, edit: thePod(func(p *Pod) {
				p.Terminating, p.Grace, p.Deleting, p.Begun = true, time.Second, ago(9*time.Second), ago(10*time.Second)
			}),
			want: RemoveForce,
		},
		"another volume without a survivor and without witnesses asks for peace": {
			from: crashed, edit: otherVolume(edited(unreachable, noSurvivor, silent(nodeT))), want: RemoveGracefully,
		},
		"another volume that nobody could take over asks for peace, though nobody speaks for the node either": {
			from: crashed, edit: otherVolume(edited(unreachable, noSurvivor, dry(nodeB), dry(nodeT))), want: RemoveGracefully,
		},
		"another volume that is generic ephemeral is asked nothing": {
			from: crashed, edit: edited(otherVolume(edited(unreachable, connectedTo(nodeA, true))), theOther(func(o *OtherVolume) { o.Ephemeral = true })),
			want: RemoveForce,
		},
		"another volume that is mounted by NFS is asked nothing": {
			from: crashed, edit: edited(otherVolume(edited(unreachable, connectedTo(nodeA, true))), theOther(func(o *OtherVolume) { o.NFSExport = true })),
			want: RemoveForce,
		},
		"another volume that another node has in use asks for peace": {
			from: crashed, edit: otherVolume(usedOnB), want: RemoveGracefully,
		},
		"a shared volume that another node has in use goes by force": {
			from: crashed, edit: edited(otherVolume(usedOnB), shared), want: RemoveForce,
		},
		"a shared volume that nobody else has in use asks for peace": {
			from: crashed, edit: edited(otherVolume(edited(unreachable, noSurvivor)), shared), want: RemoveGracefully,
		},
		"a shared volume that the first witness reaches on the node asks for peace": {
			from: crashed, edit: edited(otherVolume(edited(usedOnB, reachedBy(nodeB))), shared), want: RemoveGracefully,
		},
		"a shared volume with too few witnesses goes by force where the node runs the replicas of now": {
			from: crashed, edit: edited(otherVolume(edited(usedOnB, silent(nodeT))), shared), want: RemoveForce,
		},
		"another volume that quorum does not fence asks for peace": {
			from: crashed, edit: otherVolume(edited(unreachable, wants("off"))), want: RemoveGracefully,
		},
		"another volume that was never read asks for peace": {
			from: crashed, edit: otherVolume(func(in *Input) { in.Resource = Resource{} }), want: RemoveGracefully,
		},
		"another volume without a replica on the node needs no fence": {
			from: crashed, edit: otherVolume(func(in *Input) {
				in.Resource.SetSince, in.Resource.Replicas, in.Resource.Left = ago(time.Minute), in.Resource.Replicas[1:], []string{nodeA}
			}), want: RemoveForce,
		},
		"another volume whose replica left once and is back is asked what it runs": {
			from: crashed, edit: otherVolume(edited(unreachable, unborne, func(in *Input) { in.Resource.Left = []string{nodeA} })), want: RemoveGracefully,
		},
		"another volume without a survivor asks for peace where the list without a replica on the node is too old": {
			from: crashed, edit: otherVolume(edited(noSurvivor, func(in *Input) {
				in.Resource.Replicas, in.Resource.Left, in.Resource.Confirmed = in.Resource.Replicas[1:], []string{nodeA}, ago(MaxAge+1)
			})), want: RemoveGracefully,
		},
		"another volume of which nobody knows what the node runs asks for peace, however long the node is silent": {
			from: crashed, edit: edited(theLease(time.Hour), otherVolume(edited(unreachable, unborne))), want: RemoveGracefully,
		},
		"another volume that LINSTOR no longer lists, for no reason that is known, asks for peace": {
			from: crashed, edit: otherVolume(func(in *Input) {
				in.Resource.SetSince, in.Resource.Replicas = ago(time.Minute), in.Resource.Replicas[1:]
			}), want: RemoveGracefully,
		},
		"another volume whose quorum changed meanwhile asks for peace": {
			from: crashed, want: RemoveGracefully,
			edit: otherVolume(edited(unreachable, mayRun(nodeA, usual("off"), usual("majority")))),
		},
		"a generic ephemeral volume that is well keeps no pod": {
			from: isolated, edit: edited(over, otherVolume(scoreOf(10102)), theOther(func(o *OtherVolume) { o.Ephemeral = true })), want: RemoveForce,
		},
		"another volume that could write keeps a pod whose time is over": {
			from: isolated, edit: edited(over, otherVolume(scoreOf(10102))), want: RemovalStuck,
		},
		"another volume without a score keeps a pod unless witnesses prove it": {
			from: isolated, edit: edited(over, otherVolume(edited(noScore, silent(nodeT)))), want: RemovalStuck,
		},
		"another volume that cannot write either lets go": {
			from: isolated, edit: edited(over, otherVolume(scoreOf(0))), want: RemoveForce,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := (scenario{from: c.from, edit: c.edit}).input()
			if got := RemovalOf(in, in.Pods[0]); got != c.want {
				t.Errorf("RemovalOf = %s, want %s", got, c.want)
			}
		})
	}
}
