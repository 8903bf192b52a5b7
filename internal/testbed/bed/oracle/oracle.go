// Package oracle judges, from outside, what the high availability controller did to the world of a test bed: from the API
// server's own log of requests and from the truth of the model of DRBD, not from what the controller says.
package oracle

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/csidriver"
)

// sampling is how often DRBD is looked at, and podSampling how often the pods are. podTimeout is how long an API server that
// has just started may take to list them: who gives up early sees none of them.
const (
	sampling    = 20 * time.Millisecond
	podSampling = 250 * time.Millisecond
	podTimeout  = 10 * time.Second
)

// Oracle remembers who could write when, and which pods there were.
type Oracle struct {
	bed   *bed.Bed
	began time.Time
	stop  context.CancelFunc
	wg    sync.WaitGroup

	mu sync.Mutex
	// judged is how many of the requests since the beginning have been judged, in the order of the log. By time some would be
	// missed: each comes into the log after it was answered.
	judged int
	pods   map[types.UID]corev1.Pod
	// writable has, for each replica, the changes of whether a write there could be committed.
	writable map[replica][]change
}

type replica struct{ resource, node string }

type change struct {
	at       time.Time
	canWrite bool
}

// Watch begins to remember. Stop ends it.
func Watch(b *bed.Bed) *Oracle {
	ctx, stop := context.WithCancel(context.Background())
	o := &Oracle{bed: b, began: time.Now(), stop: stop, pods: map[types.UID]corev1.Pod{}, writable: map[replica][]change{}}
	o.wg.Go(func() { every(ctx, sampling, o.lookAtDRBD) })
	o.wg.Go(func() { every(ctx, podSampling, func() { o.lookAtPods(ctx) }) })
	return o
}

// Stop ends it.
func (o *Oracle) Stop() {
	o.stop()
	o.wg.Wait()
}

func every(ctx context.Context, period time.Duration, do func()) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		do()
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (o *Oracle) lookAtDRBD() {
	now := time.Now()
	for _, resource := range o.bed.DRBD.Resources() {
		for _, node := range o.bed.LINSTOR.ReplicaNodes(resource) {
			key, can := replica{resource, node}, o.bed.DRBD.CanWrite(resource, node)
			o.mu.Lock()
			if all := o.writable[key]; len(all) == 0 || all[len(all)-1].canWrite != can {
				o.writable[key] = append(all, change{now, can})
			}
			o.mu.Unlock()
		}
	}
}

// lookAtPods remembers the pods that run on a node. The API may be away; then nothing changes.
func (o *Oracle) lookAtPods(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	var pods corev1.PodList
	if err := o.bed.Client.List(ctx, &pods); err != nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, pod := range pods.Items {
		if pod.Spec.NodeName != "" {
			o.pods[pod.UID] = pod
		}
	}
}

// couldWrite tells whether a write on a node could be committed at a time.
func (o *Oracle) couldWrite(resource, node string, at time.Time) bool {
	could := false
	for _, c := range o.writable[replica{resource, node}] {
		if c.at.After(at) {
			break
		}
		could = c.canWrite
	}
	return could
}

// Wrong describes what the controller should not have done: pods that it removed, or announced to remove, and volumes that
// it detached, although the node could write the storage at that moment, or nobody had selected the pod. A pod that nobody
// has seen on a node counts too. Each request is told of once.
func (o *Oracle) Wrong() ([]string, error) {
	requests, err := o.bed.ControllerRequests(o.began)
	if err != nil {
		return nil, fmt.Errorf("oracle: %w", err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(requests) < o.judged {
		return nil, fmt.Errorf("oracle: the audit log has %d requests, and had %d: it was cut", len(requests), o.judged)
	}
	var wrong []string
	for _, r := range requests[o.judged:] {
		if r.Code >= http.StatusMultipleChoices {
			continue
		}
		for _, objection := range o.objections(r) {
			wrong = append(wrong, fmt.Sprintf("%s: %s %s %s/%s: %s", r.At.Format(time.TimeOnly), r.Verb, r.Resource, r.Namespace, r.Name, objection))
		}
	}
	o.judged = len(requests)
	return wrong, nil
}

// objections says what is wrong with a request that succeeded.
func (o *Oracle) objections(r bed.Request) []string {
	switch r.Verb + " " + r.Resource {
	case "delete pods", "patch pods/status":
		return o.ofPod(r)
	case "delete volumeattachments":
		for key := range o.writable {
			if r.Name == csidriver.AttachmentName(key.resource, key.node) && o.couldWrite(key.resource, key.node, r.At) {
				return []string{fmt.Sprintf("%s could write %s", key.node, key.resource)}
			}
		}
	}
	return nil
}

func (o *Oracle) ofPod(r bed.Request) []string {
	uid := uidOf(r)
	pod, ok := o.pods[uid]
	if !ok {
		return []string{fmt.Sprintf("nobody has seen a pod with UID %q on a node", uid)}
	}
	if strings.HasPrefix(pod.Labels[bed.ComponentLabel], "linstor-") {
		return nil
	}
	var objections []string
	if pod.Labels[bed.SelectedLabel] != bed.SelectedValue {
		objections = append(objections, "it was not selected")
	}
	for _, v := range pod.Spec.Volumes {
		if claim := v.PersistentVolumeClaim; claim != nil && o.couldWrite(claim.ClaimName, pod.Spec.NodeName, r.At) {
			objections = append(objections, fmt.Sprintf("%s could write %s", pod.Spec.NodeName, claim.ClaimName))
		}
	}
	return objections
}

// uidOf returns the UID that a request names, empty if none: each of the controller's must.
func uidOf(r bed.Request) types.UID {
	if r.Verb == "delete" {
		var options metav1.DeleteOptions
		if json.Unmarshal(r.Body, &options) != nil || options.Preconditions == nil || options.Preconditions.UID == nil {
			return ""
		}
		return *options.Preconditions.UID
	}
	var patch metav1.PartialObjectMetadata
	if json.Unmarshal(r.Body, &patch) != nil {
		return ""
	}
	return patch.UID
}
