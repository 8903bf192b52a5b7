package failover

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Settings are written on attachments, where another release of the controller reads them.
func TestASettingIsWrittenInTheFormOfTheFirstRelease(t *testing.T) {
	t.Parallel()
	for form, setting := range map[string]Setting{
		`{"quorum":"majority","diskful":["node-a","node-b"],"diskless":["node-t"]}`: *usual("majority"),
		`{"quorum":"off"}`: {Quorum: "off"},
	} {
		if text, err := json.Marshal(setting); err != nil || string(text) != form {
			t.Errorf("written as %s (%v), want %s", text, err, form)
		}
		var read Setting
		if err := json.Unmarshal([]byte(form), &read); err != nil || !read.Equal(setting) {
			t.Errorf("%s is read as %+v (%v)", form, read, err)
		}
	}
}

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
