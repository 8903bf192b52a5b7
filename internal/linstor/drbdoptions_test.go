package linstor

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

// Each level hides those below it, as it does for the satellite that writes DRBD's configuration.
func TestSettingsComeFromTheHighestLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, fake := newNetwork(), newFakeLinstor()
		fake.pvc1()
		n.serve(t, host, fake)
		client := testClient(t, n, "http://linstor")
		setting := func(node string) Setting {
			t.Helper()
			settings, err := client.Settings(t.Context(), []string{"PVC-1", "no-such-definition"}, []string{OptionRRConflict})
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(settings, func(s Setting) bool { return s.Node == node })
			if i < 0 {
				t.Fatalf("no setting of node %s among %+v", node, settings)
			}
			return settings[i]
		}
		node := fold(fake.resources[0].NodeName)
		steps := []struct {
			change func()
			want   Setting
		}{
			{func() {}, Setting{}},
			{func() { fake.controller[OptionRRConflict] = "1" }, Setting{Value: "1", Level: LevelController}},
			{
				func() { fake.nodes[0].Props = map[string]string{OptionRRConflict: "2"} },
				Setting{Value: "2", Level: LevelNode, Object: fake.nodes[0].Name},
			},
			{
				func() { fake.groups[0].Props = map[string]string{OptionRRConflict: "3"} },
				Setting{Value: "3", Level: LevelGroup, Object: fake.groups[0].Name},
			},
			{
				func() { fake.definitions[0].Props[OptionRRConflict] = "4" },
				Setting{Value: "4", Level: LevelDefinition, Object: fake.definitions[0].Name},
			},
			{
				func() { fake.resources[0].Props = map[string]string{OptionRRConflict: "5"} },
				Setting{Value: "5", Level: LevelResource, Object: fake.resources[0].NodeName},
			},
		}
		for _, step := range steps {
			fake.change(step.change)
			want := step.want
			want.Resource, want.Node, want.Key = "PVC-1", node, OptionRRConflict
			if diff := cmp.Diff(want, setting(node)); diff != "" {
				t.Errorf("setting (-want +got):\n%s", diff)
			}
		}
		if got := setting("node-b"); got.Level != LevelDefinition {
			t.Errorf("on the other node it is set at %q, want %q", got.Level, LevelDefinition)
		}
	})
}

func TestSettingsFailWhenLinstorCanNotBeAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := testClient(t, newNetwork(), "http://linstor")
		if settings, err := client.Settings(t.Context(), nil, nil); err == nil {
			t.Errorf("settings of a LINSTOR that is not there: %+v", settings)
		}
	})
}
