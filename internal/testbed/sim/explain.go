package sim

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

const (
	// RuleExplain is that a workload whose node is dead, frozen or cut off and that has not moved for a minute has an Event with the reason,
	// however it came about.
	RuleExplain = "a lost workload was left without a word"
	// ruleHandful is that nobody has more than a handful of Events for one loss.
	ruleHandful = "a pod was told more than a handful of things about one loss"
	// ruleAnonymous: every Event names the UID of its object, without which "kubectl describe" does not show it.
	ruleAnonymous = "an Event does not name the UID of its object"
)

// Explained counts the workloads that were lost for a minute and told why.
const Explained = "lost for a minute, and told why"

const (
	// speechless is how long a lost workload may be without an Event.
	speechless = time.Minute
	// sayTime is how long the controller may take to say something from when it is entitled to: it waits for half a minute, and looks
	// every few seconds.
	sayTime = 40 * time.Second
	// handful is how many Events a pod may have from one leader for one loss, and handfulMore how many more for each volume but the first.
	handful, handfulMore = 6, 2
	// flap is how long a node must have been well for its next loss to be another one.
	flap = 12 * time.Second
)

// explanations are what pods were told, and which of them are lost.
type explanations struct {
	// told are the reasons of the Events of each pod, and when.
	told map[types.UID][]telling
	// losses are the pods whose node is dead or cut off.
	losses map[types.UID]*loss
	// able is since when the leader could tell somebody something.
	able time.Time
	// speaker is the process that was able.
	speaker *process
}

type telling struct {
	reason, by string
	at         time.Time
}

// loss is one of a pod's node.
type loss struct {
	// since is when it began, well since when the node is no longer lost; zero while it is. known is since when somebody could know.
	since, well, known time.Time
	// reported is set once something about it was found, counted once it was found well explained.
	reported, counted bool
}

func newExplanations() explanations {
	return explanations{told: make(map[types.UID][]telling), losses: make(map[types.UID]*loss)}
}

// tell notes that a process has told a pod something about its loss. What becomes of its volume's data because some node is to leave is none
// of that.
func (w *world) tell(uid types.UID, reason, by string) {
	if slices.Contains(evacuation.Reasons(), evacuation.Reason(reason)) && !slices.Contains(failover.Reasons(), failover.Reason(reason)) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told[uid] = append(w.told[uid], telling{reason, by, time.Now()})
}

// toldSince returns the reasons that a pod was told since then, by who told it: of two leaders neither knows what the other has said.
func (w *world) toldSince(uid types.UID, since time.Time) map[string][]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	reasons := make(map[string][]string)
	for _, t := range w.told[uid] {
		if !t.at.Before(since) {
			reasons[t.by] = append(reasons[t.by], t.reason)
		}
	}
	return reasons
}

// allPods returns the pods of the API.
func (w *world) allPods() []*corev1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]*corev1.Pod, 0, len(w.pods))
	for _, pod := range w.pods {
		all = append(all, pod)
	}
	return all
}

// checkExplained looks for lost workloads that nobody has been told of, and for pods that were told too much.
func (w *world) checkExplained() {
	w.noteSpeaker()
	seen := make(map[types.UID]bool)
	for _, pod := range w.allPods() {
		seen[pod.UID] = true
		l := w.losses[pod.UID]
		switch lost := w.hasLost(pod); {
		case lost && l == nil:
			l = &loss{since: time.Now()}
			w.losses[pod.UID] = l
		case lost:
			l.well = time.Time{}
		case l == nil:
			continue
		case l.well.IsZero():
			l.well = time.Now()
		case time.Since(l.well) > flap:
			delete(w.losses, pod.UID)
			continue
		}
		w.checkLoss(pod, l)
	}
	for uid := range w.losses {
		if !seen[uid] {
			delete(w.losses, uid)
		}
	}
}

