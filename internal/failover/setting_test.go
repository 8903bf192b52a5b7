package failover

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSettingsAreEqual(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		other *Setting
		want  bool
	}{
		"the same quorum and replicas": {usual("majority"), true},
		"another quorum":               {usual("all"), false},
		"another disk":                 {setting("majority", []string{nodeA, nodeC}, nodeT), false},
		"another tie-breaker":          {setting("majority", []string{nodeA, nodeB}, nodeC), false},
		"no tie-breaker":               {setting("majority", []string{nodeA, nodeB}), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := usual("majority").Equal(*c.other); got != c.want {
				t.Errorf("Equal = %t, want %t", got, c.want)
			}
		})
	}
}

// What LINSTOR has forgotten it does not want, whatever is still remembered of it.
func TestWhatLinstorWants(t *testing.T) {
	t.Parallel()

	in := crashed()
	withThirdDisk(&in)
	at(nodeC, func(r *Replica) { r.Gone = true })(&in)
	if diff := cmp.Diff(*usual("all"), in.Resource.wanted("all")); diff != "" {
		t.Errorf("wanted (-want +got):\n%s", diff)
	}
}
