package sim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

// What happens while an act is under way: each request of it takes time, and the world changes between them.

// What else can happen at a write, or to single requests.
const (
	UnlabelAtWrite Deed = "take a pod's label off right before the controller writes"
	ExemptAtWrite  Deed = "exempt a pod right before the controller writes"
	LabelAtWrite   Deed = "label a pod right before the controller writes"
	RecoverAtWrite Deed = "give a node its networks back right before the controller writes"
	HangRequest    Deed = "let one request of the controller hang"
	LagAPI         Deed = "let each request of the controller to the API take that long"
	EndLag         Deed = "let the API answer at once"
)

// Kinds of such histories.
const (
	StallsRecovered Kind = "time: every second act stalls between decision and request, and the node has its storage back meanwhile"
	ChangesAtWrite  Kind = "pods: labels or annotations change between a look and its write"
	OneHangs        Kind = "time: a single API request hangs, by verb and kind"
	EvenlySlow      Kind = "time: an API server that needs 0.7, 1.5 or 2.5 s for each request"
	TenLost         Kind = "time: ten nodes are lost at once"
)

// ChangedAtWrite counts the pods that changed at a write, and RequestHung the requests that hung.
const (
	ChangedAtWrite = "a pod's label or annotation changed between a look and its write"
	RequestHung    = "a single request hung"
)

const (
	// hangsFor is how long a single request hangs: longer than anybody waits for an answer.
	hangsFor = time.Minute
	// hungFor is how long a fail-over may take longer for one request that hangs.
	hungFor = 15 * time.Second
)

// reads are what the controllers read in an act.
var reads = []string{"list Pod", "get Lease", "get Node", "get VolumeAttachment", "list VolumeAttachment", "get PersistentVolumeClaim"}

// untidyActs are drawn by random numbers of their own, so that all other steps of a seed stay what they are.
var untidyActs = []untidiness{
	{StallsRecovered, (*generator).stallAndRecover},
	{ChangesAtWrite, (*generator).changeAtWrite},
	{OneHangs, (*generator).hangOne},
	{EvenlySlow, (*generator).lag},
}

func amidSome(h History) History {
	g := &generator{Rand: rand.New(rand.NewPCG(h.Seed, 5)), history: h}
	steps := len(h.Steps)
	g.untidy(untidyActs)
	if len(g.history.Steps) > steps {
		g.sort()
		g.history.Length = max(g.history.Length, g.space()+time.Second)
	}
	return g.history
}

// loss is when a node is lost in whose act something happens: the first thing that happens anyway, or a loss that is added.
func (g *generator) loss(deeds ...Deed) time.Duration {
	at := g.around()
	if g.chance(60) {
		g.nodeFault(at, 10*time.Minute, pick(g, deeds...), g.home())
	}
	return at
}

// stallAndRecover lets acts stall while the node that they are about is well again.
func (g *generator) stallAndRecover() bool {
	at := g.loss(Isolate, Isolate, IsolateDRBD)
	g.fault(at+g.milliseconds(0, 5*time.Second), g.milliseconds(30*time.Second, 2*time.Minute), g.stallOnce(), EndStalls)
	return true
}

// The moments of an act at which the process may stall are before each request that writes, and after each decision. These are after the last
// decision before a pod goes by force, and before one goes gracefully, whose condition is written first.
const afterForce, afterGraceful = "5", "7"

// stallOnce is a stall at one of the moments of an act, while its node is well again.
func (g *generator) stallOnce() Step {
	return Step{What: StallAct, For: pick(g, 3*time.Second, 6*time.Second, 6*time.Second), On: pick(g, afterForce, afterGraceful, strconv.Itoa(1+g.IntN(8))), Value: withStorage}
}

// changeAtWrite lets a pod change right before it is written, or before something else is that concerns it.
func (g *generator) changeAtWrite() bool {
	at := g.loss(Crash, Isolate, Isolate, IsolateDRBD)
	write := pick(g, append([]string{"delete Pod", "delete Pod", "patch Pod"}, writes...)...)
	g.add(at, Step{What: pick(g, UnlabelAtWrite, ExemptAtWrite, LabelAtWrite), On: g.someWorkload().Name, Value: write})
	return true
}

