package sim

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// Pods of LINSTOR itself, which the controller may delete plainly where their node is gone. In a simulation they only stand
// there: LINSTOR comes and goes by steps of its own.

// ruleRecovery: of pods of LINSTOR itself only one goes that was selected, that a ReplicaSet replaces, that has no volume,
// and whose node is silent; and it goes plainly.
const ruleRecovery = "a pod of LINSTOR itself was deleted that must not be"

// componentLabel is the label by which pods of LINSTOR itself are selected.
const componentLabel = "app.kubernetes.io/component"

// unboundClaim is a claim of which nobody knows what its volume will be.
const unboundClaim = "data-of-linstor"

// recoverSelector selects them.
var recoverSelector = labels.SelectorFromSet(labels.Set{componentLabel: "linstor-controller"})

// piraeusPods are the pods of which each node has one: the first may go with its node, the others never.
var piraeusPods = []struct {
	name, component, owner, claim string
	mayGo                         bool
}{
	{name: "linstor", component: "linstor-controller", owner: "ReplicaSet", mayGo: true},
	{name: "linstor-ordered", component: "linstor-controller", owner: "StatefulSet"},
	{name: "linstor-alone", component: "linstor-controller"},
	{name: "linstor-stored", component: "linstor-controller", owner: "ReplicaSet", claim: unboundClaim},
	{name: "other", component: "other", owner: "ReplicaSet"},
}

// recovers tells whether LINSTOR's own pods are there and selected: not always, because they cost much time.
func (h History) recovers() bool {
	blind := slices.ContainsFunc(h.Steps, func(s Step) bool { return s.What == LoseConnector })
	return h.Seed%4 == 0 || blind && h.Seed%4 != 1
}

// addPiraeus adds them.
func (w *world) addPiraeus() {
	if !w.history.recovers() {
		return
	}
	// They are older than what any leader knows.
	w.API.SetClock(w.history.World.Clock - time.Hour)
	defer w.API.SetClock(w.history.World.Clock)
	for _, node := range w.history.World.Nodes {
		for _, p := range piraeusPods {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "piraeus", Name: p.name + "-" + node, Labels: map[string]string{componentLabel: p.component},
			}}
			if p.owner != "" {
				pod.OwnerReferences = []metav1.OwnerReference{{
					APIVersion: "apps/v1", Kind: p.owner, Name: p.name, UID: "owner", Controller: new(true),
				}}
			}
			if p.claim != "" {
				pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: p.claim},
				}}}
			}
			pod.Spec.NodeName = w.kube(node)
			pod.Spec.Containers = []corev1.Container{{Name: "main"}}
			w.must(w.Client().Create(w.ctx, pod))
		}
	}
}

// auditRecovery holds the deletion of a pod of LINSTOR itself against the invariant.
func (w *world) auditRecovery(pod *corev1.Pod, silence time.Duration, options *client.DeleteOptions) {
	node := home(pod)
	what := fmt.Sprintf("pod %s on %s, silent for %s", pod.Name, node, silence)
	w.count("pods of LINSTOR deleted")
	w.note("RECOVERY " + what)
	for _, p := range piraeusPods {
		if pod.Name == p.name+"-"+node && !p.mayGo {
			w.violated(ruleRecovery, "%s: none that may go", what)
		}
	}
	if uid := options.Preconditions; uid == nil || uid.UID == nil || *uid.UID != pod.UID || options.GracePeriodSeconds != nil {
		w.violated(ruleRecovery, "%s: not plainly, or not by its UID", what)
	}
	if silence < grace.KubeletSilence && silence > w.history.World.Lag { // else the controller could not have heard of the renewal
		w.auditRestart(what)
	}
	if leaving := leavingFor(pod); leaving > failover.ActAge {
		w.violated(ruleRecovery, "%s: it was on its way out already for %s", what, leaving)
	}
}

// silentFor is how long ago a node's kubelet has renewed its Lease.
func (w *world) silentFor(node string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(w.renewed[node])
}

// leavingFor is how long ago a pod was deleted; 0 where it was not.
func leavingFor(pod *corev1.Pod) time.Duration {
	if pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil {
		return 0
	}
	return time.Since(pod.DeletionTimestamp.Add(-time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second))
}
