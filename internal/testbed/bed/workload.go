package bed

import (
	"context"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/affinity"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/csidriver"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

const (
	// SelectedLabel is the label by which users let the high availability controller remove a pod.
	SelectedLabel = "linstor.csi.linbit.com/on-storage-lost"
	// SelectedValue is its value.
	SelectedValue = "remove"
)

// Volume describes a LINSTOR resource with a PersistentVolume and a claim.
type Volume struct {
	// Name of the resource, the PersistentVolume and the claim. Unique in the bed.
	Name string
	// Nodes with a replica. Of three, the third is a tie-breaker, unless Diskful is set.
	Nodes []string
	// Diskful gives every node of Nodes a disk.
	Diskful bool
	// Quorum is majority, all, off or a number. Empty leaves it to LINSTOR, which sets majority where the
	// replicas allow it.
	Quorum string
	// Volumes is the number of volumes of the resource; 0 means 1.
	Volumes int
	// Group is LINSTOR's resource group, which says where further replicas may go; empty means LINSTOR's default one.
	Group string
	// SizeKiB is the size of each volume for DRBD, in KiB; 0 means 1 GiB.
	SizeKiB int64
	// Pinned lets pods use it only where it has a disk, as a StorageClass without access over the network does.
	Pinned bool
	// Options are further DRBD options.
	Options map[string]string
	// Kubernetes has what else there is to say: access modes, block, read-only, NFS. Name and handle
	// default to the volume's Name.
	Kubernetes csidriver.Volume
}

// Workload describes a StatefulSet or Deployment of one replica, pinned to some nodes.
type Workload struct {
	// Namespace and Name of it; the namespace is created where there is none.
	Namespace, Name string
	// Unselected leaves out the label that lets the high availability controller remove the pods.
	Unselected bool
	// Nodes are the nodes that its pods may run on. Required, so that workloads do not meet.
	Nodes []string
	// PreferNode is a node of Nodes on which the pods start if it is free.
	PreferNode string
	// Volumes are created together with the workload; each pod uses all of them.
	Volumes []Volume
	// Deployment makes it one, instead of a StatefulSet. Its name is that of the pods' owner then.
	Deployment bool
	// Annotations are those of the pods.
	Annotations map[string]string
	// Labels are added to those of the pods.
	Labels map[string]string
	// Mutate changes the pod template at last; nil changes nothing.
	Mutate func(template *corev1.PodTemplateSpec)
}

// Deploy creates the workload with its volumes and returns at once; see WaitRunning.
func (b *Bed) Deploy(ctx context.Context, w Workload) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}
	if err := client.IgnoreAlreadyExists(b.Client.Create(ctx, namespace)); err != nil {
		return fmt.Errorf("create namespace %s: %w", w.Namespace, err)
	}
	for _, v := range w.Volumes {
		if err := b.CreateVolume(ctx, w.Namespace, v); err != nil {
			return err
		}
	}
	owner := w.owner()
	if err := b.Client.Create(ctx, owner); err != nil {
		return fmt.Errorf("create %s/%s: %w", w.Namespace, w.Name, err)
	}
	return nil
}

// CreateVolume creates the resource with its PersistentVolume and a claim in a namespace.
func (b *Bed) CreateVolume(ctx context.Context, namespace string, v Volume) error {
	if err := b.LINSTOR.CreateResource(v.spec()); err != nil {
		return fmt.Errorf("create resource of volume %s: %w", v.Name, err)
	}
	k := v.Kubernetes
	k.Namespace, k.Claim = namespace, v.Name
	if k.Handle == "" {
		k.Handle = v.Name
	}
	if k.Name == "" {
		k.Name = v.Name
	}
	// The volume finds the claim and not the other way round: its event binds the two at once, while
	// a claim that comes too early for the volume it names waits for a resync of 15 s.
	claim := k.PersistentVolumeClaim()
	claim.Spec.VolumeName = ""
	if err := b.Client.Create(ctx, claim); err != nil {
		return fmt.Errorf("create the claim of volume %s: %w", v.Name, err)
	}
	volume := k.PersistentVolume()
	volume.Spec.ClaimRef.UID = claim.UID
	if v.Pinned {
		volume.Spec.NodeAffinity = affinity.To(b.LINSTOR.DiskNodes(v.Name)...)
	}
	if err := b.Client.Create(ctx, volume); err != nil {
		return fmt.Errorf("create volume %s: %w", v.Name, err)
	}
	return nil
}

// spec returns the resource in LINSTOR's terms.
func (v Volume) spec() linstorsim.ResourceSpec {
	spec := linstorsim.ResourceSpec{Group: v.Group, Spec: drbd.Spec{
		Name: v.Name, Quorum: v.Quorum, Options: v.Options, Volumes: v.Volumes, SizeKiB: v.SizeKiB,
	}}
	for i, node := range v.Nodes {
		tieBreaker := !v.Diskful && len(v.Nodes) == 3 && i == 2
		spec.Replicas = append(spec.Replicas, drbd.ReplicaSpec{Node: node, TieBreaker: tieBreaker})
	}
	return spec
}

