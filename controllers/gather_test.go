package controllers

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

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
			tc.want.Name, tc.want.Created = "db", start.Time
			if diff := cmp.Diff(tc.want, volumeFacts(pv)); diff != "" {
				t.Errorf("volumeFacts (-want +got):\n%s", diff)
			}
		})
	}
	if got := claimOf(&corev1.PersistentVolume{}); got != "" {
		t.Errorf("a volume without a claim has the claim %q", got)
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

// noLinstor knows nothing.
type noLinstor struct{ Linstor }

func (noLinstor) Resource(string) (linstor.Resource, bool) {
	return linstor.Resource{Name: "not this"}, false
}
func (noLinstor) Status() linstor.Status                  { return linstor.Status{} }
func (noLinstor) Undecided(string, time.Time) []time.Time { return nil }

// A node is looked at for a selected pod there, and for an attachment only when a fail-over has begun for it or a
// selected pod awaits the volume elsewhere.
func TestCandidates(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*steps)
		want   []string
	}{
		"a pod with its attachment": {func(*steps) {}, []string{nodeA}},
		"a pod that has no node": {func(s *steps) {
			s.withoutPod()
			s.add("db-1", "")
		}, nil},
		"an attachment that nobody asks for":      {(*steps).withoutPod, nil},
		"an attachment whose fail-over has begun": {func(s *steps) { s.withoutPod(); s.setMark("begun") }, []string{nodeA}},
		"an attachment that a pod awaits elsewhere": {func(s *steps) {
			s.withoutPod()
			s.add("db-1", nodeB)
		}, []string{nodeA, nodeB}},
		"a pod without an attachment": {func(s *steps) { s.must(s.api.Delete(s.ctx, s.attachment())) }, []string{nodeA}},
		"an attachment by another driver": {func(s *steps) {
			s.withoutPod()
			s.must(s.api.Delete(s.ctx, s.attachment()))
			s.attach("csi-other", nodeB, func(va *storagev1.VolumeAttachment) {
				va.Spec.Attacher, va.Annotations = "other.example.com", map[string]string{AnnotationFailOver: "begun"}
			})
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSteps(t)
			s.r.linstor = noLinstor{}
			tc.change(s)
			inputs, err := s.r.candidates(s.ctx, s.pv)
			s.must(err)
			var nodes []string
			for _, in := range inputs {
				nodes = append(nodes, in.Node.Name)
				if in.Resource.Name != "pvc-db" || in.Resource.Known {
					t.Errorf("what LINSTOR does not know is taken for known: %+v", in.Resource)
				}
				if in.Attachment != nil && in.Attachment.Name != "csi-db" {
					t.Errorf("node %s has the attachment %s", in.Node.Name, in.Attachment.Name)
				}
			}
			if !slices.Equal(nodes, tc.want) {
				t.Errorf("nodes %v, want %v", nodes, tc.want)
			}
		})
	}
}

// add adds another pod that uses the volume.
func (s *steps) add(name, node string) {
	s.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	pod.Spec.NodeName, pod.Spec.Volumes = node, []corev1.Volume{claimVolume("data-db", false)}
	s.must(s.api.Create(s.ctx, pod))
}

// attach adds another attachment of the volume.
func (s *steps) attach(name, node string, change func(*storagev1.VolumeAttachment)) {
	s.Helper()
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}}
	va.Spec.Attacher, va.Spec.NodeName, va.Spec.Source.PersistentVolumeName = virtual.Driver, node, &s.pv.Name
	change(va)
	s.must(s.api.Create(s.ctx, va))
}

// The attachment is read past the cache before anything is done about it.
func TestTheAttachmentIsConfirmed(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	s.attach("csi-db-elsewhere", nodeB, func(*storagev1.VolumeAttachment) {})
	view := s.r.cache.(interface{ Pause() })
	confirm := func() (*failover.Attachment, error) {
		read, err := s.r.readAttachments(s.ctx, s.ctx, nodeA, []*volume{{pv: s.pv}})
		s.must(err)
		return s.r.confirmAttachment(s.ctx, s.pv, nodeA, read)
	}
	facts, err := confirm()
	s.must(err)
	if facts == nil || facts.Name != "csi-db" {
		t.Fatalf("%+v", facts)
	}
	view.Pause()
	s.setMark("by another process, a moment ago")
	if facts, err = confirm(); err != nil || facts == nil || !facts.Marked {
		t.Errorf("%+v, %v, want the mark", facts, err)
	}
	s.must(s.api.Delete(s.ctx, s.attachment()))
	if facts, err = confirm(); err != nil || facts != nil {
		t.Errorf("%+v, %v, want no attachment", facts, err)
	}
}

