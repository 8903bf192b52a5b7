package controllers

import (
	"errors"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
)

const (
	// moveMemory is how long a volume is expected to be attached elsewhere: twice the longest time that the metric distinguishes.
	moveMemory = 10 * time.Minute
	// detachUnnoticed is how long the attach/detach controller may not notice that an attachment was deleted: the default of its
	// --attach-detach-reconcile-sync-period.
	detachUnnoticed = time.Minute
	// recreatedWithin is how long a volume that is being detached may have no PersistentVolume before it is forgotten.
	recreatedWithin = time.Minute
)

// nodeState is what one process remembers of a node. Only the worker that reconciles the node reads or changes it.
type nodeState struct {
	node    string
	volumes map[string]*volumeState
	// next is when the node is reconciled again; zero if only a change calls for that.
	next time.Duration
	// due is when that is, and others is when that was to be before a reconcile that decides only some volumes; zero if only a change calls for that.
	due, others time.Time
	// calm is set if the newest reconcile found no volume lost or on its way to another node.
	calm bool
	// taintChecked is when the cause of our taints was last checked, and silenceSeen when that of the taint node-silent was last seen.
	taintChecked, silenceSeen time.Time
	// decidedAt is when the lost volumes were last decided.
	decidedAt time.Time
	// takeBackAt is when to try again to take back annotations and conditions, and releaseAt when to release volumes; zero unless that has failed.
	takeBackAt, releaseAt time.Time
	patience
}

func newNodeState(node string) *nodeState {
	return &nodeState{node: node, volumes: make(map[string]*volumeState)}
}

// again has the node reconciled after that time, unless that is sooner anyway; zero calls for nothing.
func (s *nodeState) again(after time.Duration) {
	if after > 0 && (s.next == 0 || after < s.next) {
		s.next = after
	}
}

// holdAge returns how old the answer may be that nothing holds fail-over: it must have been asked for since the lost volumes were last decided or, if
// the API is slow, within the wait for it.
func (s *nodeState) holdAge(now time.Time) time.Duration {
	since := now.Sub(s.decidedAt)
	s.decidedAt = now
	if s.limit > 0 {
		return s.wait()
	}
	return max(min(since, s.wait()), haltAge)
}

// isDue reports whether it is time to reconcile the node although nothing has changed.
func (s *nodeState) isDue(now time.Time) bool { return !s.due.IsZero() && !now.Before(s.due) }

// requeue returns when the node is reconciled again, as the result of a reconcile.
func (s *nodeState) requeue(now time.Time) reconcile.Result {
	due := s.others
	if next := now.Add(s.next); s.next > 0 && (due.IsZero() || next.Before(due)) {
		due = next
	}
	s.next, s.due, s.others = 0, due, time.Time{}
	if due.IsZero() {
		return reconcile.Result{}
	}
	return reconcile.Result{RequeueAfter: max(due.Sub(now), atOnce)}
}

// moves reports whether a volume is on its way to another node.
func (s *nodeState) moves() bool {
	for _, v := range s.volumes {
		if v.move != nil {
			return true
		}
	}
	return false
}

// atStake reports whether a volume was lost when it was last decided, may become lost, or may be lost for all that is known.
func (s *nodeState) atStake() bool {
	for _, v := range s.volumes {
		if v.verdict == failover.Lost || v.verdict == failover.Pending || v.verdict == failover.Undecided {
			return true
		}
	}
	return false
}

// volumeState is what is remembered of one volume on one node.
type volumeState struct {
	// verdict and reason are those of the newest decision, and since is when they became so.
	verdict failover.Verdict
	reason  failover.Reason
	since   time.Time
	// lostWithNode is set while the volume is lost for a reason that concerns the whole node.
	lostWithNode bool
	// wait is what was reported of a loss that nothing is done about.
	wait failover.Wait
	// progress is that of the fail-over; the zero value while nothing is wrong.
	progress progress
	// move is set from the first deletion of a pod until the volume is attached elsewhere.
	move *move
	// deleted is the attachment that this process deleted, at that time; nil if none.
	deleted   *failover.Attachment
	deletedAt time.Time
	// healthy is the annotated attachment whose volume was not lost since; empty if there is none. interruption is the newest loss of quorum that made
	// writes fail.
	healthy      types.UID
	interruption interruption
	// missing is since when the volume has had no PersistentVolume; zero if it has one.
	missing time.Time
	// failure is why the last try to move the volume failed, failures how many tries in a row have, and retryAt when the next one begins.
	failure  error
	failures int
	retryAt  time.Time
}

// tried records how a try to move the volume ended. If nobody answered, the next one begins after a second: an API server that returns is not
// waited for. If the API server refused, it waits twice as long each time, up to retryLimit.
func (v *volumeState) tried(err error, now time.Time) {
	if v.failure = err; err == nil {
		v.failures = 0
		return
	}
	wait := lookAgain
	if isRefused(err) {
		wait = min(firstRetry<<min(v.failures, 10), retryLimit)
	}
	v.failures++
	v.retryAt = now.Add(wait)
}

