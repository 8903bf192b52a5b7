package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/csidriver"
)

// way is how losses are dealt with.
type way struct {
	// prepare is done before the first loss, if it is not nil.
	prepare func(*cluster, context.Context) error
	by      handler
}

// The ways of dealing with the loss of crowds: the controller's; and by hand, while there is no controller.
var (
	asShipped   = way{}
	byHandAlone = way{(*cluster).removeController, byHand}
)

// handStep is what is done to a crowd by hand, for all its pods at once.
type handStep func(context.Context, *errgroup.Group, *crowd)

// byHand does to the lost nodes of crowds what somebody could do at best who knows everything: cordon the
// nodes, delete all pods by force, release all volumes by one patch per node and delete all attachments,
// each step for all at once and without a rate limit.
func byHand(ctx context.Context, crowds []*crowd) (first, last time.Time, err error) {
	return takeByHand(ctx, crowds, deletePods, releaseVolumes, deleteAttachments)
}

func takeByHand(ctx context.Context, crowds []*crowd, steps ...handStep) (first, last time.Time, err error) {
	c := crowds[0].cluster
	first = time.Now()
	var nodes []string
	for _, w := range crowds {
		nodes = append(nodes, w.node)
	}
	if err := c.cordon(ctx, true, nodes...); err != nil {
		return first, last, err
	}
	for _, step := range steps {
		group, groupCtx := errgroup.WithContext(ctx)
		for _, w := range crowds {
			step(groupCtx, group, w)
		}
		if err := group.Wait(); err != nil {
			return first, last, err
		}
	}
	return first, time.Now(), nil
}

// deletePods deletes the pods of a crowd, as kubectl delete --force does.
func deletePods(ctx context.Context, group *errgroup.Group, w *crowd) {
	for _, name := range w.pods {
		group.Go(func() error {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
			if err := w.Client.Delete(ctx, pod, client.GracePeriodSeconds(0)); err != nil {
				return fmt.Errorf("delete pod %s: %w", name, err)
			}
			return nil
		})
	}
}

// releaseVolumes empties the node's list of volumes in use.
func releaseVolumes(ctx context.Context, group *errgroup.Group, w *crowd) {
	group.Go(func() error {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.node}}
		patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"volumesInUse":null}}`))
		if err := w.Client.Status().Patch(ctx, node, patch); err != nil {
			return fmt.Errorf("release the volumes of node %s: %w", w.node, err)
		}
		return nil
	})
}

// deleteAttachments deletes the attachments of the crowd's volumes to the lost node.
func deleteAttachments(ctx context.Context, group *errgroup.Group, w *crowd) {
	for _, pod := range w.pods {
		group.Go(func() error {
			va := &storagev1.VolumeAttachment{}
			va.Name = csidriver.AttachmentName(volumeOf(pod), w.node)
			if err := w.Client.Delete(ctx, va); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("delete attachment %s: %w", va.Name, err)
			}
			return nil
		})
	}
}

// removeController scales the controller to nothing.
func (c *cluster) removeController(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: bed.ControllerNamespace, Name: bed.ControllerName}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`))
	if err := c.Client.Patch(ctx, d, patch); err != nil {
		return fmt.Errorf("scale the controller down: %w", err)
	}
	return c.WaitFor(ctx, "the controller's pods to be gone", func() (bool, error) {
		var pods corev1.PodList
		if err := c.Client.List(ctx, &pods, client.InNamespace(bed.ControllerNamespace)); err != nil {
			return false, err
		}
		return !slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return p.Labels["app.kubernetes.io/name"] == bed.ControllerName }), nil
	})
}
