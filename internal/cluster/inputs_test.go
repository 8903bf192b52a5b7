package cluster

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// The nodes of the tests.
const (
	nodeA = "node-a"
	nodeB = "node-b"
	nodeT = "node-t"
)

// selected are the labels of a pod that asks for fail-over.
var selected = map[string]string{"linstor.csi.linbit.com/on-storage-lost": "remove"}

// wellOn is a LINSTOR whose every resource is Primary on A and well.
type wellOn struct{}

func (wellOn) Resource(name string) (linstor.Resource, bool) {
	now := time.Now()
	return linstor.Resource{Name: name, DRBD: true, Volumes: 1, Confirmed: now, Replicas: []linstor.Replica{{
		Node: nodeA, Online: linstor.Fact[bool]{Value: true, Known: true, Confirmed: now},
		Reports: linstor.Fact[bool]{Value: true, Known: true, Confirmed: now},
		InUse:   linstor.Fact[bool]{Value: true, Known: true, Confirmed: now},
		Score:   linstor.Fact[int]{Value: 10102, Known: true, Confirmed: now},
	}}}, true
}

func (wellOn) Node(string) (linstor.Node, bool) { return linstor.Node{}, false }
func (wellOn) Status() linstor.Status           { return linstor.Status{} }

// clockAt shows the time that it points to.
type clockAt struct{ now *time.Time }

func (c clockAt) Now() time.Time                  { return *c.now }
func (c clockAt) Since(t time.Time) time.Duration { return c.now.Sub(t) }

func TestVolumeFacts(t *testing.T) {
	t.Parallel()
	modes := func(modes ...corev1.PersistentVolumeAccessMode) func(*corev1.PersistentVolumeSpec) {
		return func(s *corev1.PersistentVolumeSpec) { s.AccessModes = modes }
	}
	for name, tc := range map[string]struct {
		change func(*corev1.PersistentVolumeSpec)
		want   failover.Volume
	}{
		"a volume with a file system":           {modes(corev1.ReadWriteOnce), failover.Volume{}},
		"a volume without a word on its access": {modes(), failover.Volume{}},
		"a volume that some may write":          {modes(corev1.ReadOnlyMany, corev1.ReadWriteOnce), failover.Volume{}},
		"a volume that all only read":           {modes(corev1.ReadOnlyMany), failover.Volume{ReadOnly: true}},
		"a volume that is read-only":            {func(s *corev1.PersistentVolumeSpec) { s.CSI.ReadOnly = true }, failover.Volume{ReadOnly: true}},
		"a volume that says file system": {
			func(s *corev1.PersistentVolumeSpec) { s.VolumeMode = new(corev1.PersistentVolumeFilesystem) }, failover.Volume{},
		},
		"a raw block volume": {
			func(s *corev1.PersistentVolumeSpec) { s.VolumeMode = new(corev1.PersistentVolumeBlock) }, failover.Volume{Block: true},
		},
		"an NFS export": {
			func(s *corev1.PersistentVolumeSpec) { s.CSI.VolumeAttributes = map[string]string{nfsExport: ""} },
			failover.Volume{NFSExport: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "db", CreationTimestamp: start}}
			pv.Spec.PersistentVolumeSource = csi(virtual.Driver, "pvc-db")
			tc.change(&pv.Spec)
			tc.want.Name = "db"
			if diff := cmp.Diff(tc.want, volumeFacts(pv)); diff != "" {
				t.Errorf("volumeFacts (-want +got):\n%s", diff)
			}
		})
	}
}

// A selected pod awaits the volume when it is bound to another node and has not run there yet.
func TestAttachmentFacts(t *testing.T) {
	t.Parallel()
	va := func(node string) storagev1.VolumeAttachment {
		var va storagev1.VolumeAttachment
		va.Name, va.Spec.NodeName = "csi-"+node, node
		return va
	}
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"a pod that waits on another node":  {func(*corev1.Pod) {}, true},
		"a pod that waits on the same node": {func(p *corev1.Pod) { p.Spec.NodeName = nodeA }, false},
		"a pod that has no node yet":        {func(p *corev1.Pod) { p.Spec.NodeName = "" }, false},
		"a pod that has been deleted":       {func(p *corev1.Pod) { p.DeletionTimestamp = new(start) }, false},
		"a pod that has run with it where it is now": {func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := corev1.Pod{}
			pod.Spec.NodeName = nodeB
			tc.change(&pod)
			facts := attachmentFacts([]storagev1.VolumeAttachment{va(nodeB), va(nodeA)}, []corev1.Pod{pod}, nodeA)
			if facts == nil || facts.Name != "csi-"+nodeA || facts.Awaited != tc.want {
				t.Errorf("%+v, want the attachment to %s, awaited: %t", facts, nodeA, tc.want)
			}
		})
	}
	if facts := attachmentFacts([]storagev1.VolumeAttachment{va(nodeB)}, nil, nodeA); facts != nil {
		t.Errorf("the attachment to another node is taken for this one's: %+v", facts)
	}
}

