package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

// generator draws a history. Everything it does follows from its random numbers.
type generator struct {
	*rand.Rand
	history History
}

// Generate returns the history of a seed. It is a function of the seed alone.
func Generate(seed uint64) History {
	switch {
	case isStory(seed):
		return tell(seed)
	case isOrdinary(seed):
		return GenerateOrdinary(seed)
	case isActStory(seed):
		return tell(seed)
	case isMass(seed):
		return massLoss(seed)
	}
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0)), history: History{Seed: seed}}
	g.drawWorld()
	g.untidy(untidyVolumes)
	g.noteVolumes()
	plain := g.chance(15)
	if plain {
		plotPlainCrash(g)
	} else {
		g.drawPlots()
	}
	g.sort()
	g.untidy(untidyPods)
	g.untidy(untidyTimes)
	if !plain {
		g.untidy(untidySettings)
	}
	g.drawDetection()
	g.untidy(untidyNames)
	g.sort()
	rest := time.Duration(g.IntN(60)) * time.Second
	g.history.World.Patient = g.chance(20)
	if !plain {
		g.untidy(untidyPeople)
		g.sort()
	}
	g.history.Length = max(g.space(), 30*time.Second) + rest
	return amidSome(stallSome(leave(g.history)))
}

func (g *generator) drawPlots() {
	for range 1 + g.IntN(3) {
		plots[g.weighted(plotWeights)](g)
	}
	for range g.IntN(6) {
		g.anyFault(g.moment(), g.span())
	}
}

// space puts the steps apart: two things never happen at the same instant, nor at a round time at which timers end. It returns when
// the last one happens.
func (g *generator) space() (last time.Duration) {
	for i, s := range g.history.Steps {
		last = max(s.At.Round(time.Millisecond), last+time.Millisecond)
		g.history.Steps[i].At = last
	}
	return last
}

func (g *generator) sort() {
	slices.SortStableFunc(g.history.Steps, func(a, b Step) int { return int(a.At - b.At) })
}

// chance is true with a probability of percent.
func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

func pick[T any](g *generator, from ...T) T { return from[g.IntN(len(from))] }

func (g *generator) weighted(weights []int) int {
	sum := 0
	for _, w := range weights {
		sum += w
	}
	n := g.IntN(sum)
	for i, w := range weights {
		if n -= w; n < 0 {
			return i
		}
	}
	return 0
}

// moment is when something begins.
func (g *generator) moment() time.Duration { return g.milliseconds(0, 60*time.Second) }

func (g *generator) milliseconds(from, to time.Duration) time.Duration {
	return from + time.Duration(g.Int64N(int64(to-from)/int64(time.Millisecond)))*time.Millisecond
}

// span is how long something lasts: shorter or longer than each of the times that matter, which are a poll of a
// second, the confirmed grace of 5 s, LINSTOR's and DRBD's detection, and the known grace of 45 s.
func (g *generator) span() time.Duration {
	switch g.IntN(7) {
	case 0:
		return g.milliseconds(100*time.Millisecond, 2*time.Second)
	case 1:
		return g.milliseconds(2*time.Second, 7*time.Second)
	case 2:
		return g.milliseconds(5*time.Second, 15*time.Second)
	case 3:
		return g.milliseconds(12*time.Second, 30*time.Second)
	case 4:
		return g.milliseconds(30*time.Second, 75*time.Second)
	default:
		return 10 * time.Minute // for good: it ends when all is mended
	}
}

func (g *generator) node() string { return pick(g, g.history.World.Nodes...) }

// volume is one that a pod uses, if any does.
func (g *generator) volume() Volume {
	for {
		if v := pick(g, g.history.World.Volumes...); v.Released == "" {
			return v
		}
	}
}

func (g *generator) workload() Workload { return pick(g, g.history.World.Workloads...) }

// home is the node that a workload runs on before anything happens, most often the first one's.
func (g *generator) home() string {
	if g.chance(60) {
		return g.history.World.Workloads[0].Nodes[0]
	}
	return g.workload().Nodes[0]
}

// other returns another node than this one.
func (g *generator) other(than ...string) string {
	rest := slices.DeleteFunc(slices.Clone(g.history.World.Nodes), func(node string) bool { return slices.Contains(than, node) })
	if len(rest) == 0 {
		return than[0]
	}
	return pick(g, rest...)
}

func (g *generator) process() string { return strconv.Itoa(g.IntN(g.history.World.Processes)) }

func (g *generator) add(at time.Duration, s Step) {
	s.At = at
	g.history.Steps = append(g.history.Steps, s)
}

// fault adds a fault and what undoes it.
func (g *generator) fault(at, span time.Duration, s Step, undo Deed) {
	g.add(at, s)
	if end := at + span; end < 4*time.Minute {
		s.What, s.For, s.Value = undo, 0, ""
		g.add(end, s)
	}
}

