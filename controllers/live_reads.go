package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
)

// linstorTimeout bounds a live read of LINSTOR: an older answer would be useless.
const linstorTimeout = failover.ActAge

// readLive reads past every cache what the fate of volumes on one node rests on, all at the same time: LINSTOR's state of their resources and
// of all others of their pods, the node's Lease and taints, the attachments, and all pods of the node, selected or not. A volume of which
// something could not be read has an error. inUse is the Node if volumes may be released there, else nil.
func (r *NodeReconciler) readLive(ctx context.Context, node string, state *nodeState, volumes []*volume) (inUse *corev1.Node) {
	began := r.clock.Now()
	api, cancel := state.within(ctx, r.timeout)
	defer cancel()
	read := cluster.Reading{Node: node}
	asked := &resourcesRead{linstor: r.linstor, errs: make(map[string]error)}
	var offErr, attachmentsErr, podsErr error
	var reads sync.WaitGroup
	reads.Go(func() { r.readLease(api, node) })
	reads.Go(func() { read.Off, offErr = r.live.Off(api, node) })
	reads.Go(func() { read.Attachments, attachmentsErr = r.readAttachments(api, node, volumes) })
	reads.Go(func() { read.Pods, podsErr = r.live.PodsOn(api, node) })
	reads.Go(func() { asked.read(ctx, volumes) })
	if r.fastDetach && slices.ContainsFunc(volumes, func(v *volume) bool { return len(v.in.Pods) == 0 }) {
		reads.Go(func() { inUse = r.inUse.read(api, node) })
	}
	reads.Wait()
	defer func() {
		var errs []error
		for _, v := range volumes {
			if asked.errorOf(v) == nil { // else it is LINSTOR that is late
				errs = append(errs, v.err)
			}
		}
		state.answered(api, errs...)
	}()
	if err := errors.Join(offErr, attachmentsErr, podsErr); err != nil {
		r.metrics.Failed(metrics.StepLook, err)
		for _, v := range volumes {
			v.err = err
		}
		return inUse
	}
	users := make([][]corev1.Pod, len(volumes))
	r.each(volumes, func(i int, v *volume) (err error) {
		if users[i], err = r.live.UsersOf(api, v.pv, read.Pods); err == nil {
			v.resources, err = r.pods.Resources(api, v.pv, users[i])
		}
		return err
	})
	asked.read(ctx, volumes) // of pods that the cache does not know
	r.each(volumes, func(i int, v *volume) error {
		if err := asked.errorOf(v); err != nil {
			return err
		}
		known := cluster.Remembered{Begun: v.state.begunBy(), Deleted: r.lingering(v.state)}
		in, err := r.inputs.Confirmed(ctx, v.pv, read, users[i], known)
		if err == nil {
			v.in, v.off, v.live, v.listed = in, read.Off, users[i], began
		}
		return err
	})
	return inUse
}

// each does something for all volumes at the same time of which nothing has failed yet.
func (r *NodeReconciler) each(volumes []*volume, do func(i int, v *volume) error) {
	var all sync.WaitGroup
	for i, v := range volumes {
		if v.err != nil {
			continue
		}
		all.Go(func() {
			if v.err = safely(func() error { return do(i, v) }); v.err != nil {
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
		known, err := r.attachments.Of(ctx, v.pv.Name)
		if err != nil {
			return cluster.AttachmentsRead{}, err
		}
		for _, va := range known {
			if va.Spec.NodeName == node {
				names = append(names, va.Name)
			}
		}
	}
	return r.live.Attachments(ctx, ctx, names)
}

// readLease reads the Lease of a node whose kubelet seems silent: the cache may be behind. If that fails, no more is known than before, and
// nothing but the unanimous grace rests on more.
func (r *NodeReconciler) readLease(ctx context.Context, node string) {
	if r.settings.UnanimousGrace >= r.settings.ConfirmedGrace || !r.kubelets.Node(node).LeaseSilent(failover.ForceSilence) {
		return
	}
	if err := r.live.Lease(ctx, node); err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("Cannot read whether the kubelet is still silent", "node", node, "error", err.Error())
	}
}

// resourcesRead are the resources that were read from LINSTOR, and why some could not be.
type resourcesRead struct {
	linstor Linstor
	mu      sync.Mutex
	errs    map[string]error
}

// read reads all resources of the volumes that were not read yet, at the same time.
func (a *resourcesRead) read(ctx context.Context, volumes []*volume) {
	ctx, cancel := context.WithTimeout(linstor.Together(ctx), linstorTimeout)
	defer cancel()
	var reads sync.WaitGroup
	for _, v := range volumes {
		for _, resource := range v.resources {
			if v.err != nil || a.has(resource) {
				continue
			}
			reads.Go(func() {
				err := safely(func() error {
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

// has reports whether a resource has been asked for, and marks it as asked for.
func (a *resourcesRead) has(resource string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, has := a.errs[resource]
	if !has {
		a.errs[resource] = nil
	}
	return has
}

// errorOf returns why not all is known of a volume. That LINSTOR has none of the resources but the lost one is an answer, too.
func (a *resourcesRead) errorOf(v *volume) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, resource := range v.resources {
		if err := a.errs[resource]; err != nil && (i == 0 || !errors.Is(err, linstor.ErrNotFound)) {
			return fmt.Errorf("reading resource %s from LINSTOR: %w", resource, err)
		}
	}
	return nil
}

// decideAgain decides the volumes once more, by what the store, the guard and the pause say now. It returns those of which nothing has failed
// or is held, and their plan.
func (r *NodeReconciler) decideAgain(ctx context.Context, volumes []*volume) ([]*volume, failover.Plan) {
	halt := r.halt.now(ctx)
	open := slices.DeleteFunc(slices.Clone(volumes), func(v *volume) bool { return v.err != nil || v.held })
	inputs := make([]failover.Input, len(open))
	for i, v := range open {
		v.in = r.inputs.Again(v.in, v.off)
		v.in.Halt = halt
		inputs[i] = v.in
	}
	plan := failover.PlanFor(inputs)
	for i, v := range open {
		v.d = plan.Volumes[i].Decision
	}
	return open, plan
}

// due returns the volumes whose next step by a plan is that one.
func due(volumes []*volume, plan failover.Plan, step failover.Step) (some []*volume) {
	for i, v := range volumes {
		if plan.Volumes[i].Step == step {
			some = append(some, v)
		}
	}
	return some
}

// polling has the feed read the resources of volumes every second until it is stopped: an act may take longer than what was read is fresh.
func (r *NodeReconciler) polling(ctx context.Context, volumes []*volume) (stop context.CancelFunc) {
	var resources []string
	for _, v := range volumes {
		resources = append(resources, v.resources...)
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		for {
			r.keep(resources, time.Now().Add(pollFor))
			select {
			case <-ctx.Done():
				return
			case <-time.After(pollFor / 2):
			}
		}
	}()
	return cancel
}
