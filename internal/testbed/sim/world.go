package sim

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

const (
	// settling is how long the workloads have before anything happens: longer than every grace for new pods.
	settling = time.Minute
	// mending is how long everything has to get well again after the last step.
	mending = 150 * time.Second
	// tick is how often the invariants are checked that no single act can break.
	tick = time.Second
)

// world is a history while it is played.
type world struct {
	*virtual.Cluster
	ctx     context.Context //nolint:containedctx // of the bubble
	history History
	started time.Time
	leader  int
	oracle  client.Client

	mu        sync.Mutex
	views     []*apimodel.View
	processes []*process
	outcome   Outcome
	// trace keeps what happens for the story.
	trace bool
	faults
	liveness
	explanations
	satellites
	planned
	// writing is since when a node can write a resource: what is there if it cannot is old. deleted are the pods as they were when the API
	// deleted them last.
	writing map[place]time.Time
	deleted map[types.NamespacedName]*corev1.Pod
	// opened is since when a resource has not been open for writing on a node; zero while it is.
	closed map[place]time.Time
	// denied is what each node says of its connection to another.
	denied map[edge]denial
	// renewed is when a kubelet's Lease was last renewed.
	renewed map[string]time.Time
	// resumed is when a kubelet's Lease was last renewed after a pause, which the next renewals may take for a habit.
	resumed map[string]time.Time
	// instant is when the API's objects last changed, atInstant how often they did then.
	instant   time.Time
	atInstant int
	// taken is since when the controllers have taken a volume from a node that has not closed it.
	taken map[place]taking
	// bound is since when a pod has been bound to its node.
	bound map[types.UID]time.Time
	// pods are all pods of the API.
	pods map[types.NamespacedName]*corev1.Pod
}

// place is a resource, or a volume, on a node.
type place struct{ what, node string }

// Outcome is what became of a history.
type Outcome struct {
	// Violations are the invariants that were broken, the first one first.
	Violations []Violation
	// Counts says how often what happened.
	Counts map[string]int
	// Excuses are those that were needed.
	Excuses []string
	// Asked is set if a pod had to be moved in time; Freed is why one did not have to that had lost its volume.
	Asked bool
	Freed []string
	// Story is what happened, where it was asked for.
	Story []string
}

// Violation is one broken invariant.
type Violation struct {
	At   time.Duration
	Rule string
	What string
}

func (v Violation) String() string { return fmt.Sprintf("%s: %s: %s", v.At, v.Rule, v.What) }

// Run plays a history in a bubble. With story it keeps what happens.
func Run(t *testing.T, h History, story bool) Outcome {
	t.Helper()
	var outcome Outcome
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w := newWorld(ctx, h, story)
		w.play()
		cancel()
		for _, p := range w.processes {
			p.stops()
		}
		w.Stop()
		outcome = w.outcome
	})
	return outcome
}

func newWorld(ctx context.Context, h History, story bool) *world {
	w := &world{
		ctx: ctx, history: h, started: time.Now(), trace: story,
		outcome: Outcome{Counts: make(map[string]int)}, faults: newFaults(), closed: make(map[place]time.Time), denied: make(map[edge]denial), renewed: make(map[string]time.Time),
		resumed: make(map[string]time.Time),
		pods:    make(map[types.NamespacedName]*corev1.Pod),
		writing: make(map[place]time.Time), deleted: make(map[types.NamespacedName]*corev1.Pod),
		taken: make(map[place]taking), bound: make(map[types.UID]time.Time), liveness: newLiveness(), explanations: newExplanations(), satellites: newSatellites(), planned: newPlanned(),
	}
	w.Cluster = virtual.New(ctx, virtual.Options{
		DRBD: drbd.Options{
			Detect: h.World.detect, NoticeEach: len(h.World.Links) > 0, Flap: h.World.Flap, HealFlap: h.World.HealFlap,
			SyncRate: h.World.Planned.SyncRate,
		},
		Domain: domain, Placed: h.World.Planned.Is,
		Linstor: linstorsim.Options{
			PingTimeout: h.World.PingTimeout, ReplayDelay: h.World.Replay, ControllerProps: properties(h.World),
			TieBreakers: h.World.TieBreakers, Clients: h.World.Clients, Balancing: h.World.Planned.Balancing,
		},
	})
	w.Linstor.SetGroupProperty(linstorsim.DefaultGroup, linstorsim.PropQuorum, h.World.groupQuorum())
	w.Linstor.SetPlacement(linstorsim.DefaultGroup, linstorsim.Placement{NodeNames: h.World.Planned.Group})
	w.oracle = w.API.Client(actorOracle)
	w.API.SetClock(h.World.Clock)
	w.API.Fail(w.refuse)
	w.API.Delay(w.delay)
	w.Linstor.Intercept(w.delayAnswer)
	w.API.OnChange(w.observe)
	w.DRBD.OnChange(w.observeStorage)
	w.prepareViews()
	w.build()
	return w
}