// hangOne lets single requests hang.
func (g *generator) hangOne() bool {
	at := g.loss(Crash, Isolate, IsolateDRBD)
	for range 1 + g.IntN(2) {
		g.add(at+g.milliseconds(0, 15*time.Second), Step{What: HangRequest, Value: pick(g, append(append([]string{}, reads...), writes...)...)})
	}
	return true
}

// lag lets the API be slow for a while, which begins before a loss or amid the act.
func (g *generator) lag() bool {
	at := g.loss(Crash, Isolate, IsolateDRBD)
	s := Step{What: LagAPI, For: pick(g, 700*time.Millisecond, 1500*time.Millisecond, 2500*time.Millisecond)}
	g.fault(at+g.milliseconds(0, 15*time.Second), g.milliseconds(20*time.Second, 2*time.Minute), s, EndLag)
	return true
}

// hangRequest lets the next request of a verb and kind hang.
func (w *world) hangRequest(s Step) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hangsNext[s.Value] = hangsFor
}

// hangsNow returns how long a request hangs that is the next of its verb and kind.
func (w *world) hangsNow(r apimodel.Request) time.Duration {
	if _, ours := actorOf(r); !ours {
		return 0
	}
	w.mu.Lock()
	what := string(r.Verb) + " " + r.Kind
	d := w.hangsNext[what]
	if delete(w.hangsNext, what); d > 0 {
		w.hungRequest = time.Now()
	}
	w.mu.Unlock()
	if d > 0 {
		w.count(RequestHung)
		w.note("request hangs: " + what + " " + r.Name)
	}
	return d
}

// recoverStorage gives a node of Kubernetes its networks back, if its machine runs.
func (w *world) recoverStorage(node string) {
	name := w.Satellite(node)
	if w.ctx.Err() != nil || name == "" || !w.DRBD.Up(name) {
		return
	}
	w.count(StalledRecovery)
	w.note("STEP " + node + " has its storage back")
	w.DRBD.Rejoin(name)
	w.Linstor.RestoreSatellite(name)
	w.RestoreKubelet(node)
}

// massEvery is in how many histories ten nodes are lost at once.
const massEvery = 40

// isMass reports whether ten nodes are lost at once in a seed's history. It is none that tells a story, and none that is ordinary.
func isMass(seed uint64) bool { return seed%massEvery == 17 }

// massLoss returns the history of a cluster that loses ten of its nodes at once, for good or for a while.
func massLoss(seed uint64) History {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 6)), history: History{Seed: seed}}
	w := &g.history.World
	const lost, all = 10, 22
	for i := range all {
		w.Nodes = append(w.Nodes, "node-"+string(rune('a'+i)))
	}
	w.Processes, w.Replay = pick(g, 1, 2), linstorsim.Immediately
	w.Lag, w.PingTimeout, w.Detect = 50*time.Millisecond, 6*time.Second, make(map[string]time.Duration)
	g.drawDetection()
	at, span := g.milliseconds(0, 10*time.Second), pick(g, 10*time.Minute, g.milliseconds(5*time.Second, 40*time.Second))
	deed := pick(g, Crash, Crash, Isolate, IsolateDRBD)
	for i := range lost {
		own, second, third := w.Nodes[i], w.Nodes[lost+i], w.Nodes[lost+(i+1)%(all-lost)]
		v := Volume{Name: fmt.Sprintf("v%d", i), Handle: fmt.Sprintf("pvc-v%d", i), Kind: Filesystem, Diskful: []string{own, second}, TieBreaker: third}
		w.Volumes = append(w.Volumes, v)
		w.Workloads = append(w.Workloads, Workload{
			Name: fmt.Sprintf("pod-%d", i), Volumes: []string{v.Name}, Nodes: []string{own, second, third}, Selected: true, Stop: time.Second,
		})
		g.nodeFault(at+g.milliseconds(0, time.Second), span, deed, own)
	}
	switch g.IntN(4) {
	case 0:
		g.lag()
	case 1:
		g.hangOne()
	case 2:
		g.fault(at, time.Minute, Step{What: SlowLinstor, For: g.milliseconds(20*time.Millisecond, 100*time.Millisecond)}, FastLinstor)
	}
	g.drew(TenLost)
	g.sort()
	g.history.Length = g.space() + 80*time.Second
	return g.history
}

