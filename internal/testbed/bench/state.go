package bench

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/csidriver"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

// The size of the large state. The first volumes belong to the selected pods, the others to pods that are
// not selected, of which many have no volume.
const (
	stateNodes    = 100
	stateVolumes  = 10000
	stateSelected = 5000
	stateOthers   = 20000
)

// writers is how many requests create the state at a time: more than that only wait for etcd.
const writers = 48

// state is a large cluster as the API server and LINSTOR tell of it. There are no kubelets: what they would
// have reported is written once, and only their Leases are renewed.
type state struct {
	*cluster
	client *kubernetes.Clientset
}

// newState fills a bare bed.
func newState(ctx context.Context, c *cluster) (*state, error) {
	config := rest.CopyConfig(c.Config)
	config.ContentType, config.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	s := &state{cluster: c, client: client}
	began := time.Now()
	for _, step := range []func(context.Context) error{s.fillLINSTOR, s.fillNodes, s.fillVolumes, s.fillPods} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	c.say("%d nodes, %d volumes, %d selected and %d other pods created in %.0f s",
		stateNodes, stateVolumes, stateSelected, stateOthers, time.Since(began).Seconds())
	return s, nil
}

func stateNode(i int) string   { return fmt.Sprintf("node-%03d", i%stateNodes) }
func stateVolume(i int) string { return fmt.Sprintf("pvc-%08d-0000-4000-8000-%012d", i, i) }
func statePod(i int) string    { return fmt.Sprintf("database-%05d-0", i) }

// fillLINSTOR creates the resources, each with three disks and in use where its pod is.
func (s *state) fillLINSTOR(context.Context) error {
	for i := range stateNodes {
		s.LINSTOR.AddNode(stateNode(i))
	}
	for i := range stateVolumes {
		if err := s.LINSTOR.CreateResource(linstorsim.ResourceSpec{Spec: drbd.Spec{Name: stateVolume(i), Replicas: []drbd.ReplicaSpec{
			{Node: stateNode(i)}, {Node: stateNode(i + 1)}, {Node: stateNode(i + 2)},
		}}}); err != nil {
			return fmt.Errorf("create resource: %w", err)
		}
		if err := s.DRBD.Open(stateVolume(i), stateNode(i), false); err != nil {
			return fmt.Errorf("open resource: %w", err)
		}
	}
	return nil
}

// each calls f for 0 to n-1, many at a time.
func each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error { return f(ctx, i) })
	}
	return group.Wait()
}

// fillNodes creates the nodes with their Leases, and what pods need to be let in.
func (s *state) fillNodes(ctx context.Context) error {
	core := s.client.CoreV1()
	if _, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create namespace: %w", err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := core.ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create service account: %w", err)
	}
	return each(ctx, stateNodes, func(ctx context.Context, i int) error {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: stateNode(i), Labels: map[string]string{corev1.LabelHostname: stateNode(i)}}}
		node, err := core.Nodes().Create(ctx, node, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create node: %w", err)
		}
		node.Status.NodeInfo.BootID = "boot-" + node.Name
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}}
		for v := i; v < stateVolumes; v += stateNodes {
			name := csidriver.UniqueVolumeName(stateVolume(v))
			node.Status.VolumesInUse = append(node.Status.VolumesInUse, name)
			node.Status.VolumesAttached = append(node.Status.VolumesAttached, corev1.AttachedVolume{Name: name})
		}
		if node, err = core.Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("status of node: %w", err)
		}
		// A new node is tainted until it is Ready, which nobody here takes back.
		if len(node.Spec.Taints) > 0 {
			node.Spec.Taints = nil
			if _, err := core.Nodes().Update(ctx, node, metav1.UpdateOptions{}); err != nil {
				return fmt.Errorf("taints of node: %w", err)
			}
		}
		return s.renew(ctx, i)
	})
}

// renew renews the Lease of a node.
func (s *state) renew(ctx context.Context, i int) error {
	leases := s.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	spec := coordinationv1.LeaseSpec{
		HolderIdentity: new(stateNode(i)), LeaseDurationSeconds: new(int32(40)), RenewTime: new(metav1.NowMicro()),
	}
	lease, err := leases.Get(ctx, stateNode(i), metav1.GetOptions{})
	if err != nil {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: stateNode(i)}, Spec: spec}
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
		return err
	}
	lease.Spec = spec
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}

