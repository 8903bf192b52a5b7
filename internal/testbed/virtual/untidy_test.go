package virtual_test

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

func (c *cluster) get(name string) *corev1.Pod {
	var pod corev1.Pod
	if err := c.Client().Get(c.ctx, client.ObjectKey{Namespace: "default", Name: name}, &pod); err != nil {
		return nil
	}
	return &pod
}

func TestAReleasedVolumeIsNoPods(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.must(c.AddVolume(c.ctx, virtual.Volume{Name: "a-old", Claim: "data-db", Diskful: []string{"node-a"}, Released: true}))
		if used := c.VolumesOf(c.pod()); len(used) != 1 || used[0].Name != "db" {
			t.Errorf("the pod uses %+v", used)
		}
		var pv corev1.PersistentVolume
		c.must(c.Client().Get(c.ctx, client.ObjectKey{Name: "a-old"}, &pv))
		var claim corev1.PersistentVolumeClaim
		c.must(c.Client().Get(c.ctx, client.ObjectKey{Namespace: "default", Name: "data-db"}, &claim))
		if pv.Status.Phase != corev1.VolumeReleased || pv.Spec.ClaimRef.UID == claim.UID || claim.Spec.VolumeName != "db" {
			t.Errorf("volume: %+v, claim: %+v", pv.Spec, claim.Spec)
		}
	})
}

func TestTwoPersistentVolumesOfOneHandleAreAttachedOnce(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.must(c.AddVolume(c.ctx, virtual.Volume{Name: "db-y", Handle: "pvc-db", Diskful: []string{"node-a", "node-b"}}))
		c.AddWorkload(virtual.Workload{Name: "y", Claims: []string{"data-db-y"}, Nodes: []string{"node-a"}})
		c.pass(10 * time.Second)
		var all storagev1.VolumeAttachmentList
		c.must(c.Client().List(c.ctx, &all))
		if len(all.Items) != 1 || c.get("y").Status.Phase != corev1.PodRunning {
			t.Errorf("%d attachments, pod %+v", len(all.Items), c.get("y").Status)
		}
	})
}

func TestAnEphemeralVolumeComesAndGoesWithItsPod(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.AddWorkload(virtual.Workload{Name: "web", Ephemeral: []string{"scratch"}, Nodes: []string{"node-b"}})
		c.pass(10 * time.Second)
		first := c.VolumesOf(c.get("web"))
		if len(first) != 1 || c.get("web").Status.Phase != corev1.PodRunning {
			t.Fatalf("volumes %+v, pod %+v", first, c.get("web").Status)
		}
		c.must(c.Client().Delete(c.ctx, c.get("web"), client.GracePeriodSeconds(5)))
		c.pass(20 * time.Second)
		second := c.VolumesOf(c.get("web"))
		if len(second) != 1 || second[0].Name == first[0].Name || c.get("web").Status.Phase != corev1.PodRunning {
			t.Errorf("volumes %+v, pod %+v", second, c.get("web").Status)
		}
		if !c.HasHandle(first[0].Handle) {
			t.Error("nobody remembers the first volume's handle")
		}
	})
}

func TestAnEphemeralVolumeStaysWhileItIsAttached(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.AddWorkload(virtual.Workload{Name: "web", Ephemeral: []string{"scratch"}, Nodes: []string{"node-b"}})
		c.pass(10 * time.Second)
		volume := c.VolumesOf(c.get("web"))[0]
		read := func() (pv corev1.PersistentVolume, err error) {
			err = c.Client().Get(c.ctx, client.ObjectKey{Name: volume.Name}, &pv)
			return pv, err
		}
		c.Crash("node-b") // so that nothing detaches it
		c.must(c.Client().Delete(c.ctx, c.get("web"), client.GracePeriodSeconds(0)))
		c.pass(20 * time.Second)
		if pv, err := read(); err != nil || pv.Status.Phase != corev1.VolumeReleased {
			t.Errorf("it is attached, and %s: %v", pv.Status.Phase, err)
		}
		c.must(c.Client().Delete(c.ctx, &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "csi-" + volume.Name + "-node-b"}}))
		c.pass(20 * time.Second)
		if _, err := read(); !apierrors.IsNotFound(err) {
			t.Errorf("it is there although nothing is attached: %v", err)
		}
	})
}

