package scenarios_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/bedtest"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/machine"
)

// frozenSurvivor lets LINSTOR say of one node for ever that it may be promoted, and nothing any more of
// the node that the volume is used on. The third replica is still connected to that.
func frozenSurvivor(s *bedtest.Scenario) {
	primary, liar := s.Nodes[0], s.Nodes[1]
	w := s.Workload("db")
	w.Volumes[0].Diskful = true
	pod := s.Start(w)

	// Cut off for less than the grace, so that the others may be promoted for a moment.
	s.IsolateDRBD(primary)
	waitUntil(s, "LINSTOR to say that "+liar+" may be promoted", func() bool { return mayPromote(s, volumeOf(w), liar) })
	s.LINSTOR.FreezeSatellite(liar)
	s.RejoinDRBD(primary)
	s.T.Cleanup(func() { s.LINSTOR.UnfreezeSatellite(liar) })
	waitUntil(s, primary+" to be able to write again", func() bool { return s.DRBD.CanWrite(volumeOf(w), primary) })

	s.CutLINSTOR(primary)
	leftAlone(s, patience, pod)
	if !mayPromote(s, volumeOf(w), liar) || s.LINSTOR.ConnectionStatus(primary) == "ONLINE" {
		s.T.Error("the scenario is void: LINSTOR knows better")
	}
	if !s.DRBD.CanWrite(volumeOf(w), primary) {
		s.T.Errorf("node %s can not write any more", primary)
	}
}

// mayPromote tells what LINSTOR says of a replica.
func mayPromote(s *bedtest.Scenario, resource, node string) bool {
	s.T.Helper()
	req, err := http.NewRequestWithContext(s.Ctx, http.MethodGet, s.LINSTORURL()+"/v1/resource-definitions/"+resource+"/resources", nil)
	s.Must(err)
	resp, err := http.DefaultClient.Do(req)
	s.Must(err)
	defer func() { _ = resp.Body.Close() }()
	var replicas []struct {
		Node  string `json:"node_name"`
		Layer struct {
			DRBD struct {
				MayPromote bool `json:"may_promote"`
			} `json:"drbd"`
		} `json:"layer_object"`
	}
	s.Must(json.NewDecoder(resp.Body).Decode(&replicas))
	for _, r := range replicas {
		if r.Node == node {
			return r.Layer.DRBD.MayPromote
		}
	}
	return false
}

// slowRestart is a rolling update after which the kubelet takes its time to mount. The volume is attached
// meanwhile, and free to be promoted anywhere.
func slowRestart(s *bedtest.Scenario) {
	const mountDelay = patience + 5*time.Second
	w := s.Workload("db")
	w.Nodes = s.Nodes[:1]
	first := s.Start(w)
	s.Node(s.Nodes[0]).DelayMounts(mountDelay)
	patch := []byte(`{"spec":{"template":{"metadata":{"annotations":{"updated":"true"}}}}}`)
	s.Must(s.Client.Patch(s.Ctx, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}},
		client.RawPatch(types.MergePatchType, patch)))

	var second corev1.Pod
	waitUntil(s, "the updated pod to be placed", func() bool {
		pods, err := s.Pods(s.Ctx, w)
		s.Must(err)
		i := slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.UID != first.UID && p.Spec.NodeName != "" })
		if i >= 0 {
			second = pods[i]
		}
		return i >= 0
	})
	var since time.Time
	waitUntil(s, "the volume to be attached, and in use again", func() bool {
		attached, err := s.Attached(s.Ctx, volumeOf(w), s.Nodes[0])
		s.Must(err)
		if !attached || !inUse(s, s.Nodes[0], volumeOf(w)) {
			since = time.Time{}
		} else if since.IsZero() {
			since = time.Now()
		}
		return !since.IsZero() && time.Since(since) > 5*time.Second // what the first pod left in the list is gone by then
	})
	leftAlone(s, patience-5*time.Second, second)
	running, err := s.WaitRunning(s.Ctx, w)
	s.Must(err)
	if running.UID != second.UID || podsCreated(s) != 2 {
		s.T.Error("the updated pod was replaced")
	}
}

// unopenedBlock is a raw block volume that nobody opens, which looks like one that was lost.
func unopenedBlock(s *bedtest.Scenario) {
	w := s.Workload("vm")
	w.Volumes[0].Kubernetes.Block = true
	w.Annotations = map[string]string{machine.AnnotationOpenBlock: "false"}
	pod := s.Start(w)
	leftAlone(s, patience, pod)
	if !mayPromote(s, volumeOf(w), s.Nodes[1]) {
		s.T.Error("the scenario is void: nobody else could take the volume over")
	}
}

// withoutAPI is a node of which Kubernetes hears nothing any more, while its pod works on.
func withoutAPI(s *bedtest.Scenario) {
	w := s.Workload("db")
	pod := s.Start(w)
	s.PartitionAPI(s.Nodes[0])
	leftAlone(s, patience, pod)
	s.HealAPI(s.Nodes[0])
	back, err := s.WaitRunning(s.Ctx, w, s.Nodes[0])
	s.Must(err)
	if back.UID != pod.UID {
		s.T.Error("the pod was replaced")
	}
}

// withoutLINSTOR is a node of which LINSTOR hears nothing any more, while its pod works on.
func withoutLINSTOR(s *bedtest.Scenario) {
	pod := s.Start(s.Workload("db"))
	s.CutLINSTOR(s.Nodes[0])
	leftAlone(s, patience, pod)
	if s.LINSTOR.ConnectionStatus(s.Nodes[0]) == "ONLINE" {
		s.T.Error("the scenario is void: LINSTOR has not noticed")
	}
	s.HealLINSTOR(s.Nodes[0])
	leftAlone(s, 5*time.Second, pod)
}

// harmless is how long a pod is watched that nothing threatens.
const harmless = 30 * time.Second

// oneLinkCut leaves the tie-breaker between two disks that no longer see each other.
func oneLinkCut(s *bedtest.Scenario) {
	pod := s.Start(s.Workload("db"))
	s.DRBD.CutLink(s.Nodes[0], s.Nodes[1])
	s.T.Cleanup(func() { s.DRBD.HealLink(s.Nodes[0], s.Nodes[1]) })
	leftAlone(s, harmless, pod)
}

func otherNodeCrashed(s *bedtest.Scenario) {
	pod := s.Start(s.Workload("db"))
	s.Crash(s.Nodes[1])
	leftAlone(s, harmless, pod)
}

// othersIsolated takes the quorum away from everybody.
func othersIsolated(s *bedtest.Scenario) {
	pod := s.Start(s.Workload("db"))
	s.IsolateDRBD(s.Nodes[1:]...)
	leftAlone(s, harmless, pod)
}
