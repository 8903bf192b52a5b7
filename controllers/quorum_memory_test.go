package controllers

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
)

// doubting is a LINSTOR of which somebody doubts what node A runs.
type doubting struct {
	noLinstor
	nodes  map[string]time.Time
	told   [][]string
	untold int
	// telling is called before a word is taken over.
	telling func()
}

func (d *doubting) Unconfirmed(string) map[string]time.Time { return d.nodes }

func (d *doubting) Tell(_ string, nodes map[string]time.Time, _ time.Time) {
	if d.telling != nil {
		d.telling()
	}
	d.told = append(d.told, slices.Sorted(maps.Keys(nodes)))
}

func (d *doubting) Untell(string, []string, time.Time) { d.untold++ }

func since(at time.Time) map[string]time.Time { return map[string]time.Time{nodeA: at} }

// memoryTest is a quorumMemory with one attachment of the volume "db".
type memoryTest struct {
	*steps
	memory *quorumMemory
	word   *doubting
	now    time.Time
}

func newMemoryTest(t *testing.T) *memoryTest {
	t.Helper()
	word := &doubting{}
	return &memoryTest{steps: newSteps(t), memory: newQuorumMemory(word), word: word, now: time.Now()}
}

func (m *memoryTest) write() time.Duration {
	m.Helper()
	after, err := m.memory.write(m.ctx, m.r.client, "pvc-db", m.listed(), m.now)
	m.must(err)
	return after
}

func (m *memoryTest) take() {
	m.Helper()
	m.must(m.memory.take("db", "pvc-db", m.listed(), m.now))
}

func (m *memoryTest) listed() []storagev1.VolumeAttachment {
	m.Helper()
	var list storagev1.VolumeAttachmentList
	m.must(m.api.List(m.ctx, &list))
	return list.Items
}

// said is the node that the attachment names.
func (m *memoryTest) said() string {
	m.Helper()
	node, _, _ := strings.Cut(m.listed()[0].Annotations[cluster.AnnotationUnconfirmed], "=")
	return node
}

func (m *memoryTest) say(text string) { m.annotate(cluster.AnnotationUnconfirmed, text) }

// sayBefore has version 2 say it.
func (m *memoryTest) sayBefore(text string) { m.annotate(cluster.AnnotationMayRun, text) }

func (m *memoryTest) annotate(key, text string) {
	m.Helper()
	va := m.listed()[0]
	va.Annotations = map[string]string{key: text}
	if text == "" {
		va.Annotations = nil
	}
	m.must(m.api.Update(m.ctx, &va))
}

func TestAnUnconfirmedNodeIsKeptOnceThatLasts(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	m.word.nodes = since(m.now)
	if after := m.write(); after != unconfirmedLasts || m.said() != "" {
		t.Errorf("a new doubt is kept as %q, and looked at again in %s", m.said(), after)
	}
	m.now = m.now.Add(unconfirmedLasts)
	m.write()
	if m.said() != nodeA {
		t.Errorf("kept %q", m.said())
	}
	m.now, m.word.nodes = m.now.Add(unconfirmedLasts), nil
	if m.write(); m.said() != "" {
		t.Errorf("a doubt that is over leaves %q", m.said())
	}
}

// Two leaders that overlap may each know what the other does not: neither writes at the speed of the other.
func TestADoubtIsWrittenNoMoreOftenThanItLasts(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	m.word.nodes = since(m.now.Add(-time.Hour))
	m.write()
	m.say(nodeB)
	for range 3 {
		if after := m.write(); after != unconfirmedLasts || m.said() != nodeB {
			t.Fatalf("written again at once: %q, and looked at again in %s", m.said(), after)
		}
	}
	m.now = m.now.Add(unconfirmedLasts)
	if m.write(); m.said() == nodeB {
		t.Error("not written again after a while")
	}
}

// Each node's reconcile writes on the attachments to that node only.
func TestADoubtIsWrittenByTheNodeOfItsAttachment(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	spec := m.listed()[0].Spec
	spec.NodeName = nodeB
	m.must(m.api.Create(m.ctx, &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "csi-zz"}, Spec: spec}))
	m.word.nodes = since(m.now.Add(-time.Hour))
	m.r.memory = m.memory
	m.r.tidy(m.ctx, m.state, []*volume{m.volume()}, nil)
	for _, va := range m.listed() {
		if text := va.Annotations[cluster.AnnotationUnconfirmed]; (text != "") != (va.Spec.NodeName == nodeA) {
			t.Errorf("the attachment to %s says %q", va.Spec.NodeName, text)
		}
	}
}

