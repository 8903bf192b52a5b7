package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/forecast"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/safely"
)

// Asked is what a forecast asks of others when somebody asks for it, by clients with limits of their own. Each field may be left out.
type Asked struct {
	// API reads the API server; it defaults to the manager's reader.
	API client.Reader
	// Options reads properties of LINSTOR.
	Options func(ctx context.Context, keys []string) (linstor.DRBDOptions, error)
	// Denied returns the permissions that the controller lacks.
	Denied func(ctx context.Context) ([]string, error)
	// Leader returns the pod that holds the Lease of the election, as "namespace/name".
	Leader func(ctx context.Context) (string, error)
	// Takeover is how long another replica waits for a leader that is gone.
	Takeover time.Duration
}

const (
	// forecastWithin is how long the questions of a forecast may take, and syncedWithin how long it waits for the first reading of the cluster.
	forecastWithin = 20 * time.Second
	syncedWithin   = 500 * time.Millisecond
	// readsAtOnce is how many resources are read at a time that were not read for refreshedWithin.
	readsAtOnce     = 8
	refreshedWithin = 5 * time.Second
	// sightApart is how far apart LINSTOR is asked again if it seems to be blind.
	sightApart = 2 * time.Second
)

// Forecaster says what would become of the selected pods. It decides nothing and changes nothing.
type Forecaster struct {
	shared

	asked      Asked
	reading    cluster.Config
	feed       Feed
	evacuation cluster.Evacuations
	halt       *haltSwitch
	reports    *nodeReports
	leader     *leadership
	started    time.Time
	pod        string // of this process, as "namespace/name"; empty if there is none
	synced     func(context.Context) bool
}

// Forecast answers a question by what this process knows, and by what it is told when it asks now. What cannot be read is a finding.
func (f *Forecaster) Forecast(ctx context.Context, q forecast.Question) forecast.Report {
	ctx, cancel := context.WithTimeout(ctx, forecastWithin)
	defer cancel()
	facts := forecast.Facts{
		Question: q, Selector: f.reading.Selector.String(), Driver: f.reading.Driver, Deployment: f.halt.name(), Process: f.process(),
	}
	evaluation, err := f.evaluate(ctx, &facts)
	if err != nil {
		facts.KubernetesError = err.Error()
		evaluation = forecast.Evaluate(facts)
	}
	return evaluation.Report()
}

func (f *Forecaster) process() forecast.Process {
	leading := f.leader.ctx.Load()
	return forecast.Process{Pod: f.pod, Started: f.started, Leads: leading != nil && (*leading).Err() == nil}
}

// evaluate gathers the facts, then visits one pod after the other. An error is one of reading Kubernetes.
func (f *Forecaster) evaluate(ctx context.Context, facts *forecast.Facts) (*forecast.Evaluation, error) {
	var asking errands
	asking.do(func() error { f.askProcess(ctx, facts); return nil })
	asking.do(func() error { f.askLinstor(ctx, facts); return nil })
	syncing, cancel := context.WithTimeout(ctx, syncedWithin)
	defer cancel()
	if !f.synced(syncing) {
		_ = asking.wait()
		return nil, errors.New("the state of the cluster has not been read yet")
	}
	everyone := &census{Forecaster: f, question: facts.Question, trim: cluster.Trim(nil)}
	asking.do(func() error { return everyone.take(ctx) })
	if err := asking.wait(); err != nil {
		facts.KubernetesError = err.Error() // what the caches have is told all the same
	}
	if facts.LinstorError == "" {
		if err := f.refresh(ctx); err != nil {
			facts.LinstorError = err.Error()
		}
	}
	for _, read := range []func(context.Context, *forecast.Facts, *census) error{f.surroundings, f.evacuations, f.lost, f.unclaimed, f.detaching} {
		if err := read(ctx, facts, everyone); err != nil {
			return nil, err
		}
	}
	evaluation := forecast.Evaluate(*facts)
	return evaluation, f.visit(ctx, facts, everyone, evaluation)
}

// visit takes one pod after the other into the evaluation.
func (f *Forecaster) visit(ctx context.Context, facts *forecast.Facts, everyone *census, evaluation *forecast.Evaluation) error {
	reading := f.reading
	reading.Cache, reading.Neighbours = cluster.WithPods(reading.Cache, everyone.others), &everyone.neighbours
	survey := cluster.NewSurvey(reading)
	halt, guard := f.halt.now(ctx, haltAge), f.halt.imagined(f.clock.Now())
	if len(facts.RunningAgents) > 0 { // this process lists them every five minutes
		halt.Agents = cluster.AgentsRun(facts.RunningAgents)
	}
	hold := func(uses []cluster.Use) {
		for i := range uses {
			in := &uses[i].Input
			if in.Node.Name != "" {
				in.Halt = halt
				in.Halt.Guard = guard(in.Node.Satellite)
			}
			in.Resource = in.Resource.Void(facts.Blind, in.Now)
		}
	}
	err := survey.Each(ctx, facts.Namespace, func(pod *corev1.Pod, uses []cluster.Use) {
		hold(uses)
		evaluation.Add(pod.Namespace, pod.Name, uses)
		for i := range uses {
			if f.reports.interrupted(pod.Spec.NodeName, uses[i].Volume, pod.UID) {
				evaluation.Interrupted(pod.Namespace, pod.Name, uses[i].Volume)
			}
		}
	})
	if err != nil || facts.Lost == nil {
		return err
	}
	strangers, err := survey.Strangers(ctx, facts.Namespace, facts.Lost.Name)
	hold(strangers)
	evaluation.AddStranger(strangers)
	return err
}

