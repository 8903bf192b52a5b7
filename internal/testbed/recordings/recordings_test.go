package recordings_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/recordings"
)

// stories are the recordings by what happens in them.
var stories = []struct{ file, story string }{
	{"01-calm", "a replica elsewhere comes and goes and the tie-breaker moves"},
	{"02-volume-made", "a new volume grows from one replica to three and is used for the first time"},
	{"03-power-loss", "a node loses its power and LINSTOR notices before DRBD does"},
	{"04-real-crash", "a node crashes and its DRBD is back seven seconds before its satellite"},
	{"05-real-links-cut", "a Primary loses both links and is the last to notice"},
	{"06-real-short-cut", "a cut of three seconds is seen by nobody"},
	{"07-real-one-link-cut", "a Primary loses one link and keeps quorum by the tie-breaker"},
	{"08-satellite-killed", "a satellite is killed and started again while DRBD is well"},
	{"09-satellite-cut", "a satellite is cut off and comes back while DRBD is well"},
	{"10-linstor-restart", "LINSTOR restarts while all is well"},
	{"11-linstor-restart-in-loss", "LINSTOR restarts while a node is lost and never sees it again"},
	{"12-quorum-on-controller", "quorum is set on the controller and no satellite hears of it"},
	{"13-adjust-fails", "quorum is set on the definition and the node of the pod fails to apply it"},
	{"14-node-lost", "quorum is set while the node of the pod is away, and the node is declared lost"},
	{"15-blind-controller", "LINSTOR is blind and shows a dead node as well for ever"},
	{"16-events-end", "a satellite's word is frozen while its volume is closed and opened"},
	{"17-no-tie-breaker", "a survivor may be promoted without any majority"},
	{"18-demoted", "a volume is closed under its running pod"},
	{"19-evacuate", "a node is evacuated while the volume is in use on another"},
	{"20-evicted", "LINSTOR evicts a lost node and its peers forget the connection to it"},
	{"21-adjust-fails-again", "quorum is set, and the node of the pod fails to apply it again after its satellite was restarted"},
	{"22-lost-after-eviction", "a node is evicted, another gets its disk, and the node of the pod is lost after that"},
	{"23-tie-breaker-evicted", "the node of the tie-breaker is evicted"},
}

// leases are the phases in which a kubelet can be when it dies.
var leases = []struct {
	name string
	last time.Duration
}{
	{"the Lease was just renewed", time.Second},
	{"the Lease is due", renewal},
}

func TestDecisionsAreThoseOfTheRecording(t *testing.T) {
	t.Parallel()
	for _, s := range stories {
		transcript := recordings.Load(t, s.file)
		for _, lease := range leases {
			t.Run(s.file+": "+s.story+"/"+lease.name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					result := judge(t, transcript, lease.last)
					for _, f := range result.failures {
						t.Error(f)
					}
					for _, decision := range result.decisions {
						t.Log(decision)
					}
					if result.judged < 100 {
						t.Errorf("only %d decisions were judged", result.judged)
					}
				})
			})
		}
	}
}

func TestEveryRecordingHasItsStory(t *testing.T) {
	t.Parallel()
	var told []string
	for _, s := range stories {
		told = append(told, s.file)
	}
	if names := recordings.Names(t); !slices.Equal(names, told) {
		t.Errorf("judged are %q, recorded %q", told, names)
	}
}

func TestAWrongDecisionIsReported(t *testing.T) {
	t.Parallel()
	transcript := recordings.Load(t, "03-power-loss")
	transcript.Must = []recordings.Demand{
		{From: seconds(-5), To: seconds(29), Of: "node-a", Not: failover.Lost},
		{From: seconds(-5), To: seconds(-4), Of: "node-a", Verdict: failover.NotLost, Reason: failover.NoSurvivor},
		{From: seconds(-5), To: seconds(-4), Of: "node-a", Verdict: failover.NotLost},
	}
	synctest.Test(t, func(t *testing.T) {
		found := judge(t, transcript, renewal).failures
		if len(found) != 2 {
			t.Fatalf("reported are %v, want the loss and the wrong reason", found)
		}
		if f := found[0]; f.from != seconds(-5) || f.to != seconds(-4) || f.got.Reason != failover.PrimaryHealthy {
			t.Errorf("the wrong reason is reported as %v", f)
		}
		if f := found[1]; f.from < seconds(15) || f.from > seconds(17) || f.to != seconds(29) || f.got.Verdict != failover.Lost {
			t.Errorf("the loss is reported as %v", f)
		}
	})
}

func TestTheProductReadsNothingButWhatIsRecorded(t *testing.T) {
	t.Parallel()
	want := []string{
		"/v1/controller/properties",
		"/v1/events/drbd/promotion",
		"/v1/nodes",
		"/v1/resource-definitions",
		"/v1/resource-definitions/pvc-db",
		"/v1/resource-definitions/pvc-db/resources",
		"/v1/resource-groups",
		"/v1/view/resources",
	}
	transcript := recordings.Load(t, "04-real-crash")
	synctest.Test(t, func(t *testing.T) {
		var got []string
		for path := range judge(t, transcript, renewal).asked {
			got = append(got, path)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("LINSTOR was asked for %q, want %q", got, want)
		}
	})
}

// seconds is a time of a transcript.
func seconds(s float64) recordings.Seconds { return recordings.Seconds(s * float64(time.Second)) }
