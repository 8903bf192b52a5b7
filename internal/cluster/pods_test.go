package cluster

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

var start = metav1.NewTime(time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC))

func after(d time.Duration) metav1.Time { return metav1.NewTime(start.Add(d)) }

func claimVolume(name string, readOnly bool) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name, ReadOnly: readOnly},
	}}
}

func TestTheResourceOfAVolume(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		source corev1.PersistentVolumeSource
		want   string
	}{
		"the handle is the resource, not the volume's name": {
			source: csi(virtual.Driver, "Another-Name"), want: "Another-Name",
		},
		"a volume in a consistency group": {source: csi(virtual.Driver, "group/3"), want: "group"},
		"an empty handle":                 {source: csi(virtual.Driver, "")},
		"a handle without a resource":     {source: csi(virtual.Driver, "/0")},
		"another driver":                  {source: csi("other.example.com", "pvc-1")},
		"no CSI volume":                   {source: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pv := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: c.source}}
			if got := (Volumes{driver: virtual.Driver}).Resource(pv); got != c.want {
				t.Errorf("resource %q, want %q", got, c.want)
			}
		})
	}
}

func csi(driver, handle string) corev1.PersistentVolumeSource {
	return corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: handle}}
}

func TestClaimsOf(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0"}}
	pod.Spec.Volumes = []corev1.Volume{
		claimVolume("data", false),
		{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
		{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}},
	}
	if diff := cmp.Diff([]string{"shop/data", "shop/web-0-scratch"}, ClaimsOf(pod)); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
}

func TestWhichPodsHelpAnExemptOne(t *testing.T) {
	t.Parallel()
	pod := func(uid types.UID, annotations map[string]string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: string(uid), UID: uid, Annotations: annotations}}
	}
	exempt := map[string]string{AnnotationIgnore: ""}
	node := []corev1.Pod{pod("other", nil), pod("vm", exempt)}
	for name, tc := range map[string]struct {
		owners []metav1.OwnerReference
		node   []corev1.Pod
		want   bool
	}{
		"its helper":                           {[]metav1.OwnerReference{{Kind: podKind, UID: "vm", Controller: new(true)}}, node, true},
		"the helper of another pod":            {[]metav1.OwnerReference{{Kind: podKind, UID: "other", Controller: new(true)}}, node, false},
		"the helper of a pod that is not here": {[]metav1.OwnerReference{{Kind: podKind, UID: "vm", Controller: new(true)}}, node[:1], false},
		"a pod that it owns and does not control": {
			[]metav1.OwnerReference{{Kind: podKind, UID: "vm"}}, node, false,
		},
		"a pod of another kind of owner": {[]metav1.OwnerReference{{Kind: "StatefulSet", UID: "vm", Controller: new(true)}}, node, false},
		"a pod without an owner":         {nil, node, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			helper := pod("helper", nil)
			helper.OwnerReferences = tc.owners
			if got := helpsExempt(&helper, tc.node); got != tc.want {
				t.Errorf("helpsExempt = %t, want %t", got, tc.want)
			}
		})
	}
}

// The cache of the command that checks a cluster has all pods.
func TestThePodThatMissesItsHelperIsSelected(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		labels map[string]string
		missed bool
	}{
		"the helper of a pod that is selected": {selected, true},
		"the helper of a pod that is not":      {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pods, api := volumesWorld(t)
			owner, helper := podWith("data"), podWith("wal")
			owner.Labels = tc.labels
			if err := api.Create(t.Context(), &owner); err != nil {
				t.Fatal(err)
			}
			helper.OwnerReferences = []metav1.OwnerReference{{Kind: podKind, Name: owner.Name, UID: owner.UID, Controller: new(true)}}
			if got, err := pods.MissedBy(t.Context(), &helper); err != nil || (got != nil) != tc.missed {
				t.Errorf("missed by %v, %v, want it to be missed: %t", got, err, tc.missed)
			}
		})
	}
}

