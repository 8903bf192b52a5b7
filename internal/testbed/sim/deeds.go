package sim

import (
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// faults is the truth about what is broken at the moment, as far as the models do not tell.
type faults struct {
	// frozen are the nodes whose satellites LINSTOR takes for ONLINE whatever happens.
	frozen map[string]bool
	// wasFrozen is set once one ever was.
	wasFrozen bool
	// blind is since when LINSTOR has had no connector; zero while it has one. sighted is when that ended last, restarted when the
	// controllers have last restarted it for that.
	blind, sighted, restarted time.Time
	// restartDue is set where that has not happened yet.
	restartDue bool
	// silent is since when a node's satellite has not been heard.
	silent map[string]time.Time
	// silenced is when the event streams were last left half-open.
	silenced time.Time
	// kubelet are the nodes whose kubelets do not reach the API.
	kubelet map[string]bool
	// apiDown is set while no API server runs.
	apiDown atomic.Bool
	// forbidTaints, forbidRelease and disturbed are what else is wrong with the API, for the controllers only.
	forbidTaints, forbidRelease, disturbed atomic.Bool
	requests                               atomic.Int64
	// lastDrain is when a node was drained last: volumes go with their pods then.
	lastDrain time.Time
	// paused is set while somebody has paused fail-over; evicted are nodes that LINSTOR has given up.
	paused bool
	// pausedAt is since when, if it is set.
	pausedAt time.Time
	evicted  map[string]bool
	// gaveUp are those of them whose disks others have got.
	gaveUp map[string]bool
	// answer is how long LINSTOR takes to answer, on the replicas of slowOn only if that is set.
	answer atomic.Int64
	slowOn atomic.Pointer[string]
	// hung are the resources on which LINSTOR does not answer, each with what is closed once it does.
	hung map[string]chan struct{}
	// belated are the definitions that LINSTOR has changed long after it was told to.
	belated map[string]bool
	// hangsLater are those on which it does not some time after the next grace has begun.
	hangsLater map[string]time.Duration
	// pending are the PersistentVolumes that are being created again.
	pending map[string]bool
	// answers counts them.
	answers atomic.Int64
	// linstorDown is set while LINSTOR does not run, linstorUp since when it has.
	linstorDown bool
	linstorUp   time.Time
	// changed are the resources whose quorum or replicas somebody has changed.
	changed map[string]bool
	// damaged are the resources of which a disk has failed: what was written there only is gone.
	damaged map[string]bool
	// mounts counts how often a volume was closed under its pod, by resource and node.
	mounts map[place]int
	// byPerson are those of which a person has set the quorum; returned is when a satellite was heard again last.
	byPerson map[string]bool
	// runs is the quorum that a node runs, and runsSince since when.
	runs      map[place]string
	runsSince map[place]time.Time
	// marks are the reasons in the marks of attachments, by the pods that they name.
	marks map[types.UID]failover.Reason
	// marked is when a person has set the quorum of the definition last, be it to what it was.
	marked map[string]time.Time
	// setAbove is when somebody has set the quorum of the group or of the controller last.
	setAbove map[string]time.Time
	returned map[string]time.Time
	// shown is what LINSTOR has wanted of each resource; forgotten is when the last process ended that knew of a change.
	shown     map[string][]shown
	forgotten map[string]time.Time
	// failedAgain are replicas whose adjust failed after a reconnect too, or was late; late are nodes where it is.
	failedAgain map[place]bool
	late        map[string]bool
	// changedAt is when somebody has done so last.
	changedAt map[string]time.Time
	// adjusts are the replicas whose adjusts fail; saved is LINSTOR's database of before.
	adjusts map[place]bool
	saved   *linstorsim.Snapshot
	// migrations are the second pods of live migrations by volume.
	migrations map[string]string
	// migrated are the volumes that ever had one.
	migrated map[string]bool
	// troubles are what the controllers' requests to the API meet, by the deed that began it.
	troubles map[Deed]trouble
	// troubleEnded is when the last of them ended.
	troubleEnded time.Time
	// machines are the nodes that are frozen, replaced is a leader that does not know yet that it no longer is one.
	machines map[string]bool
	replaced *process
	// stalls is what every second act of the controllers meets; nothing where that is no StallAct.
	stalls Step
	// atWrite is what happens at the controller's next write, by verb and kind, and hangsNext is how long the next request of a verb and kind hangs.
	atWrite   map[string]Step
	hangsNext map[string]time.Duration
	// lag is how long each request of the controllers took at last, and lagEnded is when that ended.
	lag      time.Duration
	lagEnded time.Time
	// vacated are the volumes whose pods the controllers have removed from nodes, and since when they should be detached; zero while they need not.
	vacated map[place]time.Time
	// hungRequest is when one did last.
	hungRequest time.Time
	// vouchedAt is when a taint came that says that a node does not run, and untainted when one was last taken off.
	vouchedAt map[vouching]time.Time
	untainted map[string]time.Time
	// forced are the resources on the nodes from which a person has removed a pod by force.
	forced map[place]bool
}

func newFaults() faults {
	return faults{
		frozen: make(map[string]bool), silent: make(map[string]time.Time), kubelet: make(map[string]bool),
		linstorUp: time.Now(), hung: make(map[string]chan struct{}), belated: make(map[string]bool), hangsLater: make(map[string]time.Duration), pending: make(map[string]bool), changed: make(map[string]bool), damaged: make(map[string]bool), mounts: make(map[place]int), migrations: make(map[string]string),
		migrated: make(map[string]bool), evicted: make(map[string]bool), gaveUp: make(map[string]bool),
		shown: make(map[string][]shown), forgotten: make(map[string]time.Time), failedAgain: make(map[place]bool), late: make(map[string]bool), byPerson: make(map[string]bool), marks: make(map[types.UID]failover.Reason), marked: make(map[string]time.Time), runs: make(map[place]string), runsSince: make(map[place]time.Time), setAbove: make(map[string]time.Time), returned: make(map[string]time.Time), changedAt: make(map[string]time.Time), adjusts: make(map[place]bool), troubles: make(map[Deed]trouble), machines: make(map[string]bool), atWrite: make(map[string]Step), hangsNext: make(map[string]time.Duration), vacated: make(map[place]time.Time), forced: make(map[place]bool), vouchedAt: make(map[vouching]time.Time), untainted: make(map[string]time.Time),
	}
}

// onNode is what happens to a node.
var onNode = map[Deed]func(w *world, node string){
	Crash:             func(w *world, node string) { w.Crash(w.kube(node)) },
	ShutDown:          (*world).shutDown,
	Return:            func(w *world, node string) { w.Return(w.kube(node)) },
	Isolate:           func(w *world, node string) { w.Linstor.Isolate(node); w.cutKubelet(node, true) },
	Rejoin:            (*world).rejoin,
	IsolateDRBD:       func(w *world, node string) { w.DRBD.Isolate(node) },
	RejoinDRBD:        func(w *world, node string) { w.DRBD.Rejoin(node) },
	CutSatellite:      func(w *world, node string) { w.Linstor.CutSatellite(node) },
	StopSatellite:     func(w *world, node string) { w.Linstor.StopSatellite(node) },
	RestoreSatellite:  (*world).restoreSatellite,
	FreezeSatellite:   (*world).freeze,
	UnfreezeSatellite: (*world).unfreeze,
	SilenceKubelet:    func(w *world, node string) { w.cutKubelet(node, true) },
	RestoreKubelet:    func(w *world, node string) { w.cutKubelet(node, false) },
	RestartKubelet:    (*world).restartKubelet,
	RestartEvents:     func(w *world, node string) { w.Linstor.RestartEvents(node) },
	ShutdownTaint:     func(w *world, node string) { w.taint(node, switchedOffTaint, true) },
	ShutdownUntaint:   func(w *world, node string) { w.taint(node, switchedOffTaint, false) },
	TakeOutOfService:  func(w *world, node string) { w.taint(node, outOfServiceTaint, true) },
	TakeOutForNew:     func(w *world, node string) { w.taint(node, outForNewTaint, true) },
	PutIntoService:    func(w *world, node string) { w.taint(node, outOfServiceTaint, false) },
	Evict:             func(w *world, node string) { w.evict(node, true) },
	RestoreNode:       func(w *world, node string) { w.evict(node, false) },
	GiveUp:            func(w *world, node string) { w.giveUp(node, true) },
	TakeBack:          func(w *world, node string) { w.giveUp(node, false) },
	HangPools:         func(w *world, node string) { w.Linstor.HangPools(node, true) },
	FreePools:         func(w *world, node string) { w.Linstor.HangPools(node, false) },
	FreezeMachine:     func(w *world, node string) { w.freezeMachine(node, true) },
	ThawMachine:       func(w *world, node string) { w.freezeMachine(node, false) },
}

// onLinstor is what happens to LINSTOR as a whole.
var onLinstor = map[Deed]func(w *world, s Step){
	StopLinstor:      func(w *world, _ Step) { w.linstorDown = true; w.sees(); w.Linstor.Stop() },
	StartLinstor:     func(w *world, _ Step) { w.linstorDown, w.linstorUp = false, time.Now(); w.Linstor.Start() },
	RestartLinstor:   func(w *world, _ Step) { w.restartLinstor() },
	LoseConnector:    func(w *world, _ Step) { w.loseConnector() },
	SlowLinstor:      (*world).slowLinstor,
	FastLinstor:      func(w *world, _ Step) { w.answer.Store(0) },
	HangResource:     (*world).hang,
	FreeResource:     func(w *world, s Step) { w.hangResource(w.resource(s.On), false) },
	DropStreams:      func(w *world, _ Step) { w.Linstor.DropStreams() },
	ResetStreams:     func(w *world, _ Step) { w.Linstor.ResetStreams() },
	SilenceStreams:   func(w *world, _ Step) { w.silenced = time.Now(); w.Linstor.SilenceStreams() },
	Replay:           func(w *world, _ Step) { w.subscribe() },
	CutLink:          func(w *world, s Step) { w.DRBD.CutLink(s.Node, s.Peer) },
	HealLink:         func(w *world, s Step) { w.DRBD.HealLink(s.Node, s.Peer) },
	CutResource:      func(w *world, s Step) { w.DRBD.CutResourceLink(w.resource(s.On), s.Node, s.Peer) },
	HealResource:     func(w *world, s Step) { w.DRBD.HealResourceLink(w.resource(s.On), s.Node, s.Peer) },
	ResetConnections: func(w *world, s Step) { w.DRBD.ResetConnections(s.Node, s.Peer) },
	SetQuorum:        (*world).setQuorum,
	RemoveReplica:    (*world).removeReplica,
	FailDisk:         (*world).failDisk,
	ReplaceDisk:      func(w *world, s Step) { w.replaceDisk(w.resource(s.On), s.Node) },
	CloseVolume:      (*world).closeVolume,
	OpenVolume:       (*world).openVolume,
	FailAPI:          func(w *world, _ Step) { w.failAPI(true) },
	RecoverAPI:       func(w *world, _ Step) { w.failAPI(false) },
	ChangeLeader:     func(w *world, _ Step) { w.changeLeader() },
	DeletePod:        func(w *world, s Step) { w.deletePod(s.On) },
	ForceDeletePod:   func(w *world, s Step) { w.deletePod(s.On, client.GracePeriodSeconds(0)) },
	StopSlowly: func(w *world, s Step) {
		w.Change(podKey(s.On), func(p *virtual.Workload) { p.StopTime = s.For })
	},
	MigrateTo:       (*world).migrate,
	EndMigration:    (*world).endMigration,
	RemoveFinalizer: func(w *world, s Step) { w.removeFinalizer(s.On) },
	ForbidTaints:    func(w *world, _ Step) { w.forbidTaints.Store(true) },
	AllowTaints:     func(w *world, _ Step) { w.forbidTaints.Store(false) },
	ForbidRelease:   func(w *world, _ Step) { w.forbidRelease.Store(true) },
	AllowRelease:    func(w *world, _ Step) { w.forbidRelease.Store(false) },
	JumpClock:       func(w *world, s Step) { w.API.SetClock(w.API.Clock() + s.For) },
	DisturbAPI:      func(w *world, _ Step) { w.disturbed.Store(true) },
	CalmAPI:         func(w *world, _ Step) { w.disturbed.Store(false) },
	Pause:           func(w *world, _ Step) { w.pause("true") },
	Unpause:         func(w *world, _ Step) { w.pause("false") },
	SlowAPI:         (*world).disturb,
	FastAPI:         (*world).disturb,
	RejectAPI:       (*world).disturb,
	AcceptAPI:       (*world).disturb,
	HangAPI:         (*world).disturb,
	UnhangAPI:       (*world).disturb,
	StallAct:        (*world).stall,
	EndStalls:       (*world).stall,
	Overlap:         func(w *world, _ Step) { w.overlap() },
	EndOverlap:      func(w *world, _ Step) { w.endOverlap() },
	ArriveAtWrite:   (*world).waitForWrite,
	UnlabelAtWrite:  (*world).waitForWrite,
	ExemptAtWrite:   (*world).waitForWrite,
	LabelAtWrite:    (*world).waitForWrite,
	RecoverAtWrite:  (*world).waitForWrite,
	ReplaceAtWrite:  (*world).waitForWrite,
	HangRequest:     (*world).hangRequest,
	LagAPI:          (*world).disturb,
	EndLag:          (*world).disturb,
	LeaveEnded:      func(w *world, s Step) { w.leaveEnded(s.On, s.Value) },
	Spare:           func(w *world, s Step) { w.spare(s.On, s.Value) },
	SpareNoMore:     func(w *world, s Step) { w.spareNoMore(s.On) },
	CreateAgain:     func(w *world, s Step) { w.setPhase(s.On, corev1.VolumePending) },
	BindAgain:       func(w *world, s Step) { w.setPhase(s.On, corev1.VolumeBound) },
}

// onProcess is what happens to one replica of the controller.
var onProcess = map[Deed]func(w *world, p *process){
	CutLinstor:     func(_ *world, p *process) { p.network.shut() },
	RestoreLinstor: func(_ *world, p *process) { p.network.open() },
	CutAPI:         func(_ *world, p *process) { p.cutAPI(true) },
	RestoreAPI:     func(_ *world, p *process) { p.cutAPI(false) },
	PauseCache:     func(_ *world, p *process) { p.cacheOld = true; p.view.Pause() },
	ResumeCache:    func(_ *world, p *process) { p.cacheOld = false; p.view.Resume() },
	RestartProcess: (*world).restartProcess,
	FreezeProcess:  func(_ *world, p *process) { p.freeze(true) },
	ThawProcess:    func(_ *world, p *process) { p.freeze(false) },
}

// do lets a step happen. What makes no sense at the moment does nothing.
func (w *world) do(s Step) {
	if s.What == DrainNode {
		w.lastDrain = time.Now()
	}
	w.notePerson(s)
	if f := onNode[s.What]; f != nil {
		f(w, s.Node)
	}
	if f := onLinstor[s.What]; f != nil {
		f(w, s)
	}
	if f := onAdjust[s.What]; f != nil {
		f(w, s)
	}
	if f := onPlanned[s.What]; f != nil {
		f(w, s)
	}
	if f := onOrdinary[s.What]; f != nil {
		f(w, s)
		w.changes(w.resource(s.On))
	}
	w.change(s)
	if f := onProcess[s.What]; f != nil {
		if i, err := strconv.Atoi(s.On); err == nil && i < len(w.processes) {
			f(w, w.processes[i])
		}
	}
	w.listen()
}

// slowLinstor lets LINSTOR take its time to answer, or only to tell of the replicas of one volume.
func (w *world) slowLinstor(s Step) {
	on := ""
	if s.On != "" {
		on = "/" + strings.ToLower(w.resource(s.On)) + "/resources"
	}
	w.slowOn.Store(&on)
	w.answer.Store(int64(s.For))
}

// restoreSatellite starts the satellite of a node that runs.
func (w *world) restoreSatellite(node string) {
	if w.DRBD.Up(node) {
		w.Linstor.RestoreSatellite(node)
	}
}

func (w *world) freeze(node string) {
	w.mu.Lock()
	w.frozen[node], w.wasFrozen = true, true
	w.mu.Unlock()
	w.Linstor.FreezeSatellite(node)
}

func (w *world) unfreeze(node string) {
	w.mu.Lock()
	delete(w.frozen, node)
	w.mu.Unlock()
	w.Linstor.UnfreezeSatellite(node)
}

// listen notes whose satellites are not heard now.
func (w *world) listen() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, node := range w.history.World.Nodes {
		if w.Linstor.Hears(node) {
			if _, was := w.silent[node]; was {
				w.returned[node] = time.Now()
				w.adjustsAgain(node)
			}
			delete(w.silent, node)
		} else if w.silent[node].IsZero() {
			w.silent[node] = time.Now()
		}
	}
}

