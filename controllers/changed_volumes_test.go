package controllers

import (
	"slices"
	"testing"
)

func TestVolumesThatHaveChangedAreTakenOnce(t *testing.T) {
	t.Parallel()
	c := newChangedVolumes()
	c.add(nodeA, "other")
	c.add(nodeA, "db")
	c.add(nodeA, "db")
	c.add(nodeB, "third")
	if got := c.take(nodeA); !slices.Equal(got, []string{"db", "other"}) {
		t.Errorf("of A %v have changed", got)
	}
	if got := c.take(nodeA); len(got) > 0 {
		t.Errorf("of A %v have changed again", got)
	}
}

func TestAnyVolumeOfANodeMayBeConcernedUntilItIsReconciled(t *testing.T) {
	t.Parallel()
	c := newChangedVolumes()
	c.add(nodeA, "db")
	c.addAll(nodeA)
	c.add(nodeA, "other")
	if got := c.take(nodeA); len(got) > 0 {
		t.Errorf("only %v may be concerned", got)
	}
	c.add(nodeA, "other")
	if got := c.take(nodeA); !slices.Equal(got, []string{"other"}) {
		t.Errorf("of A %v have changed", got)
	}
}
