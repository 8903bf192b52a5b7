package bed

import (
	"context"
	"fmt"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/machine"
)

// CSIComponent is the value of [ComponentLabel] for the pods of LINSTOR's CSI controller. In the test bed such a pod is
// the CSI attacher. Once there has been one, no other attacher runs; without any, the attacher belongs to no node.
const CSIComponent = "linstor-csi-controller"

// startAttacherIn starts the CSI attacher in a container, and the CSI driver beside it, which begins anew with each pod and knows nothing.
// The attacher reaches the API as its node does.
func (b *Bed) startAttacherIn(ctx context.Context, c machine.Container) (machine.Process, error) {
	network, err := b.networkOf(c.Node)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.LoadFromFile(b.attacherKubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of the CSI attacher: %w", err)
	}
	for _, cluster := range config.Clusters {
		cluster.Server = "https://" + network.api.addr()
	}
	meta := c.Pod.GetMetadata()
	path := filepath.Join(b.dir, meta.GetUid()+".kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return nil, fmt.Errorf("kubeconfig of pod %s/%s: %w", meta.GetNamespace(), meta.GetName(), err)
	}
	b.mu.Lock()
	own := b.components[Attacher]
	delete(b.components, Attacher)
	b.mu.Unlock()
	if own != nil {
		own.retire()
	}
	b.Driver.Restart(b.driverOptions())
	p, err := b.spawnAttacher(meta.GetName(), path)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { p.stop(0) })
	return podProcess{p}, nil
}
