package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/permissions"
)

// sources is where the facts come from.
type sources struct {
	// api asks the API server.
	api client.Client
	// own tells whether api acts as the controller's own account.
	own bool
	// open returns a reader of everything that a survey reads, with the indexes for a driver, and lets kubelets know
	// the nodes and Leases.
	open func(ctx context.Context, driver string, kubelets *cluster.Kubelets) (client.Reader, error)
	// linstor asks LINSTOR; nil where linstorError says why it cannot.
	linstor      *linstor.Client
	linstorError error
}

// view is LINSTOR as the survey sees it.
type view struct {
	*linstor.Store
	*linstor.Feed
}

// parallelReads is how many resources are read from LINSTOR at a time.
const parallelReads = 8

// gather collects the facts. What cannot be read is a fact, too; an error is a fault of the command line.
func (s sources) gather(ctx context.Context, c commandLine) (Facts, error) {
	d, err := readDeployment(ctx, s.api, c.controller, c.overrides)
	if err != nil {
		return Facts{}, err
	}
	readable, err := s.hasNamespace(ctx, c.namespace)
	if err != nil {
		return Facts{}, err
	}
	facts := Facts{
		Namespace: c.namespace, Selector: d.options.PodLabelSelector, Driver: d.options.AttacherName, Controller: d.Controller,
		Outside: !s.own,
	}
	account := d.account
	if s.own {
		account = ""
	}
	if facts.Denied, err = permissions.Denied(ctx, s.api, account, permissions.Required(c.controller.Namespace, d.options)); err != nil {
		facts.PermissionsError = err.Error()
	}
	if c.node != "" {
		facts.Node = &Node{Name: c.node, Satellite: strings.ToLower(c.node)}
	}
	if err := s.readCluster(ctx, d, readable, &facts); err != nil {
		facts.KubernetesError = err.Error()
	}
	return facts, nil
}

// hasNamespace returns an error where there is no namespace of that name, and whether that could be read. The controller's own account may
// not.
func (s sources) hasNamespace(ctx context.Context, name string) (readable bool, err error) {
	if name == "" {
		return true, nil
	}
	err = s.api.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{})
	if apierrors.IsNotFound(err) {
		return true, fmt.Errorf("there is no namespace %q", name)
	}
	return err == nil, nil
}

// isDeserted tells whether no pod is in a namespace.
func isDeserted(ctx context.Context, reader client.Reader, namespace string) (bool, error) {
	var pods corev1.PodList
	if err := reader.List(ctx, &pods, client.InNamespace(namespace), client.Limit(1)); err != nil {
		return false, fmt.Errorf("listing pods: %w", err)
	}
	return len(pods.Items) == 0, nil
}

// readCluster looks at the volumes of the selected pods, in Kubernetes and in LINSTOR. namespaces tells whether it is known that theirs
// exists. The error is that of Kubernetes.
func (s sources) readCluster(ctx context.Context, d deployment, namespaces bool, facts *Facts) error {
	kubelets := cluster.NewKubelets(clock.RealClock{}, d.options.AttacherName, d.options.ShutdownTaints)
	reader, err := s.open(ctx, d.options.AttacherName, kubelets)
	if err != nil {
		return err
	}
	if err := readSurroundings(ctx, reader, namespaces, facts); err != nil {
		return err
	}
	memory := linstor.NewStore()
	feed := linstor.NewFeed(cmp.Or(s.linstor, &linstor.Client{}), memory, logr.Discard(), linstor.Options{}) // asked only where there is one
	cfg := cluster.Config{
		Cache: reader, Driver: d.options.AttacherName, Selector: d.options.PodSelector, Settings: d.options.Settings(), Linstor: view{memory, feed}, Kubelets: kubelets, Live: reader,
	}
	survey := cluster.NewSurvey(cfg)
	uses, err := usesToRead(ctx, survey, facts)
	if err != nil {
		return err
	}
	if err := s.readLinstor(ctx, feed, resources(uses), facts); err != nil {
		facts.LinstorError = err.Error()
	} else {
		facts.Blind = blindFor(ctx, feed, memory)
	}
	if err := recall(ctx, reader, memory, uses); err != nil {
		return err
	}
	memory.Assume()
	if facts.LinstorError == "" {
		// Who cannot be told is not waited for: LINSTOR has just answered.
		facts.Attaching.Unanswering, _ = feed.Unanswering(ctx)
	}
	// Now the same with what LINSTOR says.
	if facts.Uses, facts.Idle, err = survey.Uses(ctx, facts.Namespace); err != nil {
		return err
	}
	facts.Bystanders, err = bystanders(ctx, reader, facts.Namespace, facts.Driver, d.options.PodSelector, memory.Nodes())
	if err != nil {
		return err
	}
	unanswering := facts.Attaching.Unanswering
	if facts.Attaching, err = attaching(ctx, s.api, facts.Uses, memory.Nodes(), kubelets.Registered()); err != nil {
		return err
	}
	facts.Attaching.Unanswering = unanswering
	if facts.Evacuations, err = s.evacuations(ctx, cfg, feed, memory, facts.LinstorError == ""); err != nil {
		return err
	}
	if err := s.readNode(ctx, reader, d, kubelets, memory, facts); err != nil {
		return err
	}
	if facts.Strangers, err = strangersOn(ctx, survey, facts); err != nil {
		return err
	}
	if err := errors.Join(ageLeases(ctx, reader, facts.Uses), ageLeases(ctx, reader, facts.Strangers)); err != nil {
		return err
	}
	if facts.LeadingSince, err = s.leadingSince(ctx, reader, d, facts.Controller.Name); err != nil {
		return err
	}
	unlearn(facts.Uses, facts.LeadingSince)
	unlearn(facts.Strangers, facts.LeadingSince)
	return holdBack(ctx, reader, memory, d, facts)
}

