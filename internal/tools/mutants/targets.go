package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// target is where mutants are derived from the source.
type target struct {
	// folder is a package, relative to the root of the module.
	folder string
	// only names files of it; none means all but tests, and those in except.
	only, except []string
	// skip names functions and constants that decide nothing.
	skip []string
}

// targets are the policy as a whole, and of the controllers what gathers and acts.
var targets = []target{
	{
		folder: "internal/failover",
		except: []string{"foresee.go", "obstacle.go", "places.go"}, // forecasts, on which nothing is done
		skip: []string{
			"String", "abbreviated", "Imagine", // words, and a forecast
			"endOf", "others", "among", "contact", "silence", "waitLook", // words, and pace
		},
	},
	{
		folder: "internal/evacuation",
		except: []string{"words.go", "progress.go", "fingerprint.go"}, // words
		skip: []string{
			"name", "few", "quoted", "named", "also", "leftMessage", "progressing", "noQuorumWithout", "heldBy", "block", "offlinePeers", "volumeOnItsWay", // words
			"Interval", "soon", "slowAge", "RefusalHolds", "SilenceHolds", // pace
		},
	},
	{
		folder: "internal/cluster",
		// places.go and survey.go are forecasts, and the others decide nothing.
		only: []string{"attachments.go", "indexes.go", "inputs.go", "kubelets.go", "lease.go", "live.go", "pods.go", "satellites.go", "sightings.go", "volumes.go"},
	},
	{
		folder: "controllers",
		only: []string{
			"halt.go", "linstor_sight.go", "live_reads.go", "node_controller.go", "node_events.go", "node_gather.go", "node_state.go", "patience.go", "report.go",
			"taints.go", "volumes_in_use.go", "writes.go",
		},
		skip: []string{
			"tell", "untaintedFor", "named", "truncated", "lines", "seconds", // words
			"imagined",             // a forecast
			"aged", "countDecided", // metrics
			"lookAgain", "atOnce", "pollFor", "pollSilentFor", "answersWithin", "changesApart", "silenceInterval", // pace
			"haltAge", "haltTimeout", "taintInterval", "taintExpiry", "sightInterval", "sightCalm", "sightTimeout", // pace
		},
	},
	{
		folder: "controllers",
		only:   []string{"recovery_controller.go"},
		skip: []string{ // all but the rules for a LINSTOR that is blind
			"look", "replace", "again", "lostWithNodes", "input", "online", "ready", "remove", "tell",
			"isLinstorController", "attaches", "recoveryInterval", "answerTimeout",
		},
	},
}

// files returns the files of the target below root.
func (t target) files(root string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(root, t.folder))
	if err != nil {
		return nil, err
	}
	var files []string
	for _, entry := range entries {
		name := entry.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		if (len(t.only) == 0 || slices.Contains(t.only, name)) && !slices.Contains(t.except, name) {
			files = append(files, filepath.ToSlash(filepath.Join(t.folder, name)))
		}
	}
	if len(t.only) > 0 && len(files) != len(t.only) {
		return nil, fmt.Errorf("package %s has not all of the files that targets.go names: %s", t.folder, strings.Join(t.only, ", "))
	}
	return files, nil
}

// tests are the tests of one package.
type tests struct {
	folder string
	// args are arguments for the compiled tests.
	args []string
	// only names the only one of them that is asked, however long it takes; empty asks all.
	only string
}

var (
	// What is random is drawn alike each time, and leaves nothing behind.
	policyTests = tests{folder: "internal/failover", args: []string{"-rapid.seed=1", "-rapid.nofailfile", "-rapid.shrinktime=0s"}}
	leaveTests  = tests{folder: "internal/evacuation", args: policyTests.args}
	feedTests   = tests{folder: "internal/linstor"}
	readTests   = tests{folder: "internal/cluster"}
	actTests    = tests{folder: "controllers"}
	storyTests  = tests{folder: "internal/testbed/sim", args: []string{"-sim.failures=1"}}
)

// name names the tests: those of one package as a whole, or one of them.
func (t tests) name() string { return t.folder + t.only }

// simulationSeeds is within how many histories the simulation must notice what is broken in it.
const simulationSeeds = 2000

// simulation returns the random simulation of so many histories: what is changed where nodes leave on purpose is shown those only in which one
// does.
func simulation(seeds int, file string) tests {
	return tests{
		folder: storyTests.folder, only: "TestSimulation",
		args: []string{
			"-sim.brief", "-sim.failures=1", "-sim.seeds=" + strconv.Itoa(seeds), "-sim.leaving=" + strconv.FormatBool(leaves(file)), "-test.timeout=1h",
		},
	}
}

// leaves tells whether a file is about nodes that leave on purpose.
func leaves(file string) bool { return strings.HasPrefix(file, "internal/evacuation/") }

// testsOf returns the tests that can notice a change of a file, the nearest first.
func testsOf(file string) []tests {
	switch {
	case strings.HasPrefix(file, "internal/failover/"):
		return []tests{policyTests, actTests, storyTests}
	case leaves(file):
		return []tests{leaveTests, actTests, storyTests}
	case strings.HasPrefix(file, "internal/linstor/"):
		return []tests{feedTests, actTests, storyTests}
	case strings.HasPrefix(file, "internal/cluster/"):
		return []tests{readTests, actTests, storyTests}
	}
	return []tests{actTests, storyTests}
}

// exist tells whether there are any such tests.
func (t tests) exist(root string) bool {
	found, err := filepath.Glob(filepath.Join(root, t.folder, "*_test.go"))
	return err == nil && len(found) > 0
}
