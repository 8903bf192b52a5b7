package sim_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/sim"
)

// Few histories are played with all other tests; "make sim" plays many.
var (
	seeds    = flag.Int("sim.seeds", 40, "how many histories are played, of the seeds from 1 on")
	fresh    = flag.Int("sim.fresh", 0, "how many more are played, of seeds that are new each time")
	seed     = flag.Uint64("sim.seed", 0, "the only seed to play, and to tell as a story")
	only     = flag.String("sim.only", "", "the numbers of the only steps of that seed, separated by commas; - is none")
	ordinary = flag.Bool("sim.ordinary", false, "whether nothing is done but what is done every day, beside crashes")
	leaving  = flag.Bool("sim.leaving", false, "whether to play only the histories in which nodes leave on purpose")
	kind     = flag.String("sim.kind", "", "a regular expression: only the histories that were drawn with a kind that it matches are played")
	stall    = flag.Duration("sim.stall", 0, "how long every second act of the controllers stalls between its decision and its requests")
	brief    = flag.Bool("sim.brief", false, "whether to name what was broken only, and to tell no stories")
	failures = flag.Int("sim.failures", 5, "after how many failing histories to stop")
)

// TestSimulation plays the histories of many seeds. One that breaks an invariant is shrunk and told as a story.
func TestSimulation(t *testing.T) {
	if *seed != 0 {
		replay(t)
		return
	}
	if testing.Short() {
		*seeds = min(*seeds, 10)
	}
	first := rand.Uint64() >> 20
	if *fresh > 0 {
		t.Logf("%d fresh seeds from %d on", *fresh, first)
	}
	var next, failed atomic.Int64
	total := newTally()
	var mu sync.Mutex
	begin := time.Now()
	t.Run("seeds", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprintf("worker %d", i), func(t *testing.T) {
				t.Parallel()
				for n := next.Add(1); n <= int64(*seeds+*fresh) && failed.Load() < int64(*failures); n = next.Add(1) {
					s := uint64(n)
					if n > int64(*seeds) {
						s = first + uint64(n)
					}
					h := generate(s)
					if *leaving && !h.World.Planned.Is || !ofKind(h) {
						continue
					}
					o := sim.Run(t, h, false)
					mu.Lock()
					total.add(h, o)
					mu.Unlock()
					if held := o.Counts[sim.OrdinaryBlocked]; held > 0 {
						t.Errorf("seed %d: %d fail-overs were held up by ordinary operations", h.Seed, held)
					}
					if len(o.Violations) > 0 {
						failed.Add(1)
						if *brief {
							t.Errorf("seed %d: %s", h.Seed, o.Violations[0])
							continue
						}
						report(t, h, o)
					}
				}
			})
		}
	})
	total.print(t)
	t.Logf("%d histories in %s, %.0f a second", total.histories, time.Since(begin).Round(time.Second),
		float64(total.histories)/time.Since(begin).Seconds())
	if *ordinary {
		t.Logf("%8d fail-overs were held up by ordinary operations", total.counts[sim.OrdinaryBlocked])
		return
	}
	if some := *leaving || *kind != ""; *seeds >= enough && failed.Load() == 0 && !some {
		total.check(t)
	}
}

// ofKind tells whether a history was drawn with a kind that is asked for.
func ofKind(h sim.History) bool {
	return *kind == "" || slices.ContainsFunc(h.Kinds, func(k sim.Kind) bool { return regexp.MustCompile(*kind).MatchString(string(k)) })
}

func generate(seed uint64) sim.History {
	h := sim.Generate(seed)
	if *ordinary {
		h = sim.GenerateOrdinary(seed)
	}
	if *stall > 0 {
		h = h.Stall(*stall)
	}
	return h
}

// enough is how many histories reach everything.
const enough = 800

// reached is what the generator must produce: every reason for a loss, every gate, each way to remove a pod.
var reached = []string{
	"removed: QuorumLost", "removed: NodeUnreachable", "removed: ForcedIOErrors", "removed: Demoted", "removed: ReplicaGone",
	"removed by force: true", "removed by force: false", "attachment deleted", "volumes released",
	"decided: Blocked DryRun", "decided: Blocked Exempt", "decided: Blocked GuardTripped", "decided: Blocked NoOwner",
	"decided: Blocked NoQuorum", "decided: Blocked NodeBound", "decided: Blocked NotSelected", "decided: Blocked Paused",
	"decided: Blocked OtherVolumeUnavailable", "decided: Blocked QuorumUnconfirmed", "decided: Blocked SharedVolume",
	"decided: Blocked UnsafeVolume", "decided: Blocked KeepAwayFailed", "event: StuckOnNode",
	"decided: NotLost NoSurvivor", "decided: NotLost PrimaryConnected", "decided: NotLost PrimaryHealthy",
	"decided: NotLost VolumeStarting", "decided: NotLost VolumeUnused", "decided: Undecided StateUnknown",
	"decided: Undecided TooFewWitnesses", "event: LinstorBlind", "pods of LINSTOR deleted", sim.BlindRestarted, "well in the end",
	sim.Explained, sim.Stalled, sim.StalledArrival, sim.StalledRecovery, sim.ChangedAtWrite, sim.RequestHung,
	sim.ReachedSafe, sim.ReachedLeaving, sim.ReachedEvacuated, sim.ReachedReturned, sim.SwitchedOff, sim.SafeAsked, sim.GoneAsked,
}

// replay tells one seed.
func replay(t *testing.T) {
	t.Helper()
	h := generate(*seed)
	if *only != "" {
		h = h.Only(parse(t, *only))
	}
	o := sim.Run(t, h, true)
	for attempt := 1; attempt < 10 && len(o.Violations) == 0 && *only != ""; attempt++ {
		o = sim.Run(t, h, true)
	}
	t.Logf("seed %d\n%s\n\n%s", *seed, h, strings.Join(o.Story, "\n"))
	for _, v := range o.Violations {
		t.Errorf("%s", v)
	}
}

// report fails the test with the shrunk story of a history.
func report(t *testing.T, h sim.History, o sim.Outcome) {
	t.Helper()
	rule := o.Violations[0].Rule
	steps := sim.Shrink(t, h, rule)
	told := sim.Tell(t, h.Only(steps), rule)
	t.Errorf("seed %d: %s\n%s\n\n%s\n\nreplay: make sim SEED=%d ONLY=%s",
		h.Seed, o.Violations[0], h.Only(steps), strings.Join(told.Story, "\n"), h.Seed, numbers(steps))
}

const none = "-"

func numbers(steps []int) string {
	if len(steps) == 0 {
		return none
	}
	var words []string
	for _, step := range steps {
		words = append(words, strconv.Itoa(step))
	}
	return strings.Join(words, ",")
}

func parse(t *testing.T, text string) []int {
	t.Helper()
	if text == none {
		return nil
	}
	var steps []int
	for word := range strings.SplitSeq(text, ",") {
		step, err := strconv.Atoi(word)
		if err != nil {
			t.Fatalf("-sim.only: %v", err)
		}
		steps = append(steps, step)
	}
	return steps
}
