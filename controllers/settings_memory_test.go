package controllers

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
)

// doubting is a LINSTOR of which somebody doubts what node A runs.
type doubting struct {
	noLinstor
	sets      linstor.Sets
	since     time.Time
	united    []linstor.Sets
	retracted int
	// uniting is called before a word is united.
	uniting func()
}

func (d *doubting) Doubts(string) (linstor.Sets, time.Time) {
	copied := linstor.Sets{}
	for node, settings := range d.sets {
		copied[node] = slices.Clone(settings)
	}
	if d.sets == nil {
		return nil, time.Time{}
	}
	return copied, d.since
}

func (d *doubting) Unite(_ string, sets linstor.Sets, _ time.Time) {
	if d.uniting != nil {
		d.uniting()
	}
	d.united = append(d.united, sets)
}

func (d *doubting) Retract(string, linstor.Sets, time.Time) { d.retracted++ }

func offOrMajority() linstor.Sets {
	return linstor.Sets{nodeA: {{Quorum: "off"}, {Quorum: "majority"}}}
}

// memoryTest is a settingsMemory with one attachment of the volume "db".
type memoryTest struct {
	*steps
	memory *settingsMemory
	word   *doubting
	now    time.Time
}

func newMemoryTest(t *testing.T) *memoryTest {
	t.Helper()
	word := &doubting{}
	return &memoryTest{steps: newSteps(t), memory: newSettingsMemory(word), word: word, now: time.Now()}
}

func (m *memoryTest) write() time.Duration {
	m.Helper()
	after, err := m.memory.write(m.ctx, m.r.client, "db", "pvc-db", m.listed(), m.now)
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

func (m *memoryTest) said() string {
	m.Helper()
	return m.listed()[0].Annotations[cluster.AnnotationMayRun]
}

func (m *memoryTest) say(text string) {
	m.Helper()
	va := m.listed()[0]
	va.Annotations = map[string]string{cluster.AnnotationMayRun: text}
	if text == "" {
		va.Annotations = nil
	}
	m.must(m.api.Update(m.ctx, &va))
}

func TestADoubtIsKeptOnceItLasts(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	m.word.sets, m.word.since = offOrMajority(), m.now
	if after := m.write(); after != doubtLasts || m.said() != "" {
		t.Errorf("a new doubt is kept as %q, and looked at again in %s", m.said(), after)
	}
	m.now = m.now.Add(doubtLasts)
	m.write()
	var sets linstor.Sets
	if err := json.Unmarshal([]byte(m.said()), &sets); err != nil || len(sets[nodeA]) != 2 {
		t.Errorf("kept %q: %v", m.said(), err)
	}
	m.now, m.word.sets = m.now.Add(doubtLasts), nil
	if m.write(); m.said() != "" {
		t.Errorf("a doubt that is over leaves %q", m.said())
	}
}

// Two leaders that overlap may each know what the other does not: neither writes at the speed of the other.
func TestADoubtIsWrittenNoMoreOftenThanItLasts(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	m.word.sets, m.word.since = offOrMajority(), m.now.Add(-time.Hour)
	m.write()
	m.say(`{"node-a":[{"quorum":"off"}]}`)
	for range 3 {
		if after := m.write(); after != doubtLasts || m.said() != `{"node-a":[{"quorum":"off"}]}` {
			t.Fatalf("written again at once: %q, and looked at again in %s", m.said(), after)
		}
	}
	m.now = m.now.Add(doubtLasts)
	if m.write(); m.said() == `{"node-a":[{"quorum":"off"}]}` {
		t.Error("not written again after a while")
	}
}

func TestTheOrderOfADoubtSaysNothing(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	m.word.sets, m.word.since = offOrMajority(), m.now.Add(-time.Hour)
	m.write()
	before := m.said()
	m.word.sets = linstor.Sets{nodeA: {{Quorum: "majority"}, {Quorum: "off"}}}
	m.now = m.now.Add(time.Minute)
	if m.write(); m.said() != before {
		t.Errorf("%q became %q", before, m.said())
	}
}

func TestWhatAnAttachmentSaysIsTakenOverOnce(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	m.say(`{"node-a":[{"quorum":"off"},{"quorum":"majority"}]}`)
	m.take()
	m.take()
	want := failover.Setting{Quorum: "off"}
	if len(m.word.united) != 1 || !m.word.united[0][nodeA][0].Equal(want) {
		t.Errorf("united %+v", m.word.united)
	}
	m.say("")
	if m.take(); m.word.retracted != 1 {
		t.Errorf("retracted %d times after the attachment ceased to say it", m.word.retracted)
	}
}

// Whoever finds nothing new on an attachment may take off it what the store does not know.
// A round decides by what the leader before has kept, also where no event of the volume has come yet.
func TestARoundTakesOverWhatAnAttachmentSays(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	m.r.memory, m.r.inputs.Linstor = m.memory, noLinstor{}
	m.say(`{"node-a":[{"quorum":"off"}]}`)
	m.r.gather(m.ctx, m.state)
	if len(m.word.united) != 1 {
		t.Errorf("%d words were united, want that of the attachment", len(m.word.united))
	}
}

func TestNobodyFindsNothingNewBeforeAllIsUnited(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	m.say(`{"node-a":[{"quorum":"off"},{"quorum":"majority"}]}`)
	m.word.uniting = func() {
		if m.memory.mu.TryLock() {
			m.memory.mu.Unlock()
			t.Error("another reconciler could look at the attachments while their word was being united")
		}
	}
	m.take()
	if len(m.word.united) != 1 {
		t.Errorf("united %+v", m.word.united)
	}
}

// A new attachment says nothing; that does not mean that what the old one said is over.
func TestAnAttachmentThatIsGoneTakesNothingBack(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	m.say(`{"node-a":[{"quorum":"off"},{"quorum":"majority"}]}`)
	m.take()
	old := m.listed()[0]
	m.must(m.api.Delete(m.ctx, &old))
	m.take()
	again := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "csi-db-again"}, Spec: old.Spec}
	m.must(m.api.Create(m.ctx, again))
	if m.take(); m.word.retracted != 0 {
		t.Error("what a deleted attachment said was taken back")
	}
}

