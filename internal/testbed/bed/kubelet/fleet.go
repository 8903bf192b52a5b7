package kubelet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/csidriver"
)

// Config is what all kubelets of a Fleet have in common.
type Config struct {
	// RestConfig reaches the API server. The fleet needs to read and write nodes, leases, CSINodes
	// and pods, and to read claims, volumes and attachments. Client-side rate limits are lifted.
	RestConfig *rest.Config
	// Storage is the block storage behind the volumes. Required.
	Storage Storage
	// DriverName is the CSI driver whose volumes are mounted; csidriver.Name by default. Pods with
	// claims of other drivers never start.
	DriverName string
	// Runner runs chosen pods as processes; nil runs none.
	Runner Runner
	// Timings default to those of the real kubelet.
	Timings Timings
	// Logger defaults to none.
	Logger logr.Logger
}

// NodeOptions is what one node has of its own.
type NodeOptions struct {
	// Labels are added to those every node has (kubernetes.io/hostname, os, arch, linbit.com/hostname).
	Labels map[string]string
	// Taints are set when the node registers for the first time.
	Taints []corev1.Taint
	// MaxVolumes is the allocatable count of the driver in the CSINode, 1000 by default.
	MaxVolumes int32
}

// Fleet is the kubelets of one cluster. They share what they read of the API.
type Fleet struct {
	cfg       Config
	factory   informers.SharedInformerFactory
	pods      cache.Indexer
	newClient func(g *gate) (kubernetes.Interface, error)

	// newLife returns the context of one node from power-on to power-off; nil before Start.
	newLife func() (context.Context, context.CancelFunc)
	cancel  context.CancelFunc

	mu       sync.Mutex
	kubelets map[string]*Kubelet
}

// podsByNode is the pod informer's index by spec.nodeName.
const podsByNode = "node"

// NewFleet returns a fleet without nodes. Start it before adding some.
func NewFleet(cfg Config) (*Fleet, error) {
	if cfg.RestConfig == nil || cfg.Storage == nil {
		return nil, errors.New("kubelet fleet: RestConfig and Storage are required")
	}
	restConfig := rest.CopyConfig(cfg.RestConfig)
	restConfig.QPS = -1
	restConfig.UserAgent = "kubelet/testbed"
	client, err := kubernetes.NewForConfig(restConfig)
	if err != nil {
		return nil, fmt.Errorf("kubelet fleet: client: %w", err)
	}
	return newFleet(cfg, client, func(g *gate) (kubernetes.Interface, error) {
		own := rest.CopyConfig(restConfig)
		own.Wrap(func(next http.RoundTripper) http.RoundTripper { return g.wrap(next) })
		return kubernetes.NewForConfig(own)
	})
}

// newFleet returns a fleet that reads through shared and whose kubelets write through newClient.
func newFleet(cfg Config, shared kubernetes.Interface, newClient func(*gate) (kubernetes.Interface, error)) (*Fleet, error) {
	if cfg.DriverName == "" {
		cfg.DriverName = csidriver.Name
	}
	if cfg.Logger.GetSink() == nil {
		cfg.Logger = logr.Discard()
	}
	cfg.Timings = cfg.Timings.withDefaults()
	f := &Fleet{
		cfg:       cfg,
		factory:   informers.NewSharedInformerFactoryWithOptions(shared, 0, informers.WithTransform(trim)),
		newClient: newClient,
		kubelets:  map[string]*Kubelet{},
	}
	pods := f.factory.Core().V1().Pods().Informer()
	if err := pods.AddIndexers(cache.Indexers{podsByNode: nodeOfPod}); err != nil {
		return nil, fmt.Errorf("kubelet fleet: index pods by node: %w", err)
	}
	f.pods = pods.GetIndexer()
	return f, nil
}

// trim drops what no kubelet reads, and which is half of an object.
func trim(obj any) (any, error) {
	if accessor, err := meta.Accessor(obj); err == nil {
		accessor.SetManagedFields(nil)
	}
	return obj, nil
}

