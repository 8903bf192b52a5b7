package sim

import (
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
)

// ResetConnections breaks DRBD's connections for a moment.
const ResetConnections Deed = "reset DRBD's connections"

// trouble is what the controllers' requests of one verb and kind meet, or all of them where what is empty.
type trouble struct {
	what string
	d    time.Duration
}

func (t trouble) concerns(r apimodel.Request) bool {
	return t.what == "" || t.what == string(r.Verb)+" "+r.Kind
}

// hanging is how long a request may hang on after that has ended.
const hanging = 30 * time.Second

// onRequests are the deeds that disturb requests of the controllers, with those that end it.
var onRequests = map[Deed]Deed{SlowAPI: FastAPI, RejectAPI: AcceptAPI, HangAPI: UnhangAPI, LagAPI: EndLag}

// disturb lets the controllers' requests meet trouble, or no longer.
func (w *world) disturb(s Step) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for begin, end := range onRequests {
		if s.What == begin {
			w.troubles[begin] = trouble{s.Value, s.For}
		}
		if s.What == end {
			if t, ok := w.troubles[begin]; ok && begin == LagAPI {
				w.lag, w.lagEnded = t.d, time.Now()
			} else if ok {
				w.troubleEnded = time.Now()
			}
			delete(w.troubles, begin)
		}
	}
}

// actorOf returns the name of the controller's process that sends a request; false if it is none of those.
func actorOf(r apimodel.Request) (string, bool) { return strings.CutPrefix(r.Actor, actorPrefix) }

// troubled tells which trouble a request of a controller meets.
func (w *world) troubled(deed Deed, r apimodel.Request) (trouble, bool) {
	if _, ours := actorOf(r); !ours {
		return trouble{}, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	t, ok := w.troubles[deed]
	return t, ok && t.concerns(r)
}

// delay is how long a request takes to have its effect. Slow ones take any time up to the longest; a webhook that hangs ends with
// the API server's patience, and sees only writes.
func (w *world) delay(r apimodel.Request) time.Duration {
	if t, ok := w.troubled(HangAPI, r); ok && isWrite(r) {
		return t.d
	}
	if d := w.hangsNow(r); d > 0 {
		return d
	}
	if t, ok := w.troubled(LagAPI, r); ok {
		return t.d
	}
	if t, ok := w.troubled(SlowAPI, r); ok {
		const steps, prime = 1000, 7919
		return t.d * time.Duration(w.requests.Add(1)*prime%steps) / steps
	}
	return 0
}

func isWrite(r apimodel.Request) bool {
	return r.Verb != apimodel.VerbGet && r.Verb != apimodel.VerbList
}

var errWebhook = errors.New("failed calling webhook: context deadline exceeded")

// reject is how a request ends that meets trouble.
func (w *world) reject(r apimodel.Request) error {
	if _, ok := w.troubled(RejectAPI, r); ok {
		return apierrors.NewForbidden(corev1.Resource(strings.ToLower(r.Kind)), r.Name, errAway)
	}
	if _, ok := w.troubled(HangAPI, r); ok && isWrite(r) {
		return apierrors.NewInternalError(errWebhook)
	}
	return nil
}

// troubledNow tells whether the controllers' requests meet any trouble.
func (w *world) troubledNow() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, lags := w.troubles[LagAPI]
	return len(w.troubles) > boolInt(lags) || w.stalls.What == StallAct || !w.hungRequest.IsZero() && time.Since(w.hungRequest) < hungFor
}

func (w *world) freezeMachine(node string, frozen bool) {
	w.machines[node] = frozen
	if frozen {
		w.Freeze(w.kube(node))
	} else {
		w.Thaw(w.kube(node))
	}
}

// overlap lets the next process lead while the last one does not know yet that it no longer does.
func (w *world) overlap() {
	old := w.processes[w.leader]
	w.leader = (w.leader + 1) % len(w.processes)
	if w.processes[w.leader] == old {
		return
	}
	w.replaced = old
	w.lead(w.leader)
}

func (w *world) endOverlap() {
	for i, p := range w.processes {
		if p == w.replaced && i != w.leader {
			w.restartProcess(p)
			break
		}
	}
	w.replaced = nil
}

// lead lets a process lead that does not yet.
func (w *world) lead(i int) {
	if p := w.processes[i]; p.leading.IsZero() {
		p.leads()
	}
}
