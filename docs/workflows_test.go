package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var (
	// used is what a workflow uses, up to the end of the line.
	used = regexp.MustCompile(`(?m)uses: +(.*)$`)
	// pinned is an action by the full digest of a commit, with its version behind.
	pinned = regexp.MustCompile(`^([a-z-]+/[a-z-]+)@([0-9a-f]{40}) # (v[0-9]+\.[0-9]+\.[0-9]+)$`)
	// made is a call of make.
	made = regexp.MustCompile(`(?m)make ((?:--silent )?[a-z ]+)`)
	// registry is the host of a registry.
	registry = regexp.MustCompile(`\b(quay|ghcr|docker|gcr)\.io\b`)
)

func workflows(t *testing.T) map[string]string {
	t.Helper()

	files, err := filepath.Glob("../.github/workflows/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no workflows: %v", err)
	}

	all := map[string]string{}
	for _, file := range files {
		all[filepath.Base(file)] = read(t, file)
	}

	return all
}

func read(t *testing.T, path string) string {
	t.Helper()

	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	return string(text)
}

func TestActionsArePinnedByTheDigestOfACommit(t *testing.T) {
	t.Parallel()

	pins := map[string]string{}

	for name, text := range workflows(t) {
		for _, match := range used.FindAllStringSubmatch(text, -1) {
			if strings.HasPrefix(match[1], "./") {
				continue // of the same commit
			}

			action := pinned.FindStringSubmatch(match[1])
			if action == nil {
				t.Errorf("%s uses %s, want it pinned as owner/name@digest # v1.2.3", name, match[1])
				continue
			}

			pin := action[2] + " " + action[3]
			if other := pins[action[1]]; other != "" && other != pin {
				t.Errorf("%s is pinned as %s and as %s", action[1], pin, other)
			}

			pins[action[1]] = pin
		}
	}
}

func TestAWorkflowMayDoNothingByDefault(t *testing.T) {
	t.Parallel()

	for name, text := range workflows(t) {
		var workflow struct {
			Permissions map[string]string `json:"permissions"`
			Jobs        map[string]struct {
				Permissions map[string]string `json:"permissions"`
			} `json:"jobs"`
		}
		if err := yaml.Unmarshal([]byte(text), &workflow); err != nil {
			t.Fatal(err)
		}

		if workflow.Permissions == nil || len(workflow.Permissions) > 0 {
			t.Errorf("%s has the permissions %v, want an empty map", name, workflow.Permissions)
		}

		for job, j := range workflow.Jobs {
			if j.Permissions["contents"] == "" {
				t.Errorf("job %s of %s does not say what it may do", job, name)
			}
		}
	}
}

func TestAReleasePublishesOnlyWhatItsOwnRunHasTested(t *testing.T) {
	t.Parallel()

	var workflow struct {
		Jobs map[string]struct {
			Needs string `json:"needs"`
			Uses  string `json:"uses"`
		} `json:"jobs"`
	}
	if err := yaml.Unmarshal([]byte(workflows(t)["release.yml"]), &workflow); err != nil {
		t.Fatal(err)
	}

	for name := range workflow.Jobs {
		job := name
		for workflow.Jobs[job].Needs != "" {
			job = workflow.Jobs[job].Needs
		}

		if workflow.Jobs[job].Uses != "./.github/workflows/test.yml" {
			t.Errorf("job %s begins before the tests have passed", name)
		}
	}
}

func TestNoWorkflowNamesARegistry(t *testing.T) {
	t.Parallel()

	for name, text := range workflows(t) {
		if host := registry.FindString(text); host != "" {
			t.Errorf("%s names the registry %s, which is for a variable of the repository", name, host)
		}
	}
}

func TestWorkflowsMakeWhatThereIs(t *testing.T) {
	t.Parallel()

	makefile := read(t, "../Makefile")
	calls := 0

	for name, text := range workflows(t) {
		for _, match := range made.FindAllStringSubmatch(text, -1) {
			for target := range strings.FieldsSeq(strings.TrimPrefix(match[1], "--silent ")) {
				calls++

				if !strings.Contains(makefile, "\n.PHONY: "+target+"\n") {
					t.Errorf("%s makes %s, which is no target", name, target)
				}
			}
		}
	}

	if calls < 8 {
		t.Errorf("only %d targets were found", calls)
	}
}

// Of a module that is forgotten, nobody is told that a dependency has a fix.
func TestEveryModuleIsKeptUpToDate(t *testing.T) {
	t.Parallel()

	var config struct {
		Updates []struct {
			Ecosystem   string   `json:"package-ecosystem"`
			Directories []string `json:"directories"`
		} `json:"updates"`
	}
	if err := yaml.Unmarshal([]byte(read(t, "../.github/dependabot.yml")), &config); err != nil {
		t.Fatal(err)
	}

	var modules []string

	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != ".." {
			return filepath.SkipDir
		}

		if entry.Name() == "go.mod" {
			modules = append(modules, "/"+strings.TrimPrefix(strings.TrimPrefix(filepath.Dir(path), ".."), "/"))
		}

		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	slices.Sort(modules)

	for _, update := range config.Updates {
		if update.Ecosystem == "gomod" && !slices.Equal(slices.Sorted(slices.Values(update.Directories)), modules) {
			t.Errorf("dependabot looks at %v, the modules are %v", update.Directories, modules)
		}
	}
}