// toldFrom is since when what a pod was told counts for a loss: for a minute before it, or as long as the leader has led that takes the
// volume for lost all the time, and tells each reason once.
func (w *world) toldFrom(pod *corev1.Pod, l *loss) time.Time {
	leader := w.processes[w.leader]
	if leader == nil || leader.leading.IsZero() {
		return l.since.Add(-speechless)
	}
	remembered := leader.memory.Lines()
	for _, own := range w.volumesOf(pod) {
		for _, v := range append([]Volume{own}, w.history.World.Volumes...) { // PersistentVolumes of one handle are told of once
			if v.Resource() == own.Resource() && slices.Contains(remembered, fmt.Sprintf("a wait of volume %s on node %s", v.Name, pod.Spec.NodeName)) {
				return leader.leading
			}
		}
	}
	return l.since.Add(-speechless)
}

func (w *world) checkLoss(pod *corev1.Pod, l *loss) {
	if l.reported || !l.well.IsZero() {
		return
	}
	most := handful + handfulMore*max(0, len(w.volumesOf(pod))-1)
	for _, told := range w.toldSince(pod.UID, l.since) {
		if len(told) > most {
			w.violated(ruleHandful, "pod %s on %s: %v", pod.Name, home(pod), told)
			l.reported = true
		}
	}
	hidden := w.hidden(home(pod))
	unannounced := hidden == "" && time.Since(l.since) < resynced && w.unannounced(pod)
	nothingThere := hidden == "" && w.nothingThere(pod)
	switch {
	case hidden != "", unannounced, nothingThere:
		l.known = time.Time{}
	case l.known.IsZero():
		l.known = time.Now()
	}
	// What was said of how it came to that counts as well.
	if w.able.IsZero() || time.Since(l.since) < speechless {
		return
	}
	if len(w.toldSince(pod.UID, w.toldFrom(pod, l))) > 0 {
		l.count(w)
		return
	}
	for _, from := range []time.Time{w.able, w.boundAt(pod)} {
		if time.Since(from) < speechless {
			return
		}
	}
	switch {
	case hidden != "":
		w.excuse(ExcuseHidden, "pod %s on %s: %s", pod.Name, home(pod), hidden)
		l.reported = true
	case unannounced:
		w.excuse(ExcuseUnannounced, "pod %s on %s", pod.Name, home(pod))
	case nothingThere:
		w.excuse(ExcuseNothingThere, "pod %s on %s", pod.Name, home(pod))
	case time.Since(l.known) >= sayTime:
		w.violated(RuleExplain, "pod %s on %s, lost for %s", pod.Name, home(pod), time.Since(l.since))
		l.reported = true
	}
}

// count counts a loss that lasts and is explained, once.
func (l *loss) count(w *world) {
	if !l.counted {
		l.counted = true
		w.count(Explained)
	}
}

// boundAt returns when a pod was bound to its node: now, where the record of that is still being written.
func (w *world) boundAt(pod *corev1.Pod) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at, ok := w.bound[pod.UID]; ok {
		return at
	}
	return time.Now()
}

// hasLost tells whether a selected pod with a volume of ours that it uses itself sits on a node that is dead, frozen or cut off. Why a pod
// cannot start on a node that lives is for the kubelet there to say.
func (w *world) hasLost(pod *corev1.Pod) bool {
	node := home(pod)
	if pod.Labels[selectedLabel] != "remove" || hasEnded(pod) || !slices.Contains(w.history.World.Nodes, node) {
		return false
	}
	for _, v := range w.volumesOf(pod) {
		if v.ephemeral || v.Released != "" || v.Kind == NFSExport {
			continue // what DRBD makes of an export on the node of who mounts it is no matter to the pod
		}
		if !w.DRBD.Up(node) || w.machines[node] {
			return true
		}
		state, ok := w.DRBD.Replica(v.Resource(), node)
		if ok && hasRun(pod) && opens(v) && state.Open > 0 && state.Role == drbd.Primary && !state.HasQuorum {
			return true
		}
	}
	return false
}

