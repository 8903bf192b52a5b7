package bed

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Replica is a process of the high availability controller that no kubelet looks after, for a bed that
// has none. It runs with what the shipped manifest says, under the shipped ServiceAccount and roles.
type Replica struct {
	// Name is its pod, and its identity in the election of a leader.
	Name string
	// PID is the number of its process.
	PID int
	// MetricsURL is where it serves metrics.
	MetricsURL string
	// ForecastPort is where it answers the command check.
	ForecastPort int
	// Started is when the process was started.
	Started time.Time

	process *process
	ready   chan struct{} // closed once readyAt is set
	readyAt time.Time
}

// ApplyManifest applies the shipped manifest by kubectl.
func (b *Bed) ApplyManifest(ctx context.Context) error {
	root, err := Root()
	if err != nil {
		return err
	}
	manifest := filepath.Join(root, "deploy", "all.yaml")
	if _, err := b.Kubectl(ctx, "apply", "--filename", manifest); err != nil {
		return fmt.Errorf("apply %s: %w", manifest, err)
	}
	return nil
}

// StartReplica starts a process of the high availability controller as the pod of a given name. The
// manifest must have been applied. Stop ends it, as does the end of the bed.
func (b *Bed) StartReplica(ctx context.Context, name string) (*Replica, error) {
	pod, err := b.replicaPod(ctx, name)
	if err != nil {
		return nil, err
	}
	p, err := b.replicaProgram(ctx, pod)
	if err != nil {
		return nil, err
	}
	l, err := b.launch(p)
	if err != nil {
		return nil, err
	}
	r := &Replica{
		Name: name, PID: l.cmd.Process.Pid, Started: time.Now(), process: l.process, ready: make(chan struct{}),
		MetricsURL: "http://127.0.0.1:" + strconv.Itoa(l.metrics) + "/metrics", ForecastPort: l.forecasts,
	}
	b.cleanup(func() { l.stop(0) })
	go r.awaitReady("http://" + l.probes + "/readyz")
	return r, nil
}

// replicaProgram returns what a kubelet would make of the pod.
func (b *Bed) replicaProgram(ctx context.Context, pod *corev1.Pod) (program, error) {
	clientset, err := b.clientset()
	if err != nil {
		return program{}, err
	}
	token, err := clientset.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: new(int64((24 * time.Hour).Seconds())), // nobody renews it
			BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
		}}, metav1.CreateOptions{})
	if err != nil {
		return program{}, fmt.Errorf("token for pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	p := program{
		namespace: pod.Namespace, pod: pod.Name, uid: string(pod.UID), node: pod.Spec.NodeName,
		account: clientcmdapi.AuthInfo{Token: token.Status.Token},
	}
	container := &pod.Spec.Containers[0]
	env, err := podEnv(pod, container)
	if err != nil {
		return program{}, err
	}
	for _, e := range env {
		p.env = append(p.env, e.Name+"="+e.Value)
	}
	for _, arg := range container.Args {
		p.args = append(p.args, expand(arg, env))
	}
	return p, nil
}

// awaitReady asks the process whether it is ready until it is.
func (r *Replica) awaitReady(url string) {
	client := http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	ticker := time.NewTicker(250 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-r.process.done:
			return
		case <-ticker.C:
		}
		resp, err := client.Get(url)
		if err != nil {
			continue
		}
		_ = resp.Body.Close()
		if resp.StatusCode < http.StatusBadRequest {
			r.readyAt = time.Now()
			close(r.ready)
			return
		}
	}
}

// replicaPod creates the pod that the process has its identity of, from the manifest's Deployment.
func (b *Bed) replicaPod(ctx context.Context, name string) (*corev1.Pod, error) {
	var d appsv1.Deployment
	if err := b.Client.Get(ctx, client.ObjectKey{Namespace: ControllerNamespace, Name: ControllerName}, &d); err != nil {
		return nil, fmt.Errorf("deployment of the high availability controller: %w", err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ControllerNamespace, Name: name, Labels: d.Spec.Template.Labels},
		Spec:       d.Spec.Template.Spec,
	}
	pod.Spec.NodeName = name // a machine of its own
	err := b.Client.Create(ctx, pod)
	if client.IgnoreAlreadyExists(err) != nil {
		return nil, fmt.Errorf("create pod %s: %w", name, err)
	}
	if err != nil {
		err = b.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod)
	}
	return pod, err
}

// WaitReady waits until the process has said that it is ready, and returns how long after its start that was.
func (r *Replica) WaitReady(ctx context.Context) (time.Duration, error) {
	ready := func() (time.Duration, error) { return r.readyAt.Sub(r.Started), nil }
	select {
	case <-r.ready: // also if it has ended since
		return ready()
	default:
	}
	select {
	case <-r.ready:
		return ready()
	case <-r.process.done:
		return 0, r.process.failed()
	case <-ctx.Done():
		return 0, fmt.Errorf("waiting for %s to be ready: %w; read %s", r.Name, context.Cause(ctx), r.process.log)
	}
}

// Stop ends the process as a kubelet does, and waits for it.
func (r *Replica) Stop() { r.process.stop(replicaGrace) }

// replicaGrace is the termination grace of the shipped manifest.
const replicaGrace = 10 * time.Second
