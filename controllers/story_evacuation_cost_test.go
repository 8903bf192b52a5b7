package controllers

import (
	"fmt"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

// asked is how often LINSTOR was asked what an evacuation asks it.
func (e *evacuating) asked() int {
	requests := e.Linstor.Requests()
	return requests[linstorsim.KindView] + requests[linstorsim.KindSnapshots] + requests[linstorsim.KindVersion] +
		requests[linstorsim.KindDefinitions] + requests[linstorsim.KindGroups] + requests[linstorsim.KindNodes] + requests[linstorsim.KindChange]
}

// statusWrites is how often the controller has written the status of nodes.
func (e *evacuating) statusWrites() int {
	n := 0
	for _, c := range e.did(apimodel.VerbPatch, "Node") {
		if c.Status {
			n++
		}
	}
	return n
}

// A node with many volumes costs LINSTOR a few requests while it waits for its drain, and the API nothing; a node without the taint costs nothing.
func TestWhatAWaitingNodeCosts(t *testing.T) {
	volumes := 500
	if underRace || testing.Short() {
		volumes = 100
	}
	inEvacuation(t, defaults(), func(e *evacuating, _ *process) {
		const looking = 10 * time.Minute
		for i := range volumes {
			e.volume(fmt.Sprintf("v%d", i))
		}
		e.volume("db")
		e.workload("db", selected)
		e.pass(3 * time.Minute)
		count := func() (requests, writes int) {
			e.Linstor.ResetRequests()
			before := e.statusWrites()
			e.pass(looking)
			return e.asked(), e.statusWrites() - before
		}
		without, _ := count()
		e.taint(nodeA, "")
		e.safe(nodeA, time.Minute)
		with, writes := count()
		if perMinute := float64(with-without) / looking.Minutes(); perMinute > 12 {
			t.Errorf("%.1f requests a minute, beside %d without the taint", perMinute, without)
		}
		if writes > 0 {
			t.Errorf("%d writes although nothing changes", writes)
		}
		if got := e.says(nodeA, evacuation.StorageEvacuated); got != "False WaitingForDrain" {
			t.Errorf("the node is %s", got)
		}
		e.untaint(nodeA)
		e.returned(nodeA)
		if after, writes := count(); after > without+2 || writes > 0 {
			t.Errorf("%d requests after the return, %d before the taint; %d writes", after, without, writes)
		}
	})
}

// While copies are made the conditions are written at most six times a minute.
func TestHowOftenConditionsAreWritten(t *testing.T) {
	inEvacuation(t, defaults(), func(e *evacuating, _ *process) {
		for i := range 40 {
			e.volume(fmt.Sprintf("v%d", i), onlyOnA)
		}
		e.pass(3 * time.Minute)
		before, from := e.statusWrites(), time.Now()
		e.taint(nodeA, "last-copies")
		e.safe(nodeA, 30*time.Minute)
		minutes := time.Since(from).Minutes()
		if writes := e.statusWrites() - before; float64(writes) > 6*minutes+2 {
			t.Errorf("%d writes in %.1f minutes", writes, minutes)
		}
		if n := e.told(evacuation.Autoplace, ""); n != 40 {
			t.Errorf("%d copies were made", n)
		}
	})
}
