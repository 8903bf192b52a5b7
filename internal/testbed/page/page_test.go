package page_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/page"
)

const shown = "# Title\n\nAbove.\n\n## One\n\nSee `a b` and `c`:\n\n```console\nrun one\nrun \\\n  two\n```\n\n```yaml\n# file.yaml\na: `x`\n```\n\n" +
	"| Head | Of |\n| --- | --- |\n| 1 | `kubectl get` it |\n| | `{.a}` |\n\n## Two\n\nNothing.\n"

func TestAPageIsReadAsItsReadersDo(t *testing.T) {
	t.Parallel()

	file := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(file, []byte(shown), 0o600); err != nil {
		t.Fatal(err)
	}

	chapters, err := page.Chapters(file)
	if err != nil {
		t.Fatal(err)
	}

	if len(chapters) != 2 || chapters[0].Title != "One" || chapters[1].Title != "Two" || chapters[1].Text != "\nNothing.\n" {
		t.Fatalf("chapters %+v", chapters)
	}

	text := chapters[0].Text
	for what, diff := range map[string]string{
		"blocks":   cmp.Diff([]page.Block{{"console", "run one\nrun \\\n  two"}, {"yaml", "# file.yaml\na: `x`"}}, page.Blocks(text)),
		"commands": cmp.Diff([]string{"run one", "run   two"}, page.Commands(text)),
		"rows":     cmp.Diff([][]string{{"1", "`kubectl get` it"}, {"", "`{.a}`"}}, page.Rows(text)),
		"code":     cmp.Diff([]string{"a b", "c", "kubectl get", "{.a}"}, page.Code(text)),
	} {
		if diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
}

func TestAPageThatIsNotThereIsAnError(t *testing.T) {
	t.Parallel()

	if _, err := page.Chapters(filepath.Join(t.TempDir(), "missing.md")); err == nil {
		t.Error("no error")
	}
}
