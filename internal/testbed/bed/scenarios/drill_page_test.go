package scenarios_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/page"
)

// TestTheDrillIsKnownAsAWhole looks for what the page has beside the parts that TestDrill plays.
func TestTheDrillIsKnownAsAWhole(t *testing.T) {
	t.Parallel()
	file := repositoryFile(t, drillPage)
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	commands, code := commandsOf(beforeDrill), slices.Clone(drillTold)
	for _, w := range drillWays {
		commands = slices.Concat(commands, commandsOf(w.lose), commandsOf(w.meanwhile), commandsOf(w.back))
		for _, s := range w.sights {
			code = append(code, slices.DeleteFunc(page.Code(s.where), isNoCommand)...)
		}
	}
	commands = append(commands, commandsOf(afterDrill)...)
	if diff := cmp.Diff(commands, page.Commands(string(content))); diff != "" {
		t.Errorf("the commands of %s (-test +page):\n%s", drillPage, diff)
	}
	told := slices.DeleteFunc(page.Code(string(content)), isNoCommand)
	if diff := cmp.Diff(sortedOnce(code), sortedOnce(told)); diff != "" {
		t.Errorf("the commands in the text of %s (-test +page):\n%s", drillPage, diff)
	}
	for _, placeholder := range []string{"NODE", "RESOURCE", "NAMESPACE", "POD"} {
		if !slices.ContainsFunc(commands, func(command string) bool { return strings.Contains(command, placeholder) }) {
			t.Errorf("no command has %s", placeholder)
		}
	}
}

// isNoCommand tells commands from other code: they have words.
func isNoCommand(code string) bool { return !strings.Contains(code, " ") }

func sortedOnce(words []string) []string { return slices.Compact(slices.Sorted(slices.Values(words))) }

// drillChapters returns the chapters of the page by title, which are those that the test knows.
func drillChapters(t *testing.T) map[string]string {
	t.Helper()
	chapters, err := page.Chapters(repositoryFile(t, drillPage))
	if err != nil {
		t.Fatal(err)
	}
	known, titles, texts := []string{drillBefore}, []string{}, map[string]string{}
	for _, w := range drillWays {
		known = append(known, w.title)
	}
	known = append(known, drillAfter, "What is no drill, and what must not be tried")
	for _, c := range chapters {
		titles, texts[c.Title] = append(titles, c.Title), c.Text
	}
	if diff := cmp.Diff(known, titles); diff != "" {
		t.Fatalf("the chapters of %s (-test +page):\n%s", drillPage, diff)
	}
	return texts
}

func repositoryFile(t *testing.T, name string) string {
	t.Helper()
	root, err := bed.Root()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, name)
}

func commandsOf(steps []drillStep) (commands []string) {
	for _, s := range steps {
		commands = append(commands, s.command)
	}
	return commands
}

// compareCommands ends the test where a part of the page has other commands than the steps of the test.
func compareCommands(t *testing.T, steps []drillStep, text string) {
	t.Helper()
	if diff := cmp.Diff(commandsOf(steps), page.Commands(text)); diff != "" {
		t.Fatalf("%s has other commands (-test +page):\n%s", drillPage, diff)
	}
}

// compare ends the test where the chapter of a way has other commands or another table than the test, and returns when each row of the table
// is due. A chapter that says that it is the same as a power off has that one's.
func (w drillWay) compare(t *testing.T, chapters map[string]string) (seconds []string) {
	t.Helper()
	text := chapters[w.title]
	lose, rest, same := strings.Cut(text, drillSame)
	if !same {
		lose, rest, _ = strings.Cut(text, "\n| Second |")
	}
	meanwhile, back, _ := strings.Cut(rest, "\n**Return.**")
	compareCommands(t, w.lose, lose)
	compareCommands(t, w.meanwhile, meanwhile)
	compareCommands(t, w.back, back)
	if same {
		text = chapters[drillWays[0].title]
	}
	var known, told [][]string
	for _, s := range w.sights {
		known = append(known, []string{s.what, s.where})
	}
	for _, row := range page.Rows(text) {
		seconds, told = append(seconds, row[0]), append(told, row[1:])
	}
	if diff := cmp.Diff(known, told); diff != "" {
		t.Fatalf("the table of %q in %s (-test +page):\n%s", w.title, drillPage, diff)
	}
	return seconds
}
