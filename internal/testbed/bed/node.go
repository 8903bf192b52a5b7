package bed

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/machine"
)

// controlPlaneRole is the label and the taint of the nodes that run the high availability controller and no workloads.
const controlPlaneRole = "node-role.kubernetes.io/control-plane"

// driverStart is how long a node that boots takes to start the CSI driver.
const driverStart = 3 * time.Second

// Node is a machine with a kubelet, which is a process.
type Node struct {
	*machine.Machine
	bed   *Bed
	flags []string // of the kubelet

	mu      sync.Mutex
	boots   int
	kubelet *process // nil if it does not run
}

// startNodes starts the nodes for the high availability controller.
func (b *Bed) startNodes(ctx context.Context) error {
	names, err := b.addNodes(ctx, "control", max(b.options.ControllerNodes, 0), "-taint="+controlPlaneRole+":NoSchedule")
	for _, name := range names {
		// A kubelet may not give itself a role.
		node := &corev1.Node{}
		node.Name = name
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:""}}}`, controlPlaneRole))
		if err := b.Client.Patch(ctx, node, patch); err != nil {
			return fmt.Errorf("label node %s: %w", name, err)
		}
	}
	return err
}

// Node returns a node, nil if there is none of that name.
func (b *Bed) Node(name string) *Node {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.nodes[name]
}

// Nodes returns all nodes, sorted by name.
func (b *Bed) Nodes() []*Node {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []*Node
	for _, name := range slices.Sorted(maps.Keys(b.nodes)) {
		all = append(all, b.nodes[name])
	}
	return all
}

// addNode boots a new node.
func (b *Bed) addNode(name string, flags []string) error {
	kubeconfig, err := b.kubeletConfig(name)
	if err != nil {
		return err
	}
	log, err := b.logger("machine-" + name)
	if err != nil {
		return err
	}
	n := &Node{bed: b, Machine: &machine.Machine{
		Name: name, Root: filepath.Join(b.dir, "nodes", name), Storage: storage{b.DRBD}, Runner: runner{b}, Log: log,
	}}
	n.flags = append([]string{
		"-name=" + name, "-kubeconfig=" + kubeconfig, "-root=" + n.Root, "-cri=" + n.CRISocket(), "-v=2",
		"-node-status-update-frequency=" + b.options.NodeStatusUpdateFrequency.String(),
		"-shutdown-grace-period=" + b.options.ShutdownGrace.String(),
		"-max-container-restart-period=" + b.options.RestartBackoff.String(),
	}, flags...)
	b.mu.Lock()
	_, exists := b.nodes[name]
	if !exists {
		b.nodes[name] = n
	}
	b.mu.Unlock()
	if exists {
		return fmt.Errorf("add node %s: there is one already", name)
	}
	b.cleanup(n.crash)
	return n.boot(0)
}

// kubeletConfig returns the kubeconfig of a kubelet, which reaches the API through the node's network.
func (b *Bed) kubeletConfig(node string) (string, error) {
	network, err := b.networkOf(node)
	if err != nil {
		return "", err
	}
	path, err := b.control.kubeconfig("system:node:"+node, "system:nodes")
	if err != nil {
		return "", err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("kubeconfig of node %s: %w", node, err)
	}
	relayed := strings.ReplaceAll(string(content), b.control.address(), network.api.addr())
	if err := os.WriteFile(path, []byte(relayed), 0o600); err != nil {
		return "", fmt.Errorf("kubeconfig of node %s: %w", node, err)
	}
	return path, nil
}

// boot switches the machine on, under a new boot ID, if it is off, and starts the kubelet if it does not run.
func (n *Node) boot(driverStart time.Duration) error {
	if !n.On() {
		n.mu.Lock()
		n.boots++
		n.mu.Unlock()
		if err := n.PowerOn(driverStart); err != nil {
			return err
		}
	}
	return n.StartKubelet()
}

// BootID is that of the last boot.
func (n *Node) BootID() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return fmt.Sprintf("boot-%s-%d", n.Name, n.boots)
}

// StartKubelet starts the kubelet if it does not run.
func (n *Node) StartKubelet() error {
	args := append(slices.Clone(n.flags), "-boot="+n.BootID())
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.kubelet != nil {
		return nil
	}
	p, err := n.bed.spawn.start(exec.Command(filepath.Join(n.bed.binDir, "kubelet"), args...), "kubelet-"+n.Name, n.bed.LogDir)
	if err != nil {
		return err
	}
	n.kubelet = p
	go func() {
		<-p.done
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.kubelet == p { // nobody has killed it
			n.kubelet = nil
			n.bed.note(p.failed())
		}
	}()
	return nil
}

// KillKubelet ends the kubelet at once. Containers and mounts stay.
func (n *Node) KillKubelet() {
	n.mu.Lock()
	p := n.kubelet
	n.kubelet = nil
	n.mu.Unlock()
	if p != nil {
		p.stop(0)
	}
}

// FreezeKubelet stops the process of the kubelet until ThawKubelet. Containers go on.
func (n *Node) FreezeKubelet() error { return n.signal(syscall.SIGSTOP) }

// ThawKubelet lets the process of the kubelet go on.
func (n *Node) ThawKubelet() error { return n.signal(syscall.SIGCONT) }

// signal sends a signal to the kubelet.
func (n *Node) signal(signal syscall.Signal) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.kubelet == nil {
		return fmt.Errorf("%s to the kubelet of node %s: it does not run", signal, n.Name)
	}
	return n.kubelet.signal(signal)
}

// RunStatic gives the node a static pod. The kubelet is started again for it.
func (n *Node) RunStatic(manifest []byte) error {
	file := filepath.Join(n.Root, "static", "pod.yaml")
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, manifest, 0o600)); err != nil {
		return fmt.Errorf("static pod of node %s: %w", n.Name, err)
	}
	n.KillKubelet()
	n.flags = append(n.flags, "-static")
	return n.StartKubelet()
}

// crash takes the power from the machine. LINSTOR and DRBD are not concerned.
func (n *Node) crash() {
	n.KillKubelet()
	n.PowerOff()
}

// shutDown announces a shutdown to the kubelet. It waits until nothing is mounted and the API knows that all pods have ended, or until ctx
// ends.
func (n *Node) shutDown(ctx context.Context) {
	n.bed.note(n.signal(syscall.SIGUSR1))
	_ = n.bed.WaitFor(ctx, "the pods of node "+n.Name+" to end", func() (bool, error) {
		var pods corev1.PodList
		if err := n.bed.Client.List(ctx, &pods, client.MatchingFields{"spec.nodeName": n.Name}); err != nil {
			return false, err
		}
		return n.Idle() && !slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool {
			return p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded
		}), nil
	})
}