func TestAHelperRunsBesideThePodThatOwnsIt(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.AddWorkload(virtual.Workload{Name: "hp", HelperOf: "db-0", Claims: []string{"data-db"}})
		c.pass(10 * time.Second)
		helper := c.get("hp")
		if helper == nil || helper.Spec.NodeName != "node-a" || helper.OwnerReferences[0].UID != c.pod().UID {
			t.Fatalf("helper: %+v", helper)
		}
		c.remove(5)
		c.pass(20 * time.Second)
		if again := c.get("hp"); again == nil || again.UID == helper.UID || again.OwnerReferences[0].UID != c.pod().UID {
			t.Errorf("helper: %+v", again)
		}
	})
}

func TestInitContainersRunWithTheVolumeMounted(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.Change(client.ObjectKey{Namespace: "default", Name: "db-0"}, func(w *virtual.Workload) { w.InitTime = time.Minute })
		c.remove(5)
		c.pass(20 * time.Second)
		replica, _ := c.DRBD.Replica("pvc-db", "node-a")
		pod := c.pod()
		if pod.Status.Phase != corev1.PodPending || len(pod.Status.InitContainerStatuses) != 1 || replica.Open != 1 {
			t.Errorf("pod %+v, open %d", pod.Status, replica.Open)
		}
		c.pass(time.Minute)
		if !c.runs("node-a") {
			t.Errorf("pod: %+v", c.pod().Status)
		}
	})
}

func TestAMachineThatWasFrozenGoesOnAsIfNothingHadHappened(t *testing.T) {
	inCluster(t, func(c *cluster) {
		first := c.pod()
		c.Freeze("node-a")
		c.pass(5 * time.Second)
		if c.DRBD.CanWrite("pvc-db", "node-a") {
			t.Error("a frozen machine writes")
		}
		c.Thaw("node-a")
		c.pass(20 * time.Second)
		if !c.runs("node-a") || c.pod().UID != first.UID || c.pod().Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("pod: %+v", c.pod().Status)
		}
	})
}

func TestAMachineThatCrashesWhileItIsFrozenStaysOff(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.Freeze("node-a")
		c.Crash("node-a")
		c.pass(time.Minute)
		c.Thaw("node-a")
		c.pass(time.Minute)
		if status := c.Linstor.ConnectionStatus("node-a"); status == linstorsim.Online {
			t.Errorf("LINSTOR calls a node %s that is off", status)
		}
	})
}

func TestAKubeletRenewsFourTimesInTheDurationOfItsLease(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.SetLease("node-a", 120*time.Second)
		c.pass(time.Minute)
		renewed := func() time.Time {
			var lease coordinationv1.Lease
			c.must(c.Client().Get(c.ctx, client.ObjectKey{Namespace: virtual.LeaseNamespace, Name: "node-a"}, &lease))
			if *lease.Spec.LeaseDurationSeconds != 120 {
				t.Errorf("duration %d", *lease.Spec.LeaseDurationSeconds)
			}
			return lease.Spec.RenewTime.Time
		}
		first := renewed()
		c.pass(31 * time.Second)
		if apart := renewed().Sub(first); apart < 29*time.Second || apart > 31*time.Second {
			t.Errorf("renewed after %s", apart)
		}
	})
}

func TestANodeThatLinstorDoesNotKnowHasNoDriver(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.must(c.Add(c.ctx, virtual.Node{Name: "node-x", Foreign: true}))
		var drivers storagev1.CSINode
		c.must(c.Client().Get(c.ctx, client.ObjectKey{Name: "node-x"}, &drivers))
		if len(drivers.Spec.Drivers) != 0 || c.DRBD.Up("node-x") {
			t.Errorf("drivers %v, known to the storage: %t", drivers.Spec.Drivers, c.DRBD.Up("node-x"))
		}
	})
}
