package check

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// Reasons of the controller's Events by which a fail-over is told again, and the action of those that say why there is none.
const (
	eventForceDeleted  = "ForceDeleted"
	eventForceDetached = "ForceDetached"
	eventFailedOver    = "FailedOver"
	actionFailOver     = "FailOver"
)

// Notes of the controller's Events. Each ends with the reason and its words.
var (
	// noteDeleted says how a pod was deleted, for which volumes, and on which node.
	noteDeleted = regexp.MustCompile(`^pod deleted because a used volume is marked as failing: (by force|gracefully), for volumes? (.+?) on node (\S+): (\w+): (.*)$`)
	// noteDetached says which volume was detached from which node.
	noteDetached = regexp.MustCompile(`^volume detached because it is marked as failing: volume (\S+) from node (\S+): (\w+): (.*)$`)
	// noteMoved says which volume has come from which node to which other one.
	noteMoved = regexp.MustCompile(`^volume (\S+) failed over from node (\S+) to node (\S+?)(?: ([0-9.]+) s after the first sign of the loss)?, and is attached there: (\w+): (.*)$`)
)

// History is what Events and marks tell of fail-overs, as -o json and -o yaml print it.
type History struct {
	// Message sums up.
	Message string `json:"message"`
	// Failovers has the last fail-over of each volume that Events or a mark tell of, the newest first.
	Failovers []Failover `json:"failovers"`
	// Waiting are the pods that the controller last said of that they are not moved.
	Waiting []Waiting `json:"waiting"`
}

