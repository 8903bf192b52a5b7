package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
)

// page is docs/installation.md in the hands of a reader: a folder with the files that it shows, beside the repository's.
type page struct {
	t      *testing.T
	bed    *bed.Bed
	folder string
}

// TestTheCommandsOfTheInstallationPageWork follows docs/installation.md chapter by chapter: what it shows of a file is written, and each
// command is run. What a chapter has installed goes before the next one. TestRemovalLeavesNothingBehind follows the last chapter.
//
//nolint:tparallel // all apply objects of the same names
func TestTheCommandsOfTheInstallationPageWork(t *testing.T) {
	t.Parallel()
	b := apiServer(t)
	takeTurn(t)
	titles, chapters := chaptersOf(t, "../docs/installation.md")
	for _, title := range titles {
		if title == "Remove it" {
			continue
		}
		t.Run(title, func(t *testing.T) {
			p := page{t: t, bed: b, folder: readersFolder(t)}
			t.Cleanup(p.remove)
			p.follow(chapters[title])
		})
	}
}

// TestTheCommandsOfTheChartsReadmeWork follows the README of the chart, with a release of the node agents before the chapter that
// upgrades one.
func TestTheCommandsOfTheChartsReadmeWork(t *testing.T) {
	t.Parallel()
	b := apiServer(t)
	takeTurn(t)
	_, chapters := chaptersOf(t, chart+"/README.md")
	p := page{t: t, bed: b, folder: readersFolder(t)}
	p.follow(chapters["Install"])
	p.follow(chapters["Uninstall"])

	const elsewhere = "--namespace=piraeus-ha-controller"
	output(t, helm(t, "helm4", "install", name, nodeAgents, "--create-namespace", elsewhere, "--kubeconfig="+b.Kubeconfig))
	p.follow(chapters["Upgrade from 1.x"])
	output(t, helm(t, "helm4", "uninstall", name, elsewhere, "--kubeconfig="+b.Kubeconfig))
}

// chaptersOf returns the titles of a page's chapters in their order, and the chapters by title.
func chaptersOf(t *testing.T, file string) (titles []string, chapters map[string]string) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	chapters = map[string]string{}
	for _, chapter := range strings.Split(string(content), "\n## ")[1:] {
		title, text, _ := strings.Cut(chapter, "\n")
		titles, chapters[title] = append(titles, title), text
	}
	return titles, chapters
}

// follow writes the files that a chapter shows and runs its commands, in order.
func (p page) follow(chapter string) {
	p.t.Helper()
	for _, block := range regexp.MustCompile("(?s)\n```(console|yaml)\n(.*?)\n```\n").FindAllStringSubmatch(chapter, -1) {
		if block[1] == "yaml" {
			p.write(block[2])
		} else {
			p.run(block[2])
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
func (p page) write(content string) {
	p.t.Helper()
	name, found := strings.CutPrefix(strings.SplitN(content, "\n", 2)[0], "# ")
	if !found {
		return // not a file of the reader's
	}
	config, err := filepath.Abs("../config")
	if err != nil {
		p.t.Fatal(err)
	}
	if config, err = filepath.Rel(p.folder, config); err != nil {
		p.t.Fatal(err)
	}
	content = strings.ReplaceAll(content, "github.com/piraeusdatastore/piraeus-ha-controller/config", config)
	if err := os.WriteFile(filepath.Join(p.folder, name), []byte(content), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// run runs commands.
func (p page) run(commands string) {
	p.t.Helper()
	commands = strings.ReplaceAll(commands, "\\\n", "")
	for line := range strings.Lines(commands) {
		words := strings.Fields(line)
		switch words[0] {
		case "kubectl":
			p.command(filepath.Join("..", "bin", "kubectl"), append(words[1:], "--cache-dir="+filepath.Join(os.TempDir(), "kubectl-cache")))
		case "helm":
			cmd := helm(p.t, "helm4", words[1:]...)
			cmd.Dir, cmd.Env = p.folder, append(cmd.Env, "KUBECONFIG="+p.bed.Kubeconfig)
			output(p.t, cmd)
		default:
			p.t.Errorf("nobody knows the command %q", line)
		}
	}
}

// command runs a command in the reader's folder.
func (p page) command(binary string, args []string) {
	p.t.Helper()
	binary, err := filepath.Abs(binary)
	if err != nil {
		p.t.Fatal(err)
	}
	cmd := exec.CommandContext(p.t.Context(), binary, args...)
	cmd.Dir, cmd.Env = p.folder, append(os.Environ(), "KUBECONFIG="+p.bed.Kubeconfig)
	output(p.t, cmd)
}

// remove removes what a chapter may have installed.
func (p page) remove() {
	if releases, err := kubectl(p.t, p.bed, "get secrets --namespace=ha-controller --selector=owner=helm --output=name"); err == nil && releases != "" {
		cmd := helm(p.t, "helm4", "uninstall", name, "--namespace="+namespace, "--kubeconfig="+p.bed.Kubeconfig)
		if out, err := cmd.CombinedOutput(); err != nil {
			p.t.Errorf("helm uninstall: %v\n%s", err, out)
		}
	}
	deleteAll(p.t, p.bed, "all.yaml")
}
