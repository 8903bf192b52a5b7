package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/apimodel"
)

// aCrowd is one in any case.
func aCrowd(int) bool { return true }

// noneSoon says that no grace is about to pass.
func noneSoon(int, time.Duration, time.Duration) time.Duration { return 0 }

// waited is how long a removal waits for the marks of others.
func waited(t *testing.T, c *crowd) time.Duration {
	t.Helper()
	began := time.Now()
	c.wait(t.Context())
	return time.Since(began)
}

func TestARemovalWaitsUntilNearlyAllOthersAreMarked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(crowdFew, aCrowd, noneSoon)
		var marks, over []func()
		for range 100 {
			removal := c.remove(failover.Input{})
			marks, over = append(marks, func() { removal.to(removing) }), append(over, removal.end)
		}
		for _, marked := range marks[:89] {
			marked()
		}
		if got := waited(t, c); got != crowdPatience {
			t.Errorf("waited %s while eleven are not marked", got)
		}
		marks[89]()
		marks[89]() // the second time has no effect
		if got := waited(t, c); got != crowdQuiet {
			t.Errorf("waited %s for the ten that are slow, want %s", got, crowdQuiet)
		}
		if got := waited(t, c); got != 0 {
			t.Errorf("waited %s although nearly all are marked", got)
		}
		for range 10 { // others begin
			over = append(over, c.remove(failover.Input{}).end)
		}
		if got := waited(t, c); got != crowdPatience {
			t.Errorf("waited %s while twenty of 110 are not marked", got)
		}
		for _, leave := range over {
			leave()
		}
		if c.at != [stages]int{} {
			t.Errorf("left behind: %v", c.at)
		}
	})
}

func TestARemovalWaitsAMomentForThoseThatAreBeingMarked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(crowdFew, aCrowd, noneSoon)
		var removals []*progress
		for range 100 {
			removal := c.remove(failover.Input{})
			removal.to(marking)
			removals = append(removals, removal)
		}
		for _, removal := range removals[:95] {
			removal.to(beforeRemoval)
		}
		if got, want := waited(t, c), crowdQuiet+crowdGatherMax; got != want {
			t.Errorf("waited %s for the last five, want %s", got, want)
		}
		for _, removal := range removals[95:] {
			time.AfterFunc(crowdGatherMax/3, func() { removal.to(beforeRemoval) })
		}
		if got, want := waited(t, c), crowdGatherMax/3; got != want {
			t.Errorf("waited %s, want %s: until they are marked", got, want)
		}
	})
}

func TestReadingAgainEndsAMomentAfterNearlyAllOthersAreFurther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(crowdFew, aCrowd, noneSoon)
		var removals []*progress
		for range 20 {
			removal := c.remove(failover.Input{})
			removal.to(beforeRemoval)
			removals = append(removals, removal)
		}
		began := time.Now()
		ctx, cancel := c.whileOthers(t.Context(), removing)
		defer cancel()
		for i, removal := range removals[:18] {
			time.AfterFunc(time.Duration(i)*crowdGather, func() { removal.to(removing) })
		}
		<-ctx.Done()
		if got, want := time.Since(began), 17*crowdGather+crowdLast; got != want {
			t.Errorf("ended after %s, want %s", got, want)
		}
		if late, cancel := c.whileOthers(t.Context(), removing); late.Err() == nil {
			defer cancel()
			if <-late.Done(); time.Since(began) != 17*crowdGather+2*crowdLast {
				t.Errorf("who comes later reads until %s", time.Since(began))
			}
		}
	})
}

func TestARemovalDoesNotWaitForAFew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(crowdFew, aCrowd, noneSoon)
		for range crowdFew {
			c.remove(failover.Input{}).to(marking)
		}
		c.remove(failover.Input{}).to(tainting) // its grace has not passed yet
		if got := waited(t, c); got != 0 {
			t.Errorf("waited %s for %d others", got, crowdFew-1)
		}
		c.remove(failover.Input{}).to(marking)
		if got := waited(t, c); got != crowdPatience {
			t.Errorf("waited %s for %d others", got, crowdFew)
		}
	})
}