// isRefused reports whether the API server refused a request. An answer that it is away comes from a proxy in front of it.
func isRefused(err error) bool {
	status := apierrors.APIStatus(nil)
	return errors.As(err, &status) && status.Status().Code < http.StatusBadGateway
}

// retryIn returns how long to wait before the next try to move the volume; not above zero if none has to wait.
func (v *volumeState) retryIn(now time.Time) time.Duration {
	if v.failure == nil {
		return 0
	}
	return v.retryAt.Sub(now)
}

// progress is how far the fail-over of one volume is.
type progress struct {
	reported failover.Verdict // last reported
	reason   failover.Reason
	suspect  time.Time                  // first sign of the loss
	removing time.Time                  // first deletion of a pod
	begun    types.UID                  // attachment by which that pod used the volume
	gone     time.Time                  // last pod gone
	released bool                       // from the volumes in use
	stuck    map[string]failover.Reason // by pod
	// detaching is the deleted attachment that is left to Kubernetes, and detachSeen when that was last seen.
	detaching  types.UID
	detachSeen time.Time
}

// move is a fail-over that has begun, of a volume that is not attached to another node yet.
type move struct {
	reason  failover.Reason
	message string
	suspect time.Time // zero if another process saw the first sign of the loss
	left    bool      // the attachment is deleted
	since   time.Time // when that was or, before that, when the fail-over began
	seconds map[metrics.Stage]float64
}

func (s *nodeState) report() map[string]volumeReport {
	report := make(map[string]volumeReport, len(s.volumes))
	for name, v := range s.volumes {
		report[name] = v.report()
	}
	return report
}

// volume returns the state of a volume, a new one if there is none.
func (s *nodeState) volume(name string) *volumeState {
	if s.volumes[name] == nil {
		s.volumes[name] = &volumeState{}
	}
	return s.volumes[name]
}

// decided records the newest decision. If it is not known whether the node has lost the volume, what was known before remains.
func (v *volumeState) decided(d failover.Decision, now time.Time) {
	if v.verdict != d.Verdict || v.reason != d.Reason {
		v.verdict, v.reason, v.since = d.Verdict, d.Reason, now
	}
	switch {
	case failover.SpeaksOfTheNode(d.Loss):
		v.lostWithNode = true
	case d.Verdict != failover.Undecided,
		!slices.Contains([]failover.State{failover.Unknown, failover.Unreachable, failover.PrimaryWithoutQuorum}, d.State):
		v.lostWithNode = false
	}
}

// changed records that a decision is reported, and reports whether it is news. That nothing is wrong is never news, and ends the fail-over.
// That nothing is known ends none that has begun.
func (v *volumeState) changed(d failover.Decision, now time.Time) bool {
	p := &v.progress
	if d.Verdict == failover.NotLost || d.Verdict == failover.Undecided {
		if d.Verdict == failover.Undecided && (!p.removing.IsZero() || len(p.stuck) > 0) {
			return false
		}
		was := p.reported
		*p = progress{}
		return was != "" && was != d.Verdict
	}
	if p.suspect.IsZero() {
		p.suspect = now
	}
	news := p.reported != d.Verdict || p.reason != d.Reason
	p.reported, p.reason = d.Verdict, d.Reason
	return news
}

// blocks returns why nothing is done about a loss, or why a pod does not go; empty if neither is so or nobody was told.
func (v *volumeState) blocks() failover.Reason {
	if v.progress.gone.IsZero() {
		for _, reason := range v.progress.stuck {
			return reason
		}
	}
	if v.verdict == failover.Blocked {
		return v.reason
	}
	return v.wait.Blocks()
}

func (v *volumeState) begin(d failover.Decision, suspect, now time.Time) {
	v.move = &move{reason: d.Reason, message: d.Message, suspect: suspect, since: now, seconds: make(map[metrics.Stage]float64)}
}

func (v *volumeState) took(m *metrics.Metrics, stage metrics.Stage, d time.Duration) {
	m.Took(stage, d)
	if v.move != nil {
		v.move.seconds[stage] = math.Round(d.Seconds()*1000) / 1000
	}
}

func (v *volumeState) podDeleted(m *metrics.Metrics, d failover.Decision, now time.Time) {
	p := &v.progress
	if !p.removing.IsZero() {
		return
	}
	p.removing = now
	m.FailoverBegun(d.Reason)
	v.begin(d, p.suspect, now)
	if !p.suspect.IsZero() {
		v.took(m, metrics.StageDecide, now.Sub(p.suspect))
	}
}

func (v *volumeState) podsGone(m *metrics.Metrics, now time.Time) {
	p := &v.progress
	if !p.gone.IsZero() {
		return
	}
	p.gone = now
	if !p.removing.IsZero() {
		v.took(m, metrics.StagePodsGone, now.Sub(p.removing))
	}
}

// wasReleased records that the volume is not among the volumes in use any more.
func (v *volumeState) wasReleased(m *metrics.Metrics, now time.Time) {
	if p := &v.progress; !p.released && !p.gone.IsZero() && v.deleted == nil {
		p.released = true
		v.took(m, metrics.StageRelease, now.Sub(p.gone))
	}
}

