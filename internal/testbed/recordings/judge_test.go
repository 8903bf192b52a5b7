package recordings_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/piraeusdatastore/piraeus-ha-controller/controllers"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/recordings"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

const (
	// age is how old pod, attachment and volume are when the recording begins.
	age = 10 * time.Minute
	// moment is how far the moments are apart at which a decision is judged.
	moment = recordings.Seconds(100 * time.Millisecond)
)

// settings are those of a command line without options.
var settings = failover.Settings{
	ConfirmedGrace: 5 * time.Second, KnownGrace: 45 * time.Second, NewGrace: 45 * time.Second,
	KubeletSilence: 20 * time.Second, DeletionGrace: 10 * time.Second,
}

// failure is a time in which the decision was not what a transcript demands.
type failure struct {
	demand recordings.Demand
	// from and to are its first and its last moment.
	from, to recordings.Seconds
	// got is what was decided instead.
	got failover.Decision
}

func (f failure) String() string {
	return fmt.Sprintf("%v to %v: %s %s (%s; A is %s), must be %s: %s", f.from, f.to,
		f.got.Verdict, f.got.Reason, f.got.Message, f.got.State, f.demand, f.demand.Why)
}

// judgement is what came of playing a transcript.
type judgement struct {
	failures []failure
	// judged is how many decisions were compared.
	judged int
	// decisions is one line for each change of the decision.
	decisions []string
	// asked is how often LINSTOR was asked for each path.
	asked map[string]int
}

// judge plays a transcript to the product and compares what it decides, ten times a second, with what the transcript demands.
// The feed, the store, the clocks, what they gather and the policy are the product's own; Kubernetes is a model. Nothing acts on a
// decision. The kubelet of a node that dies has renewed its Lease last so long before the fault. It must be called in a bubble.
func judge(t *testing.T, transcript *recordings.Transcript, lastRenewal time.Duration) judgement {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer cancel()

	of := transcript.Must[0].Of
	kube := newKubernetes(ctx, t, transcript, of)
	<-time.After(age) // virtual time
	player := recordings.Play(t, transcript)
	product := startProduct(ctx, t, &tasks, player, kube)
	dying := ""
	if losesKubelet(transcript) {
		dying = of
	}
	tasks.Go(func() { kube.keepRenewing(ctx, transcript.Nodes, dying, player.At(0), lastRenewal) })

	var j judgement
	for _, at := range moments(transcript.Must) {
		<-time.After(time.Until(player.At(at)))
		j.compare(transcript.Must, at, product.decide(ctx, t))
	}
	j.asked = player.Asked()
	return j
}

// compare takes down what was decided at a moment, and what of the demands that does not meet.
func (j *judgement) compare(must []recordings.Demand, at recordings.Seconds, decision failover.Decision) {
	said := fmt.Sprintf("%s %s (%s)", decision.Verdict, decision.Reason, decision.State)
	if last := len(j.decisions) - 1; last < 0 || !strings.HasSuffix(j.decisions[last], ": "+said) {
		j.decisions = append(j.decisions, fmt.Sprintf("%v: %s", at, said))
	}
	for _, demand := range must {
		if at < demand.From || at > demand.To {
			continue
		}
		j.judged++
		if !demand.Allows(decision) {
			j.add(failure{demand: demand, from: at, to: at, got: decision})
		}
	}
}

// add takes a failure down, together with an earlier one of the same kind.
func (j *judgement) add(f failure) {
	for i := range j.failures {
		known := &j.failures[i]
		same := known.demand == f.demand && known.got.Verdict == f.got.Verdict && known.got.Reason == f.got.Reason
		if same && f.from-known.to <= moment {
			known.to = f.to
			return
		}
	}
	j.failures = append(j.failures, f)
}

// moments returns the times, in order, at which something is demanded.
func moments(must []recordings.Demand) []recordings.Seconds {
	var all []recordings.Seconds
	for _, demand := range must {
		for at := demand.From; at <= demand.To; at += moment {
			all = append(all, at)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// product is as much of a replica of the Deployment as decides.
type product struct {
	survey *cluster.Survey
}

// memory is what the controllers know of LINSTOR.
type memory struct {
	*linstor.Store
	*linstor.Feed
}

// startProduct runs feed and clocks until the context ends.
func startProduct(ctx context.Context, t *testing.T, tasks *sync.WaitGroup, player *recordings.Player, kube *kubernetes) product {
	t.Helper()
	environment := func(key string) (string, bool) { return "http://linstor:3370", key == "LS_CONTROLLERS" }
	access, err := linstor.ConfigFromEnv(environment)
	if err != nil {
		t.Fatal(err)
	}
	linstorClient, err := linstor.NewClient(access, nil, linstor.ClientOptions{DialContext: player.DialContext})
	if err != nil {
		t.Fatal(err)
	}
	store := linstor.NewStore()
	feed := linstor.NewFeed(linstorClient, store, logr.Discard(), linstor.Options{})
	config := controllers.Config{
		Driver: driver, Selector: selected.AsSelector(), Settings: settings, Linstor: memory{store, feed}, Metrics: metrics.New(),
		Owner: "recording", ReconcileInterval: 10 * time.Second, OperationsTimeout: 30 * time.Second, Concurrency: 1,
		MaxLostNodes: failover.Limit{Percent: true, Value: 50},
	}
	config.Recorder = &events.FakeRecorder{}
	mgr := virtual.NewManager(ctx, kube.client, kube.view, logr.Discard())
	if _, err := controllers.SetUp(ctx, mgr, config); err != nil {
		t.Fatal(err)
	}
	kubelets := cluster.NewKubelets(clock.RealClock{}, driver, nil)
	if err := kubelets.Follow(ctx, mgr.GetCache()); err != nil {
		t.Fatal(err)
	}
	tasks.Go(func() { _ = feed.Start(ctx) })
	mgr.Begin(ctx)
	tasks.Go(mgr.Wait)
	return product{survey: cluster.NewSurvey(cluster.Config{
		Cache: kube.view, Driver: driver, Selector: config.Selector, Settings: settings, Linstor: config.Linstor, Kubelets: kubelets,
	})}
}

// decide takes the decision about the volume now.
func (p product) decide(ctx context.Context, t *testing.T) failover.Decision {
	t.Helper()
	uses, _, err := p.survey.Uses(ctx, namespace)
	if err != nil {
		t.Fatal(err)
	}
	if len(uses) != 1 {
		t.Fatalf("the pod uses %d volumes, want 1", len(uses))
	}
	return failover.Decide(uses[0].Input)
}