func TestNobodyIsExpectedWhereAllHaveBegun(t *testing.T) {
	t.Parallel()
	for lost, want := range map[int]time.Duration{20: 0, 22: 0, 23: crowdQuiet} {
		synctest.Test(t, func(t *testing.T) {
			c := newCrowd(crowdFew, func(few int) bool { return lost > few }, noneSoon)
			var removals []*progress
			for range 20 {
				removals = append(removals, c.remove(failover.Input{}))
			}
			for _, removal := range removals {
				removal.to(removing)
			}
			if got := waited(t, c); got != want {
				t.Errorf("waited %s where 20 of %d have begun, want %s", got, lost, want)
			}
			if removals[0].end(); waited(t, c) != 0 {
				t.Error("the end of a removal makes others wait")
			}
		})
	}
}

func TestWhatBeginsBeforeAllAreMarkedIsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(0, aCrowd, noneSoon)
		c.remove(failover.Input{}).to(removing)
		<-time.After(crowdQuiet / 2)
		second := c.remove(failover.Input{})
		if got := waited(t, c); got != crowdPatience {
			t.Errorf("waited %s", got)
		}
		second.to(removing)
		if got := waited(t, c); got != crowdQuiet {
			t.Errorf("waited %s, want %s", got, crowdQuiet)
		}
	})
}

func TestADetachWaitsForRemovals(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, tc := range map[string]struct {
		removals int
		removed  time.Time
		want     time.Duration
	}{
		"of many others":                     {17, now.Add(-time.Second), crowdPause},
		"but no longer than it must":         {17, now.Add(-crowdPatience + crowdPause/2), crowdPause / 2},
		"not of a few":                       {16, now.Add(-time.Second), 0},
		"not for long":                       {17, now.Add(-crowdPatience - 1), 0},
		"not where another process was that": {17, time.Time{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCrowd(crowdFew, aCrowd, noneSoon)
			for range tc.removals {
				c.remove(failover.Input{})
			}
			if got := c.afterRemovals(now, tc.removed); got != tc.want {
				t.Errorf("looks again after %s, want %s", got, tc.want)
			}
		})
	}
}

func TestADetachFollowsWhenOnlyAFewRemovalsAreLeft(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		others  int // one is over every 100 ms
		few     bool
		waitsMS int
	}{
		"at once where there are no more":   {15, true, 0},
		"when enough of them are over":      {20, true, 400},
		"but no longer than it would serve": {40, false, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCrowd(crowdFew, aCrowd, noneSoon)
				for i := range tc.others {
					time.AfterFunc(time.Duration(i+1)*100*time.Millisecond, c.remove(failover.Input{}).end)
				}
				began := time.Now()
				few := c.waitForRemovals(t.Context(), time.Second)
				if took := time.Since(began); few != tc.few || took != time.Duration(tc.waitsMS)*time.Millisecond {
					t.Errorf("a few: %t after %s, want %t after %d ms", few, took, tc.few, tc.waitsMS)
				}
			})
		})
	}
}

// The cache may show a pod for seconds after its end.
func TestWhatIsLeftToDoOfAPodThatEnds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		others   int
		after    time.Duration
		change   func(in *failover.Input)
		detaches bool
		want     time.Duration
	}{
		"its end in the cache is waited for":              {after: 300 * time.Millisecond, detaches: true, want: 700 * time.Millisecond},
		"that does not come":                              {after: retryAct, detaches: true},
		"its detach waits for the removal of many others": {others: 17, after: retryAct, detaches: true, want: crowdPause},
		"there is another pod": {
			change: func(in *failover.Input) { in.Pods = append(in.Pods, failover.Pod{UID: "another"}) },
		},
		"there is another one in its place": {change: func(in *failover.Input) { in.Pods[0].UID = "another" }},
		"it is gone":                        {change: func(in *failover.Input) { in.Pods = nil }, detaches: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSteps(t)
				in := failover.Input{Now: time.Now(), Node: failover.Node{Name: nodeA}, Pods: []failover.Pod{{UID: "db-0"}}}
				s.r.reports.podRemoved("db", in, s.d, failover.RemoveForce)
				s.r.reports.podEnds("db", in)
				for range tc.others {
					s.r.crowd.remove(failover.Input{})
				}
				<-time.After(tc.after)
				in.Now = time.Now()
				if tc.change != nil {
					tc.change(&in)
				}
				if detaches, rest := s.r.rest("db", in); detaches != tc.detaches || rest != tc.want {
					t.Errorf("detaches: %t, rests for %s, want %t, %s", detaches, rest, tc.detaches, tc.want)
				}
			})
		})
	}
}