func TestABrokenDoubtIsLeftForAPersonToSee(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	m.say("{")
	if m.write(); m.said() != "{" {
		t.Errorf("it became %q", m.said())
	}
}

// Else nobody would know after a restart of all replicas what a node may run.
func TestABrokenDoubtKeepsNoOtherFromBeingKept(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	m.say("{")
	m.word.sets, m.word.since = offOrMajority(), m.now.Add(-doubtLasts)
	m.write()
	var sets linstor.Sets
	if err := json.Unmarshal([]byte(m.said()), &sets); err != nil || len(sets[nodeA]) != 2 {
		t.Errorf("kept %q: %v", m.said(), err)
	}
}

// A volume that is attached to two nodes is remembered twice.
func TestADoubtThatAnotherAttachmentStillTellsIsNotTakenBack(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	const doubt = `{"node-a":[{"quorum":"off"},{"quorum":"majority"}]}`
	m.say(doubt)
	other := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "csi-zz", Annotations: map[string]string{cluster.AnnotationMayRun: doubt}}, Spec: m.listed()[0].Spec,
	}
	m.must(m.api.Create(m.ctx, other))
	m.take()
	m.say("")
	if m.take(); m.word.retracted != 0 {
		t.Error("what one attachment still says was taken back with the other's word")
	}
	m.must(m.api.Get(m.ctx, client.ObjectKeyFromObject(other), other))
	other.Annotations = nil
	m.must(m.api.Update(m.ctx, other))
	if m.take(); m.word.retracted != 1 {
		t.Errorf("retracted %d times after no attachment says it any more", m.word.retracted)
	}
}

func TestAForgedOrBrokenDoubtIsAnError(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"{", "[]", `{"node-a":"off"}`, `{"node-a":[1]}`} {
		m := newMemoryTest(t)
		m.say(text)
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
	m.memory = newSettingsMemory(keeping{store: store})
	m.say(`{"node-a":[{"quorum":"off"},{"quorum":"majority"},{"quorum":"all"}]}`)
	m.take()
	m.say(`{"node-a":[{"quorum":"majority"},{"quorum":"all"}]}`)
	m.take()
	sets, _ := store.Doubts("pvc-db")
	for _, setting := range sets[nodeA] {
		if setting.Quorum == "off" {
			t.Errorf("node A may still run %+v", sets[nodeA])
		}
	}
}

// Two reconcilers look at the attachments of a volume. What the slower one has seen is over when it comes to take it.
func TestAnOldLookAtAnAttachmentIsNoNews(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	m.say(`{"node-a":[{"quorum":"off"},{"quorum":"majority"}]}`)
	old := m.listed()
	m.take()
	m.say("")
	m.take()
	m.must(m.memory.take("db", "pvc-db", old, m.now))
	m.take()
	if len(m.word.united) != 1 && m.word.retracted != 2 {
		t.Errorf("united %d times, and retracted %d times", len(m.word.united), m.word.retracted)
	}
	m.must(m.memory.take("db", "pvc-db", old, m.now))
	if len(m.word.united) > m.word.retracted {
		t.Errorf("united %d times, and retracted %d times", len(m.word.united), m.word.retracted)
	}
}

// A dry run writes nothing.
func TestADryRunKeepsNoDoubt(t *testing.T) {
	t.Parallel()
	for _, dryRun := range []bool{true, false} {
		m := newMemoryTest(t)
		m.word.sets, m.word.since = offOrMajority(), m.now.Add(-time.Hour)
		m.r.memory, m.r.dryRun = m.memory, dryRun
		m.r.tidy(m.ctx, m.state, []*volume{m.volume()}, nil)
		if kept := m.said() != ""; kept == dryRun {
			t.Errorf("dry run: %t, the doubt is kept: %t", dryRun, kept)
		}
	}
}

// A PersistentVolume may be gone because it is about to be created again: its volume is forgotten with its last attachment.
func TestWhatNodesMayRunIsForgottenWithTheVolume(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	m.say(`{"node-a":[{"quorum":"off"}]}`)
	m.take()
	m.r.memory, m.r.inputs.Linstor = m.memory, noLinstor{}
	for _, step := range []struct {
		gone  client.Object
		known bool
	}{{m.pv, true}, {m.attachment(), false}} {
		m.must(m.api.Delete(m.ctx, step.gone))
		m.r.gather(m.ctx, m.state)
		if _, known := m.memory.told["db"]; known != step.known {
			t.Errorf("after %T %s has gone, it is remembered: %t", step.gone, step.gone.GetName(), known)
		}
	}
}

type keeping struct {
	noLinstor
	store *linstor.Store
}

func (k keeping) Doubts(resource string) (linstor.Sets, time.Time) { return k.store.Doubts(resource) }

func (k keeping) Unite(resource string, sets linstor.Sets, at time.Time) {
	k.store.Unite(resource, sets, at)
}

func (k keeping) Retract(resource string, still linstor.Sets, at time.Time) {
	k.store.Retract(resource, still, at)
}
