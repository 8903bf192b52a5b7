package controllers

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
)

const (
	// firstReads is how long a look waits for what it reads first, and lastReads how long for what that calls for in addition, where some
	// volumes wait for others. The list of pods comes in between, without which nothing can follow for any of them.
	firstReads = 600 * time.Millisecond
	lastReads  = 400 * time.Millisecond
	// lateWords is how old LINSTOR's word may be where the look before had not all in time. It leaves a second until failover.MaxAge.
	lateWords = time.Second
)

// look reads everything anew that the fate of volumes on one node rests on: LINSTOR's word on them and on all other volumes of their pods,
// whether the kubelet is still silent and the node still switched off, the attachments, and then all pods of the node, selected or not,
// and the claims of those whose it may not be. A volume of which not all is known in time has an error, and waits for the next round.
// The pods come last, so that whoever came meanwhile is among them. Where LINSTOR takes so long that pods and attachments may have changed
// since, its own word is old as well, and nothing follows. Where nothing is known of any volume in time, it waits for LINSTOR's first word
// until more is closed.
func (r *FailoverReconciler) look(ctx context.Context, node string, more <-chan struct{}, volumes []*volume) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	began := time.Now()
	read := cluster.Reading{Node: node, Began: r.clock.Now()}
	words, lifetime := newWords(r.linstor, r.wordAge(node)), r.bell.lifetime(ctx)
	defer close(words.over)
	words.ask(ctx, lifetime, volumes)
	var taintsErr, attachmentsErr error
	within(ctx, firstReads, func(first context.Context) {
		var reads sync.WaitGroup
		reads.Go(func() { r.confirmLease(first, node) })
		reads.Go(func() { read.Off, taintsErr = r.live.Off(ctx, node) })
		reads.Go(func() { read.Attachments, attachmentsErr = r.readAttachments(ctx, first, node, volumes) })
		reads.Wait()
	})
	words.wait(ctx, began.Add(firstReads), more, volumes)

	read.Listed = r.clock.Now()
	var podsErr error
	read.Pods, podsErr = r.live.PodsOn(ctx, node)
	if err := errors.Join(taintsErr, attachmentsErr, podsErr); err != nil {
		r.gather.metrics.Failed(metrics.StepLook, err)
		for _, v := range volumes {
			v.err = errors.Join(v.err, err)
		}
		return
	}
	last := time.Now().Add(lastReads)
	own := make([][]corev1.Pod, len(volumes))
	within(ctx, lastReads, func(ctx context.Context) {
		r.each(volumes, func(i int, v *volume) (err error) {
			own[i], err = r.live.UsersOf(ctx, v.pv, read.Pods)
			if err == nil {
				v.resources, err = r.pods.Resources(ctx, v.pv, own[i])
			}
			return err
		})
	})
	words.ask(ctx, lifetime, volumes)
	words.wait(ctx, last, more, volumes)
	r.each(volumes, func(i int, v *volume) error {
		in, err := r.gather.inputs.Confirmed(ctx, v.pv, read, own[i])
		if err == nil {
			v.in = in
		}
		return err
	})
}

// wordAge is how old LINSTOR's word may be when a look begins. It is asked for anew, but where the look before had not all in time, what has
// come too late for that one does: a LINSTOR that is slow to answer would be asked again and again for nothing.
func (r *FailoverReconciler) wordAge(node string) time.Duration {
	if _, late := r.late.Load(node); late {
		return lateWords
	}
	return 0
}

// noteLate notes for the next look at a node whether LINSTOR was too slow for this one.
func (r *FailoverReconciler) noteLate(node string, volumes []*volume) {
	if slices.ContainsFunc(volumes, func(v *volume) bool { return errors.Is(v.err, errNoWord) }) {
		r.late.Store(node, true)
	} else {
		r.late.Delete(node)
	}
}

// within calls do with a context that ends after a while.
func within(ctx context.Context, patience time.Duration, do func(context.Context)) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	do(ctx)
}

// each does something for all volumes at the same time of which nothing has failed yet.
func (r *FailoverReconciler) each(volumes []*volume, do func(i int, v *volume) error) {
	var all sync.WaitGroup
	for i, v := range volumes {
		if v.err == nil {
			all.Go(func() {
				if v.err = safely(func() error { return do(i, v) }); v.err != nil {
					r.gather.metrics.Failed(metrics.StepLook, v.err)
				}
			})
		}
	}
	all.Wait()
}

// readAttachments reads the attachments of volumes to a node.
func (r *FailoverReconciler) readAttachments(ctx, inTime context.Context, node string, volumes []*volume) (cluster.AttachmentsRead, error) {
	var names []string
	for _, v := range volumes {
		known, err := r.gather.watch.attachments.Of(ctx, v.pv.Name)
		if err != nil {
			return cluster.AttachmentsRead{}, err
		}
		for _, va := range known {
			if va.Spec.NodeName == node {
				names = append(names, va.Name)
			}
		}
	}
	return r.live.Attachments(ctx, inTime, names)
}

// confirmLease reads the Lease of a node whose kubelet seems silent: the cache may be behind. Where that fails nothing is known
// of it that was not known before, and nothing but the unanimous grace rests on more.
func (r *FailoverReconciler) confirmLease(ctx context.Context, node string) {
	if r.settings.UnanimousGrace >= r.settings.ConfirmedGrace || !r.kubelets.Node(node).LeaseSilent(failover.ForceSilence) {
		return
	}
	if err := r.live.Lease(ctx, node); err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("Cannot read whether the kubelet is still silent", "node", node, "error", err.Error())
	}
}
