package controllers

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
)

const (
	// lookAgain is how soon a node is reconciled again while something is in progress there and nothing else calls for it.
	lookAgain = time.Second
	// atOnce is how soon it is reconciled again if more can be done now.
	atOnce = time.Millisecond
	// pollFor is how much longer than a reconcile LINSTOR is asked every second about a volume that could become lost.
	pollFor = 5 * time.Second
	// pollSilentFor is how long LINSTOR is asked about the volumes of a node whose kubelet is silent.
	pollSilentFor = 40 * time.Second
)

// NodeReconciler moves workloads away from a node that lost their volumes. It runs on every replica: a standby decides and keeps LINSTOR's
// state fresh, so that a new leader inherits running grace periods. It never creates pods, their owners do.
type NodeReconciler struct {
	client      client.Client
	linstor     Linstor
	clock       clock.PassiveClock
	settings    failover.Settings
	driver      string
	kubelets    *cluster.Kubelets
	volumes     cluster.Volumes
	pods        cluster.Pods
	attachments cluster.Attachments
	inputs      cluster.Inputs
	live        cluster.Live
	taints      *taints
	inUse       *volumesInUse
	memory      *settingsMemory
	reporter    *reporter
	metrics     *metrics.Metrics
	halt        *haltSwitch
	leader      *leadership
	// failures returns when a node is reconciled again on which something failed.
	failures workqueue.TypedRateLimiter[string]

	states  sync.Map // of *nodeState, by node: each is only used by the worker of its node
	reports *nodeReports

	timeout           time.Duration
	reconcileInterval time.Duration
	fastDetach        bool
	dryRun            bool
}

// volume is a volume on the node as one reconcile sees it.
type volume struct {
	pv    *corev1.PersistentVolume
	state *volumeState
	// in is what is known of it, and d the newest decision.
	in failover.Input
	d  failover.Decision
	// resources are all resources of LINSTOR that the decision rests on, its own first.
	resources []string
	// err is why it could not be read or a step failed. It waits for the next reconcile.
	err error
	// off is what the Node said of being off, live are the pods of the live list that use the volume, and listed is when that was asked for.
	off    cluster.Off
	live   []corev1.Pod
	listed time.Time
	// held is set once nothing more is done about it in this reconcile.
	held bool
}

// Reconcile does for one node what has to be done now. The node need not exist any more: its volumes may still be attached there.
func (r *NodeReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	node, state, began := req.Name, r.stateOf(req.Name), time.Now()
	volumes, next, err := r.gather(ctx, node, state)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("gathering what is known of node %s: %w", node, err)
	}
	r.decide(volumes)
	r.poll(volumes)
	r.decidedSince(volumes, began)
	r.publish(node, state)
	ctx, cancel, leads := r.leader.while(ctx)
	defer cancel()
	if !leads {
		return reconcile.Result{RequeueAfter: r.again(next, volumes)}, nil
	}
	lost, rest := split(volumes)
	next = r.again(next, rest)
	for _, v := range rest {
		next = sooner(next, r.reporter.say(ctx, state, v))
		v.settle()
	}
	if len(lost) > 0 {
		next = sooner(next, r.failOver(ctx, node, state, lost))
	} else {
		r.failures.Forget(node)
		state.limit = 0
	}
	next = sooner(next, r.tidy(ctx, node, state, volumes, rest))
	state.learn(r.timeout)
	r.publish(node, state)
	return reconcile.Result{RequeueAfter: next}, nil
}

// failOver acts on volumes that are lost by what is known, unless something forbids all of that.
func (r *NodeReconciler) failOver(ctx context.Context, node string, state *nodeState, lost []*volume) (next time.Duration) {
	if halt := r.halt.now(ctx); halt.Guard != "" || halt.Paused != "" || halt.Agents != "" {
		for _, v := range lost {
			v.in.Halt = halt
			v.d = failover.Decide(v.in)
		}
	} else {
		inUse := r.readLive(ctx, node, state, lost)
		next = sooner(next, r.write(ctx, node, state, lost, inUse))
	}
	next = sooner(next, r.conclude(ctx, node, state, lost))
	return next
}

// decide decides each volume.
func (r *NodeReconciler) decide(volumes []*volume) {
	for _, v := range volumes {
		v.d = failover.Decide(v.in)
		v.state.decided(v.d)
	}
}

// again returns when to decide these volumes again although nothing may have happened.
func (r *NodeReconciler) again(next time.Duration, volumes []*volume) time.Duration {
	for _, v := range volumes {
		if v.d.After > 0 { // as long as LINSTOR is polled, on standbys too
			next = sooner(next, min(v.d.After, lookAgain))
		}
		if v.d.Reason != failover.PrimaryHealthy {
			next = sooner(next, r.reconcileInterval)
		}
		if v.in.Node.LeaseSilent(failover.ForceSilence) && v.in.Node.LeaseSilence < pollSilentFor {
			next = sooner(next, lookAgain)
		}
	}
	return next
}

