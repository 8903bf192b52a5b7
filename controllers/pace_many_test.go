package controllers

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
)

// busyLinstor makes LINSTOR take its time for each answer, and records who asks for single resources.
type busyLinstor struct {
	// latency is how long each answer takes, however many callers wait.
	latency time.Duration
	// core is how much of LINSTOR's only core each answer takes; zero for a LINSTOR that has enough cores. Lists take more.
	core time.Duration
	// definitions is how many LINSTOR has. Each in the story stands for several: the leader reads it so many times as long.
	definitions, several int

	mu sync.Mutex
	// idle is when the core has answered all callers.
	idle time.Time
	// byStandbys are the times at which standbys asked for a resource.
	byStandbys []time.Time
}

func (b *busyLinstor) intercept(_ http.ResponseWriter, r *http.Request) bool {
	if strings.HasPrefix(r.URL.Path, "/v1/events") {
		return false
	}
	b.mu.Lock()
	now, cost, wait := time.Now(), b.core, b.latency
	switch parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/v1/"), "/"); {
	case parts[0] == "view":
		cost *= 100
	case parts[0] == "resource-definitions" && len(parts) == 1:
		cost *= time.Duration(1 + b.definitions/50)
	case parts[0] != "resource-definitions" || len(parts) != 3:
	case strings.HasPrefix(r.RemoteAddr, "standby"): // which read so many in a second, however many there are
		b.byStandbys = append(b.byStandbys, now)
	default:
		cost, wait = cost*time.Duration(b.several), wait*time.Duration(b.several)
	}
	if b.core > 0 {
		if b.idle.Before(now) {
			b.idle = now
		}
		b.idle = b.idle.Add(cost)
		wait += b.idle.Sub(now)
	}
	b.mu.Unlock()
	hold(r, wait)
	return false
}

// mostByStandbys returns how many resources standbys read within the busiest such time.
func (b *busyLinstor) mostByStandbys(within time.Duration) (most int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	slices.SortFunc(b.byStandbys, time.Time.Compare)
	first := 0
	for i, at := range b.byStandbys {
		for at.Sub(b.byStandbys[first]) >= within {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// Ten nodes with 110 pods each crash. Three replicas of the controller read LINSTOR, but only the leader is in a hurry.
func TestThousandPodsOfTenNodesDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	m := mass{nodes: 30, lost: 10, volumes: 110, standbys: 2}
	definitions, several := m.lost*m.volumes, 1
	if underRace || testing.Short() {
		m.volumes, several = 22, 5
	}
	for name, tc := range map[string]struct {
		linstor *busyLinstor
		within  time.Duration
	}{
		"an answer takes 20 ms":                         {&busyLinstor{latency: 20 * time.Millisecond}, 9 * time.Second},
		"an answer takes 40 ms":                         {&busyLinstor{latency: 40 * time.Millisecond}, 12 * time.Second},
		"an answer takes 2.4 ms of LINSTOR's only core": {&busyLinstor{core: 2400 * time.Microsecond}, 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m.plays(t, defaults(), func(w *world) {
				deeds, linstor := &pace{}, tc.linstor
				linstor.definitions, linstor.several = definitions, several
				w.API.OnChange(deeds.note)
				w.Linstor.Intercept(linstor.intercept)
				for i := range m.lost {
					w.Linstor.Crash(nodeNumber(i))
				}
				noticed := w.untilNoticed(m)
				w.until(time.Minute, "all volumes are detached", func() bool { return deeds.detached() == m.lost*m.volumes })
				deeds.mu.Lock()
				first, last, detached := deeds.first.Sub(noticed), deeds.lastPod.Sub(noticed), deeds.last.Sub(noticed)
				deeds.mu.Unlock()
				const window = 5
				standbys := linstor.mostByStandbys(window * time.Second)
				t.Logf("first deed %s after DRBD noticed, last pod deleted after %s, last volume detached after %s; standbys read %d resources within %d s",
					first, last, detached, standbys, window)
				if deeds.pods != m.lost*m.volumes {
					t.Errorf("%d pods were deleted", deeds.pods)
				}
				if last > tc.within {
					t.Errorf("the last pod was deleted %s after DRBD noticed, want at most %s", last, tc.within)
				}
				if limit := 32*window + m.standbys; standbys > limit { // each may begin one more at the edge
					t.Errorf("standbys read %d resources within %d s, want at most %d", standbys, window, limit)
				}
			})
		})
	}
}

// untilNoticed lets time pass until DRBD has noticed that the nodes are lost.
func (w *world) untilNoticed(m mass) time.Time {
	w.Helper()
	w.until(30*time.Second, "DRBD has noticed", func() bool {
		for _, name := range w.DRBD.Resources() {
			if r, _ := w.DRBD.Replica(name, nodeNumber(m.lost)); r.MayPromote {
				return true
			}
		}
		return false
	})
	return time.Now()
}

// A webhook does not answer to the deletion of some pods. The other pods of the node do not wait for it.
func TestAWebhookThatHangsForSomePodsHoldsUpNoOthers(t *testing.T) {
	hung, volumes := 20, 110
	if underRace || testing.Short() {
		hung, volumes = 10, 55
	}
	m := mass{nodes: 4, lost: 1, volumes: volumes, apiTime: 20 * time.Millisecond}
	// others returns how long it took until all other pods were deleted, and their volumes detached.
	others := func(t *testing.T, hangs time.Duration) (pods, attachments time.Duration) {
		t.Helper()
		m.plays(t, defaults(), func(w *world) {
			w.API.Delay(func(r apimodel.Request) time.Duration {
				if !strings.HasPrefix(r.Actor, controllerActor) {
					return 0
				}
				var number int
				if _, err := fmt.Sscanf(r.Name, "0-%d", &number); err != nil || needs(r) != toDelete || number%5 != 0 || number >= 5*hung {
					return m.apiTime
				}
				return m.apiTime + hangs
			})
			deleted := w.deletions()
			w.Linstor.Crash(nodeNumber(0))
			w.pass(time.Minute)
			for v := range m.volumes {
				if v%5 == 0 && v < 5*hung {
					continue
				}
				name := fmt.Sprintf("0-%d", v)
				pod, podDeleted := deleted("Pod " + name)
				attachment, detached := deleted("VolumeAttachment csi-" + name)
				if !podDeleted || !detached {
					w.Errorf("pod %s was deleted: %t, its attachment: %t", name, podDeleted, detached)
				}
				pods, attachments = max(pods, pod), max(attachments, attachment)
			}
		})
		return pods, attachments
	}
	pods, attachments := others(t, 0)
	for _, hangs := range []time.Duration{10 * time.Second, time.Hour} {
		t.Run(fmt.Sprintf("for %s", hangs), func(t *testing.T) {
			const late = 2*firstPatience + 200*time.Millisecond // if one hangs of those that are lost a moment after the others
			slowPods, slowAttachments := others(t, hangs)
			t.Logf("last pod deleted after %s instead of %s, last volume detached after %s instead of %s", slowPods, pods, slowAttachments, attachments)
			if slowPods > pods+late || slowAttachments > attachments+late {
				t.Errorf("more than %s later", late)
			}
		})
	}
}
