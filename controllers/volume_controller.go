package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/sendby"
)

// VolumeReconciler decides for one PersistentVolume on each node that it is used on, and says what it has decided. Where the storage is
// lost it rings the bell of the node, for the FailoverReconciler. It runs on the leader only, and keeps what nodes may run.
type VolumeReconciler struct {
	gather   gather
	client   client.Client
	live     cluster.Live
	kubelets *cluster.Kubelets
	settings failover.Settings
	reporter *reporter
	bell     *bell
	dryRun   bool

	reconcileInterval time.Duration
}

// +kubebuilder:rbac:groups="",resources=persistentvolumes,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch
// +kubebuilder:rbac:groups=storage.k8s.io,resources=volumeattachments,verbs=list;watch

func (r *VolumeReconciler) setup(mgr ctrl.Manager, options controller.Options) error {
	return r.gather.watch.of(ctrl.NewControllerManagedBy(mgr).Named("volume").WithOptions(options)).
		WatchesRawSource(r.silence()).Complete(r)
}

// Reconcile decides for every node that the volume is used on. It asks to be called again while a loss could follow without anything
// happening; changes call it by themselves.
func (r *VolumeReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	began := time.Now()
	g, err := r.gather.volume(ctx, req.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !g.remade {
		r.reporter.prune(req.Name, g.inputs)
	}
	if g.pv == nil {
		return reconcile.Result{RequeueAfter: g.remadeLeft}, nil
	}
	r.noteArrival(ctx, g)
	next, err := r.decideAll(ctx, g.pv, g.inputs)
	r.gather.decided(g.resource, began)
	// Also where a write was rejected: that may go on for long, and the memory must outlive this process then, too.
	next.add(r.writeSettings(ctx, g))
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: time.Duration(next)}, nil
}

// judged is what was decided of a volume on one node, and on what.
type judged struct {
	in failover.Input
	d  failover.Decision
}

// decideAll decides on each input, rings where the storage is lost, and tells when to come back. Marks are taken off last: that may take its
// time or fail, and the volume may be lost on another node.
func (r *VolumeReconciler) decideAll(ctx context.Context, pv *corev1.PersistentVolume, inputs []failover.Input) (next soonest, err error) {
	var stay []judged
	for _, in := range inputs {
		d := failover.Decide(in)
		r.gather.losses.decided(pv.Name, in.Node.Name, d)
		next.add(d.After)
		if d.Reason != failover.PrimaryHealthy {
			next.add(r.reconcileInterval)
		}
		if concernsNode(d) {
			r.bell.ring(pv.Name, in.Node.Name)
			continue // who answers it reads all anew, and says what follows
		}
		next.add(r.reporter.say(ctx, pv, in, d, nil))
		if r.bell.holds(pv.Name, in.Node.Name) {
			next.add(retryAct) // a round may be about to write by what it has read
			continue
		}
		if isWell(in, d) {
			r.reporter.reports.stays(pv.Name, in.Node.Name)
		}
		stay = append(stay, judged{in, d})
	}
	return next, r.unmarkAll(ctx, pv, stay)
}

// concernsNode tells whether something is to be done at once on the node of which that was decided.
func concernsNode(d failover.Decision) bool { return d.Verdict == failover.Lost || d.ReadLease }

// noteArrival sees whether a volume that is moved off a lost node is attached elsewhere by now.
func (r *VolumeReconciler) noteArrival(ctx context.Context, g gathered) {
	from, left, ok := r.reporter.reports.movesFrom(g.pv.Name)
	if !ok {
		return
	}
	if !left {
		if slices.ContainsFunc(g.attachments, func(va storagev1.VolumeAttachment) bool {
			return va.Spec.NodeName == from && va.DeletionTimestamp == nil
		}) {
			return
		}
		r.reporter.reports.leftByItself(g.pv.Name)
	}
	for i := range g.attachments {
		if va := &g.attachments[i]; va.Spec.NodeName != from && va.Status.Attached {
			r.reporter.close(ctx, g.pv, va)
			return
		}
	}
}

// soonest is the smallest of the added durations; zero when none was.
type soonest time.Duration

func (s *soonest) add(d time.Duration) {
	if d > 0 && (*s == 0 || d < time.Duration(*s)) {
		*s = soonest(d)
	}
}