func tolerating(tolerations ...corev1.Toleration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Tolerations = tolerations }
}

func TestPodFacts(t *testing.T) {
	t.Parallel()
	selector := labels.SelectorFromSet(selected)
	owner := func(kind string, controls bool) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "o", Controller: &controls}}
		}
	}
	status := func(s ...corev1.ContainerStatus) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.ContainerStatuses = s }
	}
	running := func(since metav1.Time) corev1.ContainerStatus {
		return corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: since}}}
	}
	initStatus := func(s ...corev1.ContainerStatus) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.InitContainerStatuses = s }
	}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	cases := map[string]struct {
		pod  func(*corev1.Pod)
		want func(*failover.Pod)
	}{
		"a bare pod": {},
		"a selected pod": {
			pod:  func(p *corev1.Pod) { p.Labels = selected },
			want: func(f *failover.Pod) { f.Selected = true },
		},
		"an exempt pod, whatever the annotation says": {
			pod:  func(p *corev1.Pod) { p.Annotations = map[string]string{AnnotationIgnore: "false"} },
			want: func(f *failover.Pod) { f.Exempt = true },
		},
		"a pod that tolerates everything stays on a node that is out of service": {
			pod:  tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists}),
			want: func(f *failover.Pod) { f.StaysOutOfService = true },
		},
		"so does one that tolerates that": {
			pod: tolerating(corev1.Toleration{
				Key: corev1.TaintNodeOutOfService, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
			}),
			want: func(f *failover.Pod) { f.StaysOutOfService = true },
		},
		"one that tolerates one value of it may not": {
			pod: tolerating(corev1.Toleration{Key: corev1.TaintNodeOutOfService, Operator: corev1.TolerationOpEqual, Value: "nodeshutdown"}),
		},
		"nor one that tolerates any, and one value for a while": {
			pod: tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists},
				corev1.Toleration{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", TolerationSeconds: new(int64(60))}),
		},
		"one that tolerates any, and one value as well, does": {
			pod: tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists},
				corev1.Toleration{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown"}),
			want: func(f *failover.Pod) { f.StaysOutOfService = true },
		},
		"one that tolerates it for a while does not": {
			pod: tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists},
				corev1.Toleration{Key: corev1.TaintNodeOutOfService, Operator: corev1.TolerationOpExists, TolerationSeconds: new(int64(60))}),
		},
		"nor one that tolerates something else": {
			pod: tolerating(corev1.Toleration{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists}),
		},
		"nor one that may only be scheduled there": {
			pod: tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}),
		},
		"a pod that is controlled": {
			pod:  owner("StatefulSet", true),
			want: func(f *failover.Pod) { f.Owned = true },
		},
		"an owner that does not control does not re-create": {pod: owner("StatefulSet", false)},
		"a DaemonSet's pod is bound to its node": {
			pod:  owner("DaemonSet", true),
			want: func(f *failover.Pod) { f.Owned, f.NodeBound = true, true },
		},
		"a static pod is bound to its node": {
			pod:  owner("Node", true),
			want: func(f *failover.Pod) { f.Owned, f.NodeBound = true, true },
		},
		"it runs while one of its containers does": {
			pod:  status(corev1.ContainerStatus{State: ended}, running(after(time.Minute))),
			want: func(f *failover.Pod) { f.HasRun, f.Runs = true, true },
		},
		"it has run when a container has ended": {
			pod:  status(corev1.ContainerStatus{State: ended}),
			want: func(f *failover.Pod) { f.HasRun = true },
		},
		"it has run when a container ran before its restart": {
			pod:  status(corev1.ContainerStatus{LastTerminationState: ended}),
			want: func(f *failover.Pod) { f.HasRun = true },
		},
		"it has run while an init container runs, and runs": {
			pod:  initStatus(running(after(time.Minute))),
			want: func(f *failover.Pod) { f.HasRun, f.Runs = true, true },
		},
		"it has run when an init container has ended": {
			pod:  initStatus(corev1.ContainerStatus{State: ended}),
			want: func(f *failover.Pod) { f.HasRun = true },
		},
		"it has not run while an init container waits": {
			pod: initStatus(corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}}),
		},
		"it has not run while its containers wait": {
			pod: status(corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}}),
		},
		"a claim that is mounted read-only": {
			pod:  func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{claimVolume("data", true)} },
			want: func(f *failover.Pod) { f.ReadOnly = true },
		},
		"a claim that is mounted twice, once to write": {
			pod: func(p *corev1.Pod) {
				p.Spec.Volumes = []corev1.Volume{claimVolume("data", true), claimVolume("data", false)}
			},
		},
		"another claim that is mounted read-only": {
			pod: func(p *corev1.Pod) {
				p.Spec.Volumes = []corev1.Volume{claimVolume("data", false), claimVolume("more", true)}
			},
		},
		"a claim that is mounted read-only beside another": {
			pod: func(p *corev1.Pod) {
				p.Spec.Volumes = []corev1.Volume{claimVolume("data", true), claimVolume("more", false)}
			},
			want: func(f *failover.Pod) { f.ReadOnly = true },
		},
		"a terminating pod of which no grace is told": {
			pod:  func(p *corev1.Pod) { p.DeletionTimestamp = new(after(time.Hour)) },
			want: func(f *failover.Pod) { f.Terminating = true },
		},
		"a terminating pod": {
			pod: func(p *corev1.Pod) {
				p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(after(time.Hour)), new(int64(30))
			},
			want: func(f *failover.Pod) {
				f.Terminating, f.Grace = true, 30*time.Second
			},
		},
		"a pod that was deleted by force": {
			pod: func(p *corev1.Pod) {
				p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(after(time.Hour)), new(int64(0))
			},
			want: func(f *failover.Pod) {
				f.Terminating, f.Forced = true, true
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", UID: "uid"}}
			want := failover.Pod{Namespace: "shop", Name: "web-0", UID: "uid"}
			orNothing(c.pod)(pod)
			orNothing(c.want)(&want)
			if diff := cmp.Diff(want, podFacts(pod, selector, []string{"shop/data"})); diff != "" {
				t.Errorf("podFacts (-want +got):\n%s", diff)
			}
		})
	}
}