// asked is a LINSTOR that knows nothing, and remembers what it was asked about.
type asked struct {
	noLinstor
	mu    *sync.Mutex
	names *[]string
}

func (a asked) Refresh(_ context.Context, name string) (linstor.Resource, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	*a.names = append(*a.names, name)
	return linstor.Resource{}, nil
}

// A removal rests on all volumes of the pods on the node. Of two in one consistency group there is one word.
func TestLinstorIsAskedAboutAllVolumesOfThePods(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db-1"}}
	pod.Spec.NodeName, pod.Spec.Volumes = nodeA, []corev1.Volume{claimVolume("data-db", false)}
	for name, handle := range map[string]string{"log": "pvc-group/0", "wal": "pvc-group/1"} {
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
		pv.Spec.PersistentVolumeSource = csi(virtual.Driver, handle)
		bind(pv, "default", "data-"+name)
		s.must(s.api.Create(s.ctx, pv))
		pod.Spec.Volumes = append(pod.Spec.Volumes, claimVolume("data-"+name, false))
	}
	s.must(s.api.Create(s.ctx, pod))
	var names []string
	s.r.linstor = asked{mu: &sync.Mutex{}, names: &names}
	s.r.look(s.ctx, nodeA, []*volume{s.volume()})
	slices.Sort(names)
	if want := []string{"pvc-db", "pvc-group"}; !slices.Equal(names, want) {
		t.Errorf("LINSTOR was asked about %v, want %v", names, want)
	}
}

func TestAttachmentsOnANode(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	s.attach("inline", nodeA, func(va *storagev1.VolumeAttachment) {
		va.Spec.Source = storagev1.VolumeAttachmentSource{InlineVolumeSpec: &corev1.PersistentVolumeSpec{}}
	})
	s.attach("theirs", nodeA, func(va *storagev1.VolumeAttachment) { va.Spec.Attacher = "other.example.com" })
	s.attach("elsewhere", nodeB, func(*storagev1.VolumeAttachment) {})
	attachments, err := s.r.attachmentsOn(s.ctx, nodeA)
	s.must(err)
	if len(attachments) != 1 || attachments[0].Name != "csi-db" {
		t.Errorf("%+v, want the one of our driver that has a PersistentVolume", attachments)
	}
}

func TestFactsOfWhatNodesMayRun(t *testing.T) {
	t.Parallel()
	runs := []*failover.Setting{{Quorum: "off"}, {Quorum: "all", Diskful: []string{nodeB}, Diskless: []string{nodeT}}}
	facts := resourceFacts(linstor.Resource{Quorum: "all", InDoubt: true, Left: []string{nodeT}, Replicas: []linstor.Replica{
		{Node: nodeA, Gone: true}, {Node: nodeB, MayRun: runs, Begun: true},
	}})
	want := failover.Resource{Quorum: "all", InDoubt: true, Left: []string{nodeT}, Replicas: []failover.Replica{
		{Node: nodeA, Gone: true, Connections: map[string]failover.Fact[bool]{}},
		{Node: nodeB, MayRun: runs, Begun: true, Connections: map[string]failover.Fact[bool]{}},
	}}
	if diff := cmp.Diff(want, facts); diff != "" {
		t.Errorf("resourceFacts (-want +got):\n%s", diff)
	}
}

