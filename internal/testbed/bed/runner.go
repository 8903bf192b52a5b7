package bed

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/kubelet"
)

// runner runs the pods of the high availability controller as processes: with the arguments and the
// environment of their pod spec and a token of their ServiceAccount. What can not be the same on one
// machine is overridden: ports, and the addresses of the API and of LINSTOR, which go through the
// relays of the pod's node unless Options say otherwise. The simulated LINSTOR and the CSI attacher run in pods too, where there
// are pods for them.
type runner struct {
	bed    *Bed
	client kubernetes.Interface
}

// Runs implements kubelet.Runner.
func (r *runner) Runs(pod *corev1.Pod) bool {
	return isController(pod) || linstorRunner{r.bed}.runs(pod) || attacherRunner{r.bed}.runs(pod)
}

// isController tells whether a pod runs the high availability controller, whatever installed it. The node agents of 1.x have the same
// image and another command.
func isController(pod *corev1.Pod) bool {
	c := pod.Spec.Containers[0]
	return strings.Contains(c.Image, "/"+ControllerName+":") && !slices.Contains(c.Args, "/agent")
}

// Start implements kubelet.Runner.
func (r *runner) Start(ctx context.Context, pod *corev1.Pod, ready func(bool)) (kubelet.Process, error) {
	if linstor := (linstorRunner{r.bed}); linstor.runs(pod) {
		return linstor.start(ctx, ready), nil
	}
	if attacher := (attacherRunner{r.bed}); attacher.runs(pod) {
		return attacher.start(ctx, pod, ready)
	}
	p, err := r.launch(ctx, pod)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { p.stop(0) })
	go probe(p.done, p.readiness, ready)
	return podProcess{p.process}, nil
}

// launched is a process that runs a pod.
type launched struct {
	*process
	readiness string // URL
	metrics   int    // port
}