// The claim of an ephemeral volume is the pod's own, to write.
func TestAnEphemeralVolumeIsNotReadOnly(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0"}}
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
	}
	if mountsReadOnly(pod, []string{"shop/web-0-scratch"}) {
		t.Error("it counts as read-only")
	}
}

func TestUses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		pod  func(*corev1.Pod)
		want bool
	}{
		"a pod that is pending":                 {want: true},
		"a pod that has succeeded":              {pod: func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }},
		"a pod that has failed":                 {pod: func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }},
		"a pod with another claim":              {pod: func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{claimVolume("more", false)} }},
		"a pod with such a claim elsewhere":     {pod: func(p *corev1.Pod) { p.Namespace = "other" }},
		"a pod that failed and is not gone yet": {pod: func(p *corev1.Pod) { p.Status.Phase, p.DeletionTimestamp = corev1.PodFailed, &start }},
		"a pod that a fail-over has marked as failed": {want: true, pod: func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodFailed
			p.Status.Conditions = []corev1.PodCondition{
				{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Message: DisruptedBy + "gone"},
			}
		}},
		"a pod that its kubelet has evicted": {pod: func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodFailed
			p.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonTerminationByKubelet,
				Message: "The node was low on resource: memory.",
			}}
		}},
		"a pod that has failed and was not disrupted": {pod: func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodFailed
			p.Status.Conditions = []corev1.PodCondition{
				{Type: corev1.DisruptionTarget, Status: corev1.ConditionFalse, Message: DisruptedBy + "gone"},
				{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
				{Type: corev1.PodReady, Status: corev1.ConditionTrue, Message: DisruptedBy + "gone"},
			}
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0"}}
			pod.Spec.Volumes = []corev1.Volume{claimVolume("data", false)}
			orNothing(c.pod)(pod)
			if got := uses(pod, []string{"shop/data"}); got != c.want {
				t.Errorf("uses = %t, want %t", got, c.want)
			}
		})
	}
}