func properties(world World) map[string]string {
	props := linstorsim.PiraeusProps()
	if world.IOError {
		props[linstorsim.PropOnNoQuorum] = drbd.OnNoQuorumIOError
	}
	if world.Disconnect {
		delete(props, linstorsim.PropOnSuspendedPrimary)
		delete(props, linstorsim.PropRRConflict)
	}
	if world.Planned.Balancing {
		props[linstorsim.PropBalanceInterval], props[linstorsim.PropBalanceGracePeriod] = "60", "60"
	}
	return props
}

// prepareViews makes the caches of all processes that there will be: a cache must be there before the first object.
func (w *world) prepareViews() {
	selector := labels.SelectorFromSet(labels.Set{selectedLabel: "remove"})
	count := w.history.World.Processes
	for _, s := range w.history.Steps {
		if s.What == RestartProcess || s.What == ChangeLeader || s.What == EndOverlap || s.What == Overlap {
			count++
		}
	}
	for range count {
		view := w.API.View(w.history.World.Lag, func(o client.Object) bool {
			pod, isPod := o.(*corev1.Pod)
			return !isPod || pod.Labels[selectedLabel] == "remove"
		})
		view.Transform(cluster.Trim(selector))
		w.views = append(w.views, view)
	}
}

func (w *world) nextView() *apimodel.View {
	view := w.views[0]
	w.views = w.views[1:]
	return view
}

// build makes the cluster of the history.
func (w *world) build() {
	w.must(w.Client().Create(w.ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: deployment.Namespace, Name: deployment.Name},
	}))
	for _, node := range w.history.World.Nodes {
		w.must(w.Add(w.ctx, virtual.Node{Name: w.kube(node), RenewInterval: w.history.World.Renew[node]}))
		if w.history.Seed%2 == 0 {
			w.SetStatus(w.kube(node), 10*time.Second)
		}
	}
	for node, d := range w.history.World.Pings {
		w.Linstor.SetPingTimeout(node, d)
	}
	for _, node := range w.history.World.Foreign {
		w.must(w.Add(w.ctx, virtual.Node{Name: w.kube(node), Foreign: true}))
	}
	for _, v := range w.history.World.Volumes {
		if !v.Later {
			w.addVolume(v)
		}
	}
	w.addForeign()
	w.addPiraeus()
	for range w.history.World.Processes {
		p := w.startProcess(fmt.Sprintf("p%d", len(w.processes)))
		w.mu.Lock()
		w.processes = append(w.processes, p)
		w.mu.Unlock()
	}
	w.processes[0].leads()
	for _, p := range w.history.World.Workloads {
		if !p.Later {
			w.addWorkload(p)
		}
	}
	for _, e := range w.history.World.Ended {
		w.leaveEnded(e.Of, e.Phase)
	}
}

func (w *world) addVolume(v Volume) {
	volume := virtual.Volume{
		Name: v.Name, Handle: v.Handle, Diskful: v.Diskful, TieBreaker: v.TieBreaker, Quorum: v.Quorum,
		Block: v.Kind == Block || v.Kind == BlockUnused, Opened: v.Kind == Block, ReadOnly: v.Kind == ReadOnly,
		Claim: v.claim(), Released: v.Released != "", Unmarked: v.Unmarked, Missing: v.Released == Gone || v.Later,
		Pinned: v.Pinned,
	}
	if v.Shared {
		volume.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	}
	if v.Kind == NFSExport {
		volume.Attributes = map[string]string{nfsExport: "nfs://export"}
		volume.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	}
	w.must(w.AddVolume(w.ctx, volume))
	if v.TwoPrimaries {
		w.Linstor.SetDefinitionProperty(v.Resource(), linstorsim.PropAllowTwoPrimaries, "yes")
	}
	if balance := w.history.World.Planned.Balances[v.Name]; balance != "" {
		w.Linstor.SetDefinitionProperty(v.Resource(), linstorsim.PropBalance, balance)
	}
	if v.Released == Dead {
		for i, a := range w.history.World.Nodes {
			for _, b := range w.history.World.Nodes[i+1:] {
				w.DRBD.CutResourceLink(v.Resource(), a, b)
			}
		}
	}
	if v.Kind == NFSExport {
		// The export itself is a service of some node, which no pod knows of.
		// It may not get what it needs, as with a quorum of two on a single disk.
		_ = w.DRBD.Open(v.Resource(), v.Diskful[0], false)
	}
}

