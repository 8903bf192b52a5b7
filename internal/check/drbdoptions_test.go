package check

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
)

// The remedy names the place where the option is set, because setting it at a lower level would change nothing.
func TestOptionsAreToBeChangedWhereTheyAreSet(t *testing.T) {
	t.Parallel()
	set := func(resource string, level linstor.Level, object string) linstor.Setting {
		return linstor.Setting{
			Resource: resource, Node: nodeA, Key: linstor.OptionRRConflict, Value: "disconnect", Level: level, Object: object,
		}
	}
	const change = " DrbdOptions/Net/rr-conflict retry-connect"
	want := []Finding{
		{Message: "by default", Objects: []string{"by-default"}, Remedy: "linstor controller set-property" + change},
		{Message: "for the whole cluster", Objects: []string{"by-controller"}, Remedy: "linstor controller set-property" + change},
		{Message: "on node Node-A", Objects: []string{"by-node"}, Remedy: "linstor node set-property Node-A" + change},
		{Message: "on the replicas of node Node-A", Objects: []string{"by-replica"}, Remedy: "linstor resource set-property Node-A by-replica" + change},
		{
			Message: "on the resource definitions", Objects: []string{"by-definition", "by-definition-too"},
			Remedy: "linstor resource-definition set-property RESOURCE" + change,
		},
		{Message: "on resource-group ssd", Objects: []string{"by-group"}, Remedy: "linstor resource-group set-property ssd" + change},
	}
	got := drbdOptions([]linstor.Setting{
		set("by-definition-too", linstor.LevelDefinition, "by-definition-too"),
		set("by-definition", linstor.LevelDefinition, "by-definition"),
		set("by-group", linstor.LevelGroup, "ssd"),
		set("by-node", linstor.LevelNode, "Node-A"),
		set("by-replica", linstor.LevelResource, "Node-A"),
		set("by-controller", linstor.LevelController, ""),
		{Resource: "by-default", Node: nodeA, Key: linstor.OptionRRConflict},
		{Resource: "fine", Node: nodeA, Key: linstor.OptionRRConflict, Value: "retry-connect", Level: linstor.LevelController},
	})
	for i := range got {
		if got[i].Severity != Warning || got[i].Code != DRBDOption {
			t.Errorf("%s %s, want a warning of %s", got[i].Severity, got[i].Code, DRBDOption)
		}
		place, consequence, _ := strings.Cut(strings.TrimPrefix(got[i].Message, linstor.OptionRRConflict+" is disconnect "), ", so that ")
		got[i] = Finding{Message: place, Objects: got[i].Objects, Remedy: got[i].Remedy}
		if consequence == "" {
			t.Errorf("no consequence is told of what is set %s", place)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}