// owner returns the StatefulSet or Deployment.
func (w Workload) owner() client.Object {
	meta := metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}
	template := w.Template()
	selector := &metav1.LabelSelector{MatchLabels: w.Selector()}
	if w.Deployment {
		return &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)), Selector: selector, Template: template,
		}}
	}
	return &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{
		Replicas: new(int32(1)), Selector: selector, Template: template, ServiceName: w.Name,
	}}
}

// appLabel tells the pods of one workload from those of others.
const appLabel = "app.kubernetes.io/name"

// Selector returns the labels by which the workload's pods are selected.
func (w Workload) Selector() map[string]string { return map[string]string{appLabel: w.Name} }

// Template returns the pods' template.
func (w Workload) Template() corev1.PodTemplateSpec {
	t := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: w.Selector(), Annotations: w.Annotations},
		Spec: corev1.PodSpec{
			Affinity:   &corev1.Affinity{NodeAffinity: w.affinity()},
			Containers: []corev1.Container{{Name: "app", Image: "example.com/app"}},
		},
	}
	if !w.Unselected {
		t.Labels[SelectedLabel] = SelectedValue
	}
	maps.Copy(t.Labels, w.Labels)
	container := &t.Spec.Containers[0]
	for _, v := range w.Volumes {
		t.Spec.Volumes = append(t.Spec.Volumes, corev1.Volume{Name: v.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v.Name},
		}})
		if v.Kubernetes.Block {
			container.VolumeDevices = append(container.VolumeDevices, corev1.VolumeDevice{Name: v.Name, DevicePath: "/dev/" + v.Name})
		} else {
			container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: "/data/" + v.Name})
		}
	}
	if w.Mutate != nil {
		w.Mutate(&t)
	}
	return t
}

// affinity pins the pods to the workload's nodes.
func (w Workload) affinity() *corev1.NodeAffinity {
	on := func(nodes ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{
			Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: slices.Clone(nodes),
		}}}
	}
	affinity := &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{on(w.Nodes...)},
	}}
	if w.PreferNode != "" {
		affinity.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.PreferredSchedulingTerm{
			{Weight: 100, Preference: on(w.PreferNode)},
		}
	}
	return affinity
}

// Pods returns the pods of a workload that the API knows.
func (b *Bed) Pods(ctx context.Context, w Workload) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := b.Client.List(ctx, &pods, client.InNamespace(w.Namespace), client.MatchingLabels(w.Selector())); err != nil {
		return nil, fmt.Errorf("list pods of %s/%s: %w", w.Namespace, w.Name, err)
	}
	return pods.Items, nil
}

// WaitRunning waits until a pod of the workload is Ready on one of the nodes (on any, if none is
// named), and returns it.
func (b *Bed) WaitRunning(ctx context.Context, w Workload, nodes ...string) (corev1.Pod, error) {
	var running corev1.Pod
	what := fmt.Sprintf("a pod of %s/%s to be Ready", w.Namespace, w.Name)
	if len(nodes) > 0 {
		what += fmt.Sprintf(" on one of %v", nodes)
	}
	err := b.WaitFor(ctx, what, func() (bool, error) {
		pods, err := b.Pods(ctx, w)
		if err != nil {
			return false, err
		}
		for _, pod := range pods {
			if podReady(&pod) && (len(nodes) == 0 || slices.Contains(nodes, pod.Spec.NodeName)) {
				running = pod
				return true, nil
			}
		}
		return false, fmt.Errorf("its pods are: %s", describePods(pods))
	})
	return running, err
}

// Attached tells whether a volume is attached to a node. Volumes are named by their handle.
func (b *Bed) Attached(ctx context.Context, handle, node string) (bool, error) {
	var attachment storagev1.VolumeAttachment
	name := csidriver.AttachmentName(handle, node)
	if err := b.Client.Get(ctx, client.ObjectKey{Name: name}, &attachment); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return attachment.Status.Attached && attachment.DeletionTimestamp == nil, nil
}

// podReady tells whether a pod serves and is not being deleted.
func podReady(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning {
		return false
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// describePods says where pods are and how they do.
func describePods(pods []corev1.Pod) string {
	if len(pods) == 0 {
		return "none"
	}
	var lines []string
	for _, pod := range pods {
		state := string(pod.Status.Phase)
		if pod.DeletionTimestamp != nil {
			state = "Terminating"
		}
		lines = append(lines, fmt.Sprintf("%s on %q %s", pod.Name, pod.Spec.NodeName, state))
	}
	return fmt.Sprint(lines)
}