// notesTimeout bounds how long a volume waits until what is noted on its attachments is written or taken off: it may be lost meanwhile.
const notesTimeout = 2 * time.Second

// writeSettings keeps what nodes may run of a resource on the attachments of its volume, after all that is urgent, and tells when to come
// back. A failure holds nothing up.
func (r *VolumeReconciler) writeSettings(ctx context.Context, g gathered) time.Duration {
	if r.dryRun {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, notesTimeout)
	defer cancel()
	after, err := r.gather.memory.write(ctx, r.client, g.pv.Name, g.resource, g.attachments, r.gather.clock.Now())
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot keep what nodes may run", "volume", g.pv.Name)
		return retryLimit
	}
	return after
}

// unmarkAll takes the marks off the attachments to these nodes whose fail-over was overtaken.
func (r *VolumeReconciler) unmarkAll(ctx context.Context, pv *corev1.PersistentVolume, stay []judged) error {
	ctx, cancel := context.WithTimeout(ctx, notesTimeout)
	defer cancel()
	var errs []error
	for _, on := range stay {
		errs = append(errs, r.unmark(ctx, pv, on.in, on.d))
	}
	return errors.Join(errs...)
}

// unmark takes the mark off an attachment whose fail-over was overtaken: nothing is lost there any more, and none of the
// pods that use the volume there is on its way out.
func (r *VolumeReconciler) unmark(ctx context.Context, pv *corev1.PersistentVolume, in failover.Input, d failover.Decision) error {
	if in.Attachment == nil || !in.Attachment.Noted || in.Attachment.Deleting || d.Verdict != failover.NotLost || r.dryRun {
		return nil
	}
	// Later the next fail-over may have begun, which leaves a mark alone that is there.
	late := time.Now().Add(failover.MaxAge)
	if kept, err := r.isKept(ctx, pv, in, d); err != nil || !kept {
		return err
	}
	patch, err := markPatch(in.Attachment.UID, nil)
	if err != nil {
		return err
	}
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: in.Attachment.Name}}
	switch err = r.client.Patch(sendby.With(ctx, late), va, patch); {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil
	case err != nil:
		return fmt.Errorf("taking the mark off VolumeAttachment %s: %w", in.Attachment.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Took mark off attachment", "node", in.Node.Name, "volume", in.Volume.Name, "volumeAttachment", va.Name,
		"reason", d.Reason)
	return nil
}

// isKept tells whether pods use the volume there, of which none is on its way out. Where the cache has none and the volume is in use, they may not be
// selected any more: the API is asked.
func (r *VolumeReconciler) isKept(ctx context.Context, pv *corev1.PersistentVolume, in failover.Input, d failover.Decision) (bool, error) {
	if len(in.Pods) > 0 || d.Reason != failover.PrimaryHealthy {
		return isKept(in), nil
	}
	pods, err := r.live.PodsOn(ctx, in.Node.Name)
	if err != nil {
		return false, err
	}
	users, err := r.live.UsersOf(ctx, pv, slices.DeleteFunc(pods, func(p corev1.Pod) bool { return cluster.Ended(&p) }))
	if err != nil {
		return false, err
	}
	ends := slices.ContainsFunc(users, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	return len(users) > 0 && !ends, nil
}

// silence returns the source that rings for the volumes on a node whose kubelet has fallen silent, which LINSTOR need not have noticed.
func (r *VolumeReconciler) silence() source.Source {
	return source.Func(func(ctx context.Context, q queue) error {
		ring := periodic{
			name: "silence", every: silentInterval, failure: "Cannot look up the attachments on nodes whose kubelets are silent",
			do: func(ctx context.Context) error { return r.ringForSilent(ctx, q) },
		}
		go func() { _ = ring.Start(ctx) }()
		return nil
	})
}

func (r *VolumeReconciler) ringForSilent(ctx context.Context, q queue) error {
	var errs []error
	for _, node := range r.kubelets.Silent(r.settings.KubeletSilence, r.settings.KubeletSilence+2*silentInterval) {
		attachments, err := r.gather.watch.attachments.On(ctx, node)
		errs = append(errs, err)
		for _, va := range attachments {
			q.Add(requestOf(*va.Spec.Source.PersistentVolumeName))
		}
	}
	return errors.Join(errs...)
}