func TestMoreVolumesThanAFewAreACrowd(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		verdicts []failover.Verdict
		want     bool
	}{
		"none":             {nil, false},
		"a few":            {slices.Repeat([]failover.Verdict{failover.Lost}, 16), false},
		"more":             {slices.Repeat([]failover.Verdict{failover.Lost}, 17), true},
		"more before long": {slices.Repeat([]failover.Verdict{failover.Pending}, 17), true},
		"more that stay":   {slices.Repeat([]failover.Verdict{failover.Blocked}, 17), false},
	} {
		r := newReports(metrics.New(), time.Now)
		for i, verdict := range tc.verdicts {
			r.changed(crowdName(i), nodeA, failover.Decision{Verdict: verdict, Reason: failover.NodeUnreachable})
		}
		if got := newCrowd(crowdFew, r.manyLost, noneSoon).many(); got != tc.want {
			t.Errorf("%s: many: %t", name, got)
		}
		if !newCrowd(-1, r.manyLost, noneSoon).many() {
			t.Errorf("%s: not always many", name)
		}
	}
}

func TestATurnIsTakenInTime(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		left, want time.Duration // of the act's time; how long it waits for requests that do not end
	}{
		"what follows wants six seconds":               {30 * time.Second, 24 * time.Second},
		"half of the time where there are not so many": {3 * time.Second, 1500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				underWay := semaphore.NewWeighted(2)
				end := take(t.Context(), underWay, 1)
				ctx, cancel := context.WithTimeout(t.Context(), tc.left)
				defer cancel()
				began := time.Now()
				if take(ctx, underWay, 2) != nil || time.Since(began) != tc.want {
					t.Errorf("waited %s for requests under way, want %s", time.Since(began), tc.want)
				}
				end()
				if end = take(ctx, underWay, 2); end == nil || time.Since(began) != tc.want {
					t.Error("did not take a turn that was free")
				}
			})
		})
	}
}

// silentLinstor is a LINSTOR that can be asked for anything, and knows nothing.
type silentLinstor struct{ noLinstor }

func (silentLinstor) Refresh(context.Context, string) (linstor.Resource, error) {
	return linstor.Resource{}, nil
}

// What was decided on is read again by its name: it counts only as far as it is the same pod, and one that still uses the volume.
func TestPodsThatAreReadAgain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(s *steps)
		want   int
	}{
		"that is as before": {func(*steps) {}, 1},
		"that is gone":      {func(s *steps) { s.must(s.api.Delete(s.ctx, s.pod(), client.GracePeriodSeconds(0))) }, 0},
		"that is another one": {func(s *steps) {
			pod := s.pod()
			s.must(s.api.Delete(s.ctx, pod, client.GracePeriodSeconds(0)))
			pod.ObjectMeta = metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}
			s.must(s.api.Create(s.ctx, pod))
		}, 0},
		"that has ended": {func(s *steps) {
			pod := s.pod()
			pod.Status.Phase = corev1.PodSucceeded
			s.must(s.api.Status().Update(s.ctx, pod))
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSteps(t)
			s.r.linstor = silentLinstor{}
			tc.change(s)
			in, err := s.r.confirmAgain(s.ctx, s.pv, s.in)
			s.must(err)
			if len(in.Pods) != tc.want || in.Attachment == nil {
				t.Errorf("pods %+v, attachment %+v, want %d pods", in.Pods, in.Attachment, tc.want)
			}
		})
	}
}

// The attachment is read past the cache, also where it is read again.
func TestTheAttachmentIsReadAgain(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	s.r.linstor = silentLinstor{}
	s.r.cache.(interface{ Pause() }).Pause()
	s.must(s.api.Delete(s.ctx, s.attachment()))
	if in, err := s.r.confirmAgain(s.ctx, s.pv, s.in); err != nil || in.Attachment != nil {
		t.Errorf("%+v, %v, want no attachment", in.Attachment, err)
	}
}

func TestAWaitForMarksLeavesTheActItsTime(t *testing.T) {
	t.Parallel()
	for left, want := range map[time.Duration]time.Duration{30 * time.Second: crowdPatience, 4 * time.Second: time.Second} {
		synctest.Test(t, func(t *testing.T) {
			c := newCrowd(0, aCrowd, noneSoon)
			c.remove(failover.Input{}).to(marking)
			ctx, cancel := context.WithTimeout(t.Context(), left)
			defer cancel()
			began := time.Now()
			if c.wait(ctx); time.Since(began) != want {
				t.Errorf("waited %s of %s, want %s", time.Since(began), left, want)
			}
		})
	}
}

