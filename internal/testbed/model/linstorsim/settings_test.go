package linstorsim_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

// pair is a resource with disks on node-a and node-b only, of which LINSTOR wants no tie-breaker.
func pair() linstorsim.ResourceSpec {
	return linstorsim.ResourceSpec{
		Spec:  drbd.Spec{Name: pvc, Replicas: []drbd.ReplicaSpec{{Node: "node-a"}, {Node: "node-b"}}},
		Props: map[string]string{linstorsim.PropAutoTieBreaker: "False"},
	}
}

// props are the properties of an object as REST shows them.
func (b *bed) props(path string) map[string]string {
	b.t.Helper()
	return decode[struct{ Props map[string]string }](b, path).Props
}

// wanted is the quorum that REST shows on the definition.
func (b *bed) wanted() string {
	b.t.Helper()
	return b.props("/v1/resource-definitions/pvc-1")[linstorsim.PropQuorum]
}

// running is the quorum that each node's DRBD runs.
func (b *bed) running() map[string]string {
	running := map[string]string{}
	for _, node := range b.cluster.Nodes() {
		if state, ok := b.cluster.Replica(pvc, node); ok {
			running[node] = state.Quorum
		}
	}
	return running
}

// both is the same quorum on both nodes of a pair.
func both(quorum string) map[string]string {
	return map[string]string{"node-a": quorum, "node-b": quorum}
}

func TestQuorumOfTheControllerIsShownAtOnceAndRunsOnlyWhere(t *testing.T) {
	cases := map[string]struct {
		do   func(t *testing.T, b *bed)
		want map[string]string
	}{
		"nothing happens any more: nowhere": {func(*testing.T, *bed) {}, both("off")},
		"the definition is touched: everywhere": {func(_ *testing.T, b *bed) {
			b.linstor.SetDefinitionProperty(pvc, "Aux/note", "touched")
		}, both("majority")},
		"its group is touched: everywhere": {func(_ *testing.T, b *bed) {
			b.linstor.SetGroupProperty(linstorsim.DefaultGroup, "Aux/note", "touched")
		}, both("majority")},
		"another group is touched: nowhere": {func(_ *testing.T, b *bed) {
			b.linstor.SetGroupProperty("other", "Aux/note", "touched")
		}, both("off")},
		"another property of the controller is set: nowhere": {func(_ *testing.T, b *bed) {
			b.linstor.SetControllerProperty(linstorsim.PropOnNoQuorum, drbd.OnNoQuorumIOError)
		}, both("off")},
		"a property of a node is set: nowhere": {func(t *testing.T, b *bed) {
			must(t, b.linstor.SetNodeProperty("node-a", linstorsim.PropOnNoQuorum, drbd.OnNoQuorumIOError))
		}, both("off")},
		"one satellite connects anew: on that node": {func(_ *testing.T, b *bed) {
			b.linstor.StopSatellite("node-a")
			b.linstor.RestoreSatellite("node-a")
		}, map[string]string{"node-a": "majority", "node-b": "off"}},
		"a satellite is silent for a moment: nowhere": {func(_ *testing.T, b *bed) {
			b.linstor.CutSatellite("node-a")
			pass(3 * time.Second)
			b.linstor.RestoreSatellite("node-a")
		}, both("off")},
		"LINSTOR restarts: everywhere": {func(_ *testing.T, b *bed) { b.linstor.Restart() }, both("majority")},
		"a diskless replica comes: everywhere": {func(t *testing.T, b *bed) {
			must(t, b.linstor.MakeAvailable(pvc, "node-c"))
		}, map[string]string{"node-a": "majority", "node-b": "majority", "node-c": "majority"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
				must(t, b.linstor.CreateResource(pair()))
				b.linstor.SetControllerProperty(linstorsim.PropQuorum, "majority")
				if got := b.wanted(); got != "majority" {
					t.Errorf("the definition shows quorum %s, want majority", got)
				}
				if diff := cmp.Diff(both("off"), b.running()); diff != "" {
					t.Errorf("DRBD runs at once (-want +got):\n%s", diff)
				}
				tc.do(t, b)
				pass(time.Minute)
				if diff := cmp.Diff(tc.want, b.running()); diff != "" {
					t.Errorf("DRBD runs (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestQuorumTakenFromTheControllerGoesOnRunning(t *testing.T) {
	inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		b.linstor.SetControllerProperty(linstorsim.PropQuorum, "majority")
		must(t, b.linstor.CreateResource(pair()))
		b.linstor.SetControllerProperty(linstorsim.PropQuorum, "")
		if got := b.wanted(); got != "off" {
			t.Errorf("the definition shows quorum %s, want off", got)
		}
		pass(time.Minute)
		if diff := cmp.Diff(both("majority"), b.running()); diff != "" {
			t.Errorf("DRBD runs (-want +got):\n%s", diff)
		}
	})
}

func TestQuorumThatAPersonSetGoesBeforeTheController(t *testing.T) {
	levels := map[string]struct {
		set  func(b *bed, value string)
		path string
	}{
		"definition": {func(b *bed, value string) {
			b.linstor.SetDefinitionProperty(pvc, linstorsim.PropQuorum, value)
		}, "/v1/resource-definitions/pvc-1"},
		"group": {func(b *bed, value string) {
			b.linstor.SetGroupProperty(linstorsim.DefaultGroup, linstorsim.PropQuorum, value)
		}, "/v1/resource-groups/" + linstorsim.DefaultGroup},
	}
	for name, level := range levels {
		t.Run(name, func(t *testing.T) {
			inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
				must(t, b.linstor.CreateResource(pair()))
				level.set(b, "all")
				if got := b.wanted(); got != "all" {
					t.Errorf("the definition shows quorum %s, want all", got)
				}
				if diff := cmp.Diff(both("all"), b.running()); diff != "" {
					t.Errorf("DRBD runs at once (-want +got):\n%s", diff)
				}
				if got := b.props(level.path)[linstorsim.PropQuorumSetBy]; got != "user" {
					t.Errorf("the mark of who set the quorum is %q, want user", got)
				}
				b.linstor.SetControllerProperty(linstorsim.PropQuorum, "majority")
				if got := b.wanted(); got != "all" {
					t.Errorf("with the controller's quorum the definition shows %s, want all", got)
				}
				level.set(b, "")
				if got := b.wanted(); got != "majority" {
					t.Errorf("without its own quorum the definition shows %s, want the controller's", got)
				}
				if diff := cmp.Diff(both("majority"), b.running()); diff != "" {
					t.Errorf("DRBD runs at last (-want +got):\n%s", diff)
				}
				if got, ok := b.props(level.path)[linstorsim.PropQuorumSetBy]; ok {
					t.Errorf("the mark of who set the quorum stays %q", got)
				}
			})
		})
	}
}

func TestTheControllersQuorumIsMarkedAsAPersons(t *testing.T) {
	inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		must(t, b.linstor.CreateResource(pair()))
		b.linstor.SetControllerProperty(linstorsim.PropQuorum, "majority")
		if got := decode[map[string]string](b, "/v1/controller/properties")[linstorsim.PropQuorumSetBy]; got != "user" {
			t.Errorf("the controller's mark is %q, want user", got)
		}
		if got, ok := b.props("/v1/resource-definitions/pvc-1")[linstorsim.PropQuorumSetBy]; ok {
			t.Errorf("the definition has the mark %q, although nobody set its quorum there", got)
		}
	})
}