// What holds everything back is asked for at most twice a second, however many volumes there are.
func TestHaltIsAskedForTwiceASecond(t *testing.T) {
	t.Parallel()
	now := start.Time
	asked := 0
	h := &haltSwitch{
		linstor: noLinstor{}, clock: clockAt{&now}, metrics: newSteps(t).r.reporter.reports.metrics, lost: func() map[string]bool { asked++; return nil },
		limit: failover.Limit{Percent: true, Value: 50}, recorder: &eventLog{},
	}
	for _, step := range []struct {
		after time.Duration
		want  int
	}{{0, 1}, {0, 1}, {haltAge - 1, 1}, {1, 2}, {time.Minute, 3}} {
		now = now.Add(step.after)
		h.now(t.Context())
		if asked != step.want {
			t.Errorf("asked %d times by %s, want %d", asked, now.Sub(start.Time), step.want)
		}
	}
}

func (noLinstor) Doubts(string) (linstor.Sets, time.Time) { return nil, time.Time{} }

func (noLinstor) Nodes() []linstor.Node             { return nil }
func (noLinstor) Node(string) (linstor.Node, bool)  { return linstor.Node{}, false }
func (noLinstor) Answers(context.Context) error     { return nil }
func (noLinstor) Counts() (replicas, reporting int) { return 0, 0 }

// clockAt shows the time that it points to.
type clockAt struct{ now *time.Time }

func (c clockAt) Now() time.Time                  { return *c.now }
func (c clockAt) Since(t time.Time) time.Duration { return c.now.Sub(t) }

// What was asked for first is what is too old first.
func TestAConfirmationIsAsOldAsTheOldestOfItsAnswers(t *testing.T) {
	t.Parallel()
	began := time.Now()
	at := func(ago time.Duration) time.Time { return began.Add(-ago) }
	node := func(known bool, ago time.Duration) failover.Replica {
		return failover.Replica{Online: failover.Fact[bool]{Known: known, Confirmed: at(ago)}}
	}
	for name, tc := range map[string]struct {
		resource failover.Resource
		want     time.Duration
	}{
		"that of the resource": {
			failover.Resource{Confirmed: at(2), Replicas: []failover.Replica{node(true, 1)}}, 2,
		},
		"that of the list of nodes": {
			failover.Resource{Confirmed: at(1), Replicas: []failover.Replica{node(true, 1), node(true, 3)}}, 3,
		},
		"not that of a node of which nothing is known": {
			failover.Resource{Confirmed: at(1), Replicas: []failover.Replica{node(false, 3)}}, 1,
		},
		"its own where all of it was asked for later": {
			failover.Resource{Confirmed: at(-1), Replicas: []failover.Replica{node(true, -1)}}, 0,
		},
	} {
		asked := began
		if notAfter(&asked, tc.resource); !asked.Equal(at(tc.want)) {
			t.Errorf("%s: %s before, want %s", name, began.Sub(asked), tc.want)
		}
	}
}

// An attachment that was deleted here is looked at for a while, as long as the node's kubelet could claim the volume again.
func TestAnAttachmentThatWasDeletedLingers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*steps)
		in     func(*failover.Input)
		want   bool
	}{
		"on the node that it was taken off":     {want: true},
		"while LINSTOR says nothing":            {in: func(in *failover.Input) { in.Resource = failover.Resource{} }, want: true},
		"not once LINSTOR has no replica there": {in: func(in *failover.Input) { in.Resource.Replicas = nil }},
		"not where the kubelet is silent":       {in: func(in *failover.Input) { in.Node.LeaseKnown, in.Node.LeaseSilence = true, time.Hour }},
		"not on another node":                   {in: func(in *failover.Input) { in.Node.Name = nodeB }},
		"not once Kubernetes has attached the volume elsewhere": {change: func(s *steps) {
			s.attach("csi-db-elsewhere", nodeB, func(*storagev1.VolumeAttachment) {})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSteps(t)
			in := failover.Input{Node: failover.Node{Name: nodeA, Satellite: nodeA}, Attachment: s.in.Attachment}
			in.Resource = failover.Resource{Known: true, Replicas: []failover.Replica{{Node: nodeB}, {Node: nodeA}}}
			s.r.reporter.reports.left("db", in)
			if tc.change != nil {
				tc.change(s)
			}
			if tc.in != nil {
				tc.in(&in)
			}
			facts, err := s.r.lingeringOn(s.ctx, s.pv, in)
			s.must(err)
			if (facts != nil) != tc.want {
				t.Errorf("%+v, want it: %t", facts, tc.want)
			}
		})
	}
}
