package controllers

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// noLinstor knows nothing.
type noLinstor struct{ Feed }

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
				va.Spec.Attacher, va.Annotations = "other.example.com", map[string]string{cluster.AnnotationFailOver: "begun"}
			})
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSteps(t)
				s.r.inputs.Linstor = noLinstor{}
				tc.change(s)
				for _, node := range []string{nodeA, nodeB} {
					attachments, err := s.r.attachments.Of(s.ctx, s.pv.Name)
					s.must(err)
					in, there, err := s.r.inputs.On(s.ctx, s.pv, attachments, node, cluster.Remembered{})
					s.must(err)
					if in.Resource.Known || there && in.Resource.Name != "pvc-db" {
						t.Errorf("what LINSTOR does not know is taken for known: %+v", in.Resource)
					}
					if there && in.Attachment != nil && in.Attachment.Name != "csi-db" {
						t.Errorf("node %s has the attachment %s", node, in.Attachment.Name)
					}
					volumes := s.r.gather(s.ctx, s.r.stateOf(node), nil)
					if want := slices.Contains(tc.want, node); there != want || (len(volumes) == 1) != want {
						t.Errorf("node %s: there is an input %t, %d volumes; want %t", node, there, len(volumes), want)
					}
				}
			})
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
	synctest.Test(t, func(t *testing.T) {
		s := newSteps(t)
		s.attach("csi-db-elsewhere", nodeB, func(*storagev1.VolumeAttachment) {})
		s.r.inputs.Linstor = noLinstor{}
		view := s.view
		confirm := func() (*failover.Attachment, error) {
			known, err := s.r.attachments.Of(s.ctx, s.pv.Name)
			s.must(err)
			read, err := s.r.readAttachments(s.ctx, nodeA, []*volume{{pv: s.pv, attachments: known}})
			s.must(err)
			in, err := s.r.inputs.Confirmed(s.ctx, s.pv, cluster.Reading{Node: nodeA, Attachments: read}, nil, cluster.Remembered{})
			return in.Attachment, err
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
	})
}

// asked is a LINSTOR that knows nothing, and remembers what it was asked about.
type asked struct {
	noLinstor
	mu    *sync.Mutex
	names *[]string
}

func (asked) Keep(string, time.Time) {}

func (a asked) Refresh(_ context.Context, name string, _ time.Duration) (linstor.Resource, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	*a.names = append(*a.names, name)
	return linstor.Resource{}, nil
}

// A removal rests on all volumes of the pods on the node. Of two in one consistency group there is one word.
func TestLinstorIsAskedAboutAllVolumesOfThePods(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
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
		s.r.readLive(s.ctx, s.state, []*volume{s.volume()})
		synctest.Wait()
		slices.Sort(names)
		if want := []string{"pvc-db", "pvc-group"}; !slices.Equal(names, want) {
			t.Errorf("LINSTOR was asked about %v, want %v", names, want)
		}
	})
}

func TestAttachmentsOnANode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSteps(t)
		s.attach("inline", nodeA, func(va *storagev1.VolumeAttachment) {
			va.Spec.Source = storagev1.VolumeAttachmentSource{InlineVolumeSpec: &corev1.PersistentVolumeSpec{}}
		})
		s.attach("theirs", nodeA, func(va *storagev1.VolumeAttachment) { va.Spec.Attacher = "other.example.com" })
		s.attach("elsewhere", nodeB, func(*storagev1.VolumeAttachment) {})
		attachments, err := s.r.attachments.On(s.ctx, nodeA)
		s.must(err)
		if len(attachments) != 1 || attachments[0].Name != "csi-db" {
			t.Errorf("%+v, want the one of our driver that has a PersistentVolume", attachments)
		}
	})
}

// What holds everything back is asked for at most twice a second, however many volumes there are.
func TestHaltIsAskedForTwiceASecond(t *testing.T) {
	t.Parallel()
	now := start.Time
	asked := 0
	h := &haltSwitch{
		shared: shared{linstor: noLinstor{}, clock: clockAt{&now}, metrics: metrics.New(), recorder: &eventLog{}},
		agents: noAgents, spared: nobody,
		lost:  func() map[string]bool { asked++; return nil },
		limit: failover.Limit{Percent: true, Value: 50},
	}
	for _, step := range []struct {
		after time.Duration
		want  int
	}{{0, 1}, {0, 1}, {haltAge - 1, 1}, {1, 2}, {time.Minute, 3}} {
		now = now.Add(step.after)
		h.now(t.Context(), haltAge)
		if asked != step.want {
			t.Errorf("asked %d times by %s, want %d", asked, now.Sub(start.Time), step.want)
		}
	}
}

func (noLinstor) Unconfirmed(string) map[string]time.Time      { return nil }
func (noLinstor) Tell(string, map[string]time.Time, time.Time) {}
func (noLinstor) Untell(string, []string, time.Time)           {}

func (noLinstor) Nodes() []linstor.Node             { return nil }
func (noLinstor) Node(string) (linstor.Node, bool)  { return linstor.Node{}, false }
func (noLinstor) Answers(context.Context) error     { return nil }
func (noLinstor) Counts() (replicas, reporting int) { return 0, 0 }

// clockAt shows the time that it points to.
type clockAt struct{ now *time.Time }

func (c clockAt) Now() time.Time                  { return *c.now }
func (c clockAt) Since(t time.Time) time.Duration { return c.now.Sub(t) }