func TestWhatLinstorWorksOutAfterAFullSyncIsNotSent(t *testing.T) {
	inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		must(t, b.linstor.CreateResource(standard()))
		b.linstor.StopSatellite("node-c")
		pass(2 * time.Second)
		must(t, b.linstor.RemoveReplica(pvc, "node-c"))
		if got := b.wanted(); got != "majority" {
			t.Errorf("while node-c is away the definition shows %s, want majority still", got)
		}
		b.linstor.AddNode("node-d")
		b.linstor.StopSatellite("node-d")
		b.linstor.RestoreSatellite("node-d")
		pass(time.Minute)
		if got := b.wanted(); got != "off" {
			t.Errorf("after another node's full sync the definition shows %s, want off", got)
		}
		want := map[string]string{"node-a": "majority", "node-b": "majority", "node-c": "majority"}
		if diff := cmp.Diff(want, b.running()); diff != "" {
			t.Errorf("DRBD runs (-want +got):\n%s", diff)
		}
	})
}

func TestAdjustsGoWrong(t *testing.T) {
	cases := map[string]struct {
		fault linstorsim.AdjustFault
		// quorum is what node-a runs, lists whether it has a connection to the new tie-breaker.
		quorum string
		lists  bool
	}{
		"not at all":                          {linstorsim.AdjustWorks, "majority", true},
		"at the options":                      {linstorsim.AdjustFailsAtOptions, "off", false},
		"after the options, before the peers": {linstorsim.AdjustFailsAtPeers, "majority", false},
		"hanging":                             {linstorsim.AdjustHangs, "off", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, linstorsim.Options{TieBreakers: true}, func(t *testing.T, b *bed) {
				spec := pair()
				spec.Props, spec.Quorum = nil, "off"
				must(t, b.linstor.CreateResource(spec))
				must(t, b.cluster.Open(pvc, "node-a", false))
				b.linstor.SetAdjustFault("node-a", pvc, tc.fault)
				b.linstor.SetDefinitionProperty(pvc, linstorsim.PropQuorum, "majority")
				pass(time.Minute)
				if got := b.wanted(); got != "majority" {
					t.Errorf("the definition shows %s, want majority", got)
				}
				want := map[string]string{"node-a": tc.quorum, "node-b": "majority", "node-c": "majority"}
				if diff := cmp.Diff(want, b.running()); diff != "" {
					t.Errorf("DRBD runs (-want +got):\n%s", diff)
				}
				if got := b.linstor.ConnectionStatus("node-a"); got != linstorsim.Online {
					t.Errorf("node-a is %s, want ONLINE", got)
				}
				a, c := b.replica("node-a"), b.replica("node-c")
				if _, lists := a.LayerObject.DRBD.Connections["node-c"]; lists != tc.lists {
					t.Errorf("node-a lists a connection to node-c: %t, want %t", lists, tc.lists)
				}
				if a.Flags != nil || *a.State.InUse != true || *a.LayerObject.DRBD.Score != 10102 {
					t.Errorf("the replica shows something: flags %v, in use %t, score %d", a.Flags, *a.State.InUse, *a.LayerObject.DRBD.Score)
				}
				connection := drbd.Connecting
				if tc.lists {
					connection = drbd.Connected
				}
				if got := c.LayerObject.DRBD.Connections["node-a"].Message; got != connection {
					t.Errorf("node-c says %v to node-a, want %s", got, connection)
				}
			})
		})
	}
}