func (w *world) rejoin(node string) {
	w.DRBD.Rejoin(node)
	w.restoreSatellite(node)
	w.cutKubelet(node, false)
}

func (w *world) cutKubelet(node string, cut bool) {
	w.kubelet[node] = cut
	if cut {
		w.SilenceKubelet(w.kube(node))
	} else {
		w.RestoreKubelet(w.kube(node))
	}
}

func (w *world) restartKubelet(node string) {
	w.kubelet[node] = false
	w.RestartKubelet(w.kube(node))
}

// deployment is the controller's own, whose annotation pauses fail-over.
var deployment = types.NamespacedName{Namespace: "ha-controller", Name: "piraeus-ha-controller"}

func (w *world) pause(value string) {
	if !w.paused {
		w.pausedAt = time.Now()
	}
	w.paused = value == "true"
	var d appsv1.Deployment
	w.must(w.Client().Get(w.ctx, deployment, &d))
	d.Annotations = map[string]string{cluster.AnnotationPause: value}
	w.must(w.Client().Update(w.ctx, &d))
}

// evict flags a node as one that LINSTOR has given up, or takes that back.
func (w *world) evict(node string, evicted bool) {
	w.evicted[node] = evicted
	switch {
	case evicted:
		w.Linstor.SetNodeFlags(node, linstorsim.FlagDelete, linstorsim.FlagEvicted)
	case w.history.World.Planned.Is:
		_ = w.Linstor.RestoreNode(node) // with the flags of its replicas
	default:
		w.Linstor.SetNodeFlags(node)
	}
}

