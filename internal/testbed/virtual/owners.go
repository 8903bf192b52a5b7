package virtual

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// owners are the controllers of all workloads, and the scheduler.
type owners struct {
	*Cluster
	owner, scheduler client.Client
	// provisioned are the claims of ephemeral volumes that are there; generation counts them all. released are the volumes whose claims are gone.
	provisioned map[string]bool
	released    []string
	generation  int
}

func newOwners(c *Cluster) *owners {
	return &owners{Cluster: c, owner: c.API.Client(ActorOwner), scheduler: c.API.Client(ActorScheduler), provisioned: make(map[string]bool)}
}

func (o *owners) sync(ctx context.Context) time.Duration {
	next := idle
	for _, w := range o.allWorkloads() {
		if !o.keep(ctx, w) {
			next = again
		}
	}
	o.released = slices.DeleteFunc(o.released, func(volume string) bool { return o.reclaim(ctx, volume) })
	if len(o.released) > 0 {
		next = again
	}
	return next
}

// keep tells whether nothing is left to do for the workload.
func (o *owners) keep(ctx context.Context, w *Workload) bool {
	if w.HelperOf != "" {
		return o.help(ctx, w)
	}
	pod := &corev1.Pod{}
	err := o.view.Get(ctx, w.Key(), pod)
	if apierrors.IsNotFound(err) { // of a pod that it has just created, the view may not show anything yet
		err = o.owner.Get(ctx, w.Key(), pod)
	}
	switch {
	case apierrors.IsNotFound(err) && w.Gone:
		return true
	case apierrors.IsNotFound(err):
		if !o.retire(ctx, w) {
			return false
		}
		pod = w.pod()
		if o.owner.Create(ctx, pod) != nil {
			return false
		}
	case err != nil:
		return false
	}
	if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil {
		return true
	}
	node := o.choose(ctx, w)
	return node != "" && o.provision(ctx, w, node) && o.bind(ctx, pod, node) == nil
}

// choose returns the first node that takes pods, one that takes them only reluctantly if there is no other.
func (o *owners) choose(ctx context.Context, w *Workload) string {
	reluctant := ""
	for _, name := range w.Nodes {
		var node corev1.Node
		if o.view.Get(ctx, client.ObjectKey{Name: name}, &node) != nil || node.Spec.Unschedulable || !o.allowed(ctx, w, &node) {
			continue
		}
		effects := func(effect corev1.TaintEffect) bool {
			return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Effect == effect })
		}
		switch {
		case w.Tolerant:
			return name
		case effects(corev1.TaintEffectNoSchedule), effects(corev1.TaintEffectNoExecute):
		case effects(corev1.TaintEffectPreferNoSchedule):
			if reluctant == "" {
				reluctant = name
			}
		default:
			return name
		}
	}
	return reluctant
}

func (o *owners) bind(ctx context.Context, pod *corev1.Pod, node string) error {
	pod.Spec.NodeName = node
	if err := o.scheduler.Update(ctx, pod); err != nil {
		return err
	}
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Now().Add(o.API.Clock())),
	})
	return o.scheduler.Status().Update(ctx, pod)
}
