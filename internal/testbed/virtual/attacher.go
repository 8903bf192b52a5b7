package virtual

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/csidriver"
)

const (
	// attacherFinalizer is the external-attacher's.
	attacherFinalizer = "external-attacher/linstor-csi-linbit-com"
	// attacherTimeout and attacherWorkers are what the Piraeus Operator starts it with.
	attacherTimeout = time.Minute
	attacherWorkers = 10
	// firstBackoff and lastBackoff are how long it lets an attachment wait that has failed: twice as long each time.
	firstBackoff = time.Second
	lastBackoff  = 5 * time.Minute
)

// attacher is the CSI external-attacher with LINSTOR's driver behind it.
type attacher struct {
	*Cluster
	client  client.Client
	workers chan struct{}

	mu sync.Mutex
	// attempts are those to attach or detach, by attachment.
	attempts map[types.UID]*attempt
	// away is set while no process of it runs, process the context of the present one.
	away    bool
	process context.Context //nolint:containedctx // of the process
	end     context.CancelFunc
}

// StopAttacher ends the CSI attacher and its driver, as the loss of their node does.
func (c *Cluster) StopAttacher() {
	a := c.attacher
	a.mu.Lock()
	defer a.mu.Unlock()
	a.away = true
	if a.end != nil {
		a.end()
	}
	a.end, a.process = nil, nil
}

// StartAttacher starts another one, whose driver knows nothing yet.
func (c *Cluster) StartAttacher() {
	a := c.attacher
	c.Driver.Restart(csidriver.Options{})
	a.mu.Lock()
	a.away, a.attempts = false, make(map[types.UID]*attempt)
	a.mu.Unlock()
	c.ring("VolumeAttachment")
}

// running returns the context of the process that runs; nil where none does.
func (a *attacher) running(ctx context.Context) context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.process == nil && !a.away {
		a.process, a.end = context.WithCancel(ctx)
	}
	return a.process
}

// attempt is what the attacher does about an attachment.
type attempt struct {
	detach   bool
	running  bool
	done     bool
	err      error
	failures int
	next     time.Time
}

func newAttacher(c *Cluster) *attacher {
	return &attacher{
		Cluster: c, client: c.API.Client(ActorAttacher), workers: make(chan struct{}, attacherWorkers), attempts: make(map[types.UID]*attempt),
	}
}

// newDriver returns the CSI driver, which speaks to LINSTOR by its network, and what closes its connections.
func (c *Cluster) newDriver() (driver *csidriver.Driver, closeIdle func()) {
	transport := &http.Transport{DialContext: c.Network.DialContext}
	return csidriver.New(csidriver.Options{URL: "http://linstor:3370", Client: &http.Client{Transport: transport}}), transport.CloseIdleConnections
}

func (a *attacher) sync(ctx context.Context) time.Duration {
	next := idle
	if ctx = a.running(ctx); ctx == nil {
		return idle
	}
	var all storagev1.VolumeAttachmentList
	_ = a.view.List(ctx, &all)
	for i := range all.Items {
		if va := &all.Items[i]; va.Spec.Attacher == Driver {
			next = min(next, a.serve(ctx, va))
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for uid := range a.attempts {
		if !slices.ContainsFunc(all.Items, func(va storagev1.VolumeAttachment) bool { return va.UID == uid }) {
			delete(a.attempts, uid)
		}
	}
	return max(next, time.Millisecond)
}

// serve tells when to look at the attachment again.
func (a *attacher) serve(ctx context.Context, va *storagev1.VolumeAttachment) time.Duration {
	marked := slices.Contains(va.Finalizers, attacherFinalizer)
	switch {
	case va.DeletionTimestamp != nil && !marked, va.DeletionTimestamp == nil && va.Status.Attached:
		return idle
	case va.DeletionTimestamp == nil && !marked:
		va.Finalizers = append(va.Finalizers, attacherFinalizer)
		if a.client.Update(ctx, va) != nil {
			return again
		}
	}
	done, after, failed := a.attempt(ctx, va)
	switch {
	case failed != nil:
		problem := &storagev1.VolumeError{Time: metav1.Now(), Message: failed.Error()}
		if va.DeletionTimestamp != nil {
			va.Status.DetachError = problem
		} else {
			va.Status.AttachError = problem
		}
		_ = a.client.Status().Update(ctx, va)
		return after
	case !done:
		return after
	case va.DeletionTimestamp != nil:
		va.Finalizers = slices.DeleteFunc(va.Finalizers, func(f string) bool { return f == attacherFinalizer })
		if a.client.Update(ctx, va) != nil {
			return again
		}
		return idle
	}
	va.Status.Attached, va.Status.AttachError = true, nil
	if a.client.Status().Update(ctx, va) != nil {
		return again
	}
	return idle
}

// attempt begins one where it is time for one, and tells whether one has succeeded, or has failed since the last look.
func (a *attacher) attempt(ctx context.Context, va *storagev1.VolumeAttachment) (done bool, after time.Duration, failed error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	detach := va.DeletionTimestamp != nil
	one := a.attempts[va.UID]
	if one == nil || one.detach != detach && !one.running {
		one = &attempt{detach: detach}
		a.attempts[va.UID] = one
	}
	switch {
	case one.running:
		return false, idle, nil
	case one.done:
		return true, idle, nil
	case one.err != nil:
		failed, one.err = one.err, nil
		return false, time.Until(one.next), failed
	case time.Until(one.next) > 0:
		return false, time.Until(one.next), nil
	}
	one.running = true
	a.tasks.Go(func() {
		err := a.call(ctx, va.DeepCopy())
		a.mu.Lock()
		one.running, one.done, one.err = false, err == nil, err
		if err != nil {
			one.next = time.Now().Add(min(firstBackoff<<min(one.failures, 10), lastBackoff))
			one.failures++
		}
		a.mu.Unlock()
		a.ring("VolumeAttachment")
	})
	return false, idle, nil
}

// call lets the driver attach or detach, as one of the workers.
func (a *attacher) call(ctx context.Context, va *storagev1.VolumeAttachment) error {
	select {
	case a.workers <- struct{}{}:
		defer func() { <-a.workers }()
	case <-ctx.Done():
		return ctx.Err()
	}
	a.Cluster.mu.Lock()
	volume := a.volumes[*va.Spec.Source.PersistentVolumeName]
	a.Cluster.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, attacherTimeout)
	defer cancel()
	host := a.Satellite(va.Spec.NodeName)
	if va.DeletionTimestamp != nil {
		return a.Driver.Unpublish(ctx, volume.Handle, host)
	}
	_, nfs := volume.Attributes[csidriver.NFSExportKey]
	shared := volume.Block && slices.Contains(volume.AccessModes, corev1.ReadWriteMany)
	return a.Driver.Publish(ctx, volume.Handle, host, csidriver.Use{NFS: nfs, SharedBlock: shared})
}