// giveUp lets LINSTOR evict a node that is away, or takes that back: others get its disks.
func (w *world) giveUp(node string, evicted bool) {
	before := w.wanted()
	if evicted {
		w.gaveUp[node] = w.Linstor.Evict(node) == nil
	} else if w.gaveUp[node] {
		w.gaveUp[node] = false
		_ = w.Linstor.RestoreNode(node)
	}
	w.evicted[node] = w.evicted[node] || w.gaveUp[node]
	w.compare(before)
}

// shutDown switches a node off in order: its DRBD says goodbye to its peers, and then the machine is gone.
func (w *world) shutDown(node string) {
	w.DRBD.Shutdown(node)
	w.Crash(w.kube(node))
}

// volume returns the volume of that name.
func (w *world) volume(name string) Volume {
	return w.history.World.volume(name)
}

func (w *world) resource(volume string) string { return w.volume(volume).Resource() }

// subscribe makes LINSTOR replay its state to everybody, as one more subscriber does.
func (w *world) subscribe() {
	near := newGate(w.Network.DialContext)
	transport := &http.Transport{DialContext: near.dial}
	request, err := http.NewRequestWithContext(w.ctx, http.MethodGet, "http://linstor:3370/v1/events/drbd/promotion", http.NoBody)
	w.must(err)
	request.Header.Set("Last-Event-ID", "current")
	go func() {
		if response, err := transport.RoundTrip(request); err == nil {
			_ = response.Body.Close()
		}
		near.close()
	}()
	time.AfterFunc(5*time.Second, near.close)
}
