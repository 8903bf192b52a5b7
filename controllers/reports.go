package controllers

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
)

// reports remembers what was last said about each volume on each node, so that only changes are said, and when the
// stages of a fail-over began.
type reports struct {
	metrics *metrics.Metrics
	now     func() time.Time

	mu   sync.Mutex
	said byVolume[*progress]
	// moves are the fail-overs that have begun and are not over, by volume; departed are those whose attachment was deleted here.
	moves    map[string]*move
	departed map[string]departure
	// arrivals are the volumes that have arrived elsewhere since they were asked for.
	arrivals []arrival
}

// departure is a volume's detachment from a lost node.
type departure struct {
	node       string
	at         time.Time
	attachment failover.Attachment // the one that was deleted
}

const (
	// departureMemory is for how long a volume is expected to be attached again: twice the longest that the metric tells apart.
	departureMemory = 10 * time.Minute
	// lingers is for how long the attach/detach controller may not have noticed that an attachment was deleted: the default of its
	// --attach-detach-reconcile-sync-period.
	lingers = time.Minute
	// releaseAgain is how soon it is looked whether a kubelet that lives has claimed a released volume again, and releaseSoon for how
	// long so often: Kubernetes detaches a released volume within a second or two.
	releaseAgain = 300 * time.Millisecond
	releaseSoon  = 5 * time.Second
)

// progress is that of a fail-over of one volume on one node.
type progress struct {
	verdict  failover.Verdict
	reason   failover.Reason
	suspect  time.Time                  // since when the loss has been suspected
	removing time.Time                  // first removal
	begun    types.UID                  // the attachment by which that pod used the volume
	gone     time.Time                  // last pod gone
	released bool                       // from the volumes in use there, for the first time
	stuck    map[string]failover.Reason // by pod
	// attachment is the one there that was deleted, and detached when nothing was left to do but to wait for its end.
	attachment types.UID
	detached   time.Time
	lookAfter  time.Duration // from then on
}

func newReports(m *metrics.Metrics, now func() time.Time) *reports {
	return &reports{
		metrics: m, now: now, said: make(byVolume[*progress]), moves: make(map[string]*move), departed: make(map[string]departure),
	}
}

// prune forgets every node of the volume that is not among the inputs.
func (r *reports) prune(volume string, inputs []failover.Input) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said.prune(volume, inputs)
}

// forget forgets one.
func (r *reports) forget(volume, node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said.remove(volume, node)
}

// changed notes a decision and tells whether it is news. The normal state is never news, and leaves nothing behind.
func (r *reports) changed(volume, node string, d failover.Decision) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d.Verdict == failover.NotLost || d.Verdict == failover.Undecided {
		s, told := r.said[volume][node]
		// A moment of not knowing ends no fail-over that has begun, here or by a former leader. That nothing is lost does, also
		// where the workload came back to the same node and attachment.
		if told && (s.removing.IsZero() && len(s.stuck) == 0 || d.Verdict == failover.NotLost) {
			delete(r.said[volume], node)
			return s.verdict != d.Verdict
		}
		return false
	}
	s := r.progress(volume, node)
	if s.suspect.IsZero() {
		s.suspect = r.now()
	}
	if s.verdict == d.Verdict && s.reason == d.Reason {
		return false
	}
	s.verdict, s.reason = d.Verdict, d.Reason
	if d.Verdict == failover.Blocked {
		r.metrics.Blocked(d.Reason)
	}
	return true
}

// stuckPod notes that a pod does not terminate, for what reason, and tells whether that is news: it is none where another of its volumes
// there has told it.
func (r *reports) stuckPod(volume, node, pod string, reason failover.Reason) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.progress(volume, node)
	if s.stuck[pod] == reason {
		return false
	}
	news := true
	for _, nodes := range r.said {
		if other := nodes[node]; other != nil && other.stuck[pod] == reason {
			news = false
		}
	}
	if s.stuck == nil {
		s.stuck = make(map[string]failover.Reason)
	}
	s.stuck[pod] = reason
	r.metrics.Blocked(reason)
	return news
}

// stuckOn returns why pods that use a volume on a node do not go although they were removed; empty where none is left.
func (r *reports) stuckOn(volume, node string) failover.Reason {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.said[volume][node]
	if !ok || !s.gone.IsZero() {
		return ""
	}
	for _, reason := range s.stuck {
		return reason // they are hardly ever two
	}
	return ""
}

// podRemoved notes that a pod of the volume was deleted, which begins the fail-over of the volume if none has.
func (r *reports) podRemoved(volume string, in failover.Input, d failover.Decision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.progress(volume, in.Node.Name)
	if s.removing.IsZero() {
		s.removing = r.now()
		r.metrics.FailoverBegun(d.Reason)
		r.begin(volume, in.Node.Name, d, s.suspect)
		if !s.suspect.IsZero() {
			r.took(volume, in.Node.Name, metrics.StageDecide, s.removing.Sub(s.suspect))
		}
	}
}

