package bed

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/csidriver"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

// startStorage starts the model of DRBD and the simulated LINSTOR over it.
func (b *Bed) startStorage(context.Context) error {
	times := drbd.Options{DetectionDelay: b.options.DRBDDetection}
	if b.options.DRBDMeasured {
		times = drbd.Measured(rand.New(rand.NewPCG(rand.Uint64(), 0)))
	}
	times.SyncRate = b.options.SyncRate
	b.DRBD = drbd.NewCluster(times)
	b.cleanup(b.DRBD.Stop)
	b.LINSTOR = linstorsim.New(b.DRBD, b.options.LINSTOR)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("LINSTOR's port: %w", err)
	}
	b.linstorAddr = listener.Addr().String()
	b.serve(func(context.Context) error { return b.LINSTOR.Serve(listener) })
	b.cleanup(b.LINSTOR.Close)
	return nil
}

// LINSTORURL returns the URL of the simulated LINSTOR's REST API.
func (b *Bed) LINSTORURL() string { return "http://" + b.linstorAddr }

// driverOptions are those that the CSI driver is started with.
func (b *Bed) driverOptions() csidriver.Options {
	options := b.options.Driver
	options.URL = b.LINSTORURL()
	return options
}

// attacherTimeout is how long the attacher waits for the CSI driver, as the Piraeus Operator has it.
const attacherTimeout = time.Minute

// startAttacher starts the CSI driver's controller service and the real external-attacher with the flags that the Piraeus Operator
// gives it, but for its leader election.
func (b *Bed) startAttacher(ctx context.Context) error {
	if err := b.Client.Create(ctx, csidriver.Object()); err != nil {
		return fmt.Errorf("create the CSIDriver: %w", err)
	}
	b.csiSocket = filepath.Join(b.dir, "csi.sock")
	listener, err := csidriver.Listen(b.csiSocket)
	if err != nil {
		return err
	}
	b.Driver = csidriver.New(b.driverOptions())
	b.serve(func(ctx context.Context) error { return b.Driver.Serve(ctx, listener) })
	// As an administrator: the attacher's own roles ship with LINSTOR's CSI driver.
	if b.attacherKubeconfig, err = b.control.kubeconfig("csi-attacher", "system:masters"); err != nil {
		return err
	}
	return b.run(Attacher, func() (*process, error) { return b.spawnAttacher(string(Attacher), b.attacherKubeconfig) })
}

// spawnAttacher starts a process of the real external-attacher.
func (b *Bed) spawnAttacher(name, kubeconfig string) (*process, error) {
	args := append([]string{"--kubeconfig=" + kubeconfig, "--csi-address=" + b.csiSocket, "--timeout=" + attacherTimeout.String(), "--v=4"}, rateLimit(b.options.KubeAPIQPS)...)
	return b.spawn.start(exec.Command(filepath.Join(b.binDir, "csi-attacher"), args...), name, b.LogDir)
}

// storage is what the nodes see of DRBD.
type storage struct{ *drbd.Cluster }

// IOHangs implements machine.Storage.
func (s storage) IOHangs(resource, node string) bool {
	state, ok := s.Replica(resource, node)
	return ok && state.IO == drbd.IOSuspended
}

// logger returns a logger to a file of its own.
func (b *Bed) logger(name string) (logr.Logger, error) {
	file, err := os.Create(filepath.Join(b.LogDir, name+".log"))
	if err != nil {
		return logr.Logger{}, fmt.Errorf("log of %s: %w", name, err)
	}
	b.cleanup(func() { _ = file.Close() })
	return zap.New(zap.WriteTo(file), zap.UseDevMode(true)).WithName(name), nil
}