// noteSpeaker notes since when the leader can tell anybody anything: it reaches the API, and sees what changes there.
func (w *world) noteSpeaker() {
	leader := w.processes[w.leader]
	able := !leader.leading.IsZero() && leader.reachesAPI() && !leader.freezer.frozen() && !leader.cacheOld && !w.apiDown.Load() &&
		!w.troubledNow() && w.lagPatience() == 0 && time.Since(leader.begun) >= w.history.World.Late
	switch {
	case !able:
		w.able, w.speaker = time.Time{}, nil
	case w.speaker != leader:
		w.able, w.speaker = time.Now(), leader
	}
}

// hidden tells why nobody can know that a node is lost, empty where somebody can: its kubelet lives, has not been silent for long
// enough, or is one of most that are silent, and LINSTOR tells nothing of it.
func (w *world) hidden(node string) string {
	leader := w.processes[w.leader]
	if w.heardNothing(leader, node) {
		return ""
	}
	switch status := leader.feed.Status(); {
	case w.linstorDown, leader.network.cut.Load(), !status.Synced, w.answer.Load() > 0:
		return "LINSTOR does not answer"
	case w.frozen[node], w.isBlind(), w.Linstor.ConnectionStatus(node) == linstorsim.Online && (w.machines[node] || !w.Linstor.Hears(node)):
		return "LINSTOR shows old words"
	case !w.silenced.IsZero() && time.Since(w.silenced) < resynced:
		return "LINSTOR's stream is dead"
	}
	return ""
}

// unannounced tells whether the leader has been shown nothing of a loss: no event tells of a quorum that is lost where nobody can take
// over, so that only the next resync does. A kubelet that is silent is noticed without LINSTOR.
func (w *world) unannounced(pod *corev1.Pod) bool {
	leader, node := w.processes[w.leader], home(pod)
	if w.heardNothing(leader, node) {
		return false
	}
	return !slices.ContainsFunc(w.volumesOf(pod), func(v Volume) bool {
		if v.Kind == NFSExport {
			return false // its replica says nothing of who mounts it
		}
		shown, _ := leader.store.Resource(v.Resource())
		if len(shown.Replicas) == 0 {
			return false // LINSTOR has nothing of it anywhere, be its node lost or not
		}
		a, ok := shown.Replica(node)
		if !ok {
			return hasRun(pod) // one that has not may wait for its replica
		}
		closed := !a.InUse.Value && !v.Shared // of one that others hold elsewhere that is no sign
		return !a.Online.Value || closed || a.Score.Value <= 0
	})
}

// nothingThere tells whether nothing speaks of a loss: the pod has not run, LINSTOR shows no replica of its volumes on its node, and the kubelet's
// silence does not count, or not yet.
func (w *world) nothingThere(pod *corev1.Pod) bool {
	leader, node := w.processes[w.leader], home(pod)
	return !hasRun(pod) && !w.heardNothing(leader, node) && !slices.ContainsFunc(w.volumesOf(pod), func(v Volume) bool {
		shown, _ := leader.store.Resource(v.Resource())
		a, there := shown.Replica(node)
		return there && !a.Gone || len(shown.Replicas) == 0
	})
}

// unlearnt is for how long a kubelet must be silent of which a process has not seen two renewals: it goes by the duration of the Lease.
// A pause among the last five gaps may have been as long as that.
const unlearnt = 77 * time.Second

// heardNothing tells whether a process must take the kubelet of a node for silent.
func (w *world) heardNothing(p *process, node string) bool {
	if w.mostSilent() {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	from, silence := w.renewed[node], w.silence(node)
	if every := max(w.history.World.Renew[node], usualRenewal); from.Sub(p.begun) < 4*every || from.Sub(w.resumed[node]) < 5*every {
		silence = max(silence, unlearnt)
	}
	if looked := p.begun.Add(w.history.World.Late); looked.After(from) {
		from = looked
	}
	return time.Since(from) >= silence
}

// mostSilent tells whether most kubelets are silent: then none counts as silent.
func (w *world) mostSilent() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	silent := 0
	for _, node := range w.history.World.Nodes {
		silent += boolInt(time.Since(w.renewed[node]) >= failover.ForceSilence)
	}
	return 2*silent > len(w.history.World.Nodes)
}

// usualRenewal is how often a kubelet renews its Lease, and a bit more.
const usualRenewal = 10400 * time.Millisecond