// undo is the word that ends a fault.
var undo = map[Deed]Deed{
	Crash: Return, ShutDown: Return, Isolate: Rejoin, IsolateDRBD: RejoinDRBD, CutLink: HealLink, CutResource: HealResource,
	CutSatellite: RestoreSatellite, StopSatellite: RestoreSatellite, FreezeSatellite: UnfreezeSatellite,
	SilenceKubelet: RestoreKubelet, ShutdownTaint: ShutdownUntaint, TakeOutOfService: PutIntoService, TakeOutForNew: PutIntoService, StopLinstor: StartLinstor, SlowLinstor: FastLinstor,
	CutLinstor: RestoreLinstor, CutAPI: RestoreAPI, FailAPI: RecoverAPI, PauseCache: ResumeCache, CloseVolume: OpenVolume,
	FailDisk: ReplaceDisk, MigrateTo: EndMigration, ForbidTaints: AllowTaints, ForbidRelease: AllowRelease, DisturbAPI: CalmAPI,
	StallAct: EndStalls, Pause: Unpause, Evict: RestoreNode, GiveUp: TakeBack, FreezeMachine: ThawMachine, HangPools: FreePools, HangResource: FreeResource, FreezeProcess: ThawProcess, Overlap: EndOverlap,
	SlowAPI: FastAPI, LagAPI: EndLag, RejectAPI: AcceptAPI, HangAPI: UnhangAPI, BreakAdjust: MendAdjust, CreateAgain: BindAgain,
}

// faultsOfNodes, faultsOfProcesses and faultsOfAll can happen at any time.
var (
	faultsOfNodes = []Deed{
		Crash, Crash, Isolate, Isolate, IsolateDRBD, IsolateDRBD, CutSatellite, StopSatellite, FreezeSatellite, SilenceKubelet,
		ShutdownTaint, Evict,
	}
	faultsOfProcesses = []Deed{CutLinstor, CutAPI, PauseCache}
	faultsOfAll       = []Deed{StopLinstor, SlowLinstor, FailAPI, ForbidTaints, ForbidRelease, DisturbAPI, DisturbAPI, Pause}
	momentary         = []Deed{
		RestartEvents, RestartLinstor, DropStreams, ResetStreams, SilenceStreams, Replay, ChangeLeader, RestartProcess,
		DeletePod, ForceDeletePod, StopSlowly,
	}
)

// anyFault adds one fault of any kind.
func (g *generator) anyFault(at, span time.Duration) {
	switch g.IntN(10) {
	case 0, 1, 2:
		g.nodeFault(at, span, pick(g, faultsOfNodes...), g.node())
	case 3, 4:
		deed := pick(g, CutLink, CutLink, CutResource)
		node := g.node()
		g.fault(at, span, Step{What: deed, Node: node, Peer: g.other(node), On: g.volume().Name}, undo[deed])
	case 5:
		deed := pick(g, faultsOfProcesses...)
		g.fault(at, min(span, 40*time.Second), Step{What: deed, On: g.process()}, undo[deed])
	case 6:
		s := g.faultOfAll()
		g.fault(at, min(span, 30*time.Second), s, undo[s.What])
	case 7:
		g.volumeFault(at, span)
	default:
		g.momentary(at)
	}
}

func (g *generator) nodeFault(at, span time.Duration, deed Deed, node string) {
	end := undo[deed]
	if deed == SilenceKubelet && g.chance(50) {
		end = RestartKubelet
	}
	g.fault(at, span, Step{What: deed, Node: node}, end)
}

func (g *generator) faultOfAll() Step {
	s := Step{What: pick(g, faultsOfAll...)}
	if s.What == SlowLinstor {
		s.For = g.milliseconds(50*time.Millisecond, 3*time.Second)
	}
	return s
}

func (g *generator) volumeFault(at, span time.Duration) {
	v := g.volume()
	switch g.IntN(5) {
	case 0, 1:
		g.fault(at, span, Step{What: CloseVolume, On: v.Name, Node: g.home()}, OpenVolume)
	case 2:
		g.add(at, Step{What: SetQuorum, On: v.Name, Value: pick(g, "majority", "off", "1", "2", "all")})
	case 3:
		g.fault(at, span, Step{What: FailDisk, On: v.Name, Node: pick(g, v.Diskful...)}, ReplaceDisk)
	default:
		g.add(at, Step{What: RemoveReplica, On: v.Name, Node: g.node()})
	}
}

func (g *generator) momentary(at time.Duration) {
	s := Step{What: pick(g, momentary...)}
	if s.What == RestartEvents {
		s.Node = g.node()
	}
	if s.What == RestartProcess {
		s.On = g.process()
	}
	if slices.Contains([]Deed{DeletePod, ForceDeletePod, StopSlowly}, s.What) {
		s.On = g.workload().Name
	}
	if s.What == StopSlowly {
		s.For = pick(g, 5*time.Second, 20*time.Second, time.Minute)
	}
	g.add(at, s)
}

