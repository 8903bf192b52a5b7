package check

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/controllers"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/forecast"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/options"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// The nodes: A and B have a disk of every volume, T is the tie-breaker.
const (
	nodeA = "node-a"
	nodeB = "node-b"
	nodeT = "node-t"
)

// bench is a cluster in a bubble, with a replica of the controller that leads.
type bench struct {
	*testing.T
	*virtual.Cluster
	ctx    context.Context //nolint:containedctx // of the bubble
	config controllers.Config
	memory *controllers.Memory
	api    *readerThatFails
	// leader is the pod that holds the Lease, and denied are the permissions that are missing.
	leader string
	denied []string
	// end ends the replica, and stops wait for each that there was.
	end   func()
	stops []func()
	// unreviewed is why the permissions are unknown.
	unreviewed error
}

// readerThatFails reads, unless it is to fail.
type readerThatFails struct {
	client.Reader

	err error
}

func (r *readerThatFails) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if r.err != nil {
		return r.err
	}
	return r.Reader.List(ctx, list, opts...)
}

// linstorView is LINSTOR as the controllers see it.
type linstorView struct {
	*linstor.Store
	*linstor.Feed
}

// controllerPod is the pod of the replica.
var controllerPod = types.NamespacedName{Namespace: "ha-controller", Name: "ha-0"}

// onBench runs a test in a cluster of three nodes with the selected pod "db-0" on node A, which has run for a while on
// the volume "db". The replica has the settings of a command line without options, but for what change does.
func onBench(t *testing.T, change func(*bench), test func(*bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b := &bench{T: t, Cluster: virtual.New(ctx, virtual.Options{}), ctx: ctx, leader: controllerPod.String(), end: func() {}}
		defer func() {
			cancel()
			for _, stop := range b.stops {
				stop()
			}
			b.Stop()
		}()
		b.config = b.defaults()
		if change != nil {
			change(b)
		}
		b.must(b.Client().Create(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ha-controller", Name: "piraeus-ha-controller"}}))
		b.restart()
		for _, node := range []string{nodeA, nodeB, nodeT} {
			b.must(b.AddNode(ctx, node))
		}
		b.volume(virtual.Volume{Name: "db"})
		b.workload(virtual.Workload{Name: "db-0", Claims: []string{"data-db"}})
		b.pod("empty", "idle", nodeA)
		b.pass(time.Minute)
		test(b)
	})
}

// selects returns a selector.
func selects(text string) labels.Selector {
	selector, err := labels.Parse(text)
	if err != nil {
		panic(err) // a fault of the test
	}
	return selector
}

func (b *bench) defaults() controllers.Config {
	b.api = &readerThatFails{Reader: b.API.Client("asked")}
	defaults := options.Default()
	return controllers.Config{
		Driver: virtual.Driver, Selector: selects(defaults.PodLabelSelector), Settings: defaults.Settings(), Recorder: events.NewFakeRecorder(1000),
		Owner: "ha-0", ShutdownTaints: defaults.ShutdownTaints, FastDetach: true, MaxLostNodes: failover.Limit{Percent: true, Value: 50},
		Evacuation: &evacuation.Settings{MaxNodes: 1, MaxCopies: 4}, PauseDeployment: types.NamespacedName{Namespace: "ha-controller", Name: "piraeus-ha-controller"},
		Pod: controllerPod, ReconcileInterval: defaults.ReconcileInterval, OperationsTimeout: defaults.OperationsTimeout, Concurrency: defaults.Concurrency,
		Asked: controllers.Asked{
			API: b.api, Takeover: 12 * time.Second, Options: b.linstorClient().DRBDOptions,
			Denied: func(context.Context) ([]string, error) { return b.denied, b.unreviewed },
			Leader: func(context.Context) (string, error) { return b.leader, nil },
		},
	}
}

func (b *bench) linstorClient() *linstor.Client {
	b.Helper()
	config, err := linstor.ConfigFromEnv(func(name string) (string, bool) { return "http://linstor:3370", name == "LS_CONTROLLERS" })
	b.must(err)
	c, err := linstor.NewClient(config, nil, linstor.ClientOptions{DialContext: b.Network.DialContext})
	b.must(err)
	b.Cleanup(c.CloseIdleConnections)
	return c
}

// start starts a replica, which leads. It ends with the context, and stop waits for that.
func (b *bench) start(ctx context.Context) (stop func()) {
	b.Helper()
	selector := b.config.Selector
	view := b.API.View(0, func(o client.Object) bool {
		_, isPod := o.(*corev1.Pod)
		return !isPod || selector.Matches(labels.Set(o.GetLabels()))
	})
	view.Transform(cluster.Trim(selector))
	b.know(view)
	manager := virtual.NewManager(ctx, b.API.Client("controller"), view, logr.Discard())
	seen := linstorView{Store: linstor.NewStore()}
	seen.Feed = linstor.NewFeed(b.linstorClient(), seen.Store, logr.Discard(), linstor.Options{Elected: manager.Elected()})
	b.config.Linstor, b.config.Metrics = seen, metrics.New()
	var err error
	b.memory, err = controllers.SetUp(ctx, manager, b.config)
	b.must(err)
	var feed sync.WaitGroup
	feed.Go(func() { _ = seen.Start(ctx) })
	manager.Begin(ctx)
	manager.Lead(ctx)
	return func() {
		manager.Wait()
		feed.Wait()
	}
}

// know lets a view of the API begin with what there is.
func (b *bench) know(view *apimodel.View) {
	b.Helper()
	for _, list := range []client.ObjectList{
		&corev1.NodeList{}, &storagev1.CSINodeList{}, &corev1.PersistentVolumeList{}, &storagev1.VolumeAttachmentList{}, &corev1.PodList{}, &coordinationv1.LeaseList{},
	} {
		b.must(b.API.Client("audit").List(b.ctx, list))
		objects, err := meta.ExtractList(list)
		b.must(err)
		for _, o := range objects {
			view.Know(o.(client.Object))
		}
	}
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bench) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// volume adds a volume with disks on A and B and a tie-breaker on T, unless it has disks of its own.
func (b *bench) volume(v virtual.Volume) {
	b.Helper()
	if v.Diskful == nil {
		v.Diskful, v.TieBreaker = []string{nodeA, nodeB}, nodeT
	}
	b.must(b.AddVolume(b.ctx, v))
}

// workload adds a workload, selected unless it has labels of its own, that prefers node A.
func (b *bench) workload(w virtual.Workload) {
	if w.Labels == nil {
		w.Labels = map[string]string{"linstor.csi.linbit.com/on-storage-lost": "remove"}
	}
	if w.Nodes == nil {
		w.Nodes = []string{nodeA, nodeB}
	}
	b.AddWorkload(w)
}

// cordon keeps new pods away from a node, as kubectl cordon does.
func (b *bench) cordon(name string) {
	b.Helper()
	b.changeNode(name, func(node *corev1.Node) { node.Spec.Unschedulable = true })
}

// taint keeps pods away from a node that do not tolerate a key.
func (b *bench) taint(name, key string) {
	b.Helper()
	b.changeNode(name, func(node *corev1.Node) {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
	})
}

func (b *bench) changeNode(name string, change func(*corev1.Node)) {
	b.Helper()
	var node corev1.Node
	b.must(b.Client().Get(b.ctx, client.ObjectKey{Name: name}, &node))
	change(&node)
	b.must(b.Client().Update(b.ctx, &node))
}

// slow lets a loss last long before anything is done about it.
func slow(b *bench) {
	b.config.Settings.ConfirmedGrace, b.config.Settings.UnanimousGrace = time.Hour, time.Hour
}

// pod adds a pod that nothing runs.
func (b *bench) pod(namespace, name, node string, change ...func(*corev1.Pod)) {
	b.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PodSpec{NodeName: node}}
	for _, f := range change {
		f(pod)
	}
	b.must(b.Client().Create(b.ctx, pod))
	b.pass(time.Second)
}

