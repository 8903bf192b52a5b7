package image

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"go/version"
	"io"
	"io/fs"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// platforms are those of a release, with what their programs are made for.
var platforms = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// stamps are what a release says of itself.
var stamps = map[string]string{"VERSION": "2.1.0", "COMMIT": "0123456789abcdef0123456789abcdef01234567"}

// TestTheImageOfTheDockerfile builds the image twice for both architectures, pushes it, pulls it, and starts it.
func TestTheImageOfTheDockerfile(t *testing.T) {
	t.Parallel()
	d := read(t)
	first, second := t.TempDir(), filepath.Join(t.TempDir(), "a", "longer", "path")
	here, there := d.index(t, first), d.index(t, second)

	for arch := range platforms {
		const binary = "image/piraeus-ha-controller"
		if !bytes.Equal(content(t, filepath.Join(first, arch, binary)), content(t, filepath.Join(second, arch, binary))) {
			t.Errorf("two folders give two binaries for %s", arch)
		}
	}
	tag := serve(t) + "/piraeus-ha-controller:v2.1.0"
	pushed := push(t, tag, here)
	if again := push(t, tag+"-again", there); again != pushed {
		t.Errorf("the digest is %s, and %s when built again", pushed, again)
	}
	for arch, machine := range platforms {
		t.Run(arch, func(t *testing.T) {
			t.Parallel()
			pulled := pull(t, tag, arch)
			root := t.TempDir()
			extract(t, pulled, root)
			config := described(t, pulled)
			program, err := elf.Open(filepath.Join(root, config.Entrypoint[0]))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = program.Close() }()
			if program.Machine != machine || program.Section(".interp") != nil {
				t.Errorf("the program is made for %s, linked statically: %t", program.Machine, program.Section(".interp") == nil)
			}
			if arch != runtime.GOARCH {
				return
			}
			want := "piraeus-ha-controller 2.1.0 (0123456789ab) " + runtime.Version() + " linux/" + arch + "\n"
			if got := start(t, root, config, "--version"); got != want {
				t.Errorf("it says %q, not %q", got, want)
			}
		})
	}
}

// index builds the image for all platforms in folder, which has a checkout of git where the source goes: that must make no difference.
func (d dockerfile) index(t *testing.T, folder string) v1.ImageIndex {
	t.Helper()
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range []string{"amd64", "arm64"} {
		platform := v1.Platform{OS: "linux", Architecture: arch}
		below := filepath.Join(folder, arch)
		checkout(t, filepath.Join(below, "build", "src"), folder)
		s := d.build(t, below, with(stamps, platform))
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: s.image(platform), Descriptor: v1.Descriptor{Platform: &platform}})
	}
	return index
}

// checkout makes a folder a checkout of git with a commit that has a message of its own.
func checkout(t *testing.T, folder, message string) {
	t.Helper()
	for _, args := range [][]string{
		{"init", "--quiet", folder},
		{"-C", folder, "-c", "user.name=Test", "-c", "user.email=test@example.com", "commit", "--quiet", "--allow-empty", "--message=" + message},
	} {
		output(t, exec.CommandContext(t.Context(), "git", args...))
	}
}

// image returns the image of a stage, with its files in one layer without times.
func (s *stage) image(platform v1.Platform) v1.Image {
	s.t.Helper()
	packed := pack(s.t, s.folder)
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		s.t.Fatal(err)
	}
	image, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), layer)
	if err != nil {
		s.t.Fatal(err)
	}
	file, err := image.ConfigFile()
	if err != nil {
		s.t.Fatal(err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config = platform.OS, platform.Architecture, s.config
	if image, err = mutate.ConfigFile(image, file); err != nil {
		s.t.Fatal(err)
	}
	return image
}

// pack returns the files of a folder as root's in an archive.
func pack(t *testing.T, folder string) []byte {
	t.Helper()
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		header := &tar.Header{Name: inside, Mode: int64(info.Mode().Perm()), Size: info.Size(), ModTime: time.Unix(0, 0)}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		_, err = w.Write(content(t, path))
		return err
	})
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

