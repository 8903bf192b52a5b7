package bed

import (
	"context"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/kubelet"
)

// CSIComponent is the value of [ComponentLabel] for the pods of LINSTOR's CSI controller. In the test bed such a pod is
// the CSI attacher. Once there has been one, no other attacher runs; without any, the attacher belongs to no node.
const CSIComponent = "linstor-csi-controller"

// attacherRunner lets the CSI attacher run in a pod, and the CSI driver beside it, which begins anew with each pod and knows nothing.
type attacherRunner struct{ bed *Bed }

// runs tells whether a pod is one of the CSI controller.
func (attacherRunner) runs(pod *corev1.Pod) bool { return pod.Labels[ComponentLabel] == CSIComponent }

// start starts the attacher of a pod. It reaches the API as its node does.
func (r attacherRunner) start(ctx context.Context, pod *corev1.Pod, ready func(bool)) (kubelet.Process, error) {
	network, err := r.bed.networkOf(pod.Spec.NodeName)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.LoadFromFile(r.bed.attacherKubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of the CSI attacher: %w", err)
	}
	for _, cluster := range config.Clusters {
		cluster.Server = "https://" + network.api.addr()
	}
	path := filepath.Join(r.bed.dir, string(pod.UID)+".kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return nil, fmt.Errorf("kubeconfig of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	r.bed.mu.Lock()
	own := r.bed.components[Attacher]
	delete(r.bed.components, Attacher)
	r.bed.mu.Unlock()
	if own != nil {
		own.retire()
	}
	r.bed.Driver.Restart(r.bed.driverOptions())
	p, err := r.bed.spawnAttacher(pod.Name, path)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { p.stop(0) })
	ready(true)
	return podProcess{p}, nil
}
