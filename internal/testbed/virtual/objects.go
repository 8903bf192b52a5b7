package virtual

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/affinity"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

// Volume is a PersistentVolume with its claim and its LINSTOR resource.
type Volume struct {
	// Name is the PersistentVolume's name.
	Name string
	// Namespace and Claim are the claim's; the default is "default" and "data-" with the name.
	Namespace, Claim string
	// Handle is the CSI volume handle, "<resource>" or "<resource>/<number>"; the default is "pvc-" with the name.
	Handle string
	// Count is the number of volumes of the resource, for the first PersistentVolume of a consistency group; 0 means 1.
	Count int
	// Diskful are the nodes with a disk; TieBreaker, where given, is one more without.
	Diskful    []string
	TieBreaker string
	// Quorum is the resource definition's own; empty leaves it to LINSTOR.
	Quorum string
	// Block makes it a raw block volume. Its pods do not open it, unless Opened is set too.
	Block, Opened bool
	// ReadOnly makes every pod open it read-only.
	ReadOnly bool
	// AccessModes defaults to ReadWriteOnce.
	AccessModes []corev1.PersistentVolumeAccessMode
	// Attributes are the CSI volume attributes.
	Attributes map[string]string
	// Released makes it a retained volume whose claim was deleted: it still names the claim, of which another volume may be bound to
	// a new one by now. No pod uses it.
	Released bool
	// Unmarked lets it still be shown as bound to that claim: Kubernetes marks it a moment after the claim has gone.
	Unmarked bool
	// Pinned lets its PersistentVolume allow only the nodes that have a disk. The cluster must be [Options.Placed].
	Pinned bool
	// Missing leaves it without a resource in LINSTOR.
	Missing bool
}

// Resource is the name of the LINSTOR resource.
func (v Volume) Resource() string {
	name, _, _ := strings.Cut(v.Handle, "/")
	return name
}

// Workload is a controller with one pod.
type Workload struct {
	// Namespace and Name are the pod's; the namespace defaults to "default".
	Namespace, Name string
	// Claims are what the pod mounts, by claim name.
	Claims []string
	// ReadOnly mounts them read-only.
	ReadOnly bool
	// Labels, Annotations and Finalizers are the pod's.
	Labels, Annotations map[string]string
	Finalizers          []string
	// Owner is the kind of its controller; the default is "StatefulSet", and "None" means none.
	Owner string
	// Nodes are the nodes it may run on, the preferred one first.
	Nodes []string
	// Tolerant lets it run there whatever taints they have.
	Tolerant bool
	// Volumes are further volumes of the pod.
	Volumes []corev1.Volume
	// StartTime and StopTime are how long its containers take to start and to stop; the default is a second each.
	// They can be changed while it runs by [Cluster.Change].
	StartTime, StopTime time.Duration
	// Gone lets the owner leave it at that when its pod is gone.
	Gone bool
	// InitTime is how long its init containers run, with the volumes mounted; 0 means that it has none.
	InitTime time.Duration
	// HelperOf names a pod of which this one is a helper, as KubeVirt's hot-plug pods are: that pod owns it, and it runs on the
	// same node for as long as that one is there.
	HelperOf string
	// Ephemeral are the names of generic ephemeral volumes. Each pod gets new ones, with a single replica on its node.
	Ephemeral []string

	order int
}

// Key is the pod's key.
func (w *Workload) Key() client.ObjectKey {
	return client.ObjectKey{Namespace: w.Namespace, Name: w.Name}
}

// LeaseNamespace is where kubelets keep their Leases.
const LeaseNamespace = "kube-node-lease"

// AddNode adds a node that runs: machine, kubelet, satellite.
func (c *Cluster) AddNode(ctx context.Context, name string) error {
	return c.Add(ctx, Node{Name: name})
}

