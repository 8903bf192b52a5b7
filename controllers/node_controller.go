package controllers

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

const (
	// lookAgain is how soon a node is reconciled again while something is in progress there and no event comes.
	lookAgain = time.Second
	// atOnce is how soon a node is reconciled again if the next step is already possible.
	atOnce = time.Millisecond
	// pollFor is how long LINSTOR is still polled about a volume after a reconcile, or after the wait of an act.
	pollFor = 5 * time.Second
	// pollSilentFor is how long the volumes of a node are polled after its kubelet has fallen silent.
	pollSilentFor = 40 * time.Second
)

// NodeReconciler removes pods from a node that has lost their LINSTOR volumes, and detaches the volumes. It runs on every replica: a standby decides
// and keeps LINSTOR's state fresh, so a new leader inherits running grace periods. Pods are created again by their own controllers.
type NodeReconciler struct {
	shared

	driver   string
	taints   *taints
	inUse    *volumesInUse
	memory   *quorumMemory
	reporter *reporter
	halt     *haltSwitch
	leader   *leadership

	states  sync.Map // of *nodeState, by node: each is used only by the worker of that key
	changed *changedVolumes
	reports *nodeReports

	timeout           time.Duration
	reconcileInterval time.Duration
	fastDetach        bool
	dryRun            bool
}

// volume is a volume on the node as one reconcile sees it.
type volume struct {
	pv          *corev1.PersistentVolume
	attachments []storagev1.VolumeAttachment // in the cache, to all nodes
	state       *volumeState
	// in is the input of the decision, and d the newest decision.
	in failover.Input
	d  failover.Decision
	// resources are all resources of LINSTOR on which the decision depends, its own first.
	resources []string
	// err is why it could not be read or a step failed.
	err error
	// off has the taints of the live Node that say that it is off, live are the pods of the live list that use the volume, and listed is when that
	// list was requested.
	off    cluster.Off
	live   []corev1.Pod
	listed time.Time
	// held is set if nothing more is done about the volume in this reconcile.
	held bool
}

// Reconcile takes the next steps for one node. The Node may be gone by now, and its volumes still attached there. Reconcile never returns an error: a
// step that fails is reported, and the node is reconciled again in time to repeat it.
func (r *NodeReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	state, began := r.stateOf(req.Name), time.Now()
	ctx, cancel, leads := r.leader.while(ctx)
	defer cancel()
	volumes, lost, rest := r.decideChanged(ctx, state, r.changed.take(req.Name))
	r.poll(volumes)
	r.countDecided(volumes, began)
	r.publish(state)
	if !leads {
		return state.requeue(r.clock.Now()), nil
	}
	r.settle(ctx, state, rest)
	if len(lost) > 0 {
		if r.mayAct(ctx, state, lost) {
			reads := r.readLive(ctx, state, lost)
			r.write(ctx, state, lost, reads)
		}
		state.learn(nobodyAnswered(lost), r.timeout)
		r.conclude(ctx, state, lost)
	}
	r.tidy(ctx, state, volumes, rest)
	if len(lost) == 0 && !state.atStake() {
		state.limit = 0 // nothing is at stake; else the API is assumed to be as slow in the next reconcile
	}
	r.publish(state)
	return state.requeue(r.clock.Now()), nil
}

// nobodyAnswered reports whether nothing could be decided or done because the API server has not answered in time.
func nobodyAnswered(lost []*volume) bool {
	tried := 0
	for _, v := range lost {
		if v.held {
			continue
		}
		linstor := (*linstorError)(nil)
		if !errors.Is(v.err, context.DeadlineExceeded) || errors.As(v.err, &linstor) {
			return false
		}
		tried++
	}
	return tried > 0
}

// decideChanged decides the volumes that have changed. It decides all of the node if any may be concerned, if it is time for that, or if one is lost or on
// its way to another node. It also returns which of the decided volumes are to be acted on, and the rest.
func (r *NodeReconciler) decideChanged(ctx context.Context, state *nodeState, changed []string) (volumes, lost, rest []*volume) {
	if !state.calm || state.isDue(r.clock.Now()) {
		changed = nil
	}
	if state.others = (time.Time{}); len(changed) > 0 {
		state.others = state.due
	}
	volumes = r.gather(ctx, state, changed)
	r.decide(state, volumes)
	lost, rest = split(volumes)
	if state.calm = len(lost) == 0 && !state.moves(); !state.calm && len(changed) > 0 {
		return r.decideChanged(ctx, state, nil)
	}
	return volumes, lost, rest
}