// keepLeases renews all Leases every 10 s, evenly spread, as kubelets do, until ctx ends.
func (s *state) keepLeases(ctx context.Context) {
	ticker := time.NewTicker(leaseRenewal / stateNodes)
	defer ticker.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			_ = s.renew(ctx, i) // the next renewal makes up for one that failed
		}
	}
}

// fillVolumes creates PersistentVolumes, claims and attachments.
func (s *state) fillVolumes(ctx context.Context) error {
	return each(ctx, stateVolumes, func(ctx context.Context, i int) error {
		volume := csidriver.Volume{Handle: stateVolume(i), Namespace: namespace, Claim: "data-" + statePod(i)}
		if err := volume.Create(ctx, s.client); err != nil {
			return err
		}
		// No controller-manager runs here that would bind it, and a volume that is not bound is nobody's.
		_, err := s.client.CoreV1().PersistentVolumes().Patch(ctx, stateVolume(i), types.MergePatchType,
			[]byte(`{"status":{"phase":"Bound"}}`), metav1.PatchOptions{}, "status")
		if err != nil {
			return fmt.Errorf("bind volume: %w", err)
		}
		attachments := s.client.StorageV1().VolumeAttachments()
		va, err := attachments.Create(ctx, &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{
				Name:       csidriver.AttachmentName(stateVolume(i), stateNode(i)),
				Finalizers: []string{"external-attacher/linstor-csi-linbit-com"},
			},
			Spec: storagev1.VolumeAttachmentSpec{
				Attacher: csidriver.Name, NodeName: stateNode(i),
				Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new(stateVolume(i))},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create attachment: %w", err)
		}
		va.Status.Attached = true
		if _, err := attachments.UpdateStatus(ctx, va, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("status of attachment: %w", err)
		}
		return nil
	})
}

// fillPods creates the pods; those with a volume run.
func (s *state) fillPods(ctx context.Context) error {
	pods := s.client.CoreV1().Pods(namespace)
	return each(ctx, stateSelected+stateOthers, func(ctx context.Context, i int) error {
		pod, err := pods.Create(ctx, newStatePod(i), metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create pod: %w", err)
		}
		if i >= stateVolumes {
			return nil
		}
		now := metav1.Now()
		pod.Status.Phase = corev1.PodRunning
		pod.Status.StartTime = &now
		pod.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: now},
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now},
		}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "database", Ready: true, Started: new(true), Image: pod.Spec.Containers[0].Image,
			ImageID: "sha256:" + string(pod.UID), ContainerID: "containerd://" + string(pod.UID),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		}}
		if _, err := pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("status of pod: %w", err)
		}
		return nil
	})
}

// newStatePod returns a pod of the usual size: what a cache holds of it is part of what is measured.
func newStatePod(i int) *corev1.Pod {
	labels := map[string]string{
		"app.kubernetes.io/name": "database", "app.kubernetes.io/instance": "database-" + strconv.Itoa(i), "app.kubernetes.io/managed-by": "helm",
		"apps.kubernetes.io/pod-index": "0", "controller-revision-hash": "database-6d5f7c9b4d", "statefulset.kubernetes.io/pod-name": statePod(i),
	}
	if i < stateSelected {
		labels[bed.SelectedLabel] = bed.SelectedValue
	}
	probe := &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromString("http")}},
		PeriodSeconds: 10,
	}
	container := corev1.Container{
		Name: "database", Image: "registry.example.com/database/server:17.2.0", Args: []string{"--listen=0.0.0.0", "--data=/var/lib/database"},
		Ports:         []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
		LivenessProbe: probe, ReadinessProbe: probe,
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("256Mi"),
		}},
	}
	for v := range 10 {
		container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("DATABASE_SETTING_%d", v), Value: "some value of a usual length"})
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: statePod(i), Labels: labels,
			Annotations: map[string]string{"checksum/config": "5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "StatefulSet", Name: "database-" + strconv.Itoa(i), UID: types.UID(strconv.Itoa(i)), Controller: new(true),
			}},
		},
		Spec: corev1.PodSpec{NodeName: stateNode(i), Containers: []corev1.Container{container}},
	}
	if i < stateVolumes {
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/var/lib/database"}}
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-" + statePod(i)},
		}}}
	}
	return pod
}