func TestAnAdjustThatFailedIsTriedAgainOnlyWhen(t *testing.T) {
	cases := map[string]struct {
		do   func(b *bed)
		want string
	}{
		"no reason: never":             {func(*bed) {}, "off"},
		"the definition is touched":    {func(b *bed) { b.linstor.SetDefinitionProperty(pvc, "Aux/note", "x") }, "majority"},
		"another definition is: never": {func(b *bed) { b.linstor.SetDefinitionProperty("pvc-2", "Aux/note", "x") }, "off"},
		"the satellite connects anew": {func(b *bed) {
			b.linstor.StopSatellite("node-a")
			b.linstor.RestoreSatellite("node-a")
		}, "majority"},
		"the satellite connects anew and fails again: never": {func(b *bed) {
			b.linstor.SetAdjustFault("node-a", pvc, linstorsim.AdjustHangs)
			b.linstor.StopSatellite("node-a")
			b.linstor.RestoreSatellite("node-a")
		}, "off"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
				second := pair()
				second.Name = "pvc-2"
				must(t, b.linstor.CreateResource(pair()))
				must(t, b.linstor.CreateResource(second))
				b.linstor.SetAdjustFault("node-a", "", linstorsim.AdjustFailsAtOptions)
				b.linstor.SetDefinitionProperty(pvc, linstorsim.PropQuorum, "majority")
				b.linstor.SetAdjustFault("node-a", "", linstorsim.AdjustWorks)
				pass(time.Minute)
				tc.do(b)
				pass(time.Minute)
				if got := b.running()["node-a"]; got != tc.want {
					t.Errorf("node-a runs %s, want %s", got, tc.want)
				}
			})
		})
	}
}

func TestASatelliteThatIsBackSaysItsOldWordsBeforeItAdjusts(t *testing.T) {
	cases := map[string]struct {
		before func(b *bed)
		// late is when, after ONLINE, node-a runs the new setting; never where it is 0.
		late time.Duration
	}{
		"by default": {func(*bed) {}, 200 * time.Millisecond},
		"late":       {func(b *bed) { b.linstor.DelayAdjust("node-a", 30*time.Second) }, 30 * time.Second},
		"and fails":  {func(b *bed) { b.linstor.SetAdjustFault("node-a", "", linstorsim.AdjustFailsAtOptions) }, 0},
		"and is stopped after it": {func(b *bed) {
			time.AfterFunc(20*time.Second, func() { b.linstor.StopSatellite("node-a") })
		}, 200 * time.Millisecond},
		"and is cut off before it": {func(b *bed) {
			b.linstor.DelayAdjust("node-a", time.Minute)
			time.AfterFunc(40*time.Second, func() { b.linstor.Isolate("node-a") })
		}, time.Minute},
		"and is stopped before it": {func(b *bed) {
			b.linstor.DelayAdjust("node-a", time.Minute)
			time.AfterFunc(40*time.Second, func() { b.linstor.StopSatellite("node-a") })
		}, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
				must(t, b.linstor.CreateResource(pair()))
				b.linstor.StopSatellite("node-a")
				pass(2 * time.Second)
				b.linstor.SetDefinitionProperty(pvc, linstorsim.PropQuorum, "majority")
				tc.before(b)
				b.linstor.RestoreSatellite("node-a")
				for b.linstor.ConnectionStatus("node-a") != linstorsim.Online {
					pass(10 * time.Millisecond)
				}
				online := time.Now()
				if got := b.replica("node-a"); got.State == nil || b.running()["node-a"] != "off" {
					t.Errorf("as soon as it is ONLINE node-a reports %v and runs %s, want old words and off", got.State, b.running()["node-a"])
				}
				var late time.Duration
				for time.Since(online) < 5*time.Minute {
					if b.running()["node-a"] == "majority" && late == 0 {
						late = time.Since(online).Round(50 * time.Millisecond)
					}
					pass(10 * time.Millisecond)
				}
				if late != tc.late {
					t.Errorf("node-a runs majority %s after it was ONLINE, want %s", late, tc.late)
				}
			})
		})
	}
}