// bind binds a volume to a claim.
func bind(pv *corev1.PersistentVolume, namespace, claim string) {
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: namespace, Name: claim, UID: types.UID("claim " + claim)}
	pv.Status.Phase = corev1.VolumeBound
}

// volumesWorld is a cache with volumes of several kinds.
func volumesWorld(t *testing.T) (Pods, client.Client) {
	t.Helper()
	m := apimodel.New()
	view := m.View(0, nil)
	view.Transform(Trim(labels.SelectorFromSet(selected)))
	if err := AddIndexes(t.Context(), view, virtual.Driver); err != nil {
		t.Fatal(err)
	}
	api := m.Client("test")
	add := func(name string, source corev1.PersistentVolumeSource, modes ...corev1.PersistentVolumeAccessMode) {
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
		pv.Spec.PersistentVolumeSource, pv.Spec.AccessModes = source, modes
		bind(pv, "shop", name)
		if err := api.Create(t.Context(), pv); err != nil {
			t.Fatal(err)
		}
	}
	foreign := csi("other.example.com", "x")
	add("data", csi(virtual.Driver, "pvc-data"), corev1.ReadWriteOnce)
	add("wal", csi(virtual.Driver, "pvc-wal"), corev1.ReadWriteOnce)
	add("foreign", foreign, corev1.ReadWriteOnce)
	add("web-0-scratch", foreign, corev1.ReadWriteOnce)
	add("share", foreign, corev1.ReadWriteMany)
	add("attached-share", foreign, corev1.ReadWriteMany)
	add("disk-for-many", foreign, corev1.ReadWriteMany)
	changed(t, api, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk-for-many"}}, func(pv *corev1.PersistentVolume) {
		pv.Spec.VolumeMode = new(corev1.PersistentVolumeBlock)
	})
	add("directory", corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv"}}, corev1.ReadWriteMany)
	add("disk", corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/srv"}}, corev1.ReadWriteMany)
	again := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "again"}}
	again.Spec.PersistentVolumeSource = csi(virtual.Driver, "pvc-again")
	bind(again, "shop", "again")
	again.Status.Phase = corev1.VolumePending // until the controller manager has seen that it is bound
	if err := api.Create(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "csi-share"}}
	va.Spec = storagev1.VolumeAttachmentSpec{
		Attacher: "other.example.com", NodeName: nodeA, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("attached-share")},
	}
	if err := api.Create(t.Context(), va); err != nil {
		t.Fatal(err)
	}
	return Pods{cache: view, volumes: Volumes{cache: view, driver: virtual.Driver}, selector: labels.SelectorFromSet(selected)}, api
}