func TestVersion2NamesEveryNodeInIt(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	m.sayBefore(`{"node-a":[{"quorum":"off"},{"quorum":"majority"}],"node-b":[{"quorum":"majority"}]}`)
	if m.take(); len(m.word.told) != 1 || !slices.Equal(m.word.told[0], []string{nodeA, nodeB}) {
		t.Errorf("told of %v", m.word.told)
	}
	m.word.nodes = since(m.now)
	if m.write(); m.listed()[0].Annotations[cluster.AnnotationMayRun] == "" {
		t.Error("removed although a node in it is unconfirmed")
	}
	m.word.nodes = nil
	if m.write(); m.listed()[0].Annotations[cluster.AnnotationMayRun] != "" {
		t.Error("not removed although there is evidence of each node")
	}
}

// Else the leader would take its own word for that of another process, after the evidence.
func TestAProcessIgnoresWhatItWroteItself(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	m.word.nodes = since(m.now.Add(-time.Hour))
	m.write()
	if m.take(); len(m.word.told) > 0 {
		t.Errorf("told of %v", m.word.told)
	}
	m.say(nodeA + "," + nodeB)
	if m.take(); len(m.word.told) != 1 || !slices.Equal(m.word.told[0], []string{nodeB}) {
		t.Errorf("told of %v", m.word.told)
	}
}

// Another leader has seen evidence, and after that something that this process has missed.
func TestAProcessTakesOverWhatOthersWriteAnew(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	m.word.nodes = since(m.now.Add(-time.Hour))
	m.write()
	m.take()
	m.say("")
	m.take()
	m.say(nodeA)
	if m.take(); len(m.word.told) != 1 || !slices.Equal(m.word.told[0], []string{nodeA}) {
		t.Errorf("told of %v", m.word.told)
	}
}

func TestAProcessTakesOverWhatItCouldNotWriteItself(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	m.word.nodes = since(m.now.Add(-time.Hour))
	stale := m.listed()
	m.say(nodeA)
	if _, err := m.memory.write(m.ctx, m.r.client, "pvc-db", stale, m.now); err != nil {
		t.Fatal(err)
	}
	if m.take(); len(m.word.told) != 1 || !slices.Equal(m.word.told[0], []string{nodeA}) {
		t.Errorf("told of %v", m.word.told)
	}
}

func TestWhatAnAttachmentSaysIsTakenOverOnce(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	m.say(nodeA)
	m.take()
	m.take()
	if len(m.word.told) != 1 || !slices.Equal(m.word.told[0], []string{nodeA}) {
		t.Errorf("told of %v", m.word.told)
	}
	m.say("")
	if m.take(); m.word.untold != 1 {
		t.Errorf("retracted %d times after the attachment ceased to say it", m.word.untold)
	}
}

// Whoever finds nothing new on an attachment may take off it what the store does not know.
// A round decides by what the leader before has kept, also where no event of the volume has come yet.
func TestARoundTakesOverWhatAnAttachmentSays(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	m.r.memory, m.r.inputs.Linstor = m.memory, noLinstor{}
	m.say(nodeA)
	m.r.gather(m.ctx, m.state, nil)
	if len(m.word.told) != 1 {
		t.Errorf("%d words were united, want that of the attachment", len(m.word.told))
	}
}

func TestNobodyFindsNothingNewBeforeTheStoreKnows(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	m.say(nodeA)
	m.word.telling = func() {
		if m.memory.mu.TryLock() {
			m.memory.mu.Unlock()
			t.Error("another reconciler could look at the attachments while their word was being united")
		}
	}
	m.take()
	if len(m.word.told) != 1 {
		t.Errorf("united %+v", m.word.told)
	}
}

// A new attachment says nothing; that does not mean that what the old one said is over.
func TestAnAttachmentThatIsGoneTakesNothingBack(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	m.say(nodeA)
	m.take()
	old := m.listed()[0]
	m.must(m.api.Delete(m.ctx, &old))
	m.take()
	again := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "csi-db-again"}, Spec: old.Spec}
	m.must(m.api.Create(m.ctx, again))
	if m.take(); m.word.untold != 0 {
		t.Error("what a deleted attachment said was taken back")
	}
}

func TestABrokenDoubtIsLeftForAPersonToSee(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	m.sayBefore("{")
	if m.write(); m.listed()[0].Annotations[cluster.AnnotationMayRun] != "{" {
		t.Errorf("it became %q", m.listed()[0].Annotations)
	}
}