func TestWhatIsSentBeforeALateAdjustWaitsForIt(t *testing.T) {
	inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		must(t, b.linstor.CreateResource(pair()))
		b.linstor.DelayAdjust("node-a", time.Minute)
		b.linstor.StopSatellite("node-a")
		b.linstor.RestoreSatellite("node-a")
		pass(20 * time.Second)
		b.linstor.SetDefinitionProperty(pvc, linstorsim.PropQuorum, "majority")
		if diff := cmp.Diff(map[string]string{"node-a": "off", "node-b": "majority"}, b.running()); diff != "" {
			t.Errorf("before the late adjust DRBD runs (-want +got):\n%s", diff)
		}
		pass(time.Minute)
		if diff := cmp.Diff(both("majority"), b.running()); diff != "" {
			t.Errorf("after the late adjust DRBD runs (-want +got):\n%s", diff)
		}
	})
}

func TestValuesAreShownBeforeONLINEAndNotAllAtOnce(t *testing.T) {
	inBubble(t, linstorsim.Options{
		SyncDuration: 7 * time.Second, ValuesBeforeOnline: 6 * time.Second, PartialConnections: 100 * time.Millisecond,
	}, func(t *testing.T, b *bed) {
		must(t, b.linstor.CreateResource(standard()))
		b.linstor.StopSatellite("node-a")
		b.linstor.RestoreSatellite("node-a")
		for b.linstor.ConnectionStatus("node-a") != linstorsim.Joining {
			pass(10 * time.Millisecond)
		}
		pass(900 * time.Millisecond)
		if got := b.replica("node-a").State; got != nil {
			t.Errorf("a second before anything is heard: %v", got)
		}
		pass(120 * time.Millisecond)
		if got := b.replica("node-a"); got.State == nil || got.State.InUse != nil || len(got.LayerObject.DRBD.Connections) != 1 {
			t.Errorf("first values: state %v, connections %v, want one that is empty and one", got.State, got.LayerObject.DRBD.Connections)
		}
		pass(100 * time.Millisecond)
		got := b.replica("node-a")
		if got.State == nil || got.State.InUse == nil || len(got.LayerObject.DRBD.Connections) != 2 {
			t.Errorf("values: state %v, connections %v, want all", got.State, got.LayerObject.DRBD.Connections)
		}
		if status := b.linstor.ConnectionStatus("node-a"); status != linstorsim.Joining {
			t.Errorf("status = %s, want CONNECTED for 5.8 s more", status)
		}
		pass(6 * time.Second)
		if status := b.linstor.ConnectionStatus("node-a"); status != linstorsim.Online {
			t.Errorf("status = %s, want ONLINE", status)
		}
	})
}

func TestWhatIsSentToASilentSatelliteArrivesWhenItIsHeardAgain(t *testing.T) {
	inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		must(t, b.linstor.CreateResource(pair()))
		b.linstor.CutSatellite("node-a")
		b.linstor.SetDefinitionProperty(pvc, linstorsim.PropQuorum, "majority")
		pass(2 * time.Second)
		if diff := cmp.Diff(map[string]string{"node-a": "off", "node-b": "majority"}, b.running()); diff != "" {
			t.Errorf("while node-a is silent DRBD runs (-want +got):\n%s", diff)
		}
		b.linstor.RestoreSatellite("node-a")
		if diff := cmp.Diff(both("majority"), b.running()); diff != "" {
			t.Errorf("after node-a is heard again DRBD runs (-want +got):\n%s", diff)
		}
	})
}