func TestVolumesOfAPod(t *testing.T) {
	t.Parallel()
	source := func(s corev1.VolumeSource) []corev1.Volume { return []corev1.Volume{{Name: "v", VolumeSource: s}} }
	directory := corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}
	mounting := func(readOnly bool) corev1.Container {
		return corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "v", ReadOnly: readOnly}}}
	}
	claims := func(names ...string) []corev1.Volume {
		var volumes []corev1.Volume
		for _, name := range names {
			volumes = append(volumes, claimVolume(name, false))
		}
		return volumes
	}
	cases := map[string]struct {
		volumes    []corev1.Volume
		containers []corev1.Container
		init       []corev1.Container
		others     []string
		unsafe     string
		unbound    string
	}{
		"the volume itself is neither":               {volumes: claims("data")},
		"another volume of ours":                     {volumes: claims("data", "wal"), others: []string{"wal"}},
		"a volume of another driver is unsafe":       {volumes: claims("data", "foreign"), unsafe: "foreign"},
		"so is one that is a volume of many writers": {volumes: claims("data", "directory"), unsafe: "directory"},
		"and a disk of the node that is one":         {volumes: claims("data", "disk"), unsafe: "disk"},
		"a claim without a volume":                   {volumes: claims("data", "unbound"), unbound: "shop/unbound"},
		"a claim whose volume is created again":      {volumes: claims("data", "again"), unbound: "shop/again"},
		"the first such claim is named":              {volumes: claims("unbound", "again"), unbound: "shop/unbound"},
		"raw block for many nodes is unsafe":         {volumes: claims("data", "disk-for-many"), unsafe: "disk-for-many"},
		"a shared volume without attachment":         {volumes: claims("data", "share")},
		"a shared volume that is attached":           {volumes: claims("data", "attached-share")},
		"the first unsafe one is named":              {volumes: claims("foreign", "unbound", "directory"), unsafe: "foreign", unbound: "shop/unbound"},
		"a config map":                               {volumes: source(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}})},
		"a secret":                                   {volumes: source(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}})},
		"a projected volume":                         {volumes: source(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}})},
		"the downward API":                           {volumes: source(corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{}})},
		"an empty directory":                         {volumes: source(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})},
		"an image":                                   {volumes: source(corev1.VolumeSource{Image: &corev1.ImageVolumeSource{}})},
		"a generic ephemeral volume":                 {volumes: source(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}})},
		"an ephemeral volume of another driver": {volumes: []corev1.Volume{
			{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
		}},
		"a directory of the node is unsafe":     {volumes: source(directory), unsafe: "v"},
		"the first of two directories is named": {volumes: append(source(directory), corev1.Volume{Name: "w", VolumeSource: directory}), unsafe: "v"},
		"an inline CSI volume":                  {volumes: source(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{}})},
		"an inline share":                       {volumes: source(corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}})},
		"a directory of the node that all containers mount read-only": {
			volumes: source(directory), containers: []corev1.Container{mounting(true), mounting(true)},
		},
		"a directory of the node that one of them can write is unsafe": {
			volumes: source(directory), containers: []corev1.Container{mounting(true), mounting(false)}, unsafe: "v",
		},
		"a directory of the node that an init container can write is unsafe": {
			volumes: source(directory), containers: []corev1.Container{mounting(true)}, init: []corev1.Container{mounting(false)}, unsafe: "v",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0"}}
			pod.Spec.NodeName, pod.Spec.Volumes = nodeA, c.volumes
			pod.Spec.Containers, pod.Spec.InitContainers = c.containers, c.init
			pods, _ := volumesWorld(t)
			all, err := pods.others(t.Context(), pod, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "data"}})
			if err != nil {
				t.Fatal(err)
			}
			var others []string
			for _, pv := range all.ours {
				others = append(others, pv.Name)
			}
			slices.Sort(others)
			if diff := cmp.Diff(c.others, others); diff != "" || all.unsafe != c.unsafe || all.unbound != c.unbound {
				t.Errorf("unsafe volume %q, want %q; unbound claim %q, want %q; other volumes (-want +got):\n%s",
					all.unsafe, c.unsafe, all.unbound, c.unbound, diff)
			}
		})
	}
}

