package forecast

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
)

// The remedy names the place where the option is set, because setting it at a lower level would change nothing.
func TestOptionsAreToBeChangedWhereTheyAreSet(t *testing.T) {
	t.Parallel()
	const change = " DrbdOptions/Net/rr-conflict retry-connect"
	want := []Finding{
		{Message: "by default", Objects: []string{"by-default"}, Remedy: "linstor controller set-property" + change},
		{Message: "for the whole cluster", Objects: []string{"by-controller"}, Remedy: "linstor controller set-property" + change},
		{Message: "on node Node-A", Objects: []string{"by-node"}, Remedy: "linstor node set-property Node-A" + change},
		{
			Message: "on the resource definitions", Objects: []string{"by-definition", "by-definition-too"},
			Remedy: "linstor resource-definition set-property RESOURCE" + change,
		},
		{Message: "on resource-group ssd", Objects: []string{"by-group"}, Remedy: "linstor resource-group set-property ssd" + change},
	}
	found := optionsFound{}
	put := func(resource string, level linstor.Level, object string) {
		found.note(slices.IndexFunc(advices[:], func(a advice) bool { return a.key == linstor.OptionRRConflict }), linstor.Setting{Value: "disconnect", Level: level, Object: object}, resource)
	}
	put("by-definition-too", linstor.LevelDefinition, "by-definition-too")
	put("by-definition", linstor.LevelDefinition, "by-definition")
	put("by-group", linstor.LevelGroup, "ssd")
	put("by-node", linstor.LevelNode, "Node-A")
	put("by-controller", linstor.LevelController, "")
	put("by-default", linstor.LevelDefault, "")
	got := found.findings()
	for i := range got {
		if got[i].Severity != Warning || got[i].Code != DRBDOption {
			t.Errorf("%s %s, want a warning of %s", got[i].Severity, got[i].Code, DRBDOption)
		}
		place, consequence, _ := strings.Cut(strings.TrimPrefix(got[i].Message, linstor.OptionRRConflict+" is disconnect "), ", so that ")
		command, class, _ := strings.Cut(got[i].Remedy, "; ")
		if class != "for new volumes, in the StorageClass: property.linstor.csi.linbit.com/DrbdOptions/Net/rr-conflict: retry-connect" {
			t.Errorf("what is set %s names the parameter %q", place, class)
		}
		got[i] = Finding{Message: place, Objects: got[i].Objects, Remedy: command}
		if consequence == "" {
			t.Errorf("no consequence is told of what is set %s", place)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}