// Failover is one volume's way from a lost node to another one.
type Failover struct {
	// Volume and Resource are the PersistentVolume and LINSTOR's resource definition, Namespace and Claim what claims it.
	Volume    string `json:"volume"`
	Resource  string `json:"resource,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Claim     string `json:"claim,omitempty"`
	// From is the node that lost it, empty where that is not known, and To the one that has it now.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Reason and Message are why, as the controller has said.
	Reason  failover.Reason `json:"reason,omitempty"`
	Message string          `json:"message,omitempty"`
	// Steps are what was done, the oldest first.
	Steps []Step `json:"steps"`
	// Open is what is not done yet.
	Open []string `json:"open,omitempty"`
}

// Step is one thing that was done, and when.
type Step struct {
	Time time.Time `json:"time"`
	What string    `json:"what"`
}

// Waiting is a pod that the controller does not move.
type Waiting struct {
	Time      time.Time `json:"time"`
	Namespace string    `json:"namespace"`
	Pod       string    `json:"pod"`
	Reason    string    `json:"reason"`
	Message   string    `json:"message"`
}

// Status is 1 where something is open, else 0.
func (h History) Status() Status {
	if len(h.Waiting) > 0 || slices.ContainsFunc(h.Failovers, func(f Failover) bool { return len(f.Open) > 0 }) {
		return StatusUnprotected
	}
	return StatusProtected
}

// records are what a history is told by.
type records struct {
	driver, namespace string
	events            []eventsv1.Event // of the controller
	volumes           []corev1.PersistentVolume
	attachments       []storagev1.VolumeAttachment
	pods              []corev1.Pod
	nodes             []corev1.Node
}

// tell makes a history of what was read. It asks nobody.
func tell(r records) History {
	h := History{Failovers: []Failover{}, Waiting: r.waiting()}
	for i := range r.volumes {
		pv := &r.volumes[i]
		if pv.Spec.CSI == nil || pv.Spec.CSI.Driver != r.driver {
			continue
		}
		if ref := pv.Spec.ClaimRef; r.namespace != "" && (ref == nil || ref.Namespace != r.namespace) {
			continue
		}
		if f, ok := r.failoverOf(pv); ok {
			h.Failovers = append(h.Failovers, f)
		}
	}
	slices.SortStableFunc(h.Failovers, func(a, b Failover) int { return b.Steps[0].Time.Compare(a.Steps[0].Time) })
	open := 0
	for _, f := range h.Failovers {
		if len(f.Open) > 0 {
			open++
		}
	}
	switch {
	case len(h.Failovers) == 0 && len(h.Waiting) == 0:
		h.Message = "no Event or mark tells of a fail-over; the API server forgets Events after an hour, unless it is told otherwise"
	case len(h.Failovers) == 0:
		h.Message = "no fail-over"
	case open == 0:
		h.Message = count(len(h.Failovers), "fail-over") + ", nothing is open"
	default:
		h.Message = fmt.Sprintf("%s, something is open of %d", count(len(h.Failovers), "fail-over"), open)
	}
	if n := len(h.Waiting); n > 0 {
		h.Message += "; " + pods(n) + " not moved"
	}
	return h
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// failoverOf returns the last fail-over of a volume; ok is false where nothing tells of one.
func (r records) failoverOf(pv *corev1.PersistentVolume) (f Failover, ok bool) {
	f = Failover{Volume: pv.Name, Resource: pv.Spec.CSI.VolumeHandle}
	if ref := pv.Spec.ClaimRef; ref != nil {
		f.Namespace, f.Claim = ref.Namespace, ref.Name
	}
	said := r.saidOf(pv)
	mark := r.markOf(pv.Name)
	if len(said.removed) == 0 && said.detached == nil && said.moved == nil && mark == nil {
		return f, false
	}
	if mark != nil {
		f.From, f.Reason = mark.node, mark.Reason
		f.Steps = append(f.Steps, Step{mark.Time.UTC(), "the attachment to " + mark.node + " is marked"})
	}
	for _, e := range said.removed {
		note := noteDeleted.FindStringSubmatch(e.Note)
		f.explain(note[3], note[4], note[5])
		f.Steps = append(f.Steps, Step{at(e), "pod " + e.Regarding.Namespace + "/" + e.Regarding.Name + " is deleted " + note[1]})
		f.Open = append(f.Open, r.leftOf(e.Regarding.UID)...)
	}
	if e := said.detached; e != nil {
		note := noteDetached.FindStringSubmatch(e.Note)
		f.explain(note[2], note[3], note[4])
		f.Steps = append(f.Steps, Step{at(e), "the volume is detached from " + note[2]})
	}
	if e := said.moved; e != nil {
		note := noteMoved.FindStringSubmatch(e.Note)
		f.explain(note[2], note[5], note[6])
		text := "the volume is attached to " + note[3]
		if note[4] != "" {
			text += ", " + note[4] + " s after the first sign of the loss"
		}
		f.Steps = append(f.Steps, Step{at(e), text})
	}
	r.arrival(pv, &f)
	slices.SortStableFunc(f.Steps, func(a, b Step) int { return a.Time.Compare(b.Time) })
	return f, true
}

// explain takes the node, the reason and its words from an Event, where nothing earlier has told them.
func (f *Failover) explain(node, reason, message string) {
	f.From, f.Reason, f.Message = cmp.Or(f.From, node), cmp.Or(f.Reason, failover.Reason(reason)), cmp.Or(f.Message, message)
}

// said are the Events of the last fail-over of a volume.
type said struct {
	removed         []*eventsv1.Event
	detached, moved *eventsv1.Event
}

// saidOf returns them. The next fail-over of a volume begins when a pod is deleted after the volume was detached or had moved.
func (r records) saidOf(pv *corev1.PersistentVolume) (s said) {
	for i := range r.events { // the oldest first
		e := &r.events[i]
		switch {
		case e.Reason == eventForceDeleted && deletedFor(e, pv.Name):
			if s.isOver(at(e)) {
				s = said{}
			}
			s.removed = append(s.removed, e)
		case e.Reason == eventForceDetached && isOf(noteDetached, e, pv.Name):
			s.detached = e
		case e.Reason == eventFailedOver && isOf(noteMoved, e, pv.Name):
			s.moved = e
		}
	}
	return s
}

// isOver tells whether the fail-over had come to the detach before a moment.
func (s said) isOver(then time.Time) bool {
	return s.detached != nil && then.After(at(s.detached)) || s.moved != nil && then.After(at(s.moved))
}

// deletedFor tells whether a pod was deleted for a volume. Of many volumes the note has the first ones, and what is related is the first.
func deletedFor(e *eventsv1.Event, volume string) bool {
	note := noteDeleted.FindStringSubmatch(e.Note)
	if len(note) == 0 {
		return false
	}
	return e.Related != nil && e.Related.Name == volume || slices.Contains(strings.Split(note[2], ", "), volume)
}

// isOf tells whether the note of an Event, of which the first part is a volume, is about that one.
func isOf(note *regexp.Regexp, e *eventsv1.Event, volume string) bool {
	parts := note.FindStringSubmatch(e.Note)
	return len(parts) > 1 && parts[1] == volume
}

// arrival tells where the volume is now, and what keeps it from being where it is wanted.
func (r records) arrival(pv *corev1.PersistentVolume, f *Failover) {
	for i := range r.attachments {
		if va := &r.attachments[i]; r.isOf(va, pv.Name) {
			r.attachment(va, f)
		}
	}
	r.users(f)
	tainted := func(t corev1.Taint) bool { return t.Key == cluster.TaintLostQuorum }
	for i := range r.nodes {
		if node := &r.nodes[i]; node.Name == f.From && slices.ContainsFunc(node.Spec.Taints, tainted) {
			f.Open = append(f.Open, "new pods are kept away from "+node.Name+" by the taint "+cluster.TaintLostQuorum)
		}
	}
}

// isOf tells whether an attachment is of a volume of the driver.
func (r records) isOf(va *storagev1.VolumeAttachment, volume string) bool {
	name := va.Spec.Source.PersistentVolumeName
	return va.Spec.Attacher == r.driver && name != nil && *name == volume
}

// attachment tells whether the volume is still on the node that lost it, or where it is instead.
func (r records) attachment(va *storagev1.VolumeAttachment, f *Failover) {
	node := va.Spec.NodeName
	old := va.Annotations[cluster.AnnotationFailOver] != "" || node == f.From && va.CreationTimestamp.Time.Before(f.Steps[0].Time)
	switch {
	case old && va.DeletionTimestamp != nil:
		f.Open = append(f.Open, "the attachment to "+node+" is deleted and has not ended"+detachError(va))
	case old:
		f.Open = append(f.Open, "the volume is not detached from "+node+" yet"+detachError(va))
	case va.Status.Attached:
		f.To = node
	default:
		f.Open = append(f.Open, "the volume is not attached to "+node+" yet")
	}
}

// users tells of the pods that want the volume now.
func (r records) users(f *Failover) {
	wanted := false
	for i := range r.pods {
		pod := &r.pods[i]
		if cluster.Ended(pod) || pod.DeletionTimestamp != nil || !slices.Contains(cluster.ClaimsOf(pod), f.Namespace+"/"+f.Claim) {
			continue
		}
		wanted = true
		if pod.Status.Phase != corev1.PodRunning {
			f.Open = append(f.Open, fmt.Sprintf("pod %s/%s on %s is %s", pod.Namespace, pod.Name, cmp.Or(pod.Spec.NodeName, "no node yet"), pod.Status.Phase))
		}
	}
	if f.To == "" && !wanted {
		f.Open = append(f.Open, "no pod asks for the volume now")
	}
}

// leftOf tells of a removed pod that is still there.
func (r records) leftOf(uid types.UID) []string {
	for i := range r.pods {
		pod := &r.pods[i]
		if pod.UID != uid || cluster.Ended(pod) && len(pod.Finalizers) == 0 {
			continue
		}
		text := fmt.Sprintf("pod %s/%s is still there on %s", pod.Namespace, pod.Name, pod.Spec.NodeName)
		if len(pod.Finalizers) > 0 {
			text += ", held by finalizers: " + strings.Join(pod.Finalizers, ", ")
		}
		return []string{text}
	}
	return nil
}

// beginning is the mark of a fail-over on an attachment.
type beginning struct {
	Reason failover.Reason `json:"reason"`
	Time   time.Time       `json:"time"`
	node   string
}

// markOf returns the mark on an attachment of the volume; nil where there is none, or it is not one that this release writes.
func (r records) markOf(volume string) *beginning {
	for i := range r.attachments {
		va := &r.attachments[i]
		text := va.Annotations[cluster.AnnotationFailOver]
		if text == "" || !r.isOf(va, volume) {
			continue
		}
		mark := beginning{node: va.Spec.NodeName}
		if json.Unmarshal([]byte(text), &mark) != nil || mark.Time.IsZero() {
			mark.Time = va.CreationTimestamp.Time // of another release, or of somebody else
		}
		return &mark
	}
	return nil
}

// detachError returns why the CSI driver could not detach a volume, after a colon; empty if it reports no error.
func detachError(va *storagev1.VolumeAttachment) string {
	if va.Status.DetachError == nil {
		return ""
	}
	return ": " + va.Status.DetachError.Message
}

// waiting returns what was last said of the pods that are still there.
func (r records) waiting() []Waiting {
	there := map[types.UID]bool{}
	for i := range r.pods {
		there[r.pods[i].UID] = r.pods[i].DeletionTimestamp == nil
	}
	last := map[types.UID]Waiting{}
	for i := range r.events {
		e := &r.events[i]
		if e.Action == actionFailOver && e.Regarding.Kind == "Pod" && there[e.Regarding.UID] && (r.namespace == "" || r.namespace == e.Regarding.Namespace) {
			last[e.Regarding.UID] = Waiting{at(e), e.Regarding.Namespace, e.Regarding.Name, e.Reason, e.Note}
		}
	}
	all := slices.Collect(maps.Values(last))
	slices.SortFunc(all, func(a, b Waiting) int {
		return cmp.Or(b.Time.Compare(a.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod))
	})
	if all == nil {
		return []Waiting{}
	}
	return all
}

// at returns when an Event was last reported.
func at(e *eventsv1.Event) time.Time {
	if e.Series != nil {
		return e.Series.LastObservedTime.UTC()
	}
	return e.EventTime.UTC()
}
