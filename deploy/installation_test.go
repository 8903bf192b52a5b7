package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/page"
)

// reader follows docs/installation.md in a folder with the files that it shows, beside the repository's.
type reader struct {
	t      *testing.T
	bed    *bed.Bed
	folder string
}

// TestWithHelmTheCommandsOfTheInstallationPageWork follows docs/installation.md chapter by chapter: what it shows of a file is written, and each
// command is run. What a chapter has installed goes before the next one. TestRemovalLeavesNothingBehind follows the last chapter.
//
//nolint:tparallel // all apply objects of the same names
func TestWithHelmTheCommandsOfTheInstallationPageWork(t *testing.T) {
	t.Parallel()
	b := apiServer(t)
	takeTurn(t)
	for _, chapter := range chaptersOf(t, "../docs/installation.md") {
		if chapter.Title == "Remove it" {
			continue
		}
		t.Run(chapter.Title, func(t *testing.T) {
			r := reader{t: t, bed: b, folder: readersFolder(t)}
			t.Cleanup(r.remove)
			r.follow(chapter)
		})
	}
}

// TestWithHelmTheCommandsOfTheChartsReadmeWork follows the README of the chart, with a release of the node agents before the chapter that
// upgrades one.
func TestWithHelmTheCommandsOfTheChartsReadmeWork(t *testing.T) {
	t.Parallel()
	b := apiServer(t)
	takeTurn(t)
	readme := chart + "/README.md"
	r := reader{t: t, bed: b, folder: readersFolder(t)}
	r.follow(chapterOf(t, readme, "Install"))
	r.follow(chapterOf(t, readme, "Uninstall"))

	const elsewhere = "--namespace=piraeus-ha-controller"
	output(t, helm(t, "helm4", "install", name, nodeAgents, "--create-namespace", elsewhere, "--kubeconfig="+b.Kubeconfig))
	r.follow(chapterOf(t, readme, "Upgrade from 1.x"))
	output(t, helm(t, "helm4", "uninstall", name, elsewhere, "--kubeconfig="+b.Kubeconfig))
}

// chaptersOf returns the chapters of a page.
func chaptersOf(t *testing.T, file string) []page.Chapter {
	t.Helper()
	chapters, err := page.Chapters(file)
	if err != nil {
		t.Fatal(err)
	}
	return chapters
}

// chapterOf returns the chapter of a page that has a title.
func chapterOf(t *testing.T, file, title string) page.Chapter {
	t.Helper()
	chapters := chaptersOf(t, file)
	i := slices.IndexFunc(chapters, func(c page.Chapter) bool { return c.Title == title })
	if i < 0 {
		t.Fatalf("%s has no chapter %q", file, title)
	}
	return chapters[i]
}

// follow writes the files that a chapter shows and runs its commands, in order.
func (r reader) follow(chapter page.Chapter) {
	r.t.Helper()
	for _, block := range page.Blocks(chapter.Text) {
		switch block.Language {
		case "yaml":
			r.write(block.Content)
		case page.Console:
			for _, command := range block.Commands() {
				r.run(command)
			}
		}
	}
}

// readersFolder returns a folder that has the repository's deploy and config.
func readersFolder(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for _, name := range []string{"deploy", "config"} {
		path, err := filepath.Abs("../" + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// write writes a file that the page shows with its name in the first line, and with the repository's own folder in place of its address.
func (r reader) write(content string) {
	r.t.Helper()
	name, found := strings.CutPrefix(strings.SplitN(content, "\n", 2)[0], "# ")
	if !found {
		return // not a file of the reader's
	}
	config, err := filepath.Abs("../config")
	if err != nil {
		r.t.Fatal(err)
	}
	if config, err = filepath.Rel(r.folder, config); err != nil {
		r.t.Fatal(err)
	}
	content = strings.ReplaceAll(content, "github.com/piraeusdatastore/piraeus-ha-controller/config", config)
	if err := os.WriteFile(filepath.Join(r.folder, name), []byte(content), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// run runs a command.
func (r reader) run(command string) {
	r.t.Helper()
	words := strings.Fields(command)
	switch words[0] {
	case "kubectl":
		r.command(filepath.Join("..", "bin", "kubectl"), append(words[1:], "--cache-dir="+filepath.Join(os.TempDir(), "kubectl-cache")))
	case "helm":
		cmd := helm(r.t, "helm4", words[1:]...)
		cmd.Dir, cmd.Env = r.folder, append(cmd.Env, "KUBECONFIG="+r.bed.Kubeconfig)
		output(r.t, cmd)
	default:
		r.t.Errorf("nobody knows the command %q", command)
	}
}

// command runs a command in the reader's folder.
func (r reader) command(binary string, args []string) {
	r.t.Helper()
	binary, err := filepath.Abs(binary)
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.CommandContext(r.t.Context(), binary, args...)
	cmd.Dir, cmd.Env = r.folder, append(os.Environ(), "KUBECONFIG="+r.bed.Kubeconfig)
	output(r.t, cmd)
}

// remove removes what a chapter may have installed.
func (r reader) remove() {
	if releases, err := kubectl(r.t, r.bed, "get secrets --namespace=ha-controller --selector=owner=helm --output=name"); err == nil && releases != "" {
		cmd := helm(r.t, "helm4", "uninstall", name, "--namespace="+namespace, "--kubeconfig="+r.bed.Kubeconfig)
		if out, err := cmd.CombinedOutput(); err != nil {
			r.t.Errorf("helm uninstall: %v\n%s", err, out)
		}
	}
	deleteAll(r.t, r.bed, "all.yaml")
}
