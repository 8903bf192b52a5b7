package bed

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// startTimeout bounds the start of etcd, and that of the API server, on a machine that has much else to do.
const startTimeout = 5 * time.Minute

// controlPlane is a real etcd, kube-apiserver, kube-controller-manager and kube-scheduler.
//
// Flags that a production cluster leaves at their defaults are left there too (node monitor grace
// period, attach/detach reconciler, taint eviction, pod garbage collection): their timing is what the
// controller has to live with.
type controlPlane struct {
	plane  envtest.ControlPlane
	dir    string // kubeconfigs and keys
	logDir string
	spawn  *spawner
	logs   []*os.File

	users sync.Mutex // envtest adds one user at a time
	// admin may do everything.
	admin *rest.Config
}

// startControlPlane starts etcd and the API server and returns once the API answers. The rest follows
// by controllers.
func startControlPlane(spawn *spawner, binDir, dir, logDir string) (*controlPlane, error) {
	c := &controlPlane{dir: dir, logDir: logDir, spawn: spawn}
	if err := c.configure(binDir); err != nil {
		return nil, err
	}
	// envtest passes this process's environment on, which is how etcd and the API server learn
	// whom to die with.
	if err := os.Setenv(parentVariable, strconv.Itoa(os.Getpid())); err != nil {
		return nil, fmt.Errorf("set %s: %w", parentVariable, err)
	}
	var err error
	spawn.do(func() { err = c.begin() })
	if err != nil {
		c.stop()
		return nil, fmt.Errorf("start etcd and kube-apiserver (logs in %s): %w", logDir, err)
	}
	return c, nil
}

// begin starts etcd and the API server. envtest's Environment would give up where the namespace "default" is not there within five seconds.
func (c *controlPlane) begin() error {
	if err := c.plane.Start(); err != nil {
		return err
	}
	admin, err := c.plane.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, &rest.Config{QPS: -1})
	if err != nil {
		return err
	}
	c.admin = admin.Config()
	return nil
}

// configure names binaries, logs and flags to envtest.
func (c *controlPlane) configure(binDir string) error {
	api := c.plane.GetAPIServer()
	api.Path = filepath.Join(binDir, "kube-apiserver")
	c.plane.Etcd = &envtest.Etcd{Path: filepath.Join(binDir, "etcd"), DataDir: filepath.Join(c.dir, "etcd")}
	api.StartTimeout, c.plane.Etcd.StartTimeout = startTimeout, startTimeout
	// Nobody waits for their last words: they are to be killed, and their data is thrown away in the end.
	api.StopTimeout, c.plane.Etcd.StopTimeout = time.Millisecond, time.Millisecond
	c.plane.KubectlPath = filepath.Join(binDir, "kubectl")
	api.CertDir = filepath.Join(c.dir, "apiserver")
	for _, dir := range []string{c.plane.Etcd.DataDir, api.CertDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("folder of the control plane: %w", err)
		}
	}
	for name, streams := range map[string][2]*io.Writer{
		"etcd":           {&c.plane.Etcd.Out, &c.plane.Etcd.Err},
		"kube-apiserver": {&api.Out, &api.Err},
	} {
		log, err := os.Create(filepath.Join(c.logDir, name+".log"))
		if err != nil {
			return fmt.Errorf("log of %s: %w", name, err)
		}
		*streams[0], *streams[1] = log, log
		c.logs = append(c.logs, log)
	}
	// envtest turns the ServiceAccount admission off, for lack of a controller-manager. Here is one.
	api.Configure().Disable("disable-admission-plugins").
		Set("authorization-mode", "Node", "RBAC").
		Set("enable-admission-plugins", "NodeRestriction")
	flags, err := c.auditFlags()
	for name, value := range flags {
		api.Configure().Set(name, value)
	}
	return err
}

// controllers returns how the controller-manager and the scheduler are started.
func (c *controlPlane) controllers(binDir string, options Options) (map[Component]func() (*process, error), error) {
	certDir := c.plane.GetAPIServer().CertDir
	caFile := filepath.Join(c.dir, "ca.crt")
	if err := os.WriteFile(caFile, c.admin.CAData, 0o600); err != nil {
		return nil, fmt.Errorf("write the API server's CA: %w", err)
	}
	starts := map[Component]func() (*process, error){}
	for name, args := range map[Component][]string{
		ControllerManager: append([]string{
			"--use-service-account-credentials=true",
			"--service-account-private-key-file=" + filepath.Join(certDir, "sa-signer.key"),
			"--root-ca-file=" + caFile,
			"--flex-volume-plugin-dir=" + filepath.Join(c.dir, "flexvolume"),
		}, rateLimit(options.KubeAPIQPS)...),
		Scheduler: rateLimit(options.SchedulerQPS),
	} {
		kubeconfig, err := c.kubeconfig("system:" + string(name))
		if err != nil {
			return nil, err
		}
		args = append([]string{"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--secure-port=0", "--v=2"}, args...)
		starts[name] = func() (*process, error) {
			return c.spawn.start(exec.Command(filepath.Join(binDir, string(name)), args...), string(name), c.logDir)
		}
	}
	return starts, nil
}

// rateLimit returns the flags by which a component may send qps requests per second to the API, none for 0.
func rateLimit(qps int) []string {
	if qps == 0 {
		return nil
	}
	return []string{fmt.Sprintf("--kube-api-qps=%d", qps), fmt.Sprintf("--kube-api-burst=%d", 2*qps)}
}

// kubeconfig writes a kubeconfig with a certificate for a user and returns its path. Users named
// system:<component> have the roles that every cluster has for that component.
func (c *controlPlane) kubeconfig(user string, groups ...string) (string, error) {
	c.users.Lock()
	defer c.users.Unlock()
	account, err := c.plane.AddUser(envtest.User{Name: user, Groups: groups}, c.admin)
	if err != nil {
		return "", fmt.Errorf("certificate of user %s: %w", user, err)
	}
	content, err := account.KubeConfig()
	if err != nil {
		return "", fmt.Errorf("kubeconfig of user %s: %w", user, err)
	}
	path := filepath.Join(c.dir, filepath.Base(user)+".kubeconfig")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return "", fmt.Errorf("kubeconfig of user %s: %w", user, err)
	}
	return path, nil
}

// Kubectl runs bin/kubectl as an administrator and returns what it printed.
func (b *Bed) Kubectl(ctx context.Context, args ...string) (string, error) {
	return run(ctx, filepath.Join(b.binDir, "kubectl"), append([]string{
		"--kubeconfig=" + b.Kubeconfig, "--cache-dir=" + filepath.Join(b.dir, "kubectl"),
	}, args...)...)
}

// address returns host and port of the API server.
func (c *controlPlane) address() string {
	return c.plane.GetAPIServer().SecureServing.HostPort()
}

// stop ends etcd and the API server.
func (c *controlPlane) stop() {
	_ = c.plane.Stop() // what refuses is killed when the spawner closes
	for _, log := range c.logs {
		_ = log.Close()
	}
}
