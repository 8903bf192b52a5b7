package virtual

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/csidriver"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/pipenet"
)

// Driver is the name of the CSI driver of all volumes.
const Driver = "linstor.csi.linbit.com"

// Actors, as they appear in the changes of the API. Kubelets are named "kubelet/<node>".
const (
	ActorUser      = "user"
	ActorOwner     = "owner"
	ActorScheduler = "scheduler"
	ActorAttach    = "attach-detach"
	ActorAttacher  = "csi-attacher"
	ActorNodes     = "node-lifecycle"
	ActorEviction  = "taint-eviction"
	ActorDrain     = "drain"
	ActorAffinity  = "affinity-controller"
)

const (
	// again is how soon a component looks again at what it could not finish.
	again = time.Second
	// idle is how soon a component looks again although nothing happened.
	idle = 10 * time.Second
)

// Options are the delays of the parts; the zero value means their defaults.
type Options struct {
	DRBD    drbd.Options
	Linstor linstorsim.Options
	// Domain ends the nodes' names in Kubernetes; LINSTOR knows them by the rest.
	Domain string
	// Placed gives nodes what scheduling by volume goes by: the label of the CSI driver, see [affinity.Label], and the condition Ready.
	// Without it volumes can not be pinned, and nodes have that condition only from when they are lost for the first time.
	Placed bool
}

// Cluster is a running cluster. Use [New].
type Cluster struct {
	// API is the Kubernetes API.
	API *apimodel.Model
	// DRBD is the truth about the storage.
	DRBD *drbd.Cluster
	// Linstor is the LINSTOR controller and its satellites.
	Linstor *linstorsim.Server
	// Driver is the CSI driver, by which LINSTOR's volumes are attached.
	Driver *csidriver.Driver
	// Network leads to LINSTOR's REST API.
	Network *pipenet.Listener

	domain    string
	placed    bool
	closeIdle func() // connections of the driver
	attacher  *attacher

	user  client.Client
	view  *apimodel.View
	tasks sync.WaitGroup

	mu        sync.Mutex
	kubelets  map[string]*kubelet
	workloads map[client.ObjectKey]*Workload
	volumes   map[string]Volume // by PersistentVolume
	wakers    map[string][]*waker
	// stopAffinity stops the linstor-affinity-controller, if there is one.
	stopAffinity context.CancelFunc
}

// New returns a cluster without nodes, which runs until the context ends. Call Wait then.
func New(ctx context.Context, options Options) *Cluster {
	if options.Linstor.Durations == (linstorsim.Durations{}) {
		options.Linstor.Durations = linstorsim.RealDurations()
	}
	storage := drbd.NewCluster(options.DRBD)
	c := &Cluster{
		API: apimodel.New(), DRBD: storage, Linstor: linstorsim.New(storage, options.Linstor), Network: pipenet.Listen(),
		kubelets: make(map[string]*kubelet), workloads: make(map[client.ObjectKey]*Workload),
		volumes: make(map[string]Volume), wakers: make(map[string][]*waker), domain: options.Domain, placed: options.Placed,
	}
	c.user = c.API.Client(ActorUser)
	_ = c.user.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}})
	c.view = c.API.View(0, nil)
	_ = c.view.IndexField(ctx, &corev1.Pod{}, nodeField, func(o client.Object) []string {
		return []string{o.(*corev1.Pod).Spec.NodeName}
	})
	c.view.OnUpdate(c.wake)
	c.tasks.Go(func() { _ = c.Linstor.Serve(c.Network) })
	c.run(ctx, newOwners(c).sync, "Pod", "Node")
	c.run(ctx, newAttachDetach(c).sync, "Pod", "Node", "VolumeAttachment")
	c.Driver, c.closeIdle = c.newDriver()
	c.attacher = newAttacher(c)
	c.run(ctx, c.attacher.sync, "VolumeAttachment")
	c.run(ctx, newNodeLifecycle(c).sync, "Lease")
	c.run(ctx, newOutOfService(c).sync, "Pod", "Node")
	return c
}

