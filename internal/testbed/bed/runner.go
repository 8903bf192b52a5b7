package bed

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/machine"
)

// runner runs the containers of the high availability controller as processes, with the arguments, the environment and the token that
// the kubelet gives them. What can not be the same on one machine is overridden: ports, and the addresses of the API and of LINSTOR,
// which go through the relays of the node unless Options say otherwise. The simulated LINSTOR and the CSI attacher run in pods too, if
// there are pods for them.
type runner struct{ bed *Bed }

// Start implements machine.Runner.
func (r runner) Start(ctx context.Context, c machine.Container) (machine.Process, error) {
	switch labels := c.Pod.GetLabels(); {
	case labels[ComponentLabel] == LINSTORComponent:
		return r.bed.startLINSTOR(ctx, c)
	case labels[ComponentLabel] == CSIComponent:
		return r.bed.startAttacherIn(ctx, c)
	case isController(c):
		return r.bed.startController(ctx, c)
	}
	return nil, nil
}

// isController reports whether a container is one of the high availability controller, whatever installed it. The node agents of 1.x
// have the same image and another command.
func isController(c machine.Container) bool {
	return strings.Contains(c.Config.GetImage().GetUserSpecifiedImage(), "/"+ControllerName+":") && !slices.Contains(c.Config.GetArgs(), "/agent")
}

// tokenPath is where the kubelet mounts the token of a pod's ServiceAccount.
const tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// startController starts the process of a container of the high availability controller.
func (b *Bed) startController(ctx context.Context, c machine.Container) (machine.Process, error) {
	meta := c.Pod.GetMetadata()
	p := program{namespace: meta.GetNamespace(), pod: meta.GetName(), uid: meta.GetUid(), node: c.Node, args: c.Config.GetArgs()}
	for _, e := range c.Config.GetEnvs() {
		p.env = append(p.env, e.GetKey()+"="+string(e.GetValue()))
	}
	for _, m := range c.Config.GetMounts() {
		if m.GetContainerPath() == tokenPath {
			p.account.TokenFile = filepath.Join(m.GetHostPath(), "token")
		}
	}
	l, err := b.launch(p)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { l.stop(0) })
	// The kubelet asks the address of the pod.
	probes, err := newRelay(net.JoinHostPort(c.IP, controllerProbes), l.probes)
	if err != nil {
		l.stop(0)
		return nil, err
	}
	go func() { <-l.done; probes.close() }()
	return podProcess{l.process}, nil
}

// controllerProbes is the port of the shipped manifest for probes.
const controllerProbes = "8080"

// program is what a process of the high availability controller runs with.
type program struct {
	namespace, pod, uid, node string
	args, env                 []string
	account                   clientcmdapi.AuthInfo
}

// launched is such a process.
type launched struct {
	*process
	probes string // address

	metrics, forecasts int // ports
}

// launch starts a process of the high availability controller.
func (b *Bed) launch(of program) (*launched, error) {
	api, linstor, err := b.addressesOf(of.node)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := b.podConfig(of, api)
	if err != nil {
		return nil, err
	}
	ports, err := b.freePorts(4)
	if err != nil {
		return nil, err
	}
	probes, metrics, profiler, forecasts := ports[0], ports[1], ports[2], ports[3]
	tokenFile := ""
	if b.options.BearerToken {
		tokenFile = filepath.Join(b.dir, of.uid+".token")
	}
	planted, err := SecretEnv(b.namedLINSTOR(linstor), tokenFile)
	if err != nil {
		return nil, err
	}
	args := append(slices.Clone(of.args),
		"--leader-election-healtz-port="+strconv.Itoa(probes),
		"--metrics-bind-address=127.0.0.1:"+strconv.Itoa(metrics))
	if b.options.Profiling {
		args = append(args, "--pprof-bind-address=127.0.0.1:"+strconv.Itoa(profiler))
		b.mu.Lock()
		b.profilers[of.pod] = profiler
		b.mu.Unlock()
	}
	cmd := exec.Command(filepath.Join(b.binDir, "piraeus-ha-controller"), append(args, b.options.ControllerArgs...)...)
	cmd.Env = append(slices.Clone(of.env), "KUBECONFIG="+kubeconfig, "FORECAST_PORT="+strconv.Itoa(forecasts))
	for name, value := range planted {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	if b.names != nil {
		if cmd, err = b.names.resolvedBy(cmd); err != nil {
			return nil, err
		}
	}
	p, err := b.spawn.start(cmd, of.pod, b.LogDir)
	if err != nil {
		return nil, err
	}
	b.noteProcess(ControllerProcess{
		Pod: of.pod, PID: p.cmd.Process.Pid, MetricsURL: fmt.Sprintf("http://127.0.0.1:%d/metrics", metrics),
		ProbesURL: fmt.Sprintf("http://127.0.0.1:%d", probes), ForecastPort: forecasts,
	})
	return &launched{process: p, probes: fmt.Sprintf("127.0.0.1:%d", probes), metrics: metrics, forecasts: forecasts}, nil
}

// podConfig writes a kubeconfig that reaches the API at addr as the pod's ServiceAccount.
func (b *Bed) podConfig(of program, addr string) (string, error) {
	const name = "testbed"
	path := filepath.Join(b.dir, of.uid+".kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server: "https://" + addr, CertificateAuthorityData: b.Config.CAData,
		}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: &of.account},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name, Namespace: of.namespace}},
		CurrentContext: name,
	}, path); err != nil {
		return "", fmt.Errorf("kubeconfig for pod %s/%s: %w", of.namespace, of.pod, err)
	}
	return path, nil
}

// podProcess is a process in the terms of a machine.
type podProcess struct{ *process }

// Terminate implements machine.Process. A process that has ended meanwhile is no error.
func (p podProcess) Terminate() { _ = p.signal(syscall.SIGTERM) }

// Kill implements machine.Process.
func (p podProcess) Kill() { _ = p.signal(syscall.SIGKILL) }

// Done implements machine.Process.
func (p podProcess) Done() <-chan struct{} { return p.done }

// ExitCode implements machine.Process.
func (p podProcess) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

// The ports that programs are told to listen on lie below those that Linux gives to outgoing connections (ip_local_port_range): of these one
// may be taken again before the program listens. Each bed has a block of its own, so that no other bed takes one then either.
const firstPort, endPort, portBlock = 20000, 30000, 200

// reservePorts takes a block of ports until Stop.
func (b *Bed) reservePorts(ctx context.Context) error {
	block, release, err := UserSlots("ports", (endPort-firstPort)/portBlock).Take(ctx)
	if err != nil {
		return fmt.Errorf("ports: %w", err)
	}
	b.cleanup(release)
	b.firstPort = firstPort + block*portBlock
	return nil
}

// freePorts returns n ports of the bed's block that nobody listens on.
func (b *Bed) freePorts(n int) ([]int, error) {
	var listeners []net.Listener
	defer func() { // at the end, so that no port is given twice
		for _, listener := range listeners {
			_ = listener.Close()
		}
	}()
	var ports []int
	for _, i := range rand.Perm(portBlock) {
		port := b.firstPort + i
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		listeners, ports = append(listeners, listener), append(ports, port)
		if len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("%d of the ports from %d to %d are free, want %d", len(ports), b.firstPort, b.firstPort+portBlock-1, n)
}
