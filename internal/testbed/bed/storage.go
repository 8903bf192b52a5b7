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

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/kubelet"
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

// startNodes starts the simulated kubelets and the nodes for the high availability controller.
func (b *Bed) startNodes(ctx context.Context) error {
	client, err := b.clientset()
	if err != nil {
		return err
	}
	log, err := b.logger("kubelets")
	if err != nil {
		return err
	}
	if b.Fleet, err = kubelet.NewFleet(kubelet.Config{
		RestConfig: b.Config,
		Storage:    storage{b.DRBD},
		Runner:     &runner{bed: b, client: client},
		Timings:    kubelet.Timings{CrashLoopMax: b.options.RestartBackoff},
		Logger:     log,
	}); err != nil {
		return err
	}
	fleetCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	b.cleanup(func() { b.Fleet.Stop(); cancel() })
	if err := b.Fleet.Start(fleetCtx); err != nil {
		return err
	}
	_, err = b.addNodes(ctx, "control", max(b.options.ControllerNodes, 0), controlPlaneNode)
	return err
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