// poll has LINSTOR asked every second about the volumes that could become lost. It has LINSTOR asked once about all volumes on a node whose
// kubelet is silent, because a stream of events that a firewall has forgotten reports nothing, and about a volume whose pod has just begun to
// run, because no event comes with that. What seems unhealthy is asked about again as often as its node is reconciled, because an event may have
// been missed.
func (r *NodeReconciler) poll(volumes []*volume) {
	for _, v := range volumes {
		switch silent := v.in.Node.LeaseSilent(failover.ForceSilence); {
		case v.d.After > 0:
			r.keep(v.resources, time.Now().Add(pollFor))
		case silent && v.in.Node.LeaseSilence < pollSilentFor, v.in.AwaitsUse(), isUnhealthy(v.d.State) && r.isOld(v):
			r.linstor.Poll(v.resources[0])
		}
	}
}

// isUnhealthy reports whether LINSTOR shows that a node cannot use a volume.
func isUnhealthy(state failover.State) bool {
	return slices.Contains([]failover.State{failover.Unknown, failover.Unreachable, failover.PrimaryWithoutQuorum, failover.IOErrors}, state)
}

// isOld reports whether LINSTOR has not been asked about a volume for as long as lies between two reconciles of a node on which all is quiet.
func (r *NodeReconciler) isOld(v *volume) bool {
	return v.in.Now.Sub(v.in.Resource.Confirmed) >= r.reconcileInterval
}

func (r *NodeReconciler) keep(resources []string, until time.Time) {
	for _, resource := range resources {
		r.linstor.Keep(resource, until)
	}
}

// decidedSince counts how long the events have waited that came before these decisions.
func (r *NodeReconciler) decidedSince(volumes []*volume, began time.Time) {
	for _, v := range volumes {
		for _, arrival := range r.linstor.Undecided(v.resources[0], began) {
			r.metrics.EventDecided(time.Since(arrival))
		}
	}
}

// split separates the volumes that are lost, or about which nothing but the node's Lease is missing, from the rest. What is left to Kubernetes
// for a moment counts as the rest.
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
	return lost, rest
}

// conclude reports what became of the lost volumes, and returns when to go on.
func (r *NodeReconciler) conclude(ctx context.Context, node string, state *nodeState, lost []*volume) (next time.Duration) {
	failed := make(map[string][]string) // volumes, by error
	for _, v := range lost {
		if v.err == nil && len(v.in.Pods) == 0 && v.in.Attachment == nil {
			continue // Kubernetes has finished it meanwhile
		}
		v.state.decided(v.d)
		next = sooner(next, r.reporter.say(ctx, state, v))
		if v.err != nil {
			failed[v.err.Error()] = append(failed[v.err.Error()], v.pv.Name)
			continue
		}
		next = sooner(next, v.d.After)
		if v.d.Verdict == failover.Lost && v.state.waitForKubernetes(v.in) == 0 {
			next = sooner(next, lookAgain)
		}
	}
	for text, volumes := range failed {
		ctrl.LoggerFrom(ctx).Info("Cannot move volumes away", "node", node, "volumes", volumes, "error", text)
	}
	if len(failed) > 0 {
		next = sooner(next, r.failures.When(node))
	} else {
		r.failures.Forget(node)
	}
	return next
}

// tidy takes back what has lost its cause, and writes down what a successor must know.
func (r *NodeReconciler) tidy(ctx context.Context, node string, state *nodeState, volumes, rest []*volume) (next time.Duration) {
	if r.dryRun {
		return 0
	}
	next = sooner(next, r.takeBackAnnotations(ctx, state, rest))
	next = sooner(next, r.taints.tidy(ctx, node, state))
	return sooner(next, r.writeSettings(ctx, state, volumes))
}

// settle ends a move of a volume that works on the node again under pods that stay.
func (v *volume) settle() {
	if v.d.Verdict == failover.NotLost && (v.d.Reason == failover.PrimaryHealthy || v.d.Reason == failover.VolumeUnused) && stay(v.in) {
		v.state.move = nil
	}
}

// stateOf returns the state of a node.
func (r *NodeReconciler) stateOf(node string) *nodeState {
	known, _ := r.states.LoadOrStore(node, &nodeState{volumes: make(map[string]*volumeState)})
	return known.(*nodeState)
}

// publish publishes what others may know of the node. Of a node without volumes nothing is remembered.
func (r *NodeReconciler) publish(node string, state *nodeState) {
	if len(state.volumes) == 0 && state.silenceSeen.IsZero() {
		r.states.Delete(node)
		r.reports.withdraw(node)
		return
	}
	r.reports.publish(node, state.report(node))
}