// nodeOfPod indexes pods that are bound.
func nodeOfPod(obj any) ([]string, error) {
	if pod, ok := obj.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
		return []string{pod.Spec.NodeName}, nil
	}
	return nil, nil
}

// Start begins to watch the API and returns when everything was read once. All kubelets stop, as
// abruptly as by Crash, when ctx ends or Stop is called.
func (f *Fleet) Start(ctx context.Context) error {
	ctx, f.cancel = context.WithCancel(ctx)
	f.newLife = func() (context.Context, context.CancelFunc) { return context.WithCancel(ctx) }
	f.factory.Core().V1().Nodes().Informer()
	f.factory.Core().V1().PersistentVolumes().Informer()
	f.factory.Core().V1().PersistentVolumeClaims().Informer()
	f.factory.Storage().V1().VolumeAttachments().Informer()
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { f.podEvent(obj, false) },
		UpdateFunc: func(_, obj any) { f.podEvent(obj, false) },
		DeleteFunc: func(obj any) { f.podEvent(obj, true) },
	}
	if _, err := f.factory.Core().V1().Pods().Informer().AddEventHandler(handler); err != nil {
		return fmt.Errorf("kubelet fleet: watch pods: %w", err)
	}
	f.factory.StartWithContext(ctx)
	if err := f.factory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		return fmt.Errorf("kubelet fleet: first read of pods, nodes and volumes: %w", err)
	}
	return nil
}

// Stop ends all kubelets and waits until nothing of the fleet runs any more, processes included.
func (f *Fleet) Stop() {
	if f.cancel == nil {
		return
	}
	f.cancel()
	for _, k := range f.Kubelets() {
		k.Crash()
	}
	f.factory.Shutdown()
}

// AddNode registers a node and boots its kubelet. It returns when the API knows the node; Ready follows
// within moments. A node that the API knows already is taken over.
func (f *Fleet) AddNode(ctx context.Context, name string, options NodeOptions) (*Kubelet, error) {
	if f.newLife == nil {
		return nil, fmt.Errorf("kubelet fleet: add node %s: start the fleet first", name)
	}
	k, err := f.newKubelet(name, options)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	_, exists := f.kubelets[name]
	if !exists {
		f.kubelets[name] = k
	}
	f.mu.Unlock()
	if exists {
		return nil, fmt.Errorf("kubelet fleet: add node %s: there is one already", name)
	}
	k.Boot() //nolint:contextcheck,nolintlint // the node outlives the call; contextcheck notices only at times
	if err := k.waitRegistered(ctx); err != nil {
		return nil, fmt.Errorf("kubelet fleet: add node %s: %w", name, err)
	}
	return k, nil
}

// Kubelet returns the kubelet of a node, nil if there is none.
func (f *Fleet) Kubelet(node string) *Kubelet {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.kubelets[node]
}

// Kubelets returns all kubelets, sorted by node name.
func (f *Fleet) Kubelets() []*Kubelet {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]*Kubelet, 0, len(f.kubelets))
	for _, name := range slices.Sorted(maps.Keys(f.kubelets)) {
		all = append(all, f.kubelets[name])
	}
	return all
}

// podEvent hands what the watch says about a pod to the kubelet of its node.
func (f *Fleet) podEvent(obj any, gone bool) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok || pod.Spec.NodeName == "" {
		return
	}
	if k := f.Kubelet(pod.Spec.NodeName); k != nil {
		k.podEvent(pod, gone)
	}
}

// podsOf returns the pods that are bound to a node, as far as the informer knows.
func (f *Fleet) podsOf(node string) []*corev1.Pod {
	objects, err := f.pods.ByIndex(podsByNode, node)
	if err != nil {
		return nil // the index exists
	}
	pods := make([]*corev1.Pod, 0, len(objects))
	for _, obj := range objects {
		pods = append(pods, obj.(*corev1.Pod))
	}
	return pods
}
