package cluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
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
	onlyKept := func(node *corev1.Node) {
		node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoSchedule}}
	}
	for name, tc := range map[string]struct {
		cached, live []func(*corev1.Node)
		want         Off
	}{
		"one that is out of service": {
			[]func(*corev1.Node){outOfService, ready(corev1.ConditionTrue)},
			[]func(*corev1.Node){outOfService, ready(corev1.ConditionTrue)},
			Off{OutOfService: true, Evicts: true},
		},
		"and that Kubernetes has missed a moment ago": {
			[]func(*corev1.Node){outOfService, ready(corev1.ConditionTrue)},
			[]func(*corev1.Node){outOfService, ready(corev1.ConditionUnknown)},
			Off{OutOfService: true, Evicts: true, NotReady: true},
		},
		"one whose pods Kubernetes does not delete": {
			[]func(*corev1.Node){outOfService}, []func(*corev1.Node){onlyKept, ready(corev1.ConditionTrue)}, Off{OutOfService: true},
		},
		"one that is no longer out of service": {[]func(*corev1.Node){outOfService}, []func(*corev1.Node){well}, Off{}},
		"one that is shut down":                {[]func(*corev1.Node){off}, []func(*corev1.Node){off}, Off{Shutdown: true}},
		"one that is shut down and, since a moment ago, out of service": {
			[]func(*corev1.Node){off}, []func(*corev1.Node){off, outOfService}, Off{Shutdown: true, OutOfService: true, Evicts: true},
		},
		"one that is out of service, which the cache does not show yet": {
			[]func(*corev1.Node){well}, []func(*corev1.Node){outOfService}, Off{OutOfService: true, Evicts: true},
		},
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
			live := Live{Reader: api, kubelets: kubelets}
			read, err := live.Node(t.Context(), nodeA)
			if got := live.Off(read); err != nil || got != tc.want {
				t.Errorf("%+v, %v, want %+v", got, err, tc.want)
			}
		})
	}
}

// What a taint says of the node counts where it is still there, and came after the node was last heard of.
func TestThatANodeIsOffIsConfirmed(t *testing.T) {
	t.Parallel()
	newer := failover.Node{Shutdown: true, SwitchedOff: true, OutOfService: true, TakenOut: true, Evicts: true}
	for name, tc := range map[string]struct {
		node failover.Node
		read Off
		want failover.Node
	}{
		"both taints are still there": {
			newer,
			Off{Shutdown: true, OutOfService: true, Evicts: true, NotReady: true},
			failover.Node{Shutdown: true, SwitchedOff: true, OutOfService: true, TakenOut: true, Evicts: true, NotReady: true},
		},
		"both are gone":                {newer, Off{}, failover.Node{}},
		"that of the shutdown is gone": {newer, Off{OutOfService: true}, failover.Node{OutOfService: true, TakenOut: true}},
		"only that is there":           {newer, Off{Shutdown: true}, failover.Node{Shutdown: true, SwitchedOff: true}},
		"they came before the kubelet was last heard of": {
			failover.Node{Shutdown: true, OutOfService: true},
			Off{Shutdown: true, OutOfService: true},
			failover.Node{Shutdown: true, OutOfService: true},
		},
		"the cache does not know of them yet": {failover.Node{}, Off{Shutdown: true, OutOfService: true}, failover.Node{OutOfService: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.read.confirm(&tc.node); tc.node != tc.want {
				t.Errorf("%+v, want %+v", tc.node, tc.want)
			}
		})
	}
}
