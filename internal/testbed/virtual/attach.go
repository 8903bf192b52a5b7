package virtual

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// maxWaitForUnmount is when a volume is detached although its node still reports it in use.
	maxWaitForUnmount = 6 * time.Minute
	// verifyPeriod is how often it is noticed that somebody else deleted an attachment.
	verifyPeriod = time.Minute
)

// place is a volume on a node.
type place struct{ volume, node string }

// attachDetach is the attach/detach controller.
type attachDetach struct {
	*Cluster
	client client.Client
	// attached is what it believes to be attached, true once it was.
	attached map[place]bool
	// unwanted is since when nobody has wanted the volume there.
	unwanted map[place]time.Time
	// detaching is set once a detach has begun. A pod that wants the volume again comes too late to stop it.
	detaching map[place]bool
	verified  time.Time
}

func newAttachDetach(c *Cluster) *attachDetach {
	return &attachDetach{
		Cluster: c, client: c.API.Client(ActorAttach),
		attached: make(map[place]bool), unwanted: make(map[place]time.Time), detaching: make(map[place]bool), verified: time.Now(),
	}
}

func (a *attachDetach) sync(ctx context.Context) time.Duration {
	a.verify(ctx)
	wanted := a.wanted(ctx)
	next := idle
	for at := range a.attached {
		if wanted[at] && !a.detaching[at] {
			delete(a.unwanted, at)
		} else if !a.detach(ctx, at) {
			next = again
		}
	}
	for at := range wanted {
		if !a.attach(ctx, at) {
			next = again
		}
	}
	return next
}

// wanted is where pods need which volumes. A pod that has ended needs none.
func (a *attachDetach) wanted(ctx context.Context) map[place]bool {
	wanted := make(map[place]bool)
	var pods corev1.PodList
	_ = a.view.List(ctx, &pods)
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Spec.NodeName == "" || ended(pod) {
			continue
		}
		for _, v := range a.volumesOf(pod) {
			wanted[place{a.attachedAs(v.Volume), pod.Spec.NodeName}] = true
		}
	}
	return wanted
}

// attach tells whether the volume is being attached there.
func (a *attachDetach) attach(ctx context.Context, at place) bool {
	if _, ok := a.attached[at]; ok {
		return true
	}
	if !a.shared(at.volume) {
		for other := range a.attached {
			if other.volume == at.volume {
				return false // Multi-Attach error
			}
		}
	}
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: attachmentName(at)}}
	va.Spec = storagev1.VolumeAttachmentSpec{
		Attacher: Driver, NodeName: at.node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &at.volume},
	}
	if err := a.client.Create(ctx, va); err != nil && !apierrors.IsAlreadyExists(err) {
		return false
	}
	a.attached[at] = true
	return true
}

func (a *attachDetach) shared(volume string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	modes := a.volumes[volume].AccessModes
	return slices.Contains(modes, corev1.ReadWriteMany) || slices.Contains(modes, corev1.ReadOnlyMany)
}

// detach tells whether the volume is detached.
func (a *attachDetach) detach(ctx context.Context, at place) bool {
	if a.unwanted[at].IsZero() {
		a.unwanted[at] = time.Now()
	}
	// The list is looked at in the cache, and read again right before the detach.
	if !a.detaching[at] && (a.isInUse(ctx, a.view, at) || a.isInUse(ctx, a.client, at)) && time.Since(a.unwanted[at]) < maxWaitForUnmount {
		return false
	}
	var va storagev1.VolumeAttachment
	err := a.view.Get(ctx, client.ObjectKey{Name: attachmentName(at)}, &va)
	if err == nil && va.DeletionTimestamp == nil {
		a.detaching[at] = a.client.Delete(ctx, &va) == nil
		err = a.view.Get(ctx, client.ObjectKey{Name: attachmentName(at)}, &va)
	}
	if !apierrors.IsNotFound(err) {
		return false
	}
	a.forget(at)
	return true
}

func (a *attachDetach) isInUse(ctx context.Context, by client.Reader, at place) bool {
	var node corev1.Node
	if by.Get(ctx, client.ObjectKey{Name: at.node}, &node) != nil || isOutOfService(&node) {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Contains(node.Status.VolumesInUse, a.volumes[at.volume].inUse())
}

// verify forgets now and then what somebody else has detached.
func (a *attachDetach) verify(ctx context.Context) {
	if time.Since(a.verified) < verifyPeriod {
		return
	}
	a.verified = time.Now()
	for at := range a.attached {
		var va storagev1.VolumeAttachment
		if apierrors.IsNotFound(a.view.Get(ctx, client.ObjectKey{Name: attachmentName(at)}, &va)) {
			a.forget(at)
		}
	}
}

func (a *attachDetach) forget(at place) {
	delete(a.attached, at)
	delete(a.unwanted, at)
	delete(a.detaching, at)
}

// attachedAs is the PersistentVolume that a volume is attached by: Kubernetes knows a volume by its driver and handle, and the
// attachment names one PersistentVolume of it.
func (c *Cluster) attachedAs(v Volume) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := v.Name
	for _, other := range c.volumes {
		if other.Handle == v.Handle && !other.Released {
			name = min(name, other.Name)
		}
	}
	return name
}

func attachmentName(at place) string { return "csi-" + at.volume + "-" + at.node }