// holdBack finds out what holds back every removal, and puts it into the inputs.
func holdBack(ctx context.Context, reader client.Reader, memory *linstor.Store, d deployment, facts *Facts) error {
	guard, err := guardOf(ctx, reader, memory, facts.Uses, d.options.MaxLostNodes)
	if err != nil {
		return err
	}
	halt := failover.Halt{Paused: d.paused, DryRun: d.options.DryRun}
	if len(facts.RunningAgents) > 0 {
		halt.Agents = cluster.AgentsRun(facts.RunningAgents)
	}
	hold(facts.Uses, halt, guard)
	hold(facts.Strangers, halt, guard)
	return nil
}

// hold puts into the inputs what holds back every removal.
func hold(uses []cluster.Use, halt failover.Halt, guard func(node string) string) {
	for i := range uses {
		in := &uses[i].Input
		in.Halt = halt
		in.Halt.Guard = guard(in.Node.Satellite)
	}
}

// readSurroundings reads what bears on all volumes, whichever they are.
func readSurroundings(ctx context.Context, reader client.Reader, namespaces bool, facts *Facts) (err error) {
	if !namespaces {
		if facts.Deserted, err = isDeserted(ctx, reader, facts.Namespace); err != nil {
			return err
		}
	}
	if facts.Agents, facts.RunningAgents, err = agents(ctx, reader); err != nil {
		return err
	}
	facts.ForeignTaints, err = foreignTaints(ctx, reader)
	return err
}

// readLinstor reads the DRBD options, then the state of the resources.
func (s sources) readLinstor(ctx context.Context, feed *linstor.Feed, names []string, facts *Facts) error {
	if s.linstorError != nil {
		return s.linstorError
	}
	var err error
	if facts.Settings, err = s.linstor.Settings(ctx, names, optionKeys()); err != nil {
		return err
	}
	if facts.ControllerQuorum, err = s.linstor.QuorumOfController(ctx); err != nil {
		return err
	}
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.SetLimit(parallelReads)
	for _, name := range names {
		tasks.Go(func() error {
			if _, err := feed.Refresh(ctx, name, 0); err != nil && !errors.Is(err, linstor.ErrNotFound) {
				return err
			}
			return nil
		})
	}
	return tasks.Wait()
}

// ageLeases takes the kubelets' silence from the times in their Leases. To remove a pod the controller trusts only what it
// saw change itself; who has just come and removes nothing may trust the clocks of other machines.
func ageLeases(ctx context.Context, reader client.Reader, uses []cluster.Use) error {
	for i := range uses {
		node := &uses[i].Input.Node
		if node.Name == "" {
			continue
		}
		var lease coordinationv1.Lease
		err := reader.Get(ctx, client.ObjectKey{Namespace: cluster.LeaseNamespace, Name: node.Name}, &lease)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading the Lease of node %s: %w", node.Name, err)
		}
		if err == nil && lease.Spec.RenewTime != nil {
			node.LeaseKnown, node.LeaseGap = true, cluster.RenewalGap(&lease)
			node.LeaseSilence = max(node.LeaseSilence, uses[i].Input.Now.Sub(lease.Spec.RenewTime.Time))
		}
	}
	return nil
}

// resources returns the names of all LINSTOR resources that the uses rest on, sorted.
func resources(uses []cluster.Use) []string {
	names := map[string]bool{}
	for _, use := range uses {
		if use.Volume == "" {
			continue
		}
		names[use.Input.Resource.Name] = true
		for _, pod := range use.Input.Pods {
			for _, other := range pod.Others {
				names[other.Resource.Name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// agents returns the DaemonSets whose pods are node agents of the high availability controller, and those of which one runs. Reading pods
// suffices for that, which the controller may anyway.
func agents(ctx context.Context, reader client.Reader) (all, running []string, err error) {
	var pods corev1.PodList
	if err := reader.List(ctx, &pods); err != nil {
		return nil, nil, fmt.Errorf("listing pods: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !cluster.IsNodeAgent(pod) {
			continue
		}
		name := pod.Namespace + "/" + metav1.GetControllerOf(pod).Name
		all = appendNew(all, name)
		if cluster.Runs(pod) {
			running = appendNew(running, name)
		}
	}
	slices.Sort(all)
	slices.Sort(running)
	return all, running, nil
}

// foreignTaints returns the nodes that have the taint of lost storage without the mark that the controller leaves beside it. The
// controller never takes off such a taint.
func foreignTaints(ctx context.Context, reader client.Reader) ([]string, error) {
	var nodes corev1.NodeList
	if err := reader.List(ctx, &nodes); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	var found []string
	for i := range nodes.Items {
		_, ours := nodes.Items[i].Annotations[cluster.AnnotationKeepAway]
		if !ours && slices.ContainsFunc(nodes.Items[i].Spec.Taints, func(t corev1.Taint) bool { return t.Key == cluster.TaintLostQuorum }) {
			found = append(found, nodes.Items[i].Name)
		}
	}
	slices.Sort(found)
	return found, nil
}
