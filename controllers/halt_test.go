package controllers

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
)

// Whatever the annotation says but "false" pauses, and so does a Deployment that cannot be read. One that is not there does not.
func TestWhatPauses(t *testing.T) {
	t.Parallel()
	annotated := func(value string) func(*appsv1.Deployment) {
		return func(d *appsv1.Deployment) { d.Annotations = map[string]string{cluster.AnnotationPause: value} }
	}
	for name, tc := range map[string]struct {
		deployment func(*appsv1.Deployment)
		unreadable bool
		want       bool
	}{
		"no annotation":                        {deployment: func(*appsv1.Deployment) {}},
		"an annotation":                        {deployment: annotated("true"), want: true},
		"an annotation without a value":        {deployment: annotated(""), want: true},
		"an annotation that says false":        {deployment: annotated("false")},
		"no Deployment":                        {},
		"a Deployment that cannot be read now": {deployment: func(*appsv1.Deployment) {}, unreadable: true, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := apimodel.New()
			key := client.ObjectKey{Namespace: "ha-controller", Name: "piraeus-ha-controller"}
			if tc.deployment != nil {
				d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
				tc.deployment(d)
				if err := m.Client("test").Create(t.Context(), d); err != nil {
					t.Fatal(err)
				}
			}
			if tc.unreadable {
				m.Fail(func(apimodel.Request) error { return errors.New("no") })
			}
			h := &haltSwitch{shared: shared{api: m.Client("one")}, deployment: key}
			if got := h.paused(t.Context()); (got != "") != tc.want {
				t.Errorf("paused: %q, want %t", got, tc.want)
			}
			h.deployment = client.ObjectKey{}
			if got := h.paused(t.Context()); got != "" {
				t.Errorf("paused although no Deployment pauses: %q", got)
			}
		})
	}
}

// The Deployment that pauses is the one that runs the process, whatever its name: it is found by the owners of the process's pod.
func TestTheDeploymentThatPausesIsTheOwn(t *testing.T) {
	t.Parallel()
	owned := func(kind, name string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, Controller: new(true)}}
	}
	pod := func(kind, owner string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ha", Name: "ours-7f-x", OwnerReferences: owned(kind, owner)}}
	}
	replicaSet := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ha", Name: "ours-7f", OwnerReferences: owned("Deployment", "ours"),
	}}
	paused := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ha", Name: "ours", Annotations: map[string]string{cluster.AnnotationPause: "true"},
	}}
	for name, tc := range map[string]struct {
		objects    []client.Object
		unreadable string
		want       bool
	}{
		"a pod of the Deployment":                      {objects: []client.Object{pod("ReplicaSet", "ours-7f"), replicaSet, paused}, want: true},
		"a pod of another kind of owner":               {objects: []client.Object{pod("StatefulSet", "ours"), paused}},
		"a pod of a ReplicaSet that is gone":           {objects: []client.Object{pod("ReplicaSet", "ours-7f"), paused}},
		"a process outside of the cluster":             {objects: []client.Object{replicaSet, paused}},
		"a pod of a Deployment that is gone":           {objects: []client.Object{pod("ReplicaSet", "ours-7f"), replicaSet}},
		"a pod that cannot be read may be that of one": {objects: []client.Object{pod("ReplicaSet", "ours-7f"), replicaSet}, unreadable: "Pod", want: true},
		"and so may be one whose ReplicaSet cannot be": {objects: []client.Object{pod("ReplicaSet", "ours-7f"), replicaSet}, unreadable: "ReplicaSet", want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := apimodel.New()
			for _, o := range tc.objects {
				if err := m.Client("test").Create(t.Context(), o.DeepCopyObject().(client.Object)); err != nil {
					t.Fatal(err)
				}
			}
			m.Fail(func(r apimodel.Request) error {
				if r.Kind == tc.unreadable {
					return errors.New("no")
				}
				return nil
			})
			h := &haltSwitch{shared: shared{api: m.Client("one")}, pod: client.ObjectKey{Namespace: "ha", Name: "ours-7f-x"}}
			for range 2 {
				if got := h.paused(t.Context()); (got != "") != tc.want {
					t.Errorf("paused: %q, want %t", got, tc.want)
				}
			}
		})
	}
}

// satellites is a LINSTOR with two satellites that are well, and a controller.
type satellites struct{ noLinstor }

