package recordings_test

import (
	"context"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/recordings"
)

const (
	driver    = "linstor.csi.linbit.com"
	namespace = "default"
	podName   = "db-0"
	claimName = "data-db-0"

	// renewal is how often a kubelet renews its Lease.
	renewal = 10 * time.Second
)

// selected are the labels of a pod that asks for fail-over.
var selected = labels.Set{"linstor.csi.linbit.com/on-storage-lost": "remove"}

// silenced are the recordings, by number, in which the kubelet of the pod's node is gone from the fault on.
var silenced = map[string]bool{
	"03": true, "04": true, "11": true, "12": true, "13": true, "14": true, "15": true, "17": true, "20": true, "21": true, "22": true,
}

// losesKubelet tells whether the kubelet of the pod's node is gone from the fault on.
func losesKubelet(transcript *recordings.Transcript) bool {
	number, _, _ := strings.Cut(transcript.Scenario, "-")
	return silenced[number]
}

// kubernetes is what Kubernetes says while a transcript is played: a pod runs on a node with the volume attached.
type kubernetes struct {
	client client.Client
	view   *apimodel.View
}

// newKubernetes creates the objects. The pod uses the resource on the node.
func newKubernetes(ctx context.Context, t *testing.T, transcript *recordings.Transcript, node string) *kubernetes {
	t.Helper()
	api := apimodel.New()
	k := &kubernetes{client: api.Client("recording"), view: api.View(0, nil)}
	for _, name := range transcript.Nodes {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Status.NodeInfo.BootID = name + "-boot-1"
		k.create(ctx, t, n)
		k.create(ctx, t, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: cluster.LeaseNamespace, Name: name},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, RenewTime: new(metav1.NowMicro())},
		})
	}
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-db"}}
	volume.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	volume.Spec.ClaimRef = &corev1.ObjectReference{Namespace: namespace, Name: claimName}
	volume.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: transcript.Resource}
	volume.Status.Phase = corev1.VolumeBound
	k.create(ctx, t, volume)
	k.createAttachment(ctx, t, volume.Name, node)
	k.createPod(ctx, t, node)
	return k
}

func (k *kubernetes) create(ctx context.Context, t *testing.T, o client.Object) {
	t.Helper()
	if err := k.client.Create(ctx, o); err != nil {
		t.Fatal(err)
	}
}

func (k *kubernetes) createAttachment(ctx context.Context, t *testing.T, volume, node string) {
	t.Helper()
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "csi-db"}}
	va.Spec.Attacher, va.Spec.NodeName, va.Spec.Source.PersistentVolumeName = driver, node, &volume
	k.create(ctx, t, va)
	va.Status.Attached = true
	if err := k.client.Status().Update(ctx, va); err != nil {
		t.Fatal(err)
	}
}

func (k *kubernetes) createPod(ctx context.Context, t *testing.T, node string) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: podName, Labels: selected,
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "db", Controller: new(true),
		}},
	}}
	pod.Spec.NodeName = node
	pod.Spec.Containers = []corev1.Container{{Name: "main"}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName},
	}}}
	k.create(ctx, t, pod)
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "main", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
	}}
	if err := k.client.Status().Update(ctx, pod); err != nil {
		t.Fatal(err)
	}
}

// renew renews the Lease of a node.
func (k *kubernetes) renew(ctx context.Context, node string) error {
	var lease coordinationv1.Lease
	if err := k.client.Get(ctx, client.ObjectKey{Namespace: cluster.LeaseNamespace, Name: node}, &lease); err != nil {
		return err
	}
	lease.Spec.RenewTime = new(metav1.NowMicro())
	return k.client.Update(ctx, &lease)
}

// keepRenewing renews the Leases of the nodes, and that of the dying node until the fault: there last so long before it.
func (k *kubernetes) keepRenewing(ctx context.Context, nodes []string, dying string, fault time.Time, last time.Duration) {
	next := fault.Add(-last)
	for next.Add(-renewal).After(time.Now()) {
		next = next.Add(-renewal)
	}
	for ; ; next = next.Add(renewal) {
		timer := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		for _, node := range nodes {
			if node == dying && !next.Before(fault) {
				continue
			}
			if k.renew(ctx, node) != nil && ctx.Err() != nil {
				return
			}
		}
	}
}
