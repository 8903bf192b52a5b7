package cluster

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// crowdSize is how many volumes a crowd has, each with a selected pod.
const crowdSize = 2000

// crowdCache returns a cache, as the controller has it, with many volumes.
func crowdCache(tb testing.TB) (client.Reader, labels.Selector) {
	tb.Helper()
	ctrl.SetLogger(logr.Discard()) // the cache's
	selector := labels.SelectorFromSet(labels.Set{"move": "me"})
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("PersistentVolume"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	mapper.Add(storagev1.SchemeGroupVersion.WithKind("VolumeAttachment"), meta.RESTScopeRoot)
	c, err := cache.New(&rest.Config{}, cache.Options{
		HTTPClient: http.DefaultClient, Mapper: mapper, Scheme: scheme.Scheme, DefaultTransform: Trim(selector),
		NewInformer: func(
			_ toolscache.ListerWatcher, kind kruntime.Object, resync time.Duration, indexers toolscache.Indexers,
		) toolscache.SharedIndexInformer {
			return toolscache.NewSharedIndexInformer(crowdLister(kind), kind, resync, indexers)
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	if err := AddIndexes(tb.Context(), c, virtual.Driver); err != nil {
		tb.Fatal(err)
	}
	go func() { _ = c.Start(tb.Context()) }()
	if !c.WaitForCacheSync(tb.Context()) {
		tb.Fatal("the cache was not filled")
	}
	return c, selector
}

// crowdLister lists the objects of a kind that the crowd consists of.
func crowdLister(kind kruntime.Object) toolscache.ListerWatcher {
	list := func() kruntime.Object {
		switch kind.(type) {
		case *corev1.Pod:
			pods := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
			for i := range crowdSize {
				pods.Items = append(pods.Items, crowdPod(i))
			}
			return pods
		case *corev1.PersistentVolume:
			volumes := &corev1.PersistentVolumeList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
			for i := range crowdSize {
				volumes.Items = append(volumes.Items, crowdVolume(i))
			}
			return volumes
		case *corev1.Node:
			return &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: nodeA}}}}
		default:
			attachments := &storagev1.VolumeAttachmentList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
			for i := range crowdSize {
				attachments.Items = append(attachments.Items, crowdAttachment(i))
			}
			return attachments
		}
	}
	return toolscache.ToListWatcherWithWatchListSemantics(&toolscache.ListWatch{
		ListWithContextFunc:  func(context.Context, metav1.ListOptions) (kruntime.Object, error) { return list(), nil },
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
	}, noWatchList{})
}

// noWatchList is a client that does not stream lists.
type noWatchList struct{}

func (noWatchList) IsWatchListSemanticsUnSupported() bool { return true }

func crowdName(i int) string { return fmt.Sprintf("pvc-%08d-0000-4000-8000-%012d", i, i) }

func crowdMeta(name string, i int) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, UID: types.UID(fmt.Sprintf("%08d-1111-4000-8000-%012d", i, i)), ResourceVersion: "1", CreationTimestamp: metav1.Now()}
}

func crowdPod(i int) corev1.Pod {
	pod := corev1.Pod{ObjectMeta: crowdMeta(fmt.Sprintf("database-%05d-0", i), i)}
	pod.Namespace = "default"
	pod.Labels = map[string]string{"move": "me", "app.kubernetes.io/instance": fmt.Sprint("database-", i), "app.kubernetes.io/name": "database"}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "database", UID: "1", Controller: new(true)}}
	pod.Spec = corev1.PodSpec{
		NodeName: nodeA, Containers: []corev1.Container{{Name: "database", Image: "registry.example.com/database:17"}},
		Volumes: []corev1.Volume{
			{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: fmt.Sprintf("data-%05d", i)},
			}},
			{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}},
		},
	}
	pod.Status = corev1.PodStatus{
		Phase:      corev1.PodRunning,
		Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "database", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		}},
	}
	return pod
}

func crowdVolume(i int) corev1.PersistentVolume {
	pv := corev1.PersistentVolume{ObjectMeta: crowdMeta(crowdName(i), i)}
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: virtual.Driver, VolumeHandle: crowdName(i), FSType: "ext4"}
	pv.Spec.ClaimRef = &corev1.ObjectReference{
		Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: "default", Name: fmt.Sprintf("data-%05d", i), UID: pv.UID,
	}
	pv.Status.Phase = corev1.VolumeBound
	return pv
}

func crowdAttachment(i int) storagev1.VolumeAttachment {
	va := storagev1.VolumeAttachment{ObjectMeta: crowdMeta(fmt.Sprintf("csi-%064d", i), i)}
	va.Spec = storagev1.VolumeAttachmentSpec{
		Attacher: virtual.Driver, NodeName: nodeA, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new(crowdName(i))},
	}
	va.Status.Attached = true
	return va
}
