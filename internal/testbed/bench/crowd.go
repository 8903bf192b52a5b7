package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
)

// crowd is many selected pods on one node, each with a volume that has its other disk on a spare node and
// a tie-breaker on a further one.
type crowd struct {
	*cluster
	name   string
	node   string
	spares []string
	pods   []string
}

// setSize is the number of pods of each StatefulSet of a crowd.
const setSize = 10

// crowdTimeout bounds the start of crowds; with the attacher's stock flags that is five requests a second.
const crowdTimeout = 20 * time.Minute

// volumeOf returns the volume of a crowd's pod: the name of the claim that the StatefulSet looks for.
func volumeOf(pod string) string { return "data-" + pod }

// newCrowds starts a crowd of the given size on each node. Pods may run there and on all spare nodes.
func newCrowds(ctx context.Context, c *cluster, nodes, spares []string, size int) ([]*crowd, error) {
	ctx, cancel := context.WithTimeout(ctx, crowdTimeout)
	defer cancel()
	if err := c.cordon(ctx, true, spares...); err != nil {
		return nil, err
	}
	began := time.Now()
	crowds := make([]*crowd, len(nodes))
	for i, node := range nodes {
		crowds[i] = &crowd{cluster: c, name: "crowd-" + node, node: node, spares: spares}
		if err := crowds[i].deploy(ctx, size); err != nil {
			return nil, err
		}
	}
	for _, w := range crowds {
		if err := w.WaitFor(ctx, fmt.Sprintf("%d pods to run on %s", size, w.node), func() (bool, error) {
			n := 0
			for _, pod := range w.pods {
				if life, ok := w.seen.current(pod); ok && life.node == w.node {
					n++
				}
			}
			if n < size {
				return false, fmt.Errorf("%d run", n)
			}
			return true, nil
		}); err != nil {
			return nil, err
		}
	}
	c.say("%d pods run on each of %d nodes after %.0f s", size, len(nodes), time.Since(began).Seconds())
	return crowds, c.cordon(ctx, false, spares...)
}

// deploy creates the volumes and the StatefulSets.
func (w *crowd) deploy(ctx context.Context, size int) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i := range size {
		pod := fmt.Sprintf("%s-%02d-%d", w.name, i/setSize, i%setSize)
		w.pods = append(w.pods, pod)
		others := []string{w.node, w.spares[i%len(w.spares)], w.spares[(i+1)%len(w.spares)]}
		group.Go(func() error {
			return w.CreateVolume(groupCtx, namespace, bed.Volume{Name: volumeOf(pod), Nodes: others})
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i := 0; i < size; i += setSize {
		set := w.set(fmt.Sprintf("%s-%02d", w.name, i/setSize), min(setSize, size-i))
		if err := w.Client.Create(ctx, set); err != nil {
			return fmt.Errorf("create StatefulSet %s: %w", set.Name, err)
		}
	}
	return nil
}

// set returns a StatefulSet whose pods start and stop in parallel.
func (w *crowd) set(name string, replicas int) *appsv1.StatefulSet {
	labels := map[string]string{"app.kubernetes.io/name": name}
	nodes := append([]string{w.node}, w.spares...)
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas:            new(int32(replicas)),
			ServiceName:         name,
			PodManagementPolicy: appsv1.ParallelPodManagement,
			Selector:            &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
					"app.kubernetes.io/name": name, bed.SelectedLabel: bed.SelectedValue,
				}},
				Spec: corev1.PodSpec{
					Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
						RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
							MatchExpressions: []corev1.NodeSelectorRequirement{{
								Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: nodes,
							}},
						}}},
					}},
					Containers: []corev1.Container{{
						Name: "app", Image: "example.com/app", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
					}},
				},
			},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					StorageClassName: new(""),
					Resources: corev1.VolumeResourceRequirements{
						Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
					},
				},
			}},
		},
	}
}

// massLoss is what was seen of the loss of all nodes of some crowds at once.
type massLoss struct {
	began time.Time
	// firstAction and lastAction are of the controller, or of who did it by hand; lastDelete is when the last
	// deletion of a pod came to the API server.
	firstAction, lastDelete, lastAction time.Time
	// lastRunning is when the last replacement was ready.
	lastRunning time.Time
	// age and oldest are how old looks were in seconds when the controller wrote by them: the median and the greatest.
	age, oldest float64
	// back is how many replacements were placed on a lost node.
	back int
	// restarts names the components of the control plane that ended meanwhile, and were started again.
	restarts string
}

// massTimeout bounds the loss of crowds.
const massTimeout = 15 * time.Minute

// handler does what is to be done about the loss of the nodes of crowds, and returns when it began and ended; nil leaves that to the
// controller.
type handler func(ctx context.Context, crowds []*crowd) (first, last time.Time, err error)