// ms is a number of milliseconds.
func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func TestOnlyACrowdGathers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		many   bool
		in     failover.Input
		others int             // come 40 ms after each other
		graces []time.Duration // when those begin whose grace passes, of volumes that are as good as lost
		each   int             // how many volumes have each; one more than a few if zero
		want   time.Duration
	}{
		"one of a few does not wait":             {others: 5, graces: []time.Duration{ms(100)}},
		"one of many waits whether others come":  {many: true, want: crowdGather},
		"and for those that do":                  {many: true, others: 2, want: ms(80) + crowdGather},
		"but not for ever":                       {many: true, others: 20, want: crowdGatherMax},
		"one of many waits for graces that pass": {many: true, graces: []time.Duration{ms(120), ms(200)}, want: ms(200) + crowdGather},
		"but not for one that takes longer":      {many: true, graces: []time.Duration{ms(120), ms(301)}, want: ms(120) + crowdGather},
		"nor for a few":                          {many: true, each: crowdFew, graces: []time.Duration{ms(120)}, want: crowdGather},
		"nor for one that cannot come in time":   {many: true, graces: []time.Duration{ms(290)}, want: crowdGather},
		"one that is not removed at once goes by itself": {
			many: true, in: failover.Input{Pods: []failover.Pod{{Finalizers: true}}}, others: 5,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newReports(metrics.New(), time.Now)
				for i, left := range tc.graces {
					for j := range cmp.Or(tc.each, crowdFew+1) {
						r.changed(crowdName(100*i+j), nodeA, failover.Decision{Verdict: failover.Pending, Reason: failover.NodeUnreachable, GraceLeft: left + crowdAhead})
					}
				}
				c := newCrowd(crowdFew, func(int) bool { return tc.many }, r.graceEnds)
				began := time.Now()
				for i := range tc.others {
					go func() {
						<-time.After(time.Duration(i+1) * 40 * time.Millisecond)
						c.gather(t.Context(), failover.Input{})
					}()
				}
				if c.gather(t.Context(), tc.in); time.Since(began) != tc.want {
					t.Errorf("waited %s, want %s", time.Since(began), tc.want)
				}
				<-time.After(2 * time.Second) // until the others have
			})
		})
	}
}

// What a large crowd reads takes longer. What a small one has read shall serve the detaches as well.
func TestALargeCrowdBeginsToReadEarlier(t *testing.T) {
	t.Parallel()
	pending := failover.Decision{Verdict: failover.Pending, GraceLeft: 4 * time.Second, After: time.Minute}
	now := time.Now()
	in := failover.Input{ // it is overdue, and nothing is left on the node
		Now: now, Node: failover.Node{Name: nodeA}, Pods: []failover.Pod{{DeleteBy: now}},
		Resource: failover.Resource{Known: true, Confirmed: now, Left: []string{nodeA}},
	}
	for lost, want := range map[int]time.Duration{
		110: 4*time.Second - crowdAheadSmall, crowdSmall: 4*time.Second - crowdAheadSmall, crowdSmall + 1: 4*time.Second - crowdAhead,
	} {
		c := newCrowd(crowdFew, func(few int) bool { return lost > few }, noneSoon)
		if after, begins := c.begins(in, pending); after != want || begins {
			t.Errorf("with %d lost volumes the reading begins after %s (now: %t), want %s", lost, after, begins, want)
		}
	}
}

