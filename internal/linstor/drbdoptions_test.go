package linstor

import (
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
			options, err := client.DRBDOptions(t.Context(), []string{OptionRRConflict})
			if err != nil {
				t.Fatal(err)
			}
			if !options.Has("PVC-1") || options.Has("no-such-definition") {
				t.Errorf("the definitions are others: %+v", options)
			}
			return options.Setting("PVC-1", node, OptionRRConflict)
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
		}
		for _, step := range steps {
			fake.change(step.change)
			if diff := cmp.Diff(step.want, setting(node)); diff != "" {
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
		if options, err := client.DRBDOptions(t.Context(), nil); err == nil {
			t.Errorf("options of a LINSTOR that is not there: %+v", options)
		}
	})
}