// AddVolume creates a PersistentVolume and its LINSTOR resource.
func (c *Cluster) AddVolume(ctx context.Context, v Volume) error {
	if v.Namespace == "" {
		v.Namespace = "default"
	}
	if v.Claim == "" {
		v.Claim = "data-" + v.Name
	}
	if v.Handle == "" {
		v.Handle = "pvc-" + v.Name
	}
	if len(v.AccessModes) == 0 {
		v.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	}
	spec := linstorsim.ResourceSpec{Spec: drbd.Spec{Name: v.Resource(), Quorum: v.Quorum, Volumes: v.Count}}
	for _, node := range v.Diskful {
		spec.Replicas = append(spec.Replicas, drbd.ReplicaSpec{Node: node})
	}
	if v.TieBreaker != "" {
		spec.Replicas = append(spec.Replicas, drbd.ReplicaSpec{Node: v.TieBreaker, TieBreaker: true})
	}
	if !v.Missing && !slices.Contains(c.DRBD.Resources(), v.Resource()) {
		if err := c.Linstor.CreateResource(spec); err != nil {
			return fmt.Errorf("adding volume %s: %w", v.Name, err)
		}
	}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: v.Name}}
	pv.Spec.AccessModes = v.AccessModes
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: v.Namespace, Name: v.Claim}}
	claim.Spec.VolumeName, claim.Spec.AccessModes, claim.Status.Phase = v.Name, v.AccessModes, corev1.ClaimBound
	pv.Status.Phase = corev1.VolumeReleased
	pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	if !v.Released {
		if err := c.user.Create(ctx, claim); err != nil {
			return fmt.Errorf("adding volume %s: %w", v.Name, err)
		}
		pv.Status.Phase = corev1.VolumeBound
		pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: v.Namespace, Name: v.Claim, UID: claim.UID}
	if v.Unmarked {
		pv.Status.Phase = corev1.VolumeBound
	}
	if v.Released {
		pv.Spec.ClaimRef.UID = "deleted-claim-of-" + types.UID(v.Name)
	}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{
		Driver: Driver, VolumeHandle: v.Handle, ReadOnly: v.ReadOnly, VolumeAttributes: v.Attributes,
	}
	if v.Pinned {
		var satellites []string
		for _, node := range v.Diskful {
			satellites = append(satellites, c.Satellite(node))
		}
		pv.Spec.NodeAffinity = affinity.To(satellites...)
	}
	if v.Block {
		pv.Spec.VolumeMode = new(corev1.PersistentVolumeBlock)
	}
	if err := c.user.Create(ctx, pv); err != nil {
		return fmt.Errorf("adding volume %s: %w", v.Name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.volumes[v.Name] = v
	return nil
}

// AddWorkload lets an owner keep the pod of the workload.
func (c *Cluster) AddWorkload(w Workload) {
	if w.Namespace == "" {
		w.Namespace = "default"
	}
	if w.Owner == "" {
		w.Owner = "StatefulSet"
	}
	if w.StartTime == 0 {
		w.StartTime = time.Second
	}
	if w.StopTime == 0 {
		w.StopTime = time.Second
	}
	c.mu.Lock()
	w.order = len(c.workloads)
	c.workloads[w.Key()] = &w
	wakers := slices.Clone(c.wakers["Pod"])
	c.mu.Unlock()
	for _, waker := range wakers {
		waker.ring()
	}
}

// Change changes a workload from now on; its present pod stays as it is.
func (c *Cluster) Change(key client.ObjectKey, change func(*Workload)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.workloads[key]; old != nil {
		w := *old
		change(&w)
		c.workloads[key] = &w
	}
}

// pod returns a new pod of the workload.
func (w *Workload) pod() *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.Namespace, Name: w.Name, Labels: w.Labels, Annotations: w.Annotations, Finalizers: slices.Clone(w.Finalizers),
	}}
	if w.Owner != "None" {
		pod.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: w.Owner, Name: w.Name, UID: "owner", Controller: new(true),
		}}
	}
	pod.Spec.Containers = []corev1.Container{{Name: "main"}}
	pod.Spec.Volumes = slices.Clone(w.Volumes)
	for _, claim := range w.Claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim, ReadOnly: w.ReadOnly},
		}})
	}
	for _, name := range w.Ephemeral {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{}},
		}})
	}
	if w.InitTime > 0 {
		pod.Spec.InitContainers = []corev1.Container{{Name: "init"}}
	}
	if w.Tolerant {
		pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}
	return pod
}

func bootID(node string, boot int) string { return fmt.Sprintf("%s-boot-%d", node, boot) }

// ReleaseVolume deletes the claim of a volume, which is retained.
func (c *Cluster) ReleaseVolume(ctx context.Context, name string) error {
	v := c.VolumeNamed(name)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: v.Namespace, Name: v.Claim}}
	if err := c.user.Delete(ctx, claim); err != nil {
		return fmt.Errorf("releasing volume %s: %w", name, err)
	}
	c.mu.Lock()
	v.Released = true
	c.volumes[name] = v
	c.mu.Unlock()
	var pv corev1.PersistentVolume
	if err := c.user.Get(ctx, client.ObjectKey{Name: name}, &pv); err != nil {
		return fmt.Errorf("releasing volume %s: %w", name, err)
	}
	pv.Status.Phase = corev1.VolumeReleased
	if err := c.user.Status().Update(ctx, &pv); err != nil {
		return fmt.Errorf("releasing volume %s: %w", name, err)
	}
	return nil
}
