package machine

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// disks is a storage that counts.
type disks struct {
	mu    sync.Mutex
	open  map[string]int
	hangs bool
}

func (d *disks) Open(resource, _ string, _ bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open[resource]++
	return nil
}

func (d *disks) Close(resource, _ string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open[resource]--
}

func (d *disks) IOHangs(string, string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hangs
}

func (d *disks) count(resource string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open[resource]
}

// world is a machine with a pod that runs.
type world struct {
	*Machine
	t       *testing.T
	disks   *disks
	driver  *driver
	sandbox string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "m") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d := &disks{open: map[string]int{}}
	w := &world{t: t, disks: d, Machine: &Machine{Name: "a", Root: dir, Storage: d, Log: logr.Discard()}}
	w.driver = &driver{m: w.Machine}
	if err := w.PowerOn(0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.PowerOff)
	return w
}

func (w *world) target(volume string) string {
	return filepath.Join(w.Root, "pods", "uid", "volumes", volume)
}

func (w *world) mount(volume string, attributes map[string]string) {
	w.t.Helper()
	if _, err := w.driver.NodePublishVolume(w.t.Context(), &csi.NodePublishVolumeRequest{
		VolumeId: volume, TargetPath: w.target(volume), VolumeContext: attributes,
	}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) unmount(volume string) {
	w.t.Helper()
	if _, err := w.driver.NodeUnpublishVolume(w.t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: volume, TargetPath: w.target(volume)}); err != nil {
		w.t.Fatal(err)
	}
}

// start starts a container and returns its ID.
func (w *world) start() string {
	w.t.Helper()
	s, _ := w.RunPodSandbox(w.t.Context(), &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Namespace: "default", Name: "db-0", Uid: "uid"},
	}})
	c, err := w.CreateContainer(w.t.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: s.PodSandboxId, Config: &runtimeapi.ContainerConfig{}})
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.StartContainer(w.t.Context(), &runtimeapi.StartContainerRequest{ContainerId: c.ContainerId}); err != nil {
		w.t.Fatal(err)
	}
	w.sandbox = s.PodSandboxId
	return c.ContainerId
}

func (w *world) want(volume string, opens int) {
	w.t.Helper()
	for deadline := time.Now().Add(time.Minute); w.disks.count(volume) != opens; {
		if time.Now().After(deadline) {
			w.t.Fatalf("%s is open %d times, want %d", volume, w.disks.count(volume), opens)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestADeviceStaysOpenUntilTheContainersHaveEnded(t *testing.T) {
	w := newWorld(t)
	w.mount("db", nil)
	id := w.start()
	w.unmount("db")
	if w.disks.count("db") != 1 {
		t.Error("the device was closed under a container")
	}
	if _, err := w.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 30}); err != nil {
		t.Fatal(err)
	}
	w.want("db", 0)
	if !w.Idle() {
		t.Error("something runs or is mounted")
	}
}

func TestAContainerWhoseIOHangsDoesNotStop(t *testing.T) {
	w := newWorld(t)
	w.mount("db", nil)
	id := w.start()
	w.disks.hangs = true
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := w.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id}); err == nil {
		t.Error("the container has stopped")
	}
}

func TestContainersOpenRawBlockVolumes(t *testing.T) {
	w := newWorld(t)
	w.mount("vm", map[string]string{blockAttribute: "true"})
	w.want("vm", 0)
	w.start()
	w.want("vm", 1)
	if _, err := w.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: w.sandbox}); err != nil {
		t.Fatal(err)
	}
	w.want("vm", 0)
}

func TestAPowerLossLeavesNothingButTheDisk(t *testing.T) {
	w := newWorld(t)
	w.mount("db", nil)
	w.start()
	before := maps.Clone(w.disks.open)
	w.PowerOff()
	if err := w.PowerOn(0); err != nil {
		t.Fatal(err)
	}
	containers, _ := w.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
	if len(containers.GetContainers()) > 0 || !w.Idle() {
		t.Error("containers or mounts have survived")
	}
	if !maps.Equal(before, w.disks.open) {
		t.Error("a machine without power has closed a device")
	}
}