// begins notes that a pod is about to be removed that uses the volume by that attachment.
func (r *reports) begins(volume string, in failover.Input) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if in.Attachment != nil {
		r.progress(volume, in.Node.Name).begun = in.Attachment.UID
	}
}

// begun tells whether that is so, in a fail-over that is not over.
func (r *reports) begun(volume, node string, attachment types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.said[volume][node]
	return ok && s.begun == attachment
}

func (r *reports) podsGone(volume string, in failover.Input) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.progress(volume, in.Node.Name)
	if s.gone.IsZero() {
		s.gone = r.now()
		if !s.removing.IsZero() {
			r.took(volume, in.Node.Name, metrics.StagePodsGone, s.gone.Sub(s.removing))
		}
	}
}

func (r *reports) released(volume string, in failover.Input) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.progress(volume, in.Node.Name); !s.gone.IsZero() && !s.released && !r.hasLeft(volume, in) {
		s.released = true
		r.took(volume, in.Node.Name, metrics.StageRelease, r.now().Sub(s.gone))
	}
}

// detached notes that the attachment was deleted, by whom ever, and that nothing is left to do but to wait for its end. A
// kubelet that lives may claim the volume again meanwhile: after our deletion that is looked at often. Of a silent one it is looked at
// more and more rarely.
func (r *reports) detached(volume string, in failover.Input) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.progress(volume, in.Node.Name)
	switch silent := in.Node.LeaseSilent(failover.ForceSilence); {
	case silent && s.attachment == in.Attachment.UID:
		s.lookAfter = min(2*s.lookAfter, retryLimit)
	case !silent && r.hasLeft(volume, in) && r.now().Sub(r.departed[volume].at) < releaseSoon:
		s.lookAfter = releaseAgain
	default:
		s.lookAfter = retryAct
	}
	s.attachment, s.detached = in.Attachment.UID, r.now()
}

// waitAfterDetach is for how long nobody need look whether an attachment has ended that was deleted a moment ago; zero where
// there is another one, or pods are back.
func (r *reports) waitAfterDetach(volume string, in failover.Input) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.said[volume][in.Node.Name]
	if !ok || in.Attachment == nil || in.Attachment.UID != s.attachment || len(in.Pods) > 0 {
		return 0
	}
	wait := s.lookAfter
	if !in.Node.LeaseSilent(failover.ForceSilence) {
		wait = min(wait, retryAct) // it may be back
	}
	return max(0, wait-r.now().Sub(s.detached))
}

// progress returns that of the volume on the node; the caller holds the lock.
func (r *reports) progress(volume, node string) *progress {
	nodes := r.said[volume]
	if nodes == nil {
		nodes = make(map[string]*progress)
		r.said[volume] = nodes
	}
	if nodes[node] == nil {
		nodes[node] = &progress{}
	}
	return nodes[node]
}

// left notes that the volume was taken off a lost node: its attachment there was deleted.
func (r *reports) left(volume string, in failover.Input, d failover.Decision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.departed, func(_ string, d departure) bool { return r.now().Sub(d.at) > departureMemory })
	r.departed[volume] = departure{node: in.Node.Name, at: r.now(), attachment: *in.Attachment}
	m := r.moves[volume]
	if m == nil || m.node != in.Node.Name {
		m = r.begin(volume, in.Node.Name, d, time.Time{}) // another process has
	}
	m.left = r.now()
}

// hasLeft tells whether the attachment was deleted here; the caller holds the lock.
func (r *reports) hasLeft(volume string, in failover.Input) bool {
	d, ok := r.departed[volume]
	return ok && in.Attachment != nil && d.attachment.UID == in.Attachment.UID
}

// lingering returns the attachment of the volume that was deleted, and its node, while the attach/detach controller may not have
// noticed that; nil otherwise.
func (r *reports) lingering(volume string) (node string, attachment *failover.Attachment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d, ok := r.departed[volume]
	if !ok || r.now().Sub(d.at) > lingers {
		return "", nil
	}
	d.attachment.Deleting, d.attachment.Marked = true, true
	return d.node, &d.attachment
}

// lingeringOn returns the volumes that lingering returns an attachment on the node for.
func (r *reports) lingeringOn(node string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var volumes []string
	for volume, d := range r.departed {
		if d.node == node && r.now().Sub(d.at) <= lingers {
			volumes = append(volumes, volume)
		}
	}
	return volumes
}

// remembered lists the volumes that something was said of.
func (r *reports) remembered() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var lines []string
	for _, volume := range slices.Sorted(maps.Keys(r.said)) {
		for _, node := range slices.Sorted(maps.Keys(r.said[volume])) {
			s := r.said[volume][node]
			lines = append(lines, fmt.Sprintf("said of volume %s on node %s: %s %s", volume, node, s.verdict, s.reason))
		}
	}
	return lines
}