// serve starts a registry on this machine and returns its address.
func serve(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func reference(t *testing.T, tag string) name.Reference {
	t.Helper()
	parsed, err := name.ParseReference(tag)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// push pushes an image for all its platforms and returns the digest by which the registry has it.
func push(t *testing.T, tag string, index v1.ImageIndex) v1.Hash {
	t.Helper()
	if err := remote.WriteIndex(reference(t, tag), index, remote.WithContext(t.Context())); err != nil {
		t.Fatal(err)
	}
	return digest(t, tag)
}

func digest(t *testing.T, tag string) v1.Hash {
	t.Helper()
	descriptor, err := remote.Head(reference(t, tag), remote.WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	return descriptor.Digest
}

// pull returns the image for an architecture from a registry.
func pull(t *testing.T, tag, arch string) v1.Image {
	t.Helper()
	image, err := remote.Image(reference(t, tag), remote.WithContext(t.Context()), remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// described checks what an image says of itself, and returns it.
func described(t *testing.T, image v1.Image) v1.Config {
	t.Helper()
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := file.Config
	if c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/piraeus-ha-controller"}) {
		t.Fatalf("it runs %q as %q", c.Entrypoint, c.User)
	}
	const prefix = "org.opencontainers.image."
	for _, label := range []string{"title", "description", "url", "source", "documentation", "vendor", "licenses"} {
		if c.Labels[prefix+label] == "" {
			t.Errorf("there is no label %s", prefix+label)
		}
	}
	if c.Labels[prefix+"version"] != stamps["VERSION"] || c.Labels[prefix+"revision"] != stamps["COMMIT"] {
		t.Errorf("the labels are %q", c.Labels)
	}
	return c
}

// extract puts the files of an image into a folder, with their modes.
func extract(t *testing.T, image v1.Image, folder string) {
	t.Helper()
	files := mutate.Extract(image)
	defer func() { _ = files.Close() }()
	for r := tar.NewReader(files); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		unpacked, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, filepath.Base(header.Name)), unpacked, header.FileInfo().Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
}

// start runs an image as its user in its files only, which it cannot write, and returns what it prints.
func start(t *testing.T, root string, config v1.Config, args ...string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may change the root folder and the user")
	}
	// Only the mount is in the namespace, which ends with the program.
	const mount = `mount --bind "$1" "$1" && mount -o remount,bind,ro "$1"`
	if out, err := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c", mount, "sh", root).CombinedOutput(); err != nil {
		t.Skipf("this machine lets nobody mount a folder read-only: %v: %s", err, out)
	}
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	const script = mount + ` && ! touch "$1/file" && root=$1 && user=$2 && shift 2 && exec chroot --userspec="$user" "$root" "$@"`
	cmd := exec.CommandContext(t.Context(), "unshare", slices.Concat(
		[]string{"--mount", "sh", "-c", script, "sh", root, config.User}, config.Entrypoint, args)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	return output(t, cmd)
}

// TestTheBasesArePinned checks that each base has a digest, and that the builder has a Go that go.mod allows: its image fetches no other.
func TestTheBasesArePinned(t *testing.T) {
	t.Parallel()
	d := read(t)
	pinned := regexp.MustCompile(`^[a-z0-9./-]+:([a-z0-9.-]+)@sha256:[0-9a-f]{64}$`)
	for _, s := range d.stages {
		if !pinned.MatchString(s.BaseName) {
			t.Errorf("%s has no tag or no digest", s.BaseName)
		}
	}
	builder := "go" + pinned.FindStringSubmatch(d.stages[0].BaseName)[1]
	wanted := "go" + regexp.MustCompile(`(?m)^go (.*)$`).FindStringSubmatch(string(content(t, filepath.Join(repository, "go.mod"))))[1]
	if !version.IsValid(builder) || version.Compare(builder, wanted) < 0 {
		t.Errorf("the builder has %s, and go.mod asks for %s", builder, wanted)
	}
}

func content(t *testing.T, file string) []byte {
	t.Helper()
	read, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// output runs a command and returns what it prints.
func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, stderr.String())
	}
	return string(out)
}