// actEvery is in how many histories a story of an act is told: a short one in a tidy world, that ends badly as soon as one thing is not done again
// amid the act. Random histories meet that moment seldom.
const actEvery = 16

// isActStory reports whether such a story is told in a seed's history.
func isActStory(seed uint64) bool { return seed%actEvery == 12 }

// actStories are told in turn.
var actStories = []func(*storyteller){
	(*storyteller).stalled, (*storyteller).changedAmid, (*storyteller).recoveredAmid, (*storyteller).linstorsNode, (*storyteller).slowly,
	(*storyteller).claimedAgain, (*storyteller).createdAgainAmid, (*storyteller).oldCache,
}

// stalled lets the process stall at one of the moments of an act.
func (g *storyteller) stalled() {
	deed, stall := IsolateDRBD, g.stallOnce()
	stall.On = afterGraceful
	if g.chance(40) {
		deed, stall.On, g.history.World.Patient = Isolate, afterForce, true
	}
	if g.chance(20) {
		stall = g.stallOnce()
	}
	g.do(deed, g.a)
	g.add(g.at+time.Second, stall)
	g.drew(StallsRecovered)
}

// changedAmid lets the pod change right before something is written.
func (g *storyteller) changedAmid() {
	g.do(pick(g.generator, Crash, Isolate), g.a)
	g.add(g.at, Step{What: pick(g.generator, UnlabelAtWrite, ExemptAtWrite), On: "pod-0", Value: pick(g.generator, "delete Pod", "patch VolumeAttachment", "patch Node")})
	g.drew(ChangesAtWrite)
}

// recoveredAmid lets the node be well again right before something is written, by an API that takes its time.
func (g *storyteller) recoveredAmid() {
	g.add(g.at, Step{What: LagAPI, For: pick(g.generator, 700*time.Millisecond, 1500*time.Millisecond, 2500*time.Millisecond)})
	g.do(Isolate, g.a)
	g.add(g.at, Step{What: RecoverAtWrite, Node: g.a, Value: pick(g.generator, "patch Node", "patch VolumeAttachment", "delete Pod")})
	g.drew(EvenlySlow)
}

// linstorsNode lets a node with a pod of LINSTOR be well again right before it is tainted for that.
func (g *storyteller) linstorsNode() {
	g.add(g.at, Step{What: LagAPI, For: g.milliseconds(100*time.Millisecond, 150*time.Millisecond)})
	g.do(Isolate, g.d)
	g.add(g.at, Step{What: RecoverAtWrite, Node: g.d, Value: "patch Node"})
}

// slowly lets the API be slow while a node is lost.
func (g *storyteller) slowly() {
	g.add(g.at, Step{What: LagAPI, For: pick(g.generator, 700*time.Millisecond, 1500*time.Millisecond, 2500*time.Millisecond)})
	g.do(pick(g.generator, Crash, Isolate), g.a)
	g.after(70*time.Second, 80*time.Second).add(g.at, Step{What: Replay})
	g.drew(EvenlySlow)
}

// claimedAgain loses the storage of a node whose kubelet lives, and may claim a volume again.
func (g *storyteller) claimedAgain() {
	g.cutStorage(g.a)
	g.history.World.Lag = pick(g.generator, 50*time.Millisecond, 500*time.Millisecond)
}

// createdAgainAmid deletes the PersistentVolume amid the act and creates it again.
func (g *storyteller) createdAgainAmid() {
	if g.chance(50) {
		g.cutStorage(g.a)
	} else {
		g.do(Crash, g.a)
	}
	g.add(g.at, Step{What: ReplaceAtWrite, On: "v0", Value: pick(g.generator, "patch Node", "delete Pod", "delete VolumeAttachment", "patch VolumeAttachment"), For: g.milliseconds(200*time.Millisecond, 3*time.Second)})
}