// nfsExport is the attribute by which linstor-csi marks volumes that consumers mount by NFS.
const nfsExport = "linstor.csi.linbit.com/nfs-export"

// foreignDriver is a CSI driver that is none of LINSTOR's business.
const foreignDriver = "csi.example.com"

// addForeign attaches a volume of another driver to every node.
func (w *world) addForeign() {
	for _, node := range w.history.World.Nodes {
		name := "foreign-" + node
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
		pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: foreignDriver, VolumeHandle: name}
		w.must(w.Client().Create(w.ctx, pv))
		va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}}
		va.Spec = storagev1.VolumeAttachmentSpec{
			Attacher: foreignDriver, NodeName: w.kube(node), Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &name},
		}
		w.must(w.Client().Create(w.ctx, va))
	}
}

func (w *world) addWorkload(p Workload) {
	workload := virtual.Workload{
		Name: p.Name, Labels: map[string]string{}, Annotations: map[string]string{}, Owner: p.Owner, StopTime: p.Stop,
		InitTime: p.Init, Tolerant: p.Tolerant,
	}
	for _, node := range p.Nodes {
		workload.Nodes = append(workload.Nodes, w.kube(node))
	}
	if p.Ephemeral {
		workload.Ephemeral = []string{"scratch"}
	}
	if p.Selected {
		workload.Labels[selectedLabel] = "remove"
	}
	if p.Exempt {
		workload.Annotations[cluster.AnnotationIgnore] = ""
	}
	if p.Finalizer {
		workload.Finalizers = []string{"example.com/finalizer"}
	}
	if p.Unsafe {
		workload.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: "/scratch"},
		}}}
	}
	for _, volume := range p.Volumes {
		workload.Claims = append(workload.Claims, w.volume(volume).claim())
	}
	w.AddWorkload(workload)
	if p.Helper {
		helper := virtual.Workload{Name: p.Name + "-helper", HelperOf: p.Name, Claims: workload.Claims[:1], StopTime: p.Stop}
		if p.HotPlugged != "" {
			helper.Claims = []string{w.volume(p.HotPlugged).claim()}
		}
		if p.HelperSelected {
			helper.Labels = map[string]string{selectedLabel: "remove"}
		}
		w.AddWorkload(helper)
	}
}

// play lets the workloads settle, the steps happen, and everything get well again.
func (w *world) play() {
	w.pass(settling)
	begin := time.Now()
	for _, step := range w.history.Steps {
		w.pass(time.Until(begin.Add(step.At)))
		w.note("STEP " + step.String())
		w.count("step: " + string(step.What))
		if step.What == MendAll {
			w.mendAll()
		}
		w.do(step)
		synctest.Wait()
		w.check()
	}
	w.pass(time.Until(begin.Add(w.history.Length)))
	w.note("STEP all is mended")
	w.mend()
	const reconnected = 10 * time.Second
	w.pass(reconnected)
	w.openVolumes()
	w.pass(mending - reconnected)
	w.checkLeftovers()
}

// pass lets time pass and checks the invariants at every tick.
func (w *world) pass(d time.Duration) {
	for d > 0 {
		part := min(d, tick)
		<-time.After(part)
		synctest.Wait()
		w.check()
		d -= part
	}
	synctest.Wait()
}

// must stops the simulation where its own building blocks refuse.
func (w *world) must(err error) {
	if err != nil {
		panic(err)
	}
}

// violated notes a broken invariant.
func (w *world) violated(rule, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := Violation{At: time.Since(w.started) - settling, Rule: rule, What: fmt.Sprintf(format, args...)}
	w.outcome.Violations = append(w.outcome.Violations, v)
	if w.trace {
		w.outcome.Story = append(w.outcome.Story, fmt.Sprintf("%10s  VIOLATION %s: %s", v.At, v.Rule, v.What))
	}
}

// count counts what has happened.
func (w *world) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outcome.Counts[what]++
}

// note adds a line to the story.
func (w *world) note(line string) {
	if !w.trace {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outcome.Story = append(w.outcome.Story, fmt.Sprintf("%10s  %s", time.Since(w.started)-settling, line))
}