// askProcess asks what this process may do, and who leads.
func (f *Forecaster) askProcess(ctx context.Context, facts *forecast.Facts) {
	if f.asked.Denied != nil {
		denied, err := f.asked.Denied(ctx)
		if facts.Denied = denied; err != nil {
			facts.PermissionsError = err.Error()
		}
	}
	if f.asked.Leader != nil {
		facts.Process.Leader, _ = f.asked.Leader(ctx) // if that is unknown, the report names none
	}
}

// askLinstor asks LINSTOR what the process does not follow.
func (f *Forecaster) askLinstor(ctx context.Context, facts *forecast.Facts) {
	err := f.feed.Answers(ctx)
	if err == nil && f.asked.Options != nil {
		facts.Options, err = f.asked.Options(ctx, forecast.OptionKeys())
	}
	if err != nil {
		facts.LinstorError = err.Error()
		return
	}
	// LINSTOR has just answered. What it does not say now, because it waits for a satellite, is not waited for.
	var asking errands
	asking.do(func() error { facts.Blind = f.blindFor(ctx); return nil })
	asking.do(func() error { facts.Attaching.Unanswering, _ = f.feed.Unanswering(ctx); return nil })
	_ = asking.wait()
}

// refresh reads the resources that have a replica on a node that is not ONLINE: no event reports that their other replicas have lost that one.
func (f *Forecaster) refresh(ctx context.Context) error {
	offline := make(map[string]bool)
	for _, node := range f.linstor.Nodes() {
		if node.Satellite && node.Online.Known && !node.Online.Value {
			offline[node.Name] = true
		}
	}
	if len(offline) == 0 {
		return nil
	}
	var volumes corev1.PersistentVolumeList
	if err := f.cache.List(ctx, &volumes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing volumes: %w", err)
	}
	reads, ctx := errgroup.WithContext(ctx)
	reads.SetLimit(readsAtOnce)
	for i := range volumes.Items {
		resource, _ := f.linstor.Resource(f.volumes.Resource(&volumes.Items[i]))
		if slices.ContainsFunc(resource.Replicas, func(r failover.Replica) bool { return offline[r.Node] }) {
			reads.Go(func() error {
				_, err := f.linstor.Refresh(ctx, resource.Name, refreshedWithin)
				return err
			})
		}
	}
	return reads.Wait()
}

// blindFor asks LINSTOR to which nodes it has a connection, and again until it is known to be blind for some, or not to be. It returns these nodes.
func (f *Forecaster) blindFor(ctx context.Context) []string {
	var blindness failover.Blindness
	for {
		asking, cancel := context.WithTimeout(ctx, answersWithin)
		sight, err := f.feed.Sight(asking)
		cancel()
		if err != nil {
			return nil
		}
		blindness.Observe(sight)
		if nodes := blindness.Nodes(); len(nodes) > 0 || !blindness.Suspects() {
			return slices.Sorted(maps.Keys(nodes))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(sightApart):
		}
	}
}

// surroundings reads what bears on all volumes, whichever they are.
func (f *Forecaster) surroundings(ctx context.Context, facts *forecast.Facts, everyone *census) error {
	var nodes corev1.NodeList
	if err := f.cache.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	lost := make(map[string]bool)
	for i := range nodes.Items {
		node := &nodes.Items[i]
		satellite, _ := f.linstor.Node(f.kubelets.Satellite(node.Name))
		lost[node.Name] = cluster.IsNotReady(node) || satellite.Satellite && satellite.Online.Known && !satellite.Online.Value
		if _, ours := node.Annotations[cluster.AnnotationKeepAway]; !ours && cluster.HasTaint(node, cluster.TaintLostQuorum, "") {
			facts.ForeignTaints = append(facts.ForeignTaints, node.Name)
		}
	}
	slices.Sort(facts.ForeignTaints)
	facts.Together, facts.MaxLostNodes = f.together(nodes.Items), f.halt.limit.String()
	facts.Replicas = everyone.siblings[everyone.owner]
	registered := f.kubelets.Registered()
	facts.Attaching.Nodes = slices.DeleteFunc(f.linstor.Nodes(), func(node linstor.Node) bool { return !registered[node.Name] || !node.Satellite })
	facts.Attaching.Drivers = everyone.drivers
	slices.SortFunc(facts.Attaching.Drivers, func(a, b forecast.Driver) int { return strings.Compare(a.Pod, b.Pod) })
	facts.Agents, facts.RunningAgents = slices.Sorted(maps.Keys(everyone.agents)), everyone.runningAgents()
	for _, b := range everyone.bystanders {
		if facts.Node == "" || facts.Node == b.Node {
			b.Lost = lost[b.Node]
			facts.Bystanders = append(facts.Bystanders, b)
		}
	}
	slices.SortFunc(facts.Bystanders, func(a, b forecast.Bystander) int { return strings.Compare(a.Pod, b.Pod) })
	facts.Deserted = facts.Namespace != "" && facts.KubernetesError == "" && everyone.inNamespace == 0
	return nil
}

