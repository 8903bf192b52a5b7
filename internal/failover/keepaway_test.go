package failover

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestKeepAwayEffect(t *testing.T) {
	t.Parallel()

	const hard, soft = corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule
	cases := map[string]struct {
		lost   State
		others []State
		want   corev1.TaintEffect
	}{
		"a node out of reach is closed":                            {Unreachable, []State{Unreachable, Unreachable}, hard},
		"a node out of reach with one volume is closed":            {Unreachable, nil, hard},
		"a node that lost its only volume is closed":               {PrimaryWithoutQuorum, nil, hard},
		"a node that lost every volume is closed":                  {PrimaryWithoutQuorum, []State{IOErrors, PrimaryWithoutQuorum}, hard},
		"a node where another volume is well is avoided":           {PrimaryWithoutQuorum, []State{IOErrors, PrimaryUp}, soft},
		"a demoted volume beside a healthy one makes it avoided":   {Secondary, []State{PrimaryUp}, soft},
		"a missing replica beside a healthy one makes it avoided":  {NoReplica, []State{PrimaryUp}, soft},
		"an unknown volume beside the lost one does not soften it": {IOErrors, []State{Unknown}, hard},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := KeepAwayEffect(c.lost, c.others); got != c.want {
				t.Errorf("KeepAwayEffect = %s, want %s", got, c.want)
			}
		})
	}
}

func TestKeepAwayHolds(t *testing.T) {
	t.Parallel()

	online := held(true, time.Minute)
	alive := Node{Name: nodeA, LeaseKnown: true, LeaseSilence: time.Second}
	silentNode := Node{Name: nodeA, LeaseKnown: true, LeaseSilence: 20 * time.Second}
	cases := map[string]struct {
		node   Node
		online Fact[bool]
		causes []Resource
		want   bool
	}{
		"a node that answers and has all quorum back is free":      {alive, online, []Resource{healthy().Resource}, false},
		"a node whose Lease nobody knows is free when all is well": {Node{Name: nodeA}, online, []Resource{healthy().Resource}, false},
		"a node that answers and has no cause left is free":        {alive, online, nil, false},
		"a node that has become Secondary with data is free":       {alive, online, []Resource{demoted().Resource}, false},
		"a cause without a replica on the node any more is over":   {alive, online, []Resource{gone().Resource}, false},
		"an OFFLINE node is kept":                                  {alive, held(false, time.Minute), nil, true},
		"a node with an unknown satellite is kept":                 {alive, untold[bool](time.Minute), nil, true},
		"a node whose kubelet is silent is kept":                   {silentNode, online, []Resource{healthy().Resource}, true},
		"a node with one volume without quorum is kept": {
			alive, online, []Resource{healthy().Resource, isolated().Resource}, true,
		},
		"a node with failing IO is kept":               {alive, online, []Resource{ioErrors().Resource}, true},
		"a node with a volume without a score is kept": {alive, online, []Resource{crashed().Resource}, true},
		"a node whose satellite was last ONLINE too long ago is kept": {
			alive, Fact[bool]{Value: true, Known: true, Since: ago(time.Hour), Confirmed: ago(3 * time.Second)}, nil, true,
		},
		"a node with a cause that was read too long ago is kept": {alive, online, []Resource{aged(healthy()).Resource}, true},
		"a node with a cause that was never read is kept":        {alive, online, []Resource{{Name: "pvc-1"}}, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := KeepAwayHolds(now, c.node, healthy().Settings, c.online, c.causes); got != c.want {
				t.Errorf("KeepAwayHolds = %t, want %t", got, c.want)
			}
		})
	}
}

// aged is an input whose list of replicas was read too long ago.
func aged(in Input) Input {
	in.Resource.Confirmed = ago(3 * time.Second)
	return in
}