func (satellites) Nodes() []linstor.Node {
	online := linstor.Fact[bool]{Value: true, Known: true, Confirmed: start.Time}
	return []linstor.Node{
		{Name: nodeA, Satellite: true, Online: online, LastOnline: start.Time},
		{Name: nodeB, Satellite: true, Online: online, LastOnline: start.Time},
		{Name: "controller", LastOnline: start.Time},
	}
}

func (satellites) Status() linstor.Status { return linstor.Status{SyncedSince: start.Add(-time.Hour)} }

// returning is a LINSTOR that is heard from some time on, and then shows two satellites of which none is ONLINE.
type returning struct {
	noLinstor
	now   *time.Time
	heard time.Time
}

func (r returning) Nodes() []linstor.Node {
	if r.Status().SyncedSince.IsZero() {
		return nil
	}
	offline := linstor.Fact[bool]{Known: true, Confirmed: r.heard}
	return []linstor.Node{{Name: nodeA, Satellite: true, Online: offline}, {Name: nodeB, Satellite: true, Online: offline}}
}

func (r returning) Status() (status linstor.Status) {
	if !r.now.Before(r.heard) {
		status.SyncedSince = r.heard
	}
	return status
}

func TestTheGuardIsAskedAgainOnceLinstorIsHeard(t *testing.T) {
	t.Parallel()
	now := start.Time
	h := &haltSwitch{
		shared: shared{linstor: returning{now: &now, heard: start.Add(haltAge / 10)}, api: deploymentThatIsThere(t), clock: clockAt{&now}, metrics: metrics.New(), recorder: &eventLog{}},
		agents: noAgents, spared: nobody,
		lost: nobody, deployment: haDeployment,
	}
	if halt := h.now(t.Context(), haltAge); halt.Guard != "" {
		t.Fatalf("while LINSTOR shows nothing: %q", halt.Guard)
	}
	now = now.Add(haltAge / 5)
	if halt := h.now(t.Context(), haltAge); halt.Guard == "" {
		t.Error("the guard is open although no satellite is ONLINE")
	}
}

// A node counts as lost when a volume there is, although LINSTOR takes it for ONLINE; what has no volumes does not count. One that may be switched
// off counts as long as it is well.
func TestWhoCountsForTheGuard(t *testing.T) {
	t.Parallel()
	a, b := map[string]bool{nodeA: true}, map[string]bool{nodeB: true}
	for name, tc := range map[string]struct {
		lost, spared map[string]bool
		want         string
	}{
		"nobody is lost":                                            {nil, nil, ""},
		"a node has lost a volume":                                  {a, nil, "1 of 2 nodes"},
		"every node has lost volumes":                               {map[string]bool{nodeA: true, nodeB: true}, nil, "2 of 2 nodes"},
		"a node has lost a volume that may be switched off":         {a, a, ""},
		"a node has lost a volume, and another may be switched off": {a, b, "1 of 2 nodes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &haltSwitch{
				shared: shared{linstor: satellites{}},
				agents: noAgents, limit: failover.Limit{},
				lost: func() map[string]bool { return tc.lost }, spared: func() map[string]bool { return tc.spared },
			}
			got := h.guard(start.Time)
			if (got != "") != (tc.want != "") || !strings.HasPrefix(got, tc.want) {
				t.Errorf("the guard says %q, want %q", got, tc.want)
			}
		})
	}
}

// The API is slow when hundreds of volumes are lost, and each asks whether fail-over is paused: as often as it answers, all
// who wait go on.
func TestASlowAnswerServesAllWhoHaveWaitedForIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := apimodel.New()
		key := client.ObjectKey{Namespace: "ha-controller", Name: "piraeus-ha-controller"}
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		if err := m.Client("test").Create(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		var asked atomic.Int32
		m.Fail(func(r apimodel.Request) error {
			if r.Actor == "one" {
				asked.Add(1)
			}
			return nil
		})
		m.Delay(func(r apimodel.Request) time.Duration {
			if r.Actor == "one" {
				return 2 * haltAge
			}
			return 0
		})
		h := &haltSwitch{
			shared: shared{linstor: satellites{}, api: m.Client("one"), clock: clock.RealClock{}, metrics: metrics.New()},
			agents: noAgents, spared: nobody,
			deployment: key,
			lost:       nobody,
		}
		ask := func(callers int, after time.Duration) (paused int32) {
			var all sync.WaitGroup
			var n atomic.Int32
			for range callers {
				all.Go(func() {
					<-time.After(after)
					if h.now(t.Context(), haltAge).Paused != "" {
						n.Add(1)
					}
				})
			}
			all.Wait()
			return n.Load()
		}
		if paused := ask(100, 0); asked.Load() != 1 || paused != 0 {
			t.Errorf("a hundred at the same time asked %d times, and %d were paused; want once, and none", asked.Load(), paused)
		}
		d.Annotations = map[string]string{cluster.AnnotationPause: "true"}
		if err := m.Client("test").Update(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if paused := ask(100, haltAge); asked.Load() != 2 || paused != 100 {
			t.Errorf("a hundred more asked %d times, and %d were paused; want once, and all", asked.Load()-1, paused)
		}
	})
}