// Satellite returns the name by which LINSTOR and DRBD know a node. The CSINode says so.
func (c *Cluster) Satellite(node string) string { return strings.TrimSuffix(node, c.domain) }

const nodeField = "node"

// Stop ends what has no context: LINSTOR and DRBD.
func (c *Cluster) Stop() {
	c.closeIdle()
	c.Linstor.Close()
	c.DRBD.Stop()
	c.tasks.Wait()
}

// Client returns a client of the API that acts as the user.
func (c *Cluster) Client() client.Client { return c.user }

// waker lets a component run soon.
type waker struct{ due chan struct{} }

func (w *waker) ring() {
	select {
	case w.due <- struct{}{}:
	default:
	}
}

// run runs a component: after each change of one of the kinds, and when its last run asked to.
func (c *Cluster) run(ctx context.Context, sync func(context.Context) time.Duration, kinds ...string) *waker {
	w := &waker{due: make(chan struct{}, 1)}
	c.mu.Lock()
	for _, kind := range kinds {
		c.wakers[kind] = append(c.wakers[kind], w)
	}
	c.mu.Unlock()
	c.tasks.Go(func() {
		for {
			timer := time.NewTimer(sync(ctx))
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C:
			case <-w.due:
				timer.Stop()
			}
		}
	})
	return w
}

func (c *Cluster) wake(u apimodel.Update) {
	o := u.New
	if o == nil {
		o = u.Old
	}
	kind := ""
	switch o.(type) {
	case *corev1.Pod:
		kind = "Pod"
	case *corev1.Node:
		kind = "Node"
	case *storagev1.VolumeAttachment:
		kind = "VolumeAttachment"
	default:
		kind = "Lease"
	}
	c.ring(kind)
}

// ring lets the components look that watch objects of a kind.
func (c *Cluster) ring(kind string) {
	c.mu.Lock()
	wakers := slices.Clone(c.wakers[kind])
	c.mu.Unlock()
	for _, w := range wakers {
		w.ring()
	}
}

func (c *Cluster) workload(key client.ObjectKey) *Workload {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.workloads[key]
}

func (c *Cluster) allWorkloads() []*Workload {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := slices.Collect(maps.Values(c.workloads))
	slices.SortFunc(all, func(a, b *Workload) int { return a.order - b.order })
	return all
}

// volumesOf returns the volumes of ours behind a pod's claims, with whether the pod mounts each read-only.
func (c *Cluster) volumesOf(pod *corev1.Pod) []mount {
	c.mu.Lock()
	defer c.mu.Unlock()
	var mounts []mount
	for _, v := range pod.Spec.Volumes {
		claim, readOnly := "", false
		switch {
		case v.PersistentVolumeClaim != nil:
			claim, readOnly = v.PersistentVolumeClaim.ClaimName, v.PersistentVolumeClaim.ReadOnly
		case v.Ephemeral != nil:
			claim = pod.Name + "-" + v.Name
		default:
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(c.volumes)) {
			volume := c.volumes[name]
			if volume.Namespace == pod.Namespace && volume.Claim == claim && !volume.Released {
				mounts = append(mounts, mount{volume, readOnly || volume.ReadOnly})
			}
		}
	}
	return mounts
}

// VolumesOf returns the volumes behind a pod's claims.
func (c *Cluster) VolumesOf(pod *corev1.Pod) []Volume {
	var volumes []Volume
	for _, m := range c.volumesOf(pod) {
		volumes = append(volumes, m.Volume)
	}
	return volumes
}

// VolumeNamed returns the volume of a PersistentVolume; its zero value when there is none.
func (c *Cluster) VolumeNamed(name string) Volume {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.volumes[name]
}

// HasHandle tells whether there is, or was, a volume of that handle.
func (c *Cluster) HasHandle(handle string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range c.volumes {
		if v.Handle == handle {
			return true
		}
	}
	return false
}

// mount is a volume as one pod uses it.
type mount struct {
	Volume
	readOnly bool
}

// inUse is the volume's name in status.volumesInUse.
func (v Volume) inUse() corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName("kubernetes.io/csi/" + Driver + "^" + v.Handle)
}