// drawWorld draws the cluster.
func (g *generator) drawWorld() {
	w := &g.history.World
	for i := range pick(g, 3, 3, 3, 4, 4, 5) {
		w.Nodes = append(w.Nodes, "node-"+string(rune('a'+i)))
	}
	w.Processes = pick(g, 1, 1, 1, 2)
	w.DryRun = g.chance(2)
	w.Lag = pick(g, 0, 0, 50*time.Millisecond, 500*time.Millisecond, 2*time.Second)
	w.PingTimeout = g.milliseconds(5*time.Second, 7*time.Second)
	w.Replay = pick(g, linstorsim.Immediately, linstorsim.Immediately, time.Millisecond, 300*time.Millisecond, 3*time.Second)
	w.IOError, w.Disconnect = g.chance(20), g.chance(15)
	w.Detect = make(map[string]time.Duration)
	for _, node := range w.Nodes {
		w.Detect[node] = pick(g, 0, g.milliseconds(time.Millisecond, time.Second), g.milliseconds(0, 10500*time.Millisecond))
	}
	for range pick(g, 1, 1, 1, 2, 2, 3) {
		g.drawVolume()
	}
	for range pick(g, 1, 1, 2, 2, 3) {
		g.drawWorkload()
	}
	if w.Clients = g.chance(50); w.Clients {
		g.drew(ClientsOfCSI)
	}
}

// drawVolume draws a volume, or two of one consistency group.
func (g *generator) drawVolume() {
	w := &g.history.World
	v := Volume{Name: fmt.Sprintf("v%d", len(w.Volumes)), Kind: Filesystem}
	v.Handle = "pvc-" + v.Name
	if g.chance(35) {
		v.Kind = pick(g, Block, BlockUnused, ReadOnly, NFSExport, Block)
	}
	nodes := slices.Clone(w.Nodes)
	if g.chance(50) {
		g.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	}
	switch g.IntN(10) {
	case 0, 1, 2:
		v.Diskful = nodes[:3]
	case 3:
		v.Diskful = nodes[:1]
	case 4:
		v.Diskful = nodes[:2] // without a tie-breaker LINSTOR switches quorum off
	default:
		v.Diskful, v.TieBreaker = nodes[:2], nodes[2]
		if len(nodes) == 5 && g.chance(30) {
			v.Diskful, v.TieBreaker = nodes[:4], nodes[4]
		}
	}
	if g.chance(12) {
		v.Quorum = pick(g, "majority", "off", "1", "2", "all")
	}
	v.Shared = v.Kind == Block && g.chance(60) || v.Kind == BlockUnused && g.chance(20)
	if g.chance(10) && v.Kind == Filesystem {
		v.Handle = "cg-" + v.Name
		sibling := v
		sibling.Name += "x"
		sibling.Handle += "/1"
		w.Volumes = append(w.Volumes, v, sibling)
		return
	}
	w.Volumes = append(w.Volumes, v)
}

// drawWorkload draws a pod that uses one or two volumes, sometimes one that another pod on the same node uses too.
func (g *generator) drawWorkload() {
	w := &g.history.World
	i := len(w.Workloads)
	p := Workload{Name: fmt.Sprintf("pod-%d", i), Selected: !g.chance(12), Stop: time.Second}
	v := w.Volumes[i%len(w.Volumes)]
	p.Volumes = []string{v.Name}
	if len(w.Volumes) > 1 && g.chance(30) {
		if other := g.volume(); other.Name != v.Name {
			p.Volumes = append(p.Volumes, other.Name)
		}
	}
	p.Nodes = slices.Clone(w.Nodes)
	g.Shuffle(len(p.Nodes), func(i, j int) { p.Nodes[i], p.Nodes[j] = p.Nodes[j], p.Nodes[i] })
	if g.chance(75) { // pods are placed near their data
		slices.SortStableFunc(p.Nodes, func(a, b string) int {
			return boolInt(slices.Contains(v.Diskful, b)) - boolInt(slices.Contains(v.Diskful, a))
		})
	}
	for _, earlier := range w.Workloads {
		// Pods that share a resource run on the same node, unless the volume can be shared.
		if w.share(earlier, p) && !v.Shared {
			p.Nodes = slices.Clone(earlier.Nodes)
		}
	}
	p.Exempt, p.Unsafe, p.Finalizer = g.chance(3), g.chance(3), g.chance(4)
	if g.chance(6) {
		p.Owner = pick(g, "None", "DaemonSet", "Node")
	}
	if g.chance(20) {
		p.Stop = pick(g, 5*time.Second, 20*time.Second)
	}
	w.Workloads = append(w.Workloads, p)
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
