package options

import (
	"cmp"
	"os"
	"regexp"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// row is a row of the table of options, "| `--name` | `default` | meaning |", the default being optional.
var row = regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\| (?:`([^`]*)` )?\\| \\S")

func TestReadmeListsEveryOptionWithItsDefault(t *testing.T) {
	t.Parallel()

	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}

	var got, want []Flag

	for _, match := range row.FindAllSubmatch(readme, -1) {
		got = append(got, Flag{Name: string(match[1]), Default: string(match[2])})
	}

	for _, f := range Flags() {
		want = append(want, Flag{Name: f.Name, Default: f.Default})
	}

	slices.SortFunc(want, func(a, b Flag) int { return cmp.Compare(a.Name, b.Name) })

	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("options in README.md, sorted by name (-want +got):\n%s", diff)
	}
}
