package image

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/random"
)

// reader is somebody who follows docs/installation.md in a folder that has the repository's deploy.
type reader struct {
	t      *testing.T
	folder string
	// helm and crane are the programs of those names.
	helm, crane string
	// hosts are what the page calls registries, and the registries on this machine, one after the other.
	hosts *strings.Replacer
}

// TestTheCommandsForNetworksWithoutInternet follows that chapter of docs/installation.md with two registries on this machine, ours and the
// reader's: the image arrives there with its digest, and the chart byte for byte. Both majors of Helm do it.
func TestTheCommandsForNetworksWithoutInternet(t *testing.T) {
	t.Parallel()
	_, chapter, found := strings.Cut(string(content(t, filepath.Join(repository, "docs", "installation.md"))), "\n## Networks without internet\n")
	if !found {
		t.Fatal("docs/installation.md has no such chapter")
	}
	chapter, _, _ = strings.Cut(chapter, "\n## ")
	var commands []string
	for _, block := range regexp.MustCompile("(?s)\n```sh\n(.*?)\n```\n").FindAllStringSubmatch(chapter, -1) {
		commands = append(commands, strings.Split(block[1], "\n")...)
	}
	crane := strings.TrimSpace(output(t, exec.CommandContext(t.Context(), "go", "tool", "-n", "crane")))
	for _, major := range []string{"helm3", "helm4"} {
		t.Run(major, func(t *testing.T) {
			t.Parallel()
			r := newReader(t, major, crane)
			r.follow(commands)
		})
	}
}

func newReader(t *testing.T, major, crane string) *reader {
	t.Helper()
	helm, err := filepath.Abs(filepath.Join(repository, "bin", major))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(helm); err != nil {
		t.Fatalf("%v; run `make helm` first", err)
	}
	deploy, err := filepath.Abs(filepath.Join(repository, "deploy"))
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.Symlink(deploy, filepath.Join(folder, "deploy")); err != nil {
		t.Fatal(err)
	}
	return &reader{
		t: t, folder: folder, helm: helm, crane: crane,
		hosts: strings.NewReplacer("quay.io", serve(t), "registry.example.com", serve(t)),
	}
}

// follow runs commands after the image that they copy was pushed, and looks for what they push.
func (r *reader) follow(commands []string) {
	r.t.Helper()
	all := strings.Join(commands, "\n")
	tags := regexp.MustCompile(`\S+/piraeus-ha-controller:\S+`).FindAllString(all, -1)
	charts := regexp.MustCompile(`oci://\S+`).FindAllString(all, -1)
	archive := regexp.MustCompile(`\S+\.tgz`).FindString(all)
	if len(tags) != 2 || len(charts) == 0 || archive == "" {
		r.t.Fatalf("the page copies %q, %q and %q", tags, charts, archive)
	}
	index, err := random.Index(1024, 1, 2)
	if err != nil {
		r.t.Fatal(err)
	}
	ours := push(r.t, r.hosts.Replace(tags[0]), index)
	var rendered string
	for _, command := range commands {
		rendered = r.run(command)
	}
	if theirs := digest(r.t, r.hosts.Replace(tags[1])); theirs != ours {
		r.t.Errorf("the digest of the image is %s, and %s after it was copied", ours, theirs)
	}
	if image := r.hosts.Replace(tags[1]); !regexp.MustCompile(`image: "?` + regexp.QuoteMeta(image) + `"?\n`).MatchString(rendered) {
		r.t.Errorf("the image of the pods is not %s:\n%s", image, rendered)
	}
	r.run("helm pull " + charts[len(charts)-1] + " --version=2.0.0 --destination=pulled")
	if !bytes.Equal(content(r.t, filepath.Join(r.folder, archive)), content(r.t, filepath.Join(r.folder, "pulled", archive))) {
		r.t.Errorf("the chart is another one after it was pulled")
	}
}

// run runs a command, with the registries on this machine, which have no certificates, in the place of those that the page names.
func (r *reader) run(command string) string {
	r.t.Helper()
	words := strings.Fields(r.hosts.Replace(command))
	switch words[0] {
	case "crane":
		words[0] = r.crane
	case "helm":
		words[0] = r.helm
		if strings.Contains(command, "oci://") {
			words = append(words, "--plain-http")
		}
	default:
		r.t.Fatalf("nobody knows the command %q", command)
	}
	if err := os.MkdirAll(filepath.Join(r.folder, "pulled"), 0o755); err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.CommandContext(r.t.Context(), words[0], words[1:]...)
	home := filepath.Join(r.folder, "home")
	cmd.Dir, cmd.Env = r.folder, append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home, "DOCKER_CONFIG="+home)
	return output(r.t, cmd)
}
