package bed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/csidriver"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

// Options say how a bed differs from the usual one. The zero value is fit for most tests.
type Options struct {
	// BinDir holds the binaries that `make testbed` builds; <module>/bin by default.
	BinDir string
	// LogDir takes one log file per process; it is created, and emptied of older logs.
	// <module>/.testbed/<time>-<process> by default.
	LogDir string
	// KubeAPIQPS is the rate limit of the controller-manager and the CSI attacher towards the API, in
	// requests per second, with twice as much in bursts. 0 leaves their defaults (20 and 5, with 30 and
	// 10 in bursts).
	KubeAPIQPS int
	// SchedulerQPS is the same of the scheduler. 0 leaves its defaults (50, with 100 in bursts).
	SchedulerQPS int
	// Bare leaves out the controller-manager, the scheduler, the CSI attacher and all nodes: only etcd,
	// the API server and LINSTOR run, for clusters that are too large to be simulated as a whole. The
	// controller is started by StartReplica there.
	Bare bool
	// DRBDDetection is how long DRBD takes to notice that a peer is gone without a word: 10 s by default; drbd.Immediately for at once.
	DRBDDetection time.Duration
	// DRBDMeasured makes DRBD notice as a real one was seen to instead, see drbd.Measured.
	DRBDMeasured bool
	// SyncRate, in KiB per second, is how fast DRBD fills a new disk, which has the size of its volume, 1 GiB by default. 0 takes no time.
	SyncRate int64
	// LINSTOR are the delays and settings of the simulated LINSTOR controller.
	LINSTOR linstorsim.Options
	// Driver are the settings of the CSI driver's controller service; its URL is that of the simulated LINSTOR.
	Driver csidriver.Options
	// ControllerNodes is the number of nodes that are kept for the high availability controller, by the
	// taint of control plane nodes: 3 by default, none if negative.
	ControllerNodes int
	// ControllerArgs are appended to the arguments that the manifest gives to the controller.
	ControllerArgs []string
	// NodeStatusUpdateFrequency is how often a kubelet posts the status of its node, and with it which volumes it uses: 10 s, the default
	// of kubelets, by default.
	NodeStatusUpdateFrequency time.Duration
	// ShutdownGrace is the shutdownGracePeriod of the kubelets. 0 leaves the default: they do nothing before a shutdown.
	ShutdownGrace time.Duration
	// RestartBackoff is the longest time between two starts of a process that ended again and again: that of
	// kubelets, 5 minutes, by default.
	RestartBackoff time.Duration
	// RestartComponents starts a component that ends by itself again, as its kubelet would, instead of taking that for an error of
	// [Bed.Err]. kube-scheduler 1.36 ends itself where a pod was deleted, created again under its name and placed elsewhere
	// while its watch was interrupted, and the API server ends watches that lag behind.
	RestartComponents bool
	// Direct connects the controller's processes with the API and LINSTOR without the relays of their nodes: relays are there to be
	// cut, and passing on each message takes processor time that no cluster spends. PartitionAPI and CutLINSTOR do not reach these
	// processes then.
	Direct bool
	// NameServer lets the controller's processes find LINSTOR by its name in a cluster, with a resolv.conf as pods have it, by a name
	// server of the bed's own. Only root on Linux can do so, see CanServeNames.
	NameServer bool
	// BearerToken plants a bearer token, see Secrets, beside the passwords that are planted always. The controller reads its file
	// for each request to LINSTOR, which benchmarks do without.
	BearerToken bool
	// Profiling lets Profile look into the controller.
	Profiling bool
	// Progress is called with what Start does next, for people who wait for it; nil keeps quiet.
	Progress func(step string)
}

// withDefaults returns o with its zero fields filled in and its folders in place.
func (o Options) withDefaults() (Options, error) {
	root, err := Root()
	if err != nil && (o.BinDir == "" || o.LogDir == "") {
		return o, err
	}
	if o.BinDir == "" {
		o.BinDir = filepath.Join(root, "bin")
	}
	if o.LogDir == "" {
		o.LogDir = filepath.Join(root, ".testbed", fmt.Sprintf("%s-%d", time.Now().Format("2006-01-02T15-04-05"), os.Getpid()))
	}
	if o.DRBDDetection == 0 {
		o.DRBDDetection = 10 * time.Second
	}
	if o.LINSTOR.Durations == (linstorsim.Durations{}) && !o.Bare {
		o.LINSTOR.Durations = linstorsim.RealDurations()
	}
	if o.NodeStatusUpdateFrequency == 0 {
		o.NodeStatusUpdateFrequency = 10 * time.Second
	}
	if o.ControllerNodes == 0 {
		o.ControllerNodes = 3
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	for _, binary := range []string{
		"controlplane", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl", "csi-attacher",
	} {
		if _, err := os.Stat(filepath.Join(o.BinDir, binary)); err != nil {
			return o, fmt.Errorf("test bed: %w; run `make testbed` first", err)
		}
	}
	return o, o.prepareLogDir()
}

// prepareLogDir creates the log folder and removes the logs of an earlier run.
func (o Options) prepareLogDir() error {
	if err := os.MkdirAll(o.LogDir, 0o755); err != nil {
		return fmt.Errorf("test bed: log folder: %w", err)
	}
	old, err := filepath.Glob(filepath.Join(o.LogDir, "*.log"))
	if err != nil {
		return fmt.Errorf("test bed: log folder: %w", err)
	}
	for _, file := range old {
		if err := os.Remove(file); err != nil {
			return fmt.Errorf("test bed: old log: %w", err)
		}
	}
	return nil
}

// modulePath is the first line of this module's go.mod.
const modulePath = "module github.com/piraeusdatastore/piraeus-ha-controller"

// Root finds the folder of this module's go.mod, upwards from the working directory, which is the
// package's folder in a test. It fails outside of a checkout.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("test bed: working directory: %w", err)
	}
	for {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil {
			if first, _, _ := strings.Cut(string(content), "\n"); first == modulePath {
				return dir, nil
			}
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("test bed: run it in a checkout of the controller, or name BinDir and LogDir")
		}
		dir = filepath.Dir(dir)
	}
}