// A bug must not end the process, and what cannot be told holds fail-over.
func TestAPanicHoldsFailOverUntilAnAnswerComes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var panics atomic.Int32
		panics.Store(2)
		h := &haltSwitch{
			shared: shared{linstor: satellites{}, api: apimodel.New().Client("one"), clock: clock.RealClock{}, metrics: metrics.New()},
			agents: noAgents, spared: nobody,
			lost: func() map[string]bool {
				if panics.Add(-1) >= 0 {
					panic("a bug")
				}
				return nil
			},
		}
		for range 2 {
			if halt := h.now(t.Context(), haltAge); halt.Paused == "" {
				t.Error("nothing holds fail-over after a panic")
			}
		}
		if halt := h.now(t.Context(), haltAge); halt.Paused != "" {
			t.Errorf("fail-over is held: %s", halt.Paused)
		}
	})
}

// Whoever has no time left to wait must take it that all is paused. Those who have are not told so.
func TestOnlyWhoHasNoTimeToWaitIsPaused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := apimodel.New()
		key := client.ObjectKey{Namespace: "ha-controller", Name: "piraeus-ha-controller"}
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		if err := m.Client("test").Create(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		m.Delay(func(apimodel.Request) time.Duration { return haltAge / 2 })
		h := &haltSwitch{
			shared: shared{linstor: satellites{}, api: m.Client("one"), clock: clock.RealClock{}, metrics: metrics.New()},
			agents: noAgents, spared: nobody,
			deployment: key, dryRun: true,
			lost: nobody,
		}
		ask := func(after, patience time.Duration, paused bool) func() {
			return func() {
				<-time.After(after)
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				if halt := h.now(ctx, haltAge); (halt.Paused != "") != paused || !halt.DryRun {
					t.Errorf("who asks after %s and waits for %s is told %+v, want paused: %t", after, patience, halt, paused)
				}
			}
		}
		const short, long = haltAge / 10, time.Minute
		var all sync.WaitGroup
		for _, caller := range []func(){
			ask(0, short, true), ask(short/2, long, false), ask(2*short, long, false), ask(3*short, short, true), ask(haltAge, long, false),
		} {
			all.Go(caller)
		}
		all.Wait()
		if halt := h.now(t.Context(), haltAge); halt.Paused != "" {
			t.Errorf("afterwards all are paused: %s", halt.Paused)
		}
	})
}

// The guard looks at the nodes by itself: that it opens is said although nobody wants to act any more, and once.
func TestTheGuardSaysThatItHasOpenedThoughNobodyAsks(t *testing.T) {
	t.Parallel()
	var lost map[string]bool
	said := &eventLog{}
	now := start.Time
	h := &haltSwitch{
		shared: shared{linstor: satellites{}, api: deploymentThatIsThere(t), clock: clockAt{&now}, metrics: metrics.New(), recorder: said},
		agents: noAgents, spared: nobody,
		limit: failover.Limit{},
		lost:  func() map[string]bool { return lost }, deployment: haDeployment,
	}
	pass := func() { now = now.Add(2 * time.Second) }
	want := func(reasons ...string) {
		t.Helper()
		if got := said.reasons("Deployment", haDeployment.Name); !slices.Equal(got, reasons) {
			t.Errorf("events of the Deployment: %v, want %v", got, reasons)
		}
	}
	h.observe(t.Context())
	lost = map[string]bool{nodeA: true}
	pass()
	h.observe(t.Context()) // only who would act says that it must not
	want()
	if halt := h.now(t.Context(), haltAge); halt.Guard == "" {
		t.Error("the guard is open")
	}
	want(EventGuardTripped)
	pass()
	h.observe(t.Context())
	want(EventGuardTripped)
	lost = nil
	for range 2 {
		pass()
		h.observe(t.Context())
		want(EventGuardTripped, EventGuardOpened)
	}
	if anonymous := said.anonymous(); len(anonymous) > 0 {
		t.Errorf("kubectl describe does not show %v", anonymous)
	}
}