// oldCache lets the cache lag behind the act, and stand still from some write on.
func (g *storyteller) oldCache() {
	g.history.World.Lag = pick(g.generator, 500*time.Millisecond, 2*time.Second)
	g.do(pick(g.generator, Crash, Isolate), g.a)
	g.add(g.at+g.milliseconds(9*time.Second, 20*time.Second), Step{What: PauseCache, On: "0"})
	g.after(35*time.Second, 45*time.Second).add(g.at, Step{What: ResumeCache, On: "0"})
}

// ReplaceAtWrite is as [CreateAgain], but the PersistentVolume does not exist for a while.
const ReplaceAtWrite Deed = "delete the PersistentVolume right before the controller writes, and create it again"

// replaceVolume deletes a PersistentVolume, as somebody does who changes its node affinity, and creates it again.
func (w *world) replaceVolume(name string, after time.Duration) {
	var pv corev1.PersistentVolume
	if w.Client().Get(w.ctx, client.ObjectKey{Name: name}, &pv) != nil {
		return
	}
	again := pv.DeepCopy()
	again.UID, again.ResourceVersion, again.DeletionTimestamp, again.Finalizers = "", "", nil, nil
	pv.Finalizers = nil
	if w.Client().Update(w.ctx, &pv) != nil || client.IgnoreNotFound(w.Client().Delete(w.ctx, &pv)) != nil {
		return
	}
	w.count(Replaced)
	time.AfterFunc(after, func() {
		if w.ctx.Err() == nil {
			_ = w.Client().Create(w.ctx, again)
			again.Status = pv.Status
			_ = w.Client().Status().Update(w.ctx, again)
		}
	})
}

// Replaced counts the PersistentVolumes that were created again amid an act.
const Replaced = "a PersistentVolume was created again amid an act"

// RuleDetached is that a volume is detached in time from a node that has lost it, once the controllers have removed its pods there.
const RuleDetached = "a volume was not detached in time"

// detachPatience is how long that may take: Kubernetes itself takes a minute.
const detachPatience = 20 * time.Second

// vacates notes that the controllers have removed a pod of a volume from a node.
func (w *world) vacates(v Volume, node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.vacated[place{v.Name, node}] = time.Time{}
}

// checkDetached looks for volumes that are still attached to nodes from which the controllers have removed their pods.
func (w *world) checkDetached() {
	w.mu.Lock()
	vacated := maps.Clone(w.vacated)
	w.mu.Unlock()
	able := w.mayAct() && !w.awaitsReports() && !w.forbidRelease.Load()
	for at, since := range vacated {
		v := w.volumeNamed(at.what)
		attached := slices.ContainsFunc(w.attachments(w.kube(at.node)), func(va storagev1.VolumeAttachment) bool {
			return *va.Spec.Source.PersistentVolumeName == at.what && va.DeletionTimestamp == nil // else the CSI attacher has yet to detach it
		})
		switch {
		case !attached:
			w.mu.Lock()
			delete(w.vacated, at)
			w.mu.Unlock()
			continue
		case !able || v.ephemeral || w.isPending(v) || len(w.users(w.ctx, w.kube(at.node), v.Handle)) > 0 || w.usedByOther(v, at.node) ||
			!w.stillLost(v, at.node) || !w.movable(v, at.node):
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) > detachPatience+w.lagPatience():
			w.violated(RuleDetached, "volume %s from %s, for %s", at.what, at.node, time.Since(since))
			since = time.Now()
		}
		w.mu.Lock()
		w.vacated[at] = since
		w.mu.Unlock()
	}
}

// stillLost reports whether a node is down, or has no quorum for a volume, whether it is in use or not.
func (w *world) stillLost(v Volume, node string) bool {
	state, ok := w.DRBD.Replica(v.Resource(), node)
	if !ok {
		return w.isLost(v, node)
	}
	return !state.HasQuorum && !w.frozen[node] && !w.isBlind()
}

// lagPatience is how much longer everything may take while each request of the controllers takes its time, and for a while after that.
func (w *world) lagPatience() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	const requests = 40 // those of a pod that is deleted gracefully, and then by force
	if t, ok := w.troubles[LagAPI]; ok {
		return requests * t.d
	}
	if w.lag > 0 && time.Since(w.lagEnded) < time.Minute {
		return requests * w.lag
	}
	return 0
}