// gather collects what is known of the volumes on the node, and forgets what does not concern it any more.
func (r *NodeReconciler) gather(ctx context.Context, node string, state *nodeState) (volumes []*volume, next time.Duration, err error) {
	names, err := r.candidates(ctx, node, state)
	if err != nil {
		return nil, 0, err
	}
	for _, name := range names {
		v, after, err := r.gatherVolume(ctx, name, node, state)
		if err != nil {
			return nil, 0, fmt.Errorf("volume %s: %w", name, err)
		}
		if v != nil {
			volumes = append(volumes, v)
		}
		next = sooner(next, after)
	}
	return volumes, next, nil
}

// candidates returns the names of all volumes that may concern the node.
func (r *NodeReconciler) candidates(ctx context.Context, node string, state *nodeState) ([]string, error) {
	attachments, err := r.attachments.On(ctx, node)
	if err != nil {
		return nil, err
	}
	pods, err := r.pods.On(ctx, node)
	if err != nil {
		return nil, err
	}
	var names []string
	for name := range state.volumes {
		names = append(names, name)
	}
	for i := range attachments {
		names = append(names, *attachments[i].Spec.Source.PersistentVolumeName)
	}
	for i := range pods {
		of, err := r.volumes.OfPod(ctx, &pods[i])
		if err != nil {
			return nil, err
		}
		names = append(names, of...)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// gatherVolume returns one volume; nil if it does not concern the node.
func (r *NodeReconciler) gatherVolume(ctx context.Context, name, node string, state *nodeState) (*volume, time.Duration, error) {
	pv, err := r.volumes.Get(ctx, name)
	if err != nil {
		return nil, 0, err
	}
	attachments, err := r.attachments.Of(ctx, name)
	if err != nil {
		return nil, 0, err
	}
	known := state.volume(name)
	if pv == nil || cluster.IsToBeBound(pv) {
		if after, recreated := known.isRecreated(attachments, node, r.clock.Now()); recreated {
			return nil, after, nil
		}
	} else {
		known.missing = time.Time{}
	}
	if pv == nil {
		delete(state.volumes, name)
		r.memory.forget(name)
		return nil, 0, nil
	}
	resource := r.volumes.Resource(pv)
	if err := r.memory.take(name, resource, attachments, r.clock.Now()); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot read which quorum settings are unconfirmed", "volume", name)
	}
	r.arrived(ctx, node, pv, known, attachments)
	in, concerns, err := r.inputs.On(ctx, pv, node, cluster.Remembered{Begun: known.begunBy(), Deleted: r.lingering(known)})
	if err != nil {
		return nil, 0, err
	}
	if !concerns {
		if known.leave(); known.over(r.clock.Now()) {
			delete(state.volumes, name)
		}
		return nil, 0, nil
	}
	return &volume{pv: pv, state: known, in: in, resources: resourcesOf(in)}, 0, nil
}

// lingering returns the attachment of a released volume that this process deleted, while Kubernetes may not have noticed.
func (r *NodeReconciler) lingering(v *volumeState) *failover.Attachment {
	if !r.fastDetach {
		return nil
	}
	return v.lingering(r.clock.Now())
}

// isRecreated reports whether a volume that is attached to the node has no PersistentVolume for a moment: an affinity controller deletes and
// creates those of volumes whose replicas have moved. after is when to check again.
func (v *volumeState) isRecreated(attachments []storagev1.VolumeAttachment, node string, now time.Time) (after time.Duration, is bool) {
	if v.missing.IsZero() {
		v.missing = now
	}
	left := recreatedWithin - now.Sub(v.missing)
	for i := range attachments {
		if va := &attachments[i]; va.Spec.NodeName == node && (va.DeletionTimestamp == nil || left > 0) {
			return left, true
		}
	}
	return 0, false
}

// resourcesOf returns the resources that a decision rests on.
func resourcesOf(in failover.Input) []string {
	resources := []string{in.Resource.Name}
	for _, pod := range in.Pods {
		for _, other := range pod.Others {
			resources = append(resources, other.Resource.Name)
		}
	}
	return resources
}

// arrived reports that a volume whose fail-over from the node is in progress is attached to another node.
func (r *NodeReconciler) arrived(
	ctx context.Context, node string, pv *corev1.PersistentVolume, known *volumeState, attachments []storagev1.VolumeAttachment,
) {
	if known.move == nil {
		return
	}
	stays := func(va storagev1.VolumeAttachment) bool {
		return va.Spec.NodeName == node && va.DeletionTimestamp == nil
	}
	if known.move.left.IsZero() {
		if slices.ContainsFunc(attachments, stays) {
			return
		}
		known.move.left = r.clock.Now() // Kubernetes has detached it itself
	}
	for i := range attachments {
		if va := &attachments[i]; va.Spec.NodeName != node && va.Status.Attached {
			r.reporter.failedOver(ctx, node, pv, known, va)
			return
		}
	}
}

// sooner returns the shorter of two waits; zero is none.
func sooner(a, b time.Duration) time.Duration {
	if b > 0 && (a <= 0 || b < a) {
		return b
	}
	return a
}
