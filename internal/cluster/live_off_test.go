package cluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
)

// What the API server says of the node counts, where the cache says that it is off.
func TestThatANodeIsOffIsReadPastTheCache(t *testing.T) {
	t.Parallel()
	taint := func(key string) func(*corev1.Node) {
		return func(node *corev1.Node) {
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute})
		}
	}
	ready := func(status corev1.ConditionStatus) func(*corev1.Node) {
		return func(node *corev1.Node) {
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
		}
	}
	well := func(*corev1.Node) {}
	outOfService, off := taint(corev1.TaintNodeOutOfService), taint("off")
	for name, tc := range map[string]struct {
		cached, live []func(*corev1.Node)
		want         Off
	}{
		"one that is out of service": {
			[]func(*corev1.Node){outOfService, ready(corev1.ConditionTrue)},
			[]func(*corev1.Node){outOfService, ready(corev1.ConditionTrue)},
			Off{OutOfService: true},
		},
		"and that Kubernetes has missed a moment ago": {
			[]func(*corev1.Node){outOfService, ready(corev1.ConditionTrue)},
			[]func(*corev1.Node){outOfService, ready(corev1.ConditionUnknown)},
			Off{OutOfService: true, NotReady: true},
		},
		"one that is no longer out of service": {[]func(*corev1.Node){outOfService}, []func(*corev1.Node){well}, Off{}},
		"one that is shut down":                {[]func(*corev1.Node){off}, []func(*corev1.Node){off}, Off{Shutdown: true}},
		"one that is shut down and, since a moment ago, out of service": {
			[]func(*corev1.Node){off}, []func(*corev1.Node){off, outOfService}, Off{Shutdown: true, OutOfService: true},
		},
		"one that the cache does not call off is not asked for": {[]func(*corev1.Node){well}, []func(*corev1.Node){outOfService}, Off{}},
		"one that is gone": {[]func(*corev1.Node){off}, nil, Off{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := func(changes []func(*corev1.Node)) *corev1.Node {
				n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeA}}
				for _, change := range changes {
					change(n)
				}
				return n
			}
			api := apimodel.New().Client("test")
			if tc.live != nil {
				if err := api.Create(t.Context(), node(tc.live)); err != nil {
					t.Fatal(err)
				}
			}
			kubelets := NewKubelets(clock.RealClock{}, "", []string{"off"})
			kubelets.ObserveNode(node(tc.cached))
			got, err := Live{Reader: api, kubelets: kubelets}.Off(t.Context(), nodeA)
			if err != nil || got != tc.want {
				t.Errorf("%+v, %v, want %+v", got, err, tc.want)
			}
		})
	}
}