// decide decides each volume, and when to decide it again if no event comes.
func (r *NodeReconciler) decide(state *nodeState, volumes []*volume) {
	for _, v := range volumes {
		v.d = failover.Decide(v.in)
		v.decided()
		v.state.interruption.observe(v.in, v.d)
		if v.d.After > 0 { // LINSTOR is polled until then, on standbys too
			state.again(min(r.decideNext(v.d), pollFor-lookAgain))
		}
		if v.d.Reason != failover.PrimaryHealthy {
			state.again(r.reconcileInterval)
		}
		if fellSilent(v.in.Node) {
			state.again(lookAgain)
		}
	}
}

// decideNext returns when a volume is decided again that is polled. If polling finds a change, it is decided sooner, so a long grace needs no timer of
// its own.
func (r *NodeReconciler) decideNext(d failover.Decision) time.Duration {
	if d.GraceLeft > max(pollFor, r.settings.ConfirmedGrace) {
		return pollFor - lookAgain
	}
	return d.After
}

// decided records the newest decision.
func (v *volume) decided() {
	v.state.decided(v.d, v.in.Now)
	if v.d.Verdict == failover.NotLost && v.in.Attachment != nil && v.in.Attachment.Noted {
		v.state.healthy = v.in.Attachment.UID // what happens now is another fail-over
	}
}

// fellSilent reports whether the node's kubelet counts as silent, and has been so for less than pollSilentFor.
func fellSilent(node failover.Node) bool {
	return node.LeaseSilent(failover.ForceSilence) && node.LeaseSilence < pollSilentFor
}

// poll has LINSTOR polled about volumes that could become lost. LINSTOR is also asked about each volume on a node whose kubelet has fallen silent, in
// each reconcile until pollSilentFor, because a stream of events that a firewall has dropped reports nothing; about a volume whose pod has just begun to
// run, because that causes no event; and now and then about an unhealthy volume, because an event may have been missed.
func (r *NodeReconciler) poll(volumes []*volume) {
	synced := r.linstor.Status().Synced // else everything is being read
	for _, v := range volumes {
		switch {
		case v.d.After > 0:
			r.keep(v.resources, 0)
		case fellSilent(v.in.Node), v.in.AwaitsUse(), isUnhealthy(v.d.State) && v.isOld() && synced:
			r.linstor.Poll(v.resources[0])
		}
	}
}

// isOld reports whether LINSTOR has to be asked again about an unhealthy volume: every ten seconds at first, and once a minute when nothing has
// changed for twelve minutes.
func (v *volume) isOld() bool {
	age := min(max(retryLimit, v.in.Now.Sub(v.state.since)/12), time.Minute)
	return v.in.Now.Sub(v.in.Resource.Confirmed) >= age
}

// keep has LINSTOR polled about resources during a wait, and for a while after it.
func (r *NodeReconciler) keep(resources []string, wait time.Duration) {
	for _, resource := range resources {
		r.linstor.Keep(resource, time.Now().Add(wait+pollFor))
	}
}

// isUnhealthy reports whether LINSTOR shows that a node cannot use a volume.
func isUnhealthy(state failover.State) bool {
	return slices.Contains([]failover.State{failover.Unknown, failover.Unreachable, failover.PrimaryWithoutQuorum, failover.IOErrors}, state)
}

// countDecided records how long events waited for these decisions.
func (r *NodeReconciler) countDecided(volumes []*volume, began time.Time) {
	for _, v := range volumes {
		for _, arrival := range r.linstor.Undecided(v.resources[0], began) {
			r.metrics.EventDecided(time.Since(arrival))
		}
	}
}

// split returns the volumes to act on, and the rest. The former are lost, or would be if a live read of the node's Lease confirmed its silence. A
// volume whose detach is left to Kubernetes for now belongs to the rest.
func split(volumes []*volume) (lost, rest []*volume) {
	for _, v := range volumes {
		if wait := v.state.waitForKubernetes(v.in); wait > 0 {
			v.d.After = wait
			rest = append(rest, v)
		} else if v.d.Verdict == failover.Lost || v.d.ReadLease {
			lost = append(lost, v)
		} else {
			rest = append(rest, v)
		}
	}
	// What failed the last time goes last.
	slices.SortStableFunc(lost, func(a, b *volume) int { return cmp.Compare(min(1, a.state.failures), min(1, b.state.failures)) })
	return lost, rest
}

