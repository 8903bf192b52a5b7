package controllers

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/pipenet"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// mass is a cluster with many volumes in use, and nobody in it but the kubelets' Leases: no pod is replaced and nothing
// is attached again, so that what the story takes is the controller's own. Every request of the controller to the API takes
// apiTime, and every bulk read of LINSTOR bulkTime at least.
type mass struct {
	nodes, lost int // the first ones are lost
	volumes     int // on each lost node
	apiTime     time.Duration
	bulkTime    time.Duration
	standbys    int // replicas of the controller that do not lead
}

func nodeNumber(i int) string { return fmt.Sprintf("node-%02d", i) }

// pace is what the controller's deeds took.
type pace struct {
	mu                   sync.Mutex
	first, lastPod, last time.Time
	pods, attachments    int
}

// happens plays the loss and returns what the controller did.
func (m mass) happens(t *testing.T) (p *pace, noticed time.Time) {
	t.Helper()
	p = &pace{}
	m.plays(t, defaults(), func(w *world) {
		w.API.OnChange(p.note)
		w.Linstor.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
			if r.URL.RawQuery != "" && strings.HasPrefix(r.URL.Path, "/v1/view") {
				hold(r, m.bulkTime)
			}
			return false
		})
		for i := range m.lost {
			w.Linstor.Crash(nodeNumber(i))
		}
		noticed = w.untilNoticed(m)
		w.until(2*time.Minute, "all volumes are detached", func() bool { return p.detached() == m.lost*m.volumes })
	})
	return p, noticed
}

// plays settles the cluster, with a controller that has the settings, and plays a story in it.
func (m mass) plays(t *testing.T, cfg Config, story func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		storage := drbd.NewCluster(drbd.Options{})
		cluster := &virtual.Cluster{
			API: apimodel.New(), DRBD: storage, Linstor: linstorsim.New(storage, linstorsim.Options{}), Network: pipenet.Listen(),
		}
		w := &world{T: t, Cluster: cluster, ctx: ctx, started: time.Now()}
		go func() { _ = cluster.Linstor.Serve(cluster.Network) }()
		w.startProcess("one", cfg).leads()
		for i := range m.standbys {
			w.startProcess(fmt.Sprintf("standby-%d", i), cfg)
		}
		defer func() {
			cancel()
			for _, p := range w.processes {
				p.stops()
			}
			cluster.Linstor.Close()
			storage.Stop()
		}()
		m.settle(w)
		w.API.Delay(func(r apimodel.Request) time.Duration {
			if strings.HasPrefix(r.Actor, controllerActor) {
				return m.apiTime
			}
			return 0
		})
		story(w)
	})
}

// settle fills the cluster and lets it run for a minute.
func (m mass) settle(w *world) {
	w.Helper()
	api := w.API.Client("kubelet")
	var leases []*coordinationv1.Lease
	for i := range m.nodes {
		name := nodeNumber(i)
		w.Linstor.AddNode(name)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		node.Status.NodeInfo.BootID = "boot"
		for v := range m.volumes {
			if i < m.lost {
				node.Status.VolumesInUse = append(node.Status.VolumesInUse, inUseName(fmt.Sprintf("pvc-%d-%d", i, v)))
			}
		}
		w.must(api.Create(w.ctx, node))
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.LeaseNamespace, Name: name}}
		lease.Spec.RenewTime = new(metav1.NowMicro())
		w.must(api.Create(w.ctx, lease))
		leases = append(leases, lease)
	}
	w.pass(5 * time.Second) // until all satellites are ONLINE
	for i := range m.lost {
		for v := range m.volumes {
			m.addVolume(w, i, v)
		}
	}
	go func() { // in which the crashed ones fall silent
		for began := time.Now(); ; {
			select {
			case <-time.After(10 * time.Second):
			case <-w.ctx.Done():
				return
			}
			for i, lease := range leases {
				if i >= m.lost || time.Since(began) < time.Minute {
					lease.Spec.RenewTime = new(metav1.NowMicro())
					_ = api.Update(w.ctx, lease)
				}
			}
		}
	}()
	w.pass(time.Minute)
}