// The Deployment cannot be read when the guard closes. Its Event is written once it can be, with the UID that kubectl looks for.
func TestTheGuardIsToldOfOnceTheDeploymentIsKnown(t *testing.T) {
	t.Parallel()
	m := apimodel.New()
	said, now := &eventLog{}, start.Time
	h := &haltSwitch{
		shared: shared{linstor: satellites{}, api: m.Client("one"), clock: clockAt{&now}, metrics: metrics.New(), recorder: said},
		agents: noAgents, spared: nobody,
		limit: failover.Limit{},
		lost:  func() map[string]bool { return map[string]bool{nodeA: true} }, deployment: haDeployment,
	}
	h.now(t.Context(), haltAge)
	if got := said.reasons("Deployment", haDeployment.Name); len(got) > 0 {
		t.Fatalf("told without knowing the UID: %v", got)
	}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: haDeployment.Namespace, Name: haDeployment.Name}}
	if err := m.Client("test").Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		now = now.Add(time.Second)
		h.now(t.Context(), haltAge)
	}
	if got := said.reasons("Deployment", haDeployment.Name); !slices.Equal(got, []string{EventGuardTripped}) || len(said.anonymous()) > 0 {
		t.Errorf("told %v, of which without a UID %v", got, said.anonymous())
	}
}

var haDeployment = client.ObjectKey{Namespace: "ha-controller", Name: "piraeus-ha-controller"}

func deploymentThatIsThere(t *testing.T) client.Reader {
	t.Helper()
	m := apimodel.New()
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: haDeployment.Namespace, Name: haDeployment.Name}}
	if err := m.Client("test").Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	return m.Client("one")
}

// What is not known for a moment is what it was; what one volume has suffered is no sign of its node.
func TestWhichNodesHaveALostVolume(t *testing.T) {
	t.Parallel()
	decision := func(v failover.Verdict, loss failover.Reason, s failover.State) failover.Decision {
		return failover.Decision{Verdict: v, Loss: loss, State: s}
	}
	for name, tc := range map[string]struct {
		then []failover.Decision
		want bool
	}{
		"it is lost":        {nil, true},
		"its grace is over": {[]failover.Decision{decision(failover.Lost, failover.QuorumLost, failover.PrimaryWithoutQuorum)}, true},
		"its node is out of reach, and more is not known": {[]failover.Decision{
			decision(failover.Undecided, "", failover.Unreachable), decision(failover.Undecided, "", failover.Unknown),
		}, true},
		"it is Secondary, for whatever reason": {[]failover.Decision{decision(failover.Undecided, "", failover.Secondary)}, false},
		"it is well":                           {[]failover.Decision{decision(failover.NotLost, "", failover.PrimaryUp)}, false},
		"it was closed under its pod":          {[]failover.Decision{decision(failover.Pending, failover.Demoted, failover.Secondary)}, false},
		"its node is out of LINSTOR's reach, but a peer reaches it": {[]failover.Decision{
			decision(failover.NotLost, "", failover.Unreachable),
		}, false},
	} {
		state := &nodeState{volumes: make(map[string]*volumeState)}
		state.volume("db").decided(decision(failover.Blocked, failover.QuorumLost, failover.PrimaryWithoutQuorum), time.Now())
		state.volume("well").decided(decision(failover.NotLost, "", failover.PrimaryUp), time.Now())
		for _, d := range tc.then {
			state.volume("db").decided(d, time.Now())
		}
		reports := &nodeReports{}
		reports.publish(nodeA, state.report())
		if got := reports.lost()[nodeA]; got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}

// noAgents says that no node agent of 1.x runs.
func noAgents() string { return "" }

// nobody says that no node was taken out on purpose, or has lost a volume.
func nobody() map[string]bool { return nil }