// launch starts the process of a pod.
func (r *runner) launch(ctx context.Context, pod *corev1.Pod) (*launched, error) {
	api, linstor, err := r.bed.addressesOf(pod.Spec.NodeName)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := r.kubeconfig(ctx, pod, api)
	if err != nil {
		return nil, err
	}
	container := &pod.Spec.Containers[0]
	env, err := podEnv(pod, container)
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(4)
	if err != nil {
		return nil, err
	}
	probes, metrics, profiler, forecasts := ports[0], ports[1], ports[2], ports[3]
	env = append(env, corev1.EnvVar{Name: "KUBECONFIG", Value: kubeconfig}, corev1.EnvVar{Name: "FORECAST_PORT", Value: strconv.Itoa(forecasts)})
	tokenFile := ""
	if r.bed.options.BearerToken {
		tokenFile = filepath.Join(r.bed.dir, string(pod.UID)+".token")
	}
	planted, err := SecretEnv(r.bed.namedLINSTOR(linstor), tokenFile)
	if err != nil {
		return nil, err
	}
	for name, value := range planted {
		env = append(env, corev1.EnvVar{Name: name, Value: value})
	}
	args := append(slices.Clone(container.Args),
		"--leader-election-healtz-port="+strconv.Itoa(probes),
		"--metrics-bind-address=127.0.0.1:"+strconv.Itoa(metrics))
	if r.bed.options.Profiling {
		args = append(args, "--pprof-bind-address=127.0.0.1:"+strconv.Itoa(profiler))
		r.bed.mu.Lock()
		r.bed.profilers[pod.Name] = profiler
		r.bed.mu.Unlock()
	}
	args = append(args, r.bed.options.ControllerArgs...)
	cmd := exec.Command(filepath.Join(r.bed.binDir, "piraeus-ha-controller"))
	for _, arg := range args {
		cmd.Args = append(cmd.Args, expand(arg, env))
	}
	for _, e := range env {
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	if r.bed.names != nil {
		if cmd, err = r.bed.names.resolvedBy(cmd); err != nil {
			return nil, err
		}
	}
	p, err := r.bed.spawn.start(cmd, pod.Name, r.bed.LogDir)
	if err != nil {
		return nil, err
	}
	r.bed.noteProcess(ControllerProcess{
		Pod: pod.Name, PID: p.cmd.Process.Pid, MetricsURL: fmt.Sprintf("http://127.0.0.1:%d/metrics", metrics),
		ProbesURL: fmt.Sprintf("http://127.0.0.1:%d", probes), ForecastPort: forecasts,
	})
	readiness := fmt.Sprintf("http://127.0.0.1:%d%s", probes, readinessPath(container))
	return &launched{process: p, readiness: readiness, metrics: metrics}, nil
}

// kubeconfig writes a kubeconfig that reaches the API at addr as the pod's ServiceAccount.
func (r *runner) kubeconfig(ctx context.Context, pod *corev1.Pod, addr string) (string, error) {
	token, err := r.client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			// Nobody renews the token, so that it has to last for the longest playground.
			ExpirationSeconds: new(int64((24 * time.Hour).Seconds())),
			BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
		}}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("token for pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	const name = "testbed"
	path := filepath.Join(r.bed.dir, string(pod.UID)+".kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server: "https://" + addr, CertificateAuthorityData: r.bed.Config.CAData,
		}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {Token: token.Status.Token}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name, Namespace: pod.Namespace}},
		CurrentContext: name,
	}, path); err != nil {
		return "", fmt.Errorf("kubeconfig for pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return path, nil
}

// podProcess is a process in the terms of a kubelet.
type podProcess struct{ *process }

// Terminate implements kubelet.Process.
func (p podProcess) Terminate() error { return p.signal(syscall.SIGTERM) }

// Kill implements kubelet.Process.
func (p podProcess) Kill() error { return p.signal(syscall.SIGKILL) }

// Wait implements kubelet.Process.
func (p podProcess) Wait() int {
	<-p.done
	return p.cmd.ProcessState.ExitCode()
}

// How often readiness is asked for: of a process that is not ready more often than in any manifest, because a bed waits for
// it; of one that is ready as in the shipped one.
const (
	probePeriod      = 250 * time.Millisecond
	readyProbePeriod = 5 * time.Second
)

// probe reports what a readiness endpoint answers, until done is closed.
func probe(done <-chan struct{}, url string, ready func(bool)) {
	client := http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	ticker := time.NewTicker(probePeriod)
	defer ticker.Stop()
	was := false
	for {
		select {
		case <-done:
			return
		case <-ticker.C:
		}
		is := false
		if resp, err := client.Get(url); err == nil {
			is = resp.StatusCode < http.StatusBadRequest
			_ = resp.Body.Close()
		}
		if is != was {
			ready(is)
			was = is
			if ticker.Reset(probePeriod); is {
				ticker.Reset(readyProbePeriod)
			}
		}
	}
}

// readinessPath returns the path that the container's readiness probe asks.
func readinessPath(container *corev1.Container) string {
	if p := container.ReadinessProbe; p != nil && p.HTTPGet != nil {
		return "/" + strings.TrimPrefix(p.HTTPGet.Path, "/")
	}
	return "/readyz"
}

// The ports that programs are told to listen on lie below those that Linux gives to outgoing connections (ip_local_port_range): of these one
// may be taken again before the program listens.
const firstPort, endPort = 20000, 30000

// freePorts returns n ports of the loopback interface that nobody listens on.
func freePorts(n int) ([]int, error) {
	var listeners []net.Listener
	defer func() { // at the end, so that no port is given twice
		for _, listener := range listeners {
			_ = listener.Close()
		}
	}()
	var ports []int
	for taken := 0; len(ports) < n; {
		port := firstPort + rand.IntN(endPort-firstPort)
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			listeners, ports = append(listeners, listener), append(ports, port)
		} else if taken++; taken == 100 {
			return nil, fmt.Errorf("looking for a free port from %d to %d: %w", firstPort, endPort, err)
		}
	}
	return ports, nil
}
