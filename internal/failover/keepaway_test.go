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

func TestTaintCauseOf(t *testing.T) {
	t.Parallel()

	online := held(true, time.Minute)
	alive := Node{Name: nodeA, LeaseKnown: true, LeaseSilence: time.Second}
	silentNode := Node{Name: nodeA, LeaseKnown: true, LeaseSilence: 20 * time.Second}
	leaving := crashed()
	at(nodeA, func(r *Replica) { r.Leaving = true })(&leaving)
	forgotten := crashed()
	at(nodeA, func(r *Replica) { r.Gone = true })(&forgotten)
	cases := map[string]struct {
		node   Node
		online Fact[bool]
		cause  *Resource
		want   TaintCause
	}{
		"a volume that has its quorum back is no cause":                  {alive, online, resourceOf(healthy()), TaintCauseGone},
		"a volume that has it, while nobody knows of the Lease, is none": {Node{Name: nodeA}, online, resourceOf(healthy()), TaintCauseGone},
		"a node that answers and has no cause left is well":              {alive, online, nil, TaintCauseGone},
		"a volume that has become Secondary with data is no cause":       {alive, online, resourceOf(demoted()), TaintCauseGone},
		"a volume without a replica on the node any more is no cause":    {alive, online, resourceOf(gone()), TaintCauseGone},
		"a replica that is being deleted, or is inactive, is no cause":   {alive, online, resourceOf(leaving), TaintCauseGone},
		"a replica that LINSTOR has forgotten is no cause":               {alive, online, resourceOf(forgotten), TaintCauseGone},
		"an OFFLINE node is one":                                         {alive, held(false, time.Minute), nil, TaintCauseLasts},
		"a silent kubelet is one":                                        {silentNode, online, resourceOf(healthy()), TaintCauseLasts},
		"a silent kubelet is one whatever LINSTOR says":                  {silentNode, untold[bool](time.Minute), nil, TaintCauseLasts},
		"a volume without quorum is one":                                 {alive, online, resourceOf(isolated()), TaintCauseLasts},
		"a volume with failing IO is one":                                {alive, online, resourceOf(ioErrors()), TaintCauseLasts},
		"a volume without a score is one":                                {alive, online, resourceOf(crashed()), TaintCauseLasts},
		"of a node that LINSTOR does not list nobody knows":              {alive, Fact[bool]{}, resourceOf(healthy()), TaintCauseUnknown},
		"of a node with an unknown satellite nobody knows":               {alive, untold[bool](time.Minute), nil, TaintCauseUnknown},
		"of a satellite that was last ONLINE too long ago nobody knows": {
			alive, Fact[bool]{Value: true, Known: true, Since: ago(time.Hour), Confirmed: ago(MaxAge + 1)}, nil, TaintCauseUnknown,
		},
		"of a cause that was read too long ago nobody knows": {alive, online, resourceOf(aged(healthy())), TaintCauseUnknown},
		"of a cause that was never read nobody knows":        {alive, online, &Resource{Name: "pvc-1"}, TaintCauseUnknown},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := TaintCauseOf(now, c.node, healthy().Settings, c.online, c.cause); got != c.want {
				t.Errorf("the cause is %s, want %s", got, c.want)
			}
		})
	}
}

func resourceOf(in Input) *Resource { return &in.Resource }

// aged is an input whose list of replicas was read too long ago.
func aged(in Input) Input {
	in.Resource.Confirmed = ago(MaxAge + 1)
	return in
}