func TestTheActsOfACrowdGoOnTogether(t *testing.T) {
	t.Parallel()
	const patience = 250 * time.Millisecond
	slow := failover.Input{Pods: []failover.Pod{{Finalizers: true}}} // is not removed at once
	for name, tc := range map[string]struct {
		few        bool
		in, others failover.Input
		reached    int           // of 20
		after      time.Duration // 100 ms if zero
		givenUp    bool
		want       time.Duration
	}{
		"when all are as far":                {reached: 20, want: ms(100)},
		"or given up":                        {reached: 20, givenUp: true, want: ms(100)},
		"and wait a moment for the last":     {reached: 18, want: ms(100) + crowdLast},
		"but no longer than it serves":       {reached: 17, want: patience},
		"not even for the last":              {reached: 18, after: ms(200), want: patience},
		"a few do not wait":                  {few: true},
		"nor does one that has time":         {in: slow},
		"and nobody waits for those of them": {others: slow},
	} {
		for _, next := range []stage{tainting, marking, removing} {
			t.Run(fmt.Sprintf("%s, stage %d", name, next), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					c := newCrowd(crowdFew, func(int) bool { return !tc.few }, noneSoon)
					own := c.remove(tc.in)
					own.to(next - 1)
					var others []*progress
					for range 20 {
						other := c.remove(tc.others)
						if tc.others.Pods == nil {
							other.to(next - 1)
						}
						others = append(others, other)
					}
					time.AfterFunc(cmp.Or(tc.after, ms(100)), func() {
						for _, other := range others[:tc.reached] {
							other.goOn(t.Context(), next, tc.others, 0)
							if tc.givenUp {
								other.end()
							}
						}
					})
					waits := func() time.Duration {
						began := time.Now()
						own.goOn(t.Context(), next, tc.in, patience)
						return time.Since(began)
					}
					if got := waits(); got != tc.want {
						t.Errorf("waited %s, want %s", got, tc.want)
					}
					if got := waits(); got != 0 {
						t.Errorf("waited %s once more", got)
					}
					for _, other := range others {
						other.end()
					}
					if own.end(); c.at != [stages]int{} {
						t.Errorf("left behind: %v", c.at)
					}
					<-time.After(time.Second) // until nobody does anything any more
				})
			})
		}
	}
}

// Keep-away may have taken its time.
func TestNothingIsMarkedByAnOldReading(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	s.in.Asked = time.Now().Add(-failover.MaxAge - time.Second)
	emptied, over, err := s.r.removeOne(s.ctx, s.pv, &s.in, s.d, &progress{})
	if s.marked() != "" || s.pod() == nil || emptied || over || err != nil {
		t.Errorf("marked %q, pod %v, emptied: %t, over: %t, %v; want another confirmation", s.marked(), s.pod(), emptied, over, err)
	}
}

// The leader itself goes on with what it has begun, also where nothing on the attachment says so.
func TestWhatThisProcessHasBegunCountsAsMarked(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	s.r.linstor = noLinstor{}
	facts, err := s.r.confirmAttachment(s.ctx, s.pv, nodeA, s.r.attachments.read)
	s.must(err)
	if facts.Marked {
		t.Fatal("marked before anything was done")
	}
	s.mark()
	s.remove(failover.RemoveForce)
	if facts, err = s.r.confirmAttachment(s.ctx, s.pv, nodeA, s.r.attachments.read); err != nil || !facts.Marked {
		t.Errorf("%+v, %v", facts, err)
	}
	inputs, err := s.r.candidates(s.ctx, s.pv)
	if err != nil || len(inputs) != 1 || !inputs[0].Attachment.Marked || len(inputs[0].Pods) > 0 {
		t.Errorf("candidates %+v, %v, want the attachment", inputs, err)
	}
	if s.marked() == "" {
		t.Error("the attachment has no mark")
	}
	s.must(s.api.Delete(s.ctx, s.attachment()))
	s.attach("csi-db", nodeA, func(*storagev1.VolumeAttachment) {})
	if facts, err = s.r.confirmAttachment(s.ctx, s.pv, nodeA, s.r.attachments.read); err != nil || facts.Marked {
		t.Errorf("%+v, %v, of another attachment", facts, err)
	}
	s.r.reports.forget("db")
	if facts, err = s.r.confirmAttachment(s.ctx, s.pv, nodeA, s.r.attachments.read); err != nil || facts.Marked {
		t.Errorf("%+v, %v, after the end of it", facts, err)
	}
}