// addVolume adds a volume in use on a lost node, with replicas on two of the others.
func (m mass) addVolume(w *world, node, v int) {
	w.Helper()
	name, on, api := fmt.Sprintf("%d-%d", node, v), nodeNumber(node), w.API.Client("user")
	others := m.nodes - m.lost
	w.must(w.Linstor.CreateResource(linstorsim.ResourceSpec{Spec: drbd.Spec{Name: "pvc-" + name, Replicas: []drbd.ReplicaSpec{
		{Node: on}, {Node: nodeNumber(m.lost + v%others)}, {Node: nodeNumber(m.lost + (v+1)%others), TieBreaker: true},
	}}}))
	w.must(w.DRBD.Open("pvc-"+name, on, false))
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	claim.Spec.VolumeName = name
	w.must(api.Create(w.ctx, claim))
	bind(pv, "default", name)
	pv.Spec.ClaimRef.UID = claim.UID
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: virtual.Driver, VolumeHandle: "pvc-" + name}
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "csi-" + name}}
	va.Spec.Attacher, va.Spec.NodeName, va.Spec.Source.PersistentVolumeName = virtual.Driver, on, &name
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: selected}}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: name, UID: "owner", Controller: new(true)}}
	pod.Spec.NodeName = on
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
	}}}
	for _, o := range []client.Object{pv, va, pod} {
		w.must(api.Create(w.ctx, o))
	}
	va.Status.Attached = true
	w.must(api.Status().Update(w.ctx, va))
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
		Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()},
	}}}
	w.must(api.Status().Update(w.ctx, pod))
}

// note takes down what the controller does.
func (p *pace) note(c apimodel.Change) {
	if !strings.HasPrefix(c.Actor, controllerActor) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first.IsZero() {
		p.first = c.Time
	}
	p.last = c.Time
	switch {
	case c.Verb == apimodel.VerbDelete && c.Kind == "Pod":
		p.lastPod = c.Time
		p.pods++
	case c.Verb == apimodel.VerbDelete && c.Kind == "VolumeAttachment":
		p.attachments++
	}
}

func (p *pace) detached() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.attachments
}

func TestANodeWith110PodsCrashes(t *testing.T) {
	t.Parallel()
	p, noticed := mass{nodes: 4, lost: 1, volumes: 110, apiTime: 20 * time.Millisecond, bulkTime: 2 * time.Second}.happens(t)
	t.Logf("first deed %s after DRBD noticed, last pod deleted %s later, last deed %s later", p.first.Sub(noticed), p.lastPod.Sub(p.first), p.last.Sub(p.first))
	if took := p.last.Sub(p.first); took > 3*time.Second {
		t.Errorf("the last deed came %s after the first, want at most 3 s", took)
	}
	if p.pods != 110 {
		t.Errorf("%d pods deleted", p.pods)
	}
}

func TestTenNodesWith100PodsEachCrash(t *testing.T) {
	t.Parallel()
	volumes := 100
	if underRace || testing.Short() {
		volumes = 25 // a minute's work for the race detector otherwise
	}
	p, noticed := mass{nodes: 40, lost: 10, volumes: volumes, apiTime: 20 * time.Millisecond, bulkTime: 200 * time.Millisecond}.happens(t)
	t.Logf("first deed %s after DRBD noticed, last pod deleted %s later, last deed %s later", p.first.Sub(noticed), p.lastPod.Sub(p.first), p.last.Sub(p.first))
	if took := p.lastPod.Sub(p.first); took > 5*time.Second {
		t.Errorf("the last pod was deleted %s after the first deed, want at most 5 s", took)
	}
	if p.pods != 10*volumes {
		t.Errorf("%d pods deleted", p.pods)
	}
}

// As they do where DRBD's pings to the nodes are due one after the other: many volumes are about to be lost, but few at a time.
func TestNodesThatAreLostOneAfterTheOtherDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	const losses, apart = 12, 200 * time.Millisecond
	cfg := defaults()
	mass{nodes: 3 * losses, lost: losses, volumes: 1, apiTime: 50 * time.Millisecond}.plays(t, cfg, func(w *world) {
		var mu sync.Mutex
		removed := make(map[string]time.Time)
		w.API.OnChange(func(c apimodel.Change) {
			mu.Lock()
			defer mu.Unlock()
			if c.Verb == apimodel.VerbDelete && c.Kind == "Pod" {
				removed[c.Name] = c.Time
			}
		})
		crashed := make(map[string]time.Time)
		for i := range losses {
			w.Linstor.Crash(nodeNumber(i))
			crashed[fmt.Sprintf("%d-0", i)] = time.Now()
			w.pass(apart)
		}
		w.pass(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		for pod, at := range crashed {
			const detection = 10 * time.Second
			if late := removed[pod].Sub(at.Add(detection + cfg.Settings.ConfirmedGrace)); late < 0 || late > time.Second {
				t.Errorf("pod %s was removed %s after the grace", pod, late)
			}
		}
	})
}
