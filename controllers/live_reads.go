package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/safely"
)

// liveReads are what an act depends on besides the volumes' inputs.
type liveReads struct {
	// node is the Node; nil if there is none.
	node *corev1.Node
	// claims has the pods whose claims were read, and are bound as the cache says. No other pod may be deleted.
	claims map[types.UID]bool
}

// readLive reads everything that an act depends on, from LINSTOR and the API server instead of caches. It first reads at the same time LINSTOR's state
// of the lost resources, the Node and its Lease, the attachments, and all pods of the node, selected or not; and then what only that list shows: the
// state of other resources of these pods, and the claims of those that would be deleted. A volume has an error if something about it could not be read.
func (r *NodeReconciler) readLive(ctx context.Context, state *nodeState, volumes []*volume) liveReads {
	for _, v := range volumes {
		r.keep(v.resources, 2*state.wait()) // for the first reads, and for the claims
	}
	reads := liveReads{claims: make(map[types.UID]bool)}
	resources := &resourcesRead{linstor: r.linstor, errs: make(map[string]error)}
	began := r.clock.Now()
	var read cluster.Reading
	err := atTheSameTime(
		func() (err error) { read, err = r.readNode(ctx, state, volumes, &reads); return err },
		func() error { resources.read(ctx, volumes); return nil },
	)
	r.halt.refresh(ctx) // nobody waits for it, and the answer is there when decideAgain needs it
	if err != nil {
		r.metrics.Failed(metrics.StepLook, err)
		for _, v := range volumes {
			v.failed(err)
		}
		return reads
	}
	r.readUsers(ctx, state, volumes, read, began)
	resources.read(ctx, volumes) // those of pods that the cache does not have
	r.each(volumes, func(v *volume) error {
		if err := resources.errorOf(v); err != nil {
			return err
		}
		in, err := r.inputs.Confirmed(ctx, v.pv, read, v.live, r.remembered(v.state))
		if err == nil {
			v.in = in
		}
		return err
	})
	r.readClaims(ctx, state, volumes, reads.claims)
	return reads
}

// readUsers finds out which of the pods that were read on the node use each volume, and on which resources its decision depends then.
func (r *NodeReconciler) readUsers(ctx context.Context, state *nodeState, volumes []*volume, read cluster.Reading, began time.Time) {
	api, done := state.within(ctx, r.timeout)
	defer done()
	r.each(volumes, func(v *volume) (err error) {
		v.listed, v.off = began, read.Off // the list is as old as its request
		if v.live, err = r.live.UsersOf(api, v.pv, read.Pods); err != nil {
			return err
		}
		resources, err := r.pods.Resources(api, v.pv, v.live)
		if err == nil {
			v.resources = resources
		}
		return err
	})
}

// readNode reads the Node and its Lease, the attachments of the volumes, and all pods of the node.
func (r *NodeReconciler) readNode(ctx context.Context, state *nodeState, volumes []*volume, reads *liveReads) (cluster.Reading, error) {
	api, done := state.within(ctx, r.timeout)
	defer done()
	read := cluster.Reading{Node: state.node}
	err := atTheSameTime(
		func() (err error) { reads.node, err = r.live.Node(api, state.node); return err },
		func() (err error) { read.Attachments, err = r.readAttachments(api, state.node, volumes); return err },
		func() (err error) { read.Pods, err = r.live.PodsOn(api, state.node); return err },
		func() error { r.readLease(api, state.node); return nil },
	)
	read.Off = r.live.Off(reads.node)
	return read, err
}

// atTheSameTime does things at the same time, and returns their errors.
func atTheSameTime(do ...func() error) error {
	errs := make([]error, len(do))
	limited(len(do), func(i int) { errs[i] = safely.Do(do[i]) })
	return errors.Join(errs...)
}

// each does something for all volumes at the same time, except for those that have an error.
func (r *NodeReconciler) each(volumes []*volume, do func(v *volume) error) {
	var all sync.WaitGroup
	for _, v := range volumes {
		if v.err != nil {
			continue
		}
		all.Go(func() {
			if v.err = safely.Do(func() error { return do(v) }); v.err != nil {
				r.metrics.Failed(metrics.StepLook, v.err)
			}
		})
	}
	all.Wait()
}

// readAttachments reads the attachments of volumes to a node.
func (r *NodeReconciler) readAttachments(ctx context.Context, node string, volumes []*volume) (cluster.AttachmentsRead, error) {
	var names []string
	for _, v := range volumes {
		for _, va := range v.attachments {
			if va.Spec.NodeName == node {
				names = append(names, va.Name)
			}
		}
	}
	return r.live.Attachments(ctx, names)
}

// readLease reads the Lease of a node whose kubelet seems silent, because the cache may be behind. If that fails, the
// --unanimous-loss-grace-period does not apply.
func (r *NodeReconciler) readLease(ctx context.Context, node string) {
	if r.settings.UnanimousGrace >= r.settings.ConfirmedGrace || !r.kubelets.Node(node).LeaseSilent(failover.ForceSilence) {
		return
	}
	if err := r.live.Lease(ctx, node); err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("Cannot read whether the kubelet is still silent", "node", node, "error", err.Error())
	}
}