// loseCrowds crashes the nodes of crowds at once and waits until all pods run elsewhere.
func loseCrowds(ctx context.Context, crowds []*crowd, by handler) (massLoss, error) {
	ctx, cancel := context.WithTimeout(ctx, massTimeout)
	defer cancel()
	c := crowds[0].cluster
	var nodes []string
	var lost []podLife
	for _, w := range crowds {
		nodes = append(nodes, w.node)
		for _, pod := range w.pods {
			life, ok := w.seen.current(pod)
			if !ok || life.node != w.node {
				return massLoss{}, fmt.Errorf("pod %s does not run on %s", pod, w.node)
			}
			lost = append(lost, life)
		}
	}
	var ages func() (median, greatest float64, err error)
	if by == nil {
		var err error
		if ages, err = c.writeAges(ctx); err != nil {
			return massLoss{}, err
		}
	}
	m := massLoss{began: time.Now()}
	c.say("crash of %v with %d pods", nodes, len(lost))
	c.Crash(nodes...)
	silent, err := c.silentAt(ctx, nodes)
	if err != nil {
		return m, err
	}
	if by != nil {
		if err := pause(ctx, max(time.Until(m.began.Add(detection+unanimousGrace)), time.Until(silent))); err != nil {
			return m, err
		}
		if m.firstAction, m.lastAction, err = by(ctx, crowds); err != nil {
			return m, err
		}
	}
	var moved []podLife
	if err := c.WaitFor(ctx, fmt.Sprintf("%d pods to run elsewhere", len(lost)), func() (bool, error) {
		moved = moved[:0]
		for _, old := range lost {
			if next, ok := c.seen.replacement(old, m.began); ok {
				moved = append(moved, next)
			}
		}
		if len(moved) < len(lost) {
			return false, fmt.Errorf("%d do", len(moved))
		}
		return true, nil
	}); err != nil {
		return m, err
	}
	m.observe(c, nodes, moved)
	if by == nil {
		// What the controller records at the end follows the last attachment by moments.
		if err := pause(ctx, 2*time.Second); err != nil {
			return m, err
		}
		if err := m.audit(c); err != nil {
			return m, err
		}
		if m.age, m.oldest, err = ages(); err != nil {
			return m, err
		}
	}
	c.say("all run elsewhere %.1f s after the crash; first action after %.1f s, last after %.1f s",
		m.lastRunning.Sub(m.began).Seconds(), m.firstAction.Sub(m.began).Seconds(), m.lastAction.Sub(m.began).Seconds())
	return m, nil
}

// silentAt returns when the Leases of all crashed nodes have been silent for so long that Kubernetes is a witness of their loss.
func (c *cluster) silentAt(ctx context.Context, nodes []string) (time.Time, error) {
	var last time.Time
	for _, node := range nodes {
		renewed, err := c.renewedAt(ctx, node)
		if err != nil {
			return last, err
		}
		if at := renewed.Add(leaseSilence); at.After(last) {
			last = at
		}
	}
	return last, nil
}

// observe takes over what the observer saw.
func (m *massLoss) observe(c *cluster, nodes []string, moved []podLife) {
	for _, pod := range moved {
		if pod.ready.After(m.lastRunning) {
			m.lastRunning = pod.ready
		}
	}
	for _, node := range nodes {
		m.back += c.seen.placedBack(node, m.began, func(string) bool { return true })
	}
}

// writeAge is the metric of how old looks were when they were written by.
const writeAge = "piraeus_ha_controller_write_age_seconds"

// writeAges returns a function that says how old looks were when the controller wrote by them since: the median of all, and the greatest, in
// seconds, each as the upper end of the metric's bucket.
func (c *cluster) writeAges(ctx context.Context) (since func() (median, greatest float64, err error), err error) {
	processes := c.ControllerProcesses()
	scrapeAll := func() ([]metrics, error) {
		all := make([]metrics, len(processes))
		for i, p := range processes {
			if all[i], err = scrape(ctx, p.MetricsURL); err != nil {
				return nil, fmt.Errorf("pod %s: %w", p.Pod, err)
			}
		}
		return all, nil
	}
	before, err := scrapeAll()
	return func() (median, greatest float64, err error) {
		after, err := scrapeAll()
		for i := range after {
			if after[i].value(writeAge, "") > before[i].value(writeAge, "") { // it leads
				median, greatest = after[i].quantile(0.5, before[i], writeAge, ""), after[i].quantile(1, before[i], writeAge, "")
			}
		}
		return median, greatest, err
	}, err
}

// audit takes over what the API server's audit log says of the controller's actions. Taints are not among the
// last: they go with their cause.
func (m *massLoss) audit(c *cluster) error {
	requests, err := c.ControllerRequests(m.began)
	if err != nil {
		return err
	}
	for _, r := range requests {
		if m.firstAction.IsZero() {
			m.firstAction = r.At
		}
		if r.Verb == "delete" && r.Resource == "pods" && r.Received.After(m.lastDelete) {
			m.lastDelete = r.Received
		}
		if r.Resource != "nodes" {
			m.lastAction = r.At
		}
	}
	if m.firstAction.IsZero() || m.lastDelete.IsZero() {
		return fmt.Errorf("crowd on %s: the pods run elsewhere, but the audit log has no deletion by the controller", c.name)
	}
	return nil
}

// healNodes boots nodes that crashed and waits until they can take pods.
func (c *cluster) healNodes(ctx context.Context, nodes ...string) error {
	ctx, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	c.Return(nodes...)
	return c.WaitFor(ctx, fmt.Sprintf("nodes %v to be as before", nodes), func() (bool, error) {
		i := slices.IndexFunc(nodes, func(node string) bool { return c.schedulable(ctx, node) != nil })
		if i < 0 {
			return true, nil
		}
		return false, c.schedulable(ctx, nodes[i])
	})
}