// An attachment that was deleted here is looked at for a while, as long as the node's kubelet could claim the volume again.
func TestAnAttachmentThatWasDeletedLingers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		in        func(*failover.Input)
		elsewhere bool
		want      bool
	}{
		"on the node that it was taken off":                     {want: true},
		"while LINSTOR says nothing":                            {in: func(in *failover.Input) { in.Resource = failover.Resource{} }, want: true},
		"not once LINSTOR has no replica there":                 {in: func(in *failover.Input) { in.Resource.Replicas = nil }},
		"not where the kubelet is silent":                       {in: func(in *failover.Input) { in.Node.LeaseKnown, in.Node.LeaseSilence = true, time.Hour }},
		"not once Kubernetes has attached the volume elsewhere": {elsewhere: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			model := apimodel.New()
			view := model.View(0, nil)
			pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "db"}}
			if err := AddIndexes(t.Context(), view, virtual.Driver); err != nil {
				t.Fatal(err)
			}
			if tc.elsewhere {
				va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "csi-db-elsewhere"}}
				va.Spec.Attacher, va.Spec.NodeName, va.Spec.Source.PersistentVolumeName = virtual.Driver, nodeB, &pv.Name
				if err := model.Client("test").Create(t.Context(), va); err != nil {
					t.Fatal(err)
				}
			}
			inputs := NewReaders(Config{Cache: view, Driver: virtual.Driver}).Inputs
			in := failover.Input{Node: failover.Node{Name: nodeA, Satellite: nodeA}}
			in.Resource = failover.Resource{Known: true, Replicas: []failover.Replica{{Node: nodeB}, {Node: nodeA}}}
			orNothing(tc.in)(&in)
			facts, err := inputs.lingering(t.Context(), pv, in, &failover.Attachment{Name: "csi-db"})
			if err != nil {
				t.Fatal(err)
			}
			if (facts != nil) != tc.want {
				t.Errorf("%+v, want it: %t", facts, tc.want)
			}
		})
	}
}

// What the cache says of an attachment is not believed where it was not read.
func TestAnAttachmentCountsAsItWasRead(t *testing.T) {
	t.Parallel()
	inCache := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "csi-data"}}
	inCache.Spec.Attacher, inCache.Spec.NodeName, inCache.Spec.Source.PersistentVolumeName = virtual.Driver, nodeA, new("data")
	for name, tc := range map[string]struct {
		read   AttachmentsRead
		there  bool
		unread bool
	}{
		"it was read":                             {read: AttachmentsRead{byName: map[string]attachmentRead{"csi-data": {VolumeAttachment: inCache}}}, there: true},
		"it was read and is gone":                 {read: AttachmentsRead{byName: map[string]attachmentRead{"csi-data": {}}}},
		"it could not be read":                    {read: AttachmentsRead{byName: map[string]attachmentRead{"csi-data": {err: errors.New("no")}}}, unread: true},
		"it came after it was known what to read": {unread: true},
		"all were listed, and it is gone":         {read: AttachmentsRead{all: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pods, api := volumesWorld(t)
			if err := api.Create(t.Context(), inCache.DeepCopy()); err != nil {
				t.Fatal(err)
			}
			inputs := NewReaders(Config{Cache: pods.cache, Driver: virtual.Driver, Selector: pods.selector}).Inputs
			pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "data"}}
			facts, err := inputs.confirmedAttachment(t.Context(), pv, Reading{Node: nodeA, Attachments: tc.read}, Remembered{})
			if (facts != nil) != tc.there || (err != nil) != tc.unread {
				t.Errorf("%+v, %v, want it to be there: %t, an error: %t", facts, err, tc.there, tc.unread)
			}
		})
	}
}

// dataInputs reads the inputs of the volume "data" of volumesWorld, whose attachment to A was deleted a moment ago.
func dataInputs(t *testing.T, pods Pods) (Inputs, *corev1.PersistentVolume) {
	t.Helper()
	now := start.Time
	pv, err := pods.volumes.Get(t.Context(), "data")
	if err != nil {
		t.Fatal(err)
	}
	return NewReaders(Config{
		Cache: pods.cache, Driver: virtual.Driver, Linstor: noLinstor{}, Clock: clockAt{&now}, Selector: pods.selector,
		Kubelets: NewKubelets(clockAt{&now}, virtual.Driver, nil),
	}).Inputs, pv
}

// The volume of a pod that has come to the node since is not taken from it.
func TestAnAttachmentThatWasDeletedLingersUntilAPodComes(t *testing.T) {
	t.Parallel()
	pods, _ := volumesWorld(t)
	inputs, pv := dataInputs(t, pods)
	for _, there := range [][]corev1.Pod{nil, {podWith("data")}} {
		in, err := inputs.input(t.Context(), pv, nil, nodeA, there, nil, nil, Remembered{Deleted: &failover.Attachment{Name: "csi-data"}})
		if err != nil {
			t.Fatal(err)
		}
		if lingers := in.Attachment != nil; lingers != (len(there) == 0) {
			t.Errorf("with %d pods there the attachment lingers: %t", len(there), lingers)
		}
	}
}

func TestTheHelperOfAnExemptPodIsExempt(t *testing.T) {
	t.Parallel()
	for name, exempt := range map[string]bool{"its pod is exempt": true, "its pod is not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pods, api := volumesWorld(t)
			inputs, pv := dataInputs(t, pods)
			owner, helper := podWith("wal"), podWith("data")
			if exempt {
				owner.Annotations = map[string]string{AnnotationIgnore: ""}
			}
			if err := api.Create(t.Context(), &owner); err != nil {
				t.Fatal(err)
			}
			helper.OwnerReferences = []metav1.OwnerReference{{Kind: podKind, Name: owner.Name, UID: owner.UID, Controller: new(true)}}
			in, err := inputs.input(t.Context(), pv, nil, nodeA, []corev1.Pod{helper}, nil, nil, Remembered{})
			if err != nil || len(in.Pods) != 1 || in.Pods[0].Exempt != exempt {
				t.Errorf("%+v, %v, want it to be exempt: %t", in.Pods, err, exempt)
			}
		})
	}
}
