package cluster

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// What is dropped from a pod to save memory must not change what is known of it.
func TestATrimmedPodTellsTheSame(t *testing.T) {
	t.Parallel()
	at := metav1.NewTime(time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "db-0", UID: "pod", CreationTimestamp: at, Labels: map[string]string{"move": "me", "app": "db"},
			Annotations:     map[string]string{AnnotationIgnore: "", "large": "value"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "db", UID: "owner", Controller: new(true)}},
		},
		Spec: corev1.PodSpec{
			NodeName: "node-a", ServiceAccountName: "db", Tolerations: []corev1.Toleration{{Key: "any", Operator: corev1.TolerationOpExists}},
			NodeSelector: map[string]string{"disk": "fast"},
			Affinity:     zoned("a", "b"),
			Containers:   []corev1.Container{{Name: "db", Image: "db:1", Command: []string{"db"}, Env: []corev1.EnvVar{{Name: "A", Value: "b"}}}},
			Volumes: []corev1.Volume{
				{Name: "data", VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-db", ReadOnly: true},
				}},
				{Name: "scratch", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/tmp"}}},
			},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "10.0.0.1",
			Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: at}},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: "db", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}},
			}},
		},
	}
	for name, selector := range map[string]labels.Selector{"all labels": nil, "selected labels": movable(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, err := Trim(selector)(pod.DeepCopy())
			if err != nil {
				t.Fatal(err)
			}
			trimmed := o.(*corev1.Pod)
			if trimmed.Annotations["large"] != "" || trimmed.Status.PodIP != "" || trimmed.Spec.Containers[0].Env != nil {
				t.Errorf("nothing was dropped: %+v", trimmed)
			}
			if _, kept := trimmed.Labels["app"]; kept != (selector == nil) {
				t.Errorf("labels left: %v", trimmed.Labels)
			}
			whole := surveyed(t, pod)
			want := map[string]int{"the pod's node selector or affinity rules it out": 2, "the pod does not tolerate its taint other": 1}
			if diff := cmp.Diff(want, whole[0].Input.Pods[0].Places.Obstacles); diff != "" {
				t.Errorf("what keeps the pod from other nodes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(whole, surveyed(t, trimmed)); diff != "" {
				t.Errorf("what is known of the pod (-whole +trimmed):\n%s", diff)
			}
		})
	}
}

// zoned is the affinity of what may run in some zones only, and would rather run elsewhere.
func zoned(zones ...string) *corev1.Affinity {
	in := func(key string, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values},
		}}
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution:  &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{in("zone", zones...)}},
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 1, Preference: in("room", "1")}},
	}}
}

// movable selects the pods that may be moved.
func movable(t *testing.T) labels.Selector {
	t.Helper()
	selector, err := labels.Parse("move=me")
	if err != nil {
		t.Fatal(err)
	}
	return selector
}

// indexer registers the indexes of a cache with a fake client.
type indexer struct{ *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, o client.Object, field string, extract client.IndexerFunc) error {
	i.WithIndex(o, field, extract)
	return nil
}

// surveyed returns what a survey knows of a pod that uses a volume of ours.
func surveyed(t *testing.T, pod *corev1.Pod) []Use {
	t.Helper()
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, time.March, 1, 13, 0, 0, 0, time.UTC))
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "db"}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: virtual.Driver, VolumeHandle: "pvc-db"}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "data-db"}
	pv.Status.Phase = corev1.VolumeBound
	builder := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(pv, pod.DeepCopy())
	for name, node := range map[string]*corev1.Node{
		"slow":      {},
		"elsewhere": {ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"disk": "fast", "zone": "c"}}},
		"tainted": {
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"disk": "fast", "zone": "a"}},
			Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "any", Effect: "NoSchedule"}, {Key: "other", Effect: "NoSchedule"}}},
		},
	} {
		node.Name = name
		builder.WithObjects(node)
	}
	if err := AddIndexes(t.Context(), indexer{builder}, virtual.Driver); err != nil {
		t.Fatal(err)
	}
	memory := linstor.NewStore()
	survey := NewSurvey(Config{
		Cache: builder.Build(), Driver: virtual.Driver, Selector: movable(t), Clock: clock,
		Linstor: struct {
			*linstor.Store
			*linstor.Feed
		}{memory, linstor.NewFeed(&linstor.Client{}, memory, logr.Discard(), linstor.Options{})},
		Kubelets: NewKubelets(clock, virtual.Driver, nil),
	})
	uses, idle, err := survey.Uses(t.Context(), "")
	if err != nil || len(uses) != 1 || len(idle) > 0 {
		t.Fatalf("%d uses, %d idle pods, %v", len(uses), len(idle), err)
	}
	return uses
}