// settle reports the decisions on volumes that need no step now. The fail-over of a volume ends if it works again and its pods are not being deleted.
func (r *NodeReconciler) settle(ctx context.Context, state *nodeState, rest []*volume) {
	hold := sync.OnceValue(func() failover.Halt { return r.halt.known(ctx) })
	for _, v := range rest {
		state.again(r.decideNext(v.d))
		if v.d.Verdict == failover.Pending {
			v.in.Halt = hold() // a move that it forbids is not announced
		}
		state.again(r.reporter.say(ctx, state, v))
		r.reporter.interrupted(v)
		if v.d.Verdict == failover.NotLost && (v.d.Reason == failover.PrimaryHealthy || v.d.Reason == failover.VolumeUnused) && podsStay(v.in) {
			v.state.move = nil
		}
	}
}

// mayAct reports whether anything may be done about the lost volumes now: nothing holds all fail-over, and at least one of them does not wait for
// its next try. A dry run holds nothing here: its live reads make its reports exact, and the policy plans no step.
func (r *NodeReconciler) mayAct(ctx context.Context, state *nodeState, lost []*volume) bool {
	if hold := r.halt.now(ctx, state.holdAge(r.clock.Now())); hold.Guard != "" || hold.Paused != "" || hold.Agents != "" {
		for _, v := range lost {
			v.in.Halt = hold
			v.d = failover.Decide(v.in)
		}
		return false
	}
	due := false
	for _, v := range lost {
		v.held = v.state.retryIn(r.clock.Now()) > 0
		due = due || !v.held
	}
	return due
}

// conclude reports what became of the lost volumes, and when to go on.
func (r *NodeReconciler) conclude(ctx context.Context, state *nodeState, lost []*volume) {
	failed := make(map[string][]string) // volumes, by error
	for _, v := range lost {
		if v.err == nil && len(v.in.Pods) == 0 && v.in.Attachment == nil {
			continue // Kubernetes has finished it meanwhile
		}
		wait := v.state.retryIn(r.clock.Now())
		switch {
		case v.held && wait > 0:
			v.err = v.state.failure
		case !v.held || v.err != nil: // one that is held since this reconcile, because it was too late or a pod came, has neither succeeded nor failed
			v.state.tried(v.err, r.clock.Now())
			wait = v.state.retryIn(r.clock.Now())
			if v.err != nil {
				failed[v.err.Error()] = append(failed[v.err.Error()], v.pv.Name)
			}
		}
		if v.err != nil {
			state.again(max(wait, atOnce))
		} else {
			state.again(v.d.After)
		}
		if keepAway := (*keepAwayError)(nil); errors.As(v.err, &keepAway) {
			v.d.Verdict, v.d.Reason, v.d.Message, v.err = failover.Blocked, failover.KeepAwayFailed, keepAway.Error(), nil
		}
		v.decided()
		state.again(r.reporter.say(ctx, state, v))
	}
	for text, volumes := range failed {
		ctrl.LoggerFrom(ctx).Info("Cannot move volumes away", "node", state.node, "volumes", volumes, "error", text)
	}
}

// tidy removes our annotations, conditions and taints when their cause is gone, and writes what a successor must know. It does nothing while the
// next step of a fail-over is already possible.
func (r *NodeReconciler) tidy(ctx context.Context, state *nodeState, volumes, rest []*volume) {
	if r.dryRun || state.next == atOnce {
		return
	}
	now := r.clock.Now()
	if !now.Before(state.takeBackAt) {
		failed := r.takeBackAnnotations(ctx, state, rest)
		if r.takeBackDisrupted(ctx, r.disrupted(ctx, rest)) || failed {
			state.takeBackAt = now.Add(retryLimit)
		}
	}
	state.again(state.takeBackAt.Sub(now))
	state.again(r.taints.tidy(ctx, state.node, state))
	r.writeUnconfirmed(ctx, state, volumes)
}

// stateOf returns the state of a node.
func (r *NodeReconciler) stateOf(node string) *nodeState {
	known, _ := r.states.LoadOrStore(node, newNodeState(node))
	return known.(*nodeState)
}

// publish publishes what others may know of the node. A node without volumes is forgotten, unless we have tainted it as silent.
func (r *NodeReconciler) publish(state *nodeState) {
	if len(state.volumes) == 0 && state.silenceSeen.IsZero() {
		r.states.Delete(state.node)
		r.reports.withdraw(state.node)
		return
	}
	r.states.Store(state.node, state)
	r.reports.publish(state.node, state.report())
}
