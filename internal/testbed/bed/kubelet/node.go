package kubelet

import (
	"context"
	"fmt"
	"maps"
	goruntime "runtime"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kretry "k8s.io/client-go/util/retry"
)

// hostnameTopologyKey is the topology key of LINSTOR's CSI driver for the node itself.
const hostnameTopologyKey = "linbit.com/hostname"

// controllerManagedAttach tells the attach/detach controller that it attaches this node's volumes.
const controllerManagedAttach = "volumes.kubernetes.io/controller-managed-attach-detach"

// register makes the Node and its CSINode known to the API, or brings those that exist up to date.
func (l *life) register(ctx context.Context) error {
	node, err := l.client.CoreV1().Nodes().Create(ctx, l.newNode(), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		node, err = l.updateNodeMeta(ctx)
	}
	if err != nil {
		l.log.Info("can not register the node, will retry", "error", err.Error())
		return fmt.Errorf("register node %s: %w", l.node, err)
	}
	l.volumes.setReported(node.Status.VolumesInUse)
	if err := l.registerDriver(ctx, node); err != nil {
		l.log.Info("can not register the CSI driver on the node, will retry", "error", err.Error())
		return fmt.Errorf("register CSINode %s: %w", l.node, err)
	}
	return nil
}

// newNode returns the Node as it registers for the first time.
func (l *life) newNode() *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: l.node}}
	l.setMeta(node)
	node.Spec.Taints = l.options.Taints
	l.setStatus(node, metav1.Now())
	return node
}

// setMeta sets the labels and annotations that the kubelet owns.
func (l *life) setMeta(node *corev1.Node) {
	labels := map[string]string{
		corev1.LabelHostname:   l.node,
		corev1.LabelOSStable:   "linux",
		corev1.LabelArchStable: goruntime.GOARCH,
		hostnameTopologyKey:    l.node,
	}
	maps.Copy(labels, l.options.Labels)
	for key, value := range labels {
		metav1.SetMetaDataLabel(&node.ObjectMeta, key, value)
	}
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, controllerManagedAttach, "true")
}

// updateNodeMeta brings labels and annotations of the existing Node up to date.
func (l *life) updateNodeMeta(ctx context.Context) (*corev1.Node, error) {
	nodes := l.client.CoreV1().Nodes()
	var node *corev1.Node
	err := kretry.RetryOnConflict(kretry.DefaultRetry, func() (err error) {
		if node, err = nodes.Get(ctx, l.node, metav1.GetOptions{}); err != nil {
			return err
		}
		l.setMeta(node)
		node, err = nodes.Update(ctx, node, metav1.UpdateOptions{})
		return err
	})
	return node, err
}

// registerDriver lists the CSI driver in the node's CSINode.
func (l *life) registerDriver(ctx context.Context, node *corev1.Node) error {
	csiNode := &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{
			Name: l.node,
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Node", Name: l.node, UID: node.UID},
			},
		},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{
			Name:         l.cfg.DriverName,
			NodeID:       l.node, // LINSTOR's CSI driver uses the LINSTOR node name, which is the Kubernetes one
			TopologyKeys: []string{hostnameTopologyKey},
			Allocatable:  &storagev1.VolumeNodeResources{Count: new(l.options.MaxVolumes)},
		}}},
	}
	_, err := l.client.StorageV1().CSINodes().Create(ctx, csiNode, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil // from an earlier boot; its driver entry never changes
	}
	return err
}

// setStatus computes the node's status at a time.
func (l *life) setStatus(node *corev1.Node, now metav1.Time) {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("64"),
		corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods:   resource.MustParse("250"),
	}
	node.Status.Capacity, node.Status.Allocatable = capacity, capacity
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: l.node}}
	node.Status.NodeInfo = corev1.NodeSystemInfo{
		BootID:                  l.bootID,
		MachineID:               l.node,
		SystemUUID:              l.node,
		KernelVersion:           "6.12.0",
		OSImage:                 "simulated",
		ContainerRuntimeVersion: "simulated://1",
		KubeletVersion:          "v1.36.3",
		OperatingSystem:         "linux",
		Architecture:            goruntime.GOARCH,
	}
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "simulated kubelet"}
	if l.isShuttingDown() {
		ready.Status, ready.Reason, ready.Message = corev1.ConditionFalse, reasonNotReady, messageShuttingDown
	}
	setCondition(node, ready, now)
	for kind, reason := range map[corev1.NodeConditionType]string{
		corev1.NodeMemoryPressure: "KubeletHasSufficientMemory",
		corev1.NodeDiskPressure:   "KubeletHasNoDiskPressure",
		corev1.NodePIDPressure:    "KubeletHasSufficientPID",
	} {
		setCondition(node, corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse, Reason: reason, Message: "simulated kubelet"}, now)
	}
	if l.isSynced() { // before that an empty list would be a lie
		node.Status.VolumesInUse = l.volumes.list()
	}
}

// setCondition sets one condition and its heartbeat.
func setCondition(node *corev1.Node, condition corev1.NodeCondition, now metav1.Time) {
	condition.LastHeartbeatTime, condition.LastTransitionTime = now, now
	for i, old := range node.Status.Conditions {
		if old.Type != condition.Type {
			continue
		}
		if old.Status == condition.Status {
			condition.LastTransitionTime = old.LastTransitionTime
		}
		node.Status.Conditions[i] = condition
		return
	}
	node.Status.Conditions = append(node.Status.Conditions, condition)
}