// unconfirmedSince is since when the leader knew of that.
var unconfirmedSince = time.Date(1999, 12, 31, 3, 4, 5, 0, time.UTC)

// remember has the attachments of a resource's volume say which nodes are unconfirmed, as the leader writes it there.
func (b *bench) remember(resource string, nodes ...string) {
	b.Helper()
	since := make(map[string]time.Time, len(nodes))
	for _, node := range nodes {
		since[node] = unconfirmedSince
	}
	b.annotateAttachments(resource, cluster.AnnotationUnconfirmed, cluster.FormatUnconfirmed(since))
}

func (b *bench) annotateAttachments(resource, annotation, text string) {
	b.Helper()
	var pvs corev1.PersistentVolumeList
	b.must(b.Client().List(b.ctx, &pvs))
	var attachments storagev1.VolumeAttachmentList
	b.must(b.Client().List(b.ctx, &attachments))
	found := false
	for i := range attachments.Items {
		va := &attachments.Items[i]
		for _, pv := range pvs.Items {
			if pv.Spec.CSI == nil || pv.Spec.CSI.VolumeHandle != resource || va.Spec.Source.PersistentVolumeName == nil ||
				*va.Spec.Source.PersistentVolumeName != pv.Name {
				continue
			}
			va.Annotations = map[string]string{annotation: text}
			b.must(b.Client().Update(b.ctx, va))
			found = true
		}
	}
	if !found {
		b.Fatalf("resource %s has no attachment", resource)
	}
}

// check runs the command and returns what it prints, and the exit status.
func (b *bench) check(args ...string) (string, Status) {
	b.Helper()
	c, err := parseCommandLine(false, args)
	b.must(err)
	var out bytes.Buffer
	status, err := run(b.ctx, c, b.ask, &out)
	b.must(err)
	return out.String(), status
}

// ask asks the replica as the command does, but for the network.
func (b *bench) ask(ctx context.Context, q forecast.Question) (forecast.Report, error) {
	text, err := json.Marshal(b.memory.Forecast(ctx, q))
	b.must(err)
	return forecast.Decode(bytes.NewReader(text))
}

// restart starts the replica anew: it remembers nothing.
func (b *bench) restart() {
	b.Helper()
	b.end()
	ctx, end := context.WithCancel(b.ctx)
	b.end = end
	b.stops = append(b.stops, b.start(ctx))
}