// Of the volumes that are bound to a claim the pod may use any: one that may not survive a move makes the claim unsafe.
func TestAClaimWithSeveralVolumesIsAsSafeAsTheLeastSafe(t *testing.T) {
	t.Parallel()
	for name, handles := range map[string][]string{
		"the first one is not safe": {"foreign", "share"},
		"the last one is not safe":  {"share", "foreign"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pods, api := volumesWorld(t)
			pods.cache, pods.volumes.cache = inOrder{pods.cache, handles}, inOrder{pods.cache, handles}
			for _, name := range handles {
				changed(t, api, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}, func(pv *corev1.PersistentVolume) {
					bind(pv, "shop", "both")
				})
			}
			pod := podWith("both")
			all, err := pods.others(t.Context(), &pod, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "data"}})
			if err != nil || len(all.ours) > 0 || all.unsafe != "both" {
				t.Errorf("others = %v, %v, want the claim to be unsafe", all, err)
			}
		})
	}
}

// inOrder is a cache that lists volumes in an order: an index has none.
type inOrder struct {
	client.Reader
	names []string
}

func (c inOrder) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	err := c.Reader.List(ctx, list, options...)
	if volumes, ok := list.(*corev1.PersistentVolumeList); ok {
		slices.SortFunc(volumes.Items, func(a, b corev1.PersistentVolume) int {
			return slices.Index(c.names, a.Name) - slices.Index(c.names, b.Name)
		})
	}
	return err
}

// What the policy hears of the other volumes of a pod.
func TestFactsOfOtherVolumes(t *testing.T) {
	t.Parallel()
	inputs := Inputs{Linstor: noLinstor{}, volumes: Volumes{driver: virtual.Driver}}
	for name, tc := range map[string]struct {
		change func(*podVolume)
		want   failover.OtherVolume
	}{
		"a volume of one node": {func(*podVolume) {}, failover.OtherVolume{}},
		"a shared one": {func(v *podVolume) {
			v.Spec.AccessModes = append(v.Spec.AccessModes, corev1.ReadWriteMany)
		}, failover.OtherVolume{Shared: true}},
		"one that many only read": {func(v *podVolume) {
			v.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
		}, failover.OtherVolume{}},
		"one that is mounted by NFS": {func(v *podVolume) {
			v.Spec.CSI.VolumeAttributes = map[string]string{nfsExport: "true"}
		}, failover.OtherVolume{NFSExport: true}},
		"a generic ephemeral one": {func(v *podVolume) { v.ephemeral = true }, failover.OtherVolume{Ephemeral: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "wal"}}
			pv.Spec.PersistentVolumeSource = csi(virtual.Driver, "pvc-wal")
			pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
			volume := podVolume{PersistentVolume: pv}
			tc.change(&volume)
			tc.want.Name, tc.want.Resource.Name = "wal", "pvc-wal"
			if diff := cmp.Diff(tc.want, inputs.other(volume)); diff != "" {
				t.Errorf("other (-want +got):\n%s", diff)
			}
		})
	}
}

// The claim of a generic ephemeral volume is named after the pod, and goes with it.
func TestAnEphemeralVolumeOfOursIsTold(t *testing.T) {
	t.Parallel()
	pods, api := volumesWorld(t)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "wal"}}
	pod.Spec.Volumes = []corev1.Volume{
		claimVolume("data", false), {Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
	}
	own := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "own"}}
	own.Spec.PersistentVolumeSource = csi(virtual.Driver, "pvc-own")
	bind(own, "shop", "wal-scratch")
	if err := api.Create(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	others, err := pods.others(t.Context(), pod, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "data"}})
	if err != nil || others.unsafe != "" || others.unbound != "" || len(others.ours) != 1 || others.ours[0].Name != "own" || !others.ours[0].ephemeral {
		t.Errorf("others = %+v, %v, want the ephemeral one", others, err)
	}
}

func orNothing[T any](f func(*T)) func(*T) {
	if f == nil {
		return func(*T) {}
	}
	return f
}

// noLinstor knows nothing.
type noLinstor struct{}

func (noLinstor) Resource(string) (linstor.Resource, bool) {
	return linstor.Resource{Name: "not this"}, false
}
func (noLinstor) Node(string) (linstor.Node, bool) { return linstor.Node{}, false }
func (noLinstor) Status() linstor.Status           { return linstor.Status{} }