func TestPodsAreLookedForAgainUnlessNoneCanBeLeft(t *testing.T) {
	for name, tc := range map[string]struct {
		listed  time.Duration // after LINSTOR was asked, which was half a second ago
		unknown bool          // whether the pod is gone
		another bool          // is on the node
		looks   int
		asked   time.Duration // from when on the result counts, after LINSTOR was asked
	}{
		"not where the last one is known to be gone":           {listed: 100 * time.Millisecond},
		"nor where they were listed before LINSTOR was asked":  {listed: -100 * time.Millisecond, asked: -100 * time.Millisecond},
		"where they were listed too long ago":                  {listed: -600 * time.Millisecond, looks: 1},
		"where it is not known that the last one is gone":      {unknown: true, looks: 1},
		"where the cache has another one that uses the volume": {another: true, looks: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSteps(t)
				s.r.linstor = noLinstor{}
				ended := s.in.Pods[0].UID
				if tc.unknown {
					ended = ""
				}
				s.withoutPod()
				if tc.another {
					pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db-1"}}
					pod.Spec.NodeName, pod.Spec.Volumes = nodeA, []corev1.Volume{claimVolume("data-db", false)}
					s.must(s.api.Create(s.ctx, pod))
				}
				looks := 0
				s.model.Delay(func(r apimodel.Request) time.Duration {
					if r.Actor != "test" && r.Verb == apimodel.VerbList && r.Kind == "Pod" {
						looks++
					}
					return 0
				})
				s.in.Asked = time.Now().Add(-500 * time.Millisecond)
				s.in.Listed = s.in.Asked.Add(tc.listed)
				in, empty, err := s.r.confirmEmptied(s.ctx, s.pv, s.in, ended)
				s.must(err)
				if looks != tc.looks || empty == tc.another {
					t.Errorf("%d looks, empty: %t, want %d and %t", looks, empty, tc.looks, !tc.another)
				}
				if asked := in.Asked.Sub(s.in.Asked); asked != tc.asked {
					t.Errorf("counts from %s after LINSTOR was asked, want %s", asked, tc.asked)
				}
			})
		})
	}
}

// A pod that comes to the volume while a removal waits for its turn is seen before the removal, and keeps the other if it may not go.
func TestAPodThatComesWhileARemovalWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	for name, listed := range map[string]time.Duration{"a list of a moment ago is long enough": 0, "an old list is not": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSteps(t)
			s.in.Asked, s.in.Listed = time.Now().Add(-3*time.Second), time.Now().Add(-listed)
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "guest"}}
			pod.Spec.NodeName, pod.Spec.Volumes = nodeA, []corev1.Volume{claimVolume("data-db", false)}
			s.must(s.api.Create(s.ctx, pod))
			s.r.linstor = asked{mu: &sync.Mutex{}, names: &[]string{}}
			in, err := s.r.confirmInTurn(s.ctx, s.pv, s.in)
			s.must(err)
			if listed > 0 && len(in.Pods) != 2 {
				t.Errorf("%d pods are known, want 2", len(in.Pods))
			}
			if old := s.r.clock.Now().Sub(in.Listed); old > failover.MaxAge {
				t.Errorf("the removal rests on a list that is %s old", old)
			}
		})
	}
}

func TestARemovalIsAsOldAsItsListOfPods(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*failover.Input)
		old    bool
	}{
		"a list of just now":                              {func(*failover.Input) {}, false},
		"a list that is older than what LINSTOR said":     {func(in *failover.Input) { in.Listed = in.Listed.Add(-3 * time.Second) }, true},
		"what LINSTOR said is older than the list":        {func(in *failover.Input) { in.Asked = in.Asked.Add(-3 * time.Second) }, true},
		"an old list, where no pod is left to be removed": {func(in *failover.Input) { in.Listed, in.Pods = in.Listed.Add(-3*time.Second), nil }, false},
	} {
		s := newSteps(t)
		s.in.Asked, s.in.Listed = time.Now(), time.Now()
		tc.change(&s.in)
		if old := s.r.isOld(s.in); old != tc.old {
			t.Errorf("%s: old is %t, want %t", name, old, tc.old)
		}
	}
}

// Where pods cannot be read one by one, they are listed from then on.
func TestPodsThatMayNotBeReadOneByOneAreListed(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	s.r.linstor = asked{mu: &sync.Mutex{}, names: &[]string{}}
	s.in.Asked, s.in.Listed = time.Now().Add(-2*time.Second), time.Now()
	gets := 0
	s.model.Fail(func(r apimodel.Request) error {
		if r.Verb != apimodel.VerbGet || r.Kind != "Pod" {
			return nil
		}
		gets++
		return apierrors.NewForbidden(corev1.Resource("pods"), r.Name, errors.New("no"))
	})
	for range 2 {
		s.in.Listed = time.Now()
		_, err := s.r.confirmInTurn(s.ctx, s.pv, s.in)
		s.must(err)
	}
	if gets != 1 {
		t.Errorf("it was tried %d times to read the pod, want once", gets)
	}
}