// readClaims confirms which volumes are used by the pods that would be deleted now. A claim may have been deleted and created again under its name,
// and a cache whose watch is dead does not show that. If the claims of a pod are not confirmed, its volumes wait.
func (r *NodeReconciler) readClaims(ctx context.Context, state *nodeState, volumes []*volume, confirmed map[types.UID]bool) {
	api, done := state.within(ctx, r.timeout)
	defer done()
	var open []*volume
	var inputs []failover.Input
	for _, v := range volumes {
		if v.err == nil && !v.held {
			open, inputs = append(open, v), append(inputs, v.in)
		}
	}
	removals := slices.DeleteFunc(failover.PlanFor(inputs).Removals, func(removal failover.PodRemoval) bool { return !removal.IsDue() })
	errs := make([]error, len(removals))
	limited(len(errs), func(i int) {
		removal := removals[i]
		errs[i] = safely.Do(func() error { return r.live.ConfirmClaims(api, open[removal.By].livePod(removal.Pod.UID)) })
	})
	for i, removal := range removals {
		if errs[i] == nil {
			confirmed[removal.Pod.UID] = true
			continue
		}
		r.metrics.Failed(metrics.StepLook, errs[i])
		for _, at := range removal.Volumes {
			open[at].failed(errs[i])
		}
	}
}

// resourcesRead has the resources that were read from LINSTOR, and why some could not be.
type resourcesRead struct {
	linstor Linstor
	mu      sync.Mutex
	errs    map[string]error
}

// read reads all resources of the volumes that are not held and were not read yet, at the same time.
func (a *resourcesRead) read(ctx context.Context, volumes []*volume) {
	ctx, cancel := context.WithTimeout(linstor.Together(ctx), 2*failover.ActAge) // half to wait for a turn, half for the answer
	defer cancel()
	var reads sync.WaitGroup
	for _, v := range volumes {
		for _, resource := range v.resources {
			if v.err != nil || v.held || !a.begin(resource) {
				continue
			}
			reads.Go(func() {
				err := safely.Do(func() error {
					_, err := a.linstor.Refresh(ctx, resource, 0)
					return err
				})
				a.mu.Lock()
				defer a.mu.Unlock()
				a.errs[resource] = err
			})
		}
	}
	reads.Wait()
}

// begin records that a resource is read now; false if it has been read before.
func (a *resourcesRead) begin(resource string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, has := a.errs[resource]; has {
		return false
	}
	a.errs[resource] = nil
	return true
}

// errorOf returns why not all is known about a volume. LINSTOR may not have a resource other than the volume's own: that is an answer, too.
func (a *resourcesRead) errorOf(v *volume) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, resource := range v.resources {
		if err := a.errs[resource]; err != nil && (i == 0 || !errors.Is(err, linstor.ErrNotFound)) {
			return &linstorError{fmt.Errorf("reading resource %s from LINSTOR: %w", resource, err)}
		}
	}
	return nil
}

// linstorError reports why LINSTOR's state of a volume is not known. It says nothing about the API server.
type linstorError struct{ error }

func (e *linstorError) Unwrap() error { return e.error }

// decideAgain decides the volumes again by the present state of the store, the guard and the pause. It returns the volumes that are neither held nor
// have an error, and their plan.
func (r *NodeReconciler) decideAgain(ctx context.Context, state *nodeState, volumes []*volume) ([]*volume, failover.Plan) {
	open := slices.DeleteFunc(slices.Clone(volumes), func(v *volume) bool { return v.err != nil || v.held })
	if len(open) == 0 {
		return nil, failover.Plan{}
	}
	hold := r.halt.now(ctx, state.holdAge(r.clock.Now()))
	inputs := make([]failover.Input, len(open))
	for i, v := range open {
		r.keep(v.resources, state.wait()) // for the decision after this one
		v.in = r.inputs.Again(v.in, v.off)
		v.in.Halt = hold
		inputs[i] = v.in
	}
	plan := failover.PlanFor(inputs)
	for i, v := range open {
		v.d = plan.Volumes[i].Decision
	}
	return open, plan
}

// due returns the volumes for which the plan has that step.
func due(volumes []*volume, plan failover.Plan, step failover.Step) (some []*volume) {
	for i, v := range volumes {
		if plan.Volumes[i].Step == step {
			some = append(some, v)
		}
	}
	return some
}

// livePod returns a pod of the live list that uses the volume; nil if there is none of that UID.
func (v *volume) livePod(uid types.UID) *corev1.Pod {
	for i := range v.live {
		if v.live[i].UID == uid {
			return &v.live[i]
		}
	}
	return nil
}

// failed records why a step of a volume failed. That it was too late is no failure: the volume waits for the next reconcile.
func (v *volume) failed(err error) {
	if errors.Is(err, errTooLate) {
		v.held = true
		return
	}
	v.err = errors.Join(v.err, err)
}
