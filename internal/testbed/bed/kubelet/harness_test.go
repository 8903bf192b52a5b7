package kubelet

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/csidriver"
)

const (
	node      = "node-1"
	namespace = "default"
)

// bench is one simulated node over a fake API, which the test plays the controllers of. The fake API has
// neither graceful deletion nor preconditions: those are left to the test bed with its real one.
type bench struct {
	*testing.T
	client  *fake.Clientset
	storage *fakeStorage
	fleet   *Fleet
	k       *Kubelet
	uids    int

	gate  atomic.Pointer[gate] // of the node: every request obeys it, except while asAPI is set
	asAPI atomic.Bool
}

// onBench runs a test in a bubble with virtual time, with one node that is Ready.
func onBench(t *testing.T, cfg Config, test func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		// The client without field management is set up ten times as fast as the one with it.
		b := &bench{T: t, client: fake.NewSimpleClientset(), storage: &fakeStorage{open: map[string]int{}}}
		cfg.Storage = b.storage
		b.client.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			if g := b.gate.Load(); g != nil && !g.reachable() && !b.asAPI.Load() {
				return true, nil, errUnreachable
			}
			return false, nil, nil
		})
		fleet, err := newFleet(cfg, b.client, func(g *gate) (kubernetes.Interface, error) {
			b.gate.Store(g)
			return b.client, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		b.fleet = fleet
		t.Cleanup(b.fleet.Stop)
		if err := b.fleet.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if b.k, err = b.fleet.AddNode(t.Context(), node, NodeOptions{Labels: map[string]string{"zone": "z"}}); err != nil {
			t.Fatal(err)
		}
		b.pass(time.Second)
		test(b)
	})
}

// pass lets virtual time pass.
func (b *bench) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// must ends the test on an error.
func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// behindGate does something as the API itself, which a partition of the node does not concern.
func (b *bench) behindGate(f func()) {
	b.asAPI.Store(true)
	defer b.asAPI.Store(false)
	f()
}

// node returns the Node.
func (b *bench) node() (n *corev1.Node) {
	b.Helper()
	b.behindGate(func() {
		var err error
		n, err = b.client.CoreV1().Nodes().Get(b.Context(), node, metav1.GetOptions{})
		b.must(err)
	})
	return n
}

// pod returns a pod, nil if there is none.
func (b *bench) pod(name string) (pod *corev1.Pod) {
	b.behindGate(func() {
		var err error
		if pod, err = b.client.CoreV1().Pods(namespace).Get(b.Context(), name, metav1.GetOptions{}); err != nil {
			pod = nil
		}
	})
	return pod
}

// createVolume creates a bound volume and claim of a name.
func (b *bench) createVolume(name string, change func(*corev1.PersistentVolume)) {
	b.Helper()
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: csidriver.Name, VolumeHandle: name},
			},
		},
	}
	if change != nil {
		change(pv)
	}
	_, err := b.client.CoreV1().PersistentVolumes().Create(b.Context(), pv, metav1.CreateOptions{})
	b.must(err)
	_, err = b.client.CoreV1().PersistentVolumeClaims(namespace).Create(b.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: name},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}, metav1.CreateOptions{})
	b.must(err)
}

// createPod creates a pod on the node, with a volume of the same name if claim is set.
func (b *bench) createPod(name, claim string, change func(*corev1.Pod)) {
	b.Helper()
	b.uids++
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, UID: types.UID(fmt.Sprintf("uid-%d", b.uids))},
		Spec: corev1.PodSpec{
			NodeName:   node,
			Containers: []corev1.Container{{Name: "main", Image: "image"}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	if claim != "" {
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}}}
	}
	if change != nil {
		change(pod)
	}
	_, err := b.client.CoreV1().Pods(namespace).Create(b.Context(), pod, metav1.CreateOptions{})
	b.must(err)
}

// updatePod changes a pod as another writer would.
func (b *bench) updatePod(name string, change func(*corev1.Pod)) {
	b.Helper()
	b.behindGate(func() {
		pod, err := b.client.CoreV1().Pods(namespace).Get(b.Context(), name, metav1.GetOptions{})
		b.must(err)
		change(pod)
		_, err = b.client.CoreV1().Pods(namespace).Update(b.Context(), pod, metav1.UpdateOptions{})
		b.must(err)
	})
}