// together returns the zones whose nodes are more than may be lost at once. One zone that has all nodes has no other to move to.
func (f *Forecaster) together(nodes []corev1.Node) (found []string) {
	zones, all := make(map[string][]string), 0
	for i := range nodes {
		if satellite, _ := f.linstor.Node(f.kubelets.Satellite(nodes[i].Name)); satellite.Satellite {
			all++
			zone := nodes[i].Labels[corev1.LabelTopologyZone]
			zones[zone] = append(zones[zone], nodes[i].Name)
		}
	}
	for zone, names := range zones {
		if zone != "" && len(names) > 1 && len(names) < all && f.halt.limit.Exceeded(len(names), all) {
			slices.Sort(names)
			found = append(found, zone+": "+strings.Join(names, ", "))
		}
	}
	slices.Sort(found)
	return found
}

// detachesWithin is how long an attacher may take to detach before that is worth a finding, and detaching reads how many attachments at most.
const (
	detachesWithin = time.Minute
	mostDetaching  = 50
)

// detaching finds the attachments that Kubernetes has deleted, and that wait for the CSI attacher.
func (f *Forecaster) detaching(ctx context.Context, facts *forecast.Facts, _ *census) error {
	var attachments storagev1.VolumeAttachmentList
	if err := f.cache.List(ctx, &attachments, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing VolumeAttachments: %w", err)
	}
	for i := range attachments.Items {
		va := &attachments.Items[i]
		if va.Spec.Attacher != f.reading.Driver || va.DeletionTimestamp == nil || f.clock.Now().Sub(va.DeletionTimestamp.Time) < detachesWithin ||
			va.Spec.Source.PersistentVolumeName == nil || len(facts.Attaching.Detaching) == mostDetaching {
			continue
		}
		text := fmt.Sprintf("volume %s from node %s", *va.Spec.Source.PersistentVolumeName, va.Spec.NodeName)
		var live storagev1.VolumeAttachment // the cache has no errors
		if err := f.asked.API.Get(ctx, client.ObjectKeyFromObject(va), &live); err != nil {
			continue // it is gone, or its error is unknown
		}
		if live.Status.DetachError != nil {
			text += ": " + oneLine(errors.New(live.Status.DetachError.Message))
		}
		facts.Attaching.Detaching = append(facts.Attaching.Detaching, text)
	}
	slices.Sort(facts.Attaching.Detaching)
	return nil
}

// lost finds out whether there is the node that is asked about, if one is, and what runs on it that every fail-over needs.
func (f *Forecaster) lost(ctx context.Context, facts *forecast.Facts, everyone *census) error {
	if facts.Node == "" {
		return nil
	}
	n := &forecast.Node{Name: facts.Node, Satellite: f.kubelets.Satellite(facts.Node)}
	facts.Lost = n
	all := f.nodeNames(ctx)
	if !slices.Contains(all, n.Name) {
		n.Missing, n.Others = true, all
		slices.Sort(n.Others)
		for _, name := range all {
			if f.kubelets.Satellite(name) == strings.ToLower(n.Name) {
				n.Namesake = name
			}
		}
		return nil
	}
	satellite, _ := f.linstor.Node(n.Satellite)
	n.Unlisted = facts.LinstorError == "" && !satellite.Satellite
	for _, pod := range everyone.onNode {
		switch {
		case pod.name == facts.Process.Leader:
			n.Leader, n.Takeover = pod.name, f.asked.Takeover
		case pod.component == linstorController:
			n.Linstor = pod.name
		}
	}
	facts.ForeignTaints = slices.DeleteFunc(facts.ForeignTaints, func(node string) bool { return node != n.Name })
	return nil
}

func podName(pod types.NamespacedName) string {
	if pod.Name == "" {
		return ""
	}
	return pod.String()
}

// name returns the controller's Deployment as "namespace/name"; empty if it was not read yet.
func (h *haltSwitch) name() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.regarding == nil {
		return ""
	}
	deployment, err := meta.Accessor(h.regarding)
	if err != nil {
		return ""
	}
	return cluster.Key(deployment.GetNamespace(), deployment.GetName())
}

// errands are questions that are asked at the same time. A panic is an error of the one that asks.
type errands struct {
	all  sync.WaitGroup
	mu   sync.Mutex
	errs []error
}

func (e *errands) do(errand func() error) {
	e.all.Go(func() {
		if err := safely.Do(errand); err != nil {
			e.mu.Lock()
			e.errs = append(e.errs, err)
			e.mu.Unlock()
		}
	})
}

// wait waits for all, and returns the first error.
func (e *errands) wait() error {
	e.all.Wait()
	if len(e.errs) == 0 {
		return nil
	}
	return e.errs[0]
}
