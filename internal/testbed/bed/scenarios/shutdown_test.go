package scenarios_test

import (
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/options"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/bedtest"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/csidriver"
)

const (
	// poweredOff is the key that the controller is told by --shutdown-taint.
	poweredOff = "example.com/powered-off"
	// shutdownGrace is the shutdownGracePeriod of the kubelets.
	shutdownGrace = 30 * time.Second
)

// TestShutdowns switches nodes off in each of the ways of docs/shutdown.md, at the same time, and tells the seconds that stand there.
//
//nolint:tparallel // what follows the stories is judged when all are over
func TestShutdowns(t *testing.T) {
	t.Parallel()
	b := bedtest.Own(t, "scenarios-shutdowns", bed.Options{
		ShutdownGrace: shutdownGrace, NodeStatusUpdateFrequency: 10 * time.Second, // that of most clusters, see gracefulShutdown
		KubeAPIQPS: 50, // the stories are clusters of their own, and share a control plane
		Driver:     csidriver.Options{NodeCache: time.Second}, ControllerArgs: []string{"--shutdown-taint=" + poweredOff},
	})
	stories := map[string]func(*shutdown){
		"the kubelet ends the pods before the power goes":          gracefulShutdown,
		"the cloud provider says that the machine is off":          cloudShutdown,
		"who took the power says so":                               fencedShutdown,
		"a person says so when Kubernetes calls the node NotReady": outOfServiceLate,
		"a person says so while Kubernetes calls the node Ready":   outOfServiceEarly,
	}
	var others sync.WaitGroup
	others.Add(len(stories))
	t.Run("stories", func(t *testing.T) {
		for name, play := range stories {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				play(newShutdown(t, b, &others))
			})
		}
	})
	if err := b.Err(); err != nil {
		t.Error(err)
	}
	nothingForbidden(t, b)
}

// gracefulShutdown is a machine whose kubelet ends the pods first, because its configuration has a shutdownGracePeriod. It leaves Failed pods and
// volumes that seem to be in use. Kubernetes replaces the pods, and waits six minutes before it takes the volumes off.
func gracefulShutdown(d *shutdown) {
	web := d.workload("web")
	web.Deployment = true // the Failed pod of a Deployment stays, until Kubernetes deletes it after five minutes
	d.start(web)
	d.meet() // and not later: the kubelet must not live until its next periodic status
	d.from("the shutdown began")
	d.ShutDown(d.Ctx, d.node)
	d.tell("the pods have ended and their volumes are unmounted")
	d.powerOff()
	d.wantFailed(web)
	for _, w := range d.all() {
		d.waitReplaced(w)
	}
	// The node's status rarely comes between the last unmount and the end of the power.
	seemsInUse, left := inUse(d.Scenario, d.node, volumeOf(d.other)), attachmentOf(d.Scenario, volumeOf(d.other), d.node)
	for _, w := range []bed.Workload{d.db, web} {
		d.WaitMoved(w, d.node, d.off)
		d.tell(w.Name + " runs elsewhere")
	}
	if graces := gracesGiven(d.Scenario); len(graces) > 0 {
		d.T.Errorf("the controller deleted %d pods, want none: they had ended", len(graces))
	}
	d.wantFailed(web)
	d.waitReady(corev1.ConditionUnknown)
	pass(d.Scenario, 3*time.Second)
	if seemsInUse && attachmentOf(d.Scenario, volumeOf(d.other), d.node) != left {
		d.T.Error("the volume of a pod that is not selected should be left to Kubernetes")
	}
	d.comeBack()
	d.waitRuns(d.other) // the kubelet says that nothing is mounted
	d.wantClean(d.db, web, d.other)
	d.wantCreated(6)
}

// cloudShutdown is a machine that loses its power, and a cloud provider that says so once Kubernetes has missed the node.
func cloudShutdown(d *shutdown) {
	late := d.startLate()
	d.powerOff()
	d.fixQuorum(late)
	d.waitMoved(d.db)
	d.waitReady(corev1.ConditionUnknown)
	d.evict(late, d.other)
	waitEvent(d.Scenario, "QuorumUnconfirmed", "Pod", d.Name, podOf(late))
	d.stays(late, d.other)
	d.from("the cloud provider's taint came")
	d.kubectl("taint", "node", d.node, options.ShutdownTaint+":NoSchedule")
	d.waitMoved(late)
	pass(d.Scenario, 3*time.Second)
	d.stays(d.other)
	d.comeBack()
	d.kubectl("taint", "node", d.node, options.ShutdownTaint+"-") // as the cloud provider does with a node that is Ready
	d.waitRuns(d.other)
	d.wantClean(d.db, late)
	d.wantCreated(6)
}

// fencedShutdown is a machine whose power somebody takes who says so at once, by a taint of their own.
func fencedShutdown(d *shutdown) {
	late := d.startLate()
	d.powerOff()
	d.kubectl("taint", "node", d.node, poweredOff+":NoSchedule")
	d.fixQuorum(late)
	d.waitMoved(d.db)
	d.waitMoved(late)
	d.comeBack()
	d.kubectl("taint", "node", d.node, poweredOff+"-")
	_, err := d.WaitRunning(d.Ctx, d.other, d.node)
	d.Must(err)
	d.wantClean(d.db, late)
	d.wantCreated(5)
}

// outOfServiceLate is a person who waits until Kubernetes calls the node NotReady, as its documentation wants it.
func outOfServiceLate(d *shutdown) {
	late := d.startLate()
	d.powerOff()
	d.fixQuorum(late)
	d.waitMoved(d.db)
	d.waitReady(corev1.ConditionUnknown)
	d.from("the person's taint came")
	d.outOfService()
	for _, w := range []bed.Workload{late, d.other} {
		d.waitMoved(w)
	}
	d.comeBack()
	d.inService()
	// How many pods were created is Kubernetes' affair: it evicts by name, and may hit the replacement.
	d.wantClean(d.db, late, d.other)
}

// outOfServiceEarly is a person who says so as soon as the machine is off, while Kubernetes calls its node Ready.
func outOfServiceEarly(d *shutdown) {
	d.powerOff()
	d.outOfService()
	d.waitTerminating(d.other)
	d.waitMoved(d.db)
	d.waitMoved(d.other)
	d.comeBack()
	d.inService()
	d.wantClean(d.db, d.other)
	d.wantCreated(4)
}