// deletePod begins the graceful deletion of a pod.
func (b *bench) deletePod(name string, grace int64) {
	b.updatePod(name, func(pod *corev1.Pod) {
		pod.DeletionTimestamp = new(metav1.Now())
		pod.DeletionGracePeriodSeconds = &grace
	})
}

// forceDeletePod removes a pod from the API.
func (b *bench) forceDeletePod(name string) {
	b.Helper()
	b.behindGate(func() { b.must(b.client.CoreV1().Pods(namespace).Delete(b.Context(), name, metav1.DeleteOptions{})) })
}

// attachInStatus says in the node's status that a volume is attached.
func (b *bench) attachInStatus(handle string) {
	b.Helper()
	n := b.node()
	n.Status.VolumesAttached = append(n.Status.VolumesAttached, corev1.AttachedVolume{Name: UniqueVolumeName(csidriver.Name, handle)})
	_, err := b.client.CoreV1().Nodes().UpdateStatus(b.Context(), n, metav1.UpdateOptions{})
	b.must(err)
}

// createAttachment creates the volume's attachment.
func (b *bench) createAttachment(handle string, attached bool) {
	b.Helper()
	_, err := b.client.StorageV1().VolumeAttachments().Create(b.Context(), &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: AttachmentName(csidriver.Name, handle, node)},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: csidriver.Name, NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new(handle)},
		},
		Status: storagev1.VolumeAttachmentStatus{Attached: attached},
	}, metav1.CreateOptions{})
	b.must(err)
}

// attach attaches a volume.
func (b *bench) attach(handle string) {
	b.Helper()
	b.attachInStatus(handle)
	b.createAttachment(handle, true)
}

// runPod runs a pod with a volume until it is Ready.
func (b *bench) runPod(name string, change func(*corev1.Pod)) {
	b.Helper()
	b.createVolume(name, nil)
	b.attach(name)
	b.createPod(name, name, change)
	b.pass(2 * time.Second)
	b.wantReady(name, true)
}

// wantReady checks a pod's Ready condition.
func (b *bench) wantReady(name string, want bool) {
	b.Helper()
	pod := b.pod(name)
	if pod == nil {
		b.Fatalf("pod %s is gone", name)
	}
	if got := ready(pod); got != want {
		b.Errorf("pod %s Ready = %v, want %v: %+v", name, got, want, pod.Status)
	}
}

// ready returns whether a pod's condition Ready is True.
func ready(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// wantInUse checks the node's volumesInUse.
func (b *bench) wantInUse(handles ...string) {
	b.Helper()
	want, got := sets.New(handles...), sets.New[string]()
	for _, name := range b.node().Status.VolumesInUse {
		got.Insert(string(name)[len(UniqueVolumeName(csidriver.Name, "")):])
	}
	if !want.Equal(got) {
		b.Errorf("volumes in use: %v, want %v", sets.List(got), sets.List(want))
	}
}

// wantOpen checks what is open: a resource, with "ro:" before it when it was opened read-only.
func (b *bench) wantOpen(devices ...string) {
	b.Helper()
	want, got := sets.New(devices...), b.storage.devices()
	if !want.Equal(got) {
		b.Errorf("open devices: %v, want %v", sets.List(got), sets.List(want))
	}
}

// fakeStorage counts openers.
type fakeStorage struct {
	mu     sync.Mutex
	open   map[string]int
	refuse bool
	hangs  bool
	tries  int
}

// set changes how the storage behaves.
func (s *fakeStorage) set(change func(*fakeStorage)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *fakeStorage) Open(resource, _ string, readOnly bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries++
	if s.refuse {
		return errors.New("a peer is Primary")
	}
	if readOnly {
		resource = "ro:" + resource
	}
	s.open[resource]++
	return nil
}

func (s *fakeStorage) Close(resource, _ string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, device := range []string{resource, "ro:" + resource} {
		if s.open[device] > 0 {
			s.open[device]--
			return
		}
	}
	panic("closed " + resource + ", which is not open")
}

func (s *fakeStorage) IOHangs(_, _ string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hangs
}

// devices returns what is open.
func (s *fakeStorage) devices() sets.Set[string] {
	s.mu.Lock()
	defer s.mu.Unlock()
	open := sets.New[string]()
	for device, n := range s.open {
		if n > 0 {
			open.Insert(device)
		}
	}
	return open
}
