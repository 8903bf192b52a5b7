package check

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// The nodes: A and B have a disk of every volume, T is the tie-breaker.
const (
	nodeA = "node-a"
	nodeB = "node-b"
	nodeT = "node-t"
)

// bench is a cluster in a bubble, and what the check sees of it.
type bench struct {
	*testing.T
	*virtual.Cluster
	ctx        context.Context //nolint:containedctx // of the bubble
	deployment *appsv1.Deployment
	// objects are those that the check reads beside the Deployment.
	objects []client.Object
	// denied tells which reviews the API server answers with no.
	denied func(authorizationv1.ResourceAttributes, string) bool
	// unanswered is the error of such a review.
	unanswered error
	// secretive is set where namespaces may not be read.
	secretive bool
	// refused is the error of reading the Kubernetes API.
	refused error
	own     bool
	lookup  func(string) (string, bool)
	view    *apimodel.View
}

// onBench runs a test in a cluster of three nodes with the selected pod "db-0" on node A, which has run for a while on
// the volume "db".
func onBench(t *testing.T, test func(*bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b := &bench{
			T: t, Cluster: virtual.New(ctx, virtual.Options{}), ctx: ctx, own: true, deployment: shippedDeployment(),
			denied: func(authorizationv1.ResourceAttributes, string) bool { return false },
			lookup: func(name string) (string, bool) { return "http://linstor:3370", name == "LS_CONTROLLERS" },
		}
		defer func() {
			cancel()
			b.Stop()
		}()
		b.view = b.API.View(0, nil)
		b.view.Transform(cluster.Trim(nil))
		b.must(cluster.AddIndexes(ctx, b.view, virtual.Driver))
		for _, node := range []string{nodeA, nodeB, nodeT} {
			b.must(b.AddNode(ctx, node))
		}
		b.volume(virtual.Volume{Name: "db"})
		b.workload(virtual.Workload{Name: "db-0", Claims: []string{"data-db"}})
		b.pass(time.Minute)
		test(b)
	})
}

func shippedDeployment() *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ha-controller", Name: "piraeus-ha-controller"}}
	d.Spec.Template.Spec.ServiceAccountName = "ha-controller"
	d.Spec.Template.Spec.Containers = []corev1.Container{{
		Name: "controller",
		Args: []string{"--leader-election=true", "--leader-election-lease-name=$(POD_NAME)", "--leader-election-namespace=$(POD_NAMESPACE)"},
		Env:  []corev1.EnvVar{field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace")},
	}}
	d.Status.ReadyReplicas = 3
	return d
}

func field(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
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

// lead has a process of the controller start on a node, and lead.
func (b *bench) lead(node string) {
	b.Helper()
	b.objects = append(b.objects, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ha-controller", Name: "piraeus-ha-controller"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("ha-0"), LeaseDurationSeconds: new(int32(3600))},
	})
	b.must(b.Client().Create(b.ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ha-controller", Name: "ha-0"}, Spec: corev1.PodSpec{NodeName: node},
	}))
	b.pass(2 * time.Second)
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
	c, err := parseCommandLine(args)
	b.must(err)
	var out bytes.Buffer
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	status, err := b.sources().report(ctx, c, &out)
	b.must(err)
	return out.String(), status
}

func (b *bench) sources() sources {
	s := sources{api: b.api(), own: b.own, open: b.open}
	config, err := linstor.ConfigFromEnv(b.lookup)
	if err == nil {
		s.linstor, err = linstor.NewClient(config, nil, linstor.ClientOptions{DialContext: b.Network.DialContext})
		b.Cleanup(s.linstor.CloseIdleConnections)
	}
	s.linstorError = err
	return s
}

// api has the Deployment and answers reviews.
func (b *bench) api() client.Client {
	builder := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, namespace := o.(*corev1.Namespace); namespace && b.secretive {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, key.Name, errors.New("not for you"))
			}
			return c.Get(ctx, key, o, opts...)
		},
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			if b.unanswered != nil {
				return b.unanswered
			}
			switch review := o.(type) {
			case *authorizationv1.SelfSubjectAccessReview:
				review.Status.Allowed = !b.denied(*review.Spec.ResourceAttributes, "")
			case *authorizationv1.SubjectAccessReview:
				review.Status.Allowed = !b.denied(*review.Spec.ResourceAttributes, review.Spec.User)
			default:
				b.Errorf("the check creates %T", o)
			}
			return nil
		},
	})
	for _, name := range []string{"default", "empty"} {
		builder = builder.WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	builder = builder.WithObjects(b.objects...)
	if b.deployment != nil {
		builder = builder.WithObjects(b.deployment)
	}
	return builder.Build()
}

// open lets the kubelets' memory know what the view has.
func (b *bench) open(_ context.Context, _ string, kubelets *cluster.Kubelets) (client.Reader, error) {
	if b.refused != nil {
		return nil, b.refused
	}
	b.view.OnUpdate(func(u apimodel.Update) {
		switch o := u.New.(type) {
		case *coordinationv1.Lease:
			kubelets.ObserveLease(o)
		case *storagev1.CSINode:
			kubelets.ObserveCSINode(o)
		case *corev1.Node:
			kubelets.ObserveNode(o)
		}
	})
	return b.view, nil
}