// Else nobody would know after a restart of all replicas what a node may run.
func TestABrokenDoubtKeepsNoOtherFromBeingKept(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	m.sayBefore("{")
	m.word.nodes = since(m.now.Add(-unconfirmedLasts))
	m.write()
	if m.said() != nodeA {
		t.Errorf("kept %q", m.said())
	}
}

// A volume that is attached to two nodes is remembered twice.
func TestADoubtThatAnotherAttachmentStillTellsIsNotTakenBack(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	const doubt = nodeA
	m.say(doubt)
	other := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "csi-zz", Annotations: map[string]string{cluster.AnnotationUnconfirmed: doubt}}, Spec: m.listed()[0].Spec,
	}
	m.must(m.api.Create(m.ctx, other))
	m.take()
	m.say("")
	if m.take(); m.word.untold != 0 {
		t.Error("what one attachment still says was taken back with the other's word")
	}
	m.must(m.api.Get(m.ctx, client.ObjectKeyFromObject(other), other))
	other.Annotations = nil
	m.must(m.api.Update(m.ctx, other))
	if m.take(); m.word.untold != 1 {
		t.Errorf("retracted %d times after no attachment says it any more", m.word.untold)
	}
}

func TestAForgedOrBrokenDoubtIsAnError(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"{", "[]"} {
		m := newMemoryTest(t)
		m.sayBefore(text)
		if err := m.memory.take("db", "pvc-db", m.listed(), m.now); err == nil {
			t.Errorf("%s is no error", text)
		}
	}
}

// What an attachment no longer says is over, also where it goes on to say something.
func TestAnAttachmentThatSaysLessTakesBackTheRest(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	store := linstor.NewStore()
	m.memory = newQuorumMemory(keeping{store: store})
	m.say(nodeA + "," + nodeB)
	m.take()
	m.say(nodeA)
	m.take()
	if nodes := store.Unconfirmed("pvc-db"); len(nodes) != 1 || nodes[nodeA].IsZero() {
		t.Errorf("unconfirmed are %v", nodes)
	}
}

// Two reconcilers look at the attachments of a volume. What the slower one has seen is over when it comes to take it.
func TestAnOldLookAtAnAttachmentIsNoNews(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	m.say(nodeA)
	old := m.listed()
	m.take()
	m.say("")
	m.take()
	m.must(m.memory.take("db", "pvc-db", old, m.now))
	m.take()
	if len(m.word.told) != 1 && m.word.untold != 2 {
		t.Errorf("united %d times, and retracted %d times", len(m.word.told), m.word.untold)
	}
	m.must(m.memory.take("db", "pvc-db", old, m.now))
	if len(m.word.told) > m.word.untold {
		t.Errorf("united %d times, and retracted %d times", len(m.word.told), m.word.untold)
	}
}

// A dry run writes nothing.
func TestADryRunKeepsNoDoubt(t *testing.T) {
	t.Parallel()
	for _, dryRun := range []bool{true, false} {
		m := newMemoryTest(t)
		m.word.nodes = since(m.now.Add(-time.Hour))
		m.r.memory, m.r.dryRun = m.memory, dryRun
		m.r.tidy(m.ctx, m.state, []*volume{m.volume()}, nil)
		if kept := m.said() != ""; kept == dryRun {
			t.Errorf("dry run: %t, the doubt is kept: %t", dryRun, kept)
		}
	}
}

// A PersistentVolume may be gone because it is about to be created again: its volume is forgotten with its last attachment.
func TestWhichNodesAreUnconfirmedIsForgottenWithTheVolume(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	m.say(nodeA)
	m.take()
	m.r.memory, m.r.inputs.Linstor = m.memory, noLinstor{}
	for _, step := range []struct {
		gone  client.Object
		known bool
	}{{m.pv, true}, {m.attachment(), false}} {
		m.must(m.api.Delete(m.ctx, step.gone))
		m.r.gather(m.ctx, m.state, nil)
		if _, known := m.memory.said["db"]; known != step.known {
			t.Errorf("after %T %s has gone, it is remembered: %t", step.gone, step.gone.GetName(), known)
		}
	}
}

type keeping struct {
	noLinstor
	store *linstor.Store
}

func (k keeping) Unconfirmed(resource string) map[string]time.Time {
	return k.store.Unconfirmed(resource)
}

func (k keeping) Tell(resource string, nodes map[string]time.Time, at time.Time) {
	k.store.Tell(resource, nodes, at)
}

func (k keeping) Untell(resource string, still []string, at time.Time) {
	k.store.Untell(resource, still, at)
}