func (v *volumeState) wasDetached(attachment failover.Attachment, d failover.Decision, now time.Time) {
	attachment.Deleting, attachment.Marked = true, true
	v.deleted, v.deletedAt = &attachment, now
	if v.move == nil { // another process has begun it
		v.begin(d, time.Time{}, now)
	}
	v.move.left, v.move.since = true, now
}

// leaveToKubernetes records that the attachment is being deleted, and that the rest is left to Kubernetes.
func (v *volumeState) leaveToKubernetes(attachment types.UID, now time.Time) {
	v.progress.detaching, v.progress.detachSeen = attachment, now
}

// waitForKubernetes returns how long a volume need not be looked at whose attachment is being deleted; zero if there is something to do.
func (v *volumeState) waitForKubernetes(in failover.Input) time.Duration {
	p := &v.progress
	if in.Attachment == nil || in.Attachment.UID != p.detaching || len(in.Pods) > 0 {
		return 0
	}
	wait := lookAgain // a kubelet that is up may claim the volume again
	if in.Node.LeaseSilent(failover.ForceSilence) {
		wait = retryLimit
	}
	return max(0, wait-in.Now.Sub(p.detachSeen))
}

// lingering returns the attachment that this process deleted, while the attach/detach controller may not have noticed; else nil.
func (v *volumeState) lingering(now time.Time) *failover.Attachment {
	if v.deleted == nil || now.Sub(v.deletedAt) > detachUnnoticed {
		return nil
	}
	return v.deleted
}

// leave forgets what concerned the volume on the node. The move is remembered until the volume is attached elsewhere.
func (v *volumeState) leave() {
	*v = volumeState{move: v.move, deleted: v.deleted, deletedAt: v.deletedAt}
}

// over reports whether nothing is left to remember of a volume that does not concern the node any more.
func (v *volumeState) over(now time.Time) bool {
	if v.move != nil && now.Sub(v.move.since) > moveMemory {
		v.move = nil
	}
	return v.move == nil && v.lingering(now) == nil
}

// volumeReport is the copy of the state of a volume on a node that others read.
type volumeReport struct {
	verdict failover.Verdict // the newest one
	blocks  failover.Reason
	// reported and reason are those of the decision that was last reported; empty while nothing is wrong.
	reported failover.Verdict
	reason   failover.Reason
	// lost is set while the volume is lost for a reason that concerns the whole node, moving while its fail-over from the node is in progress,
	// and waits while a loss is not acted on.
	lost, moving, waits bool
	// interrupted are the pods whose writes may have failed in an interruption that has ended.
	interrupted []types.UID
}

func (v *volumeState) report() volumeReport {
	var interrupted []types.UID
	if !v.interruption.ended.IsZero() {
		interrupted = v.interruption.pods
	}
	return volumeReport{
		interrupted: interrupted,
		verdict:     v.verdict, blocks: v.blocks(), reported: v.progress.reported, reason: v.progress.reason,
		lost: v.lostWithNode, moving: v.move != nil, waits: !v.wait.Over(),
	}
}

// nodeReports are the reports of all volumes, by their name, on all nodes. Everybody may read them.
type nodeReports struct {
	nodes sync.Map // of map[string]volumeReport, by node; nobody changes one that is there
}

func (r *nodeReports) publish(node string, report map[string]volumeReport) {
	r.nodes.Store(node, report)
}

func (r *nodeReports) withdraw(node string) { r.nodes.Delete(node) }

func (r *nodeReports) each(visit func(node, volume string, report volumeReport)) {
	r.nodes.Range(func(node, volumes any) bool {
		for volume, report := range volumes.(map[string]volumeReport) {
			visit(node.(string), volume, report)
		}
		return true
	})
}

// lost returns the nodes that have lost a volume for a reason that concerns the whole node.
func (r *nodeReports) lost() map[string]bool {
	lost := make(map[string]bool)
	r.each(func(node, _ string, report volumeReport) {
		if report.lost {
			lost[node] = true
		}
	})
	return lost
}

// failsOver reports whether a volume of a node is lost.
func (r *nodeReports) failsOver(node string) (is bool) {
	volumes, _ := r.nodes.Load(node)
	reports, _ := volumes.(map[string]volumeReport)
	for _, report := range reports {
		is = is || report.lost || report.verdict == failover.Lost
	}
	return is
}

// interrupted reports whether writes of a pod to a volume may have failed in an interruption that has ended.
func (r *nodeReports) interrupted(node, volume string, pod types.UID) bool {
	volumes, _ := r.nodes.Load(node)
	reports, _ := volumes.(map[string]volumeReport)
	return slices.Contains(reports[volume].interrupted, pod)
}

// movingFrom returns the nodes from which a fail-over of a volume is in progress.
func (r *nodeReports) movingFrom(volume string) (nodes []string) {
	r.nodes.Range(func(node, volumes any) bool {
		if volumes.(map[string]volumeReport)[volume].moving {
			nodes = append(nodes, node.(string))
		}
		return true
	})
	return nodes
}
