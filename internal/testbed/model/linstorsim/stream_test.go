package linstorsim_test

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

func TestStreamOnTheWire(t *testing.T) {
	inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		must(t, b.linstor.CreateResource(standard()))
		b.linstor.StopSatellite("node-c")
		s := b.subscribe("current")
		want := "event: may-promote-change\n" +
			"data: {\"resource_name\":\"pvc-1\",\"node_name\":\"node-a\",\"may_promote\":true}\n" +
			"\n" +
			"event: may-promote-change\n" +
			"data: {\"resource_name\":\"pvc-1\",\"node_name\":\"node-b\",\"may_promote\":true}\n" +
			"\n" +
			"event: may-promote-change\n" +
			"data: {\"resource_name\":\"pvc-1\",\"node_name\":\"node-c\"}\n" +
			"\n"
		if diff := cmp.Diff(want, s.text()); diff != "" {
			t.Errorf("replay (-want +got):\n%s", diff)
		}
		if got := (<-s.header).Get("Content-Type"); got != "text/event-stream" {
			t.Errorf("Content-Type = %q", got)
		}
		s.cancel()
	})
}

func TestHeadersComeWithTheFirstEvent(t *testing.T) {
	inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		must(t, b.linstor.CreateResource(standard()))
		s := b.subscribe("")
		pass(time.Hour)
		if len(s.header) != 0 {
			t.Error("headers came before any event")
		}
		must(t, b.cluster.Open(pvc, "node-a", false))
		pass(0)
		if len(s.header) != 1 {
			t.Error("no headers after the first event")
		}
		s.cancel()
	})
}

func TestHeadersComeAtOnce(t *testing.T) {
	inBubble(t, linstorsim.Options{HeadersAtOnce: true}, func(t *testing.T, b *bed) {
		s := b.subscribe("")
		if len(s.header) != 1 {
			t.Error("no headers before the first event")
		}
		b.linstor.DropStreams()
		if err := <-s.done; !errors.Is(err, io.EOF) {
			t.Errorf("the stream without any event ended with %v, want EOF", err)
		}
	})
}

func TestReplayGoesToEverybody(t *testing.T) {
	inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		must(t, b.linstor.CreateResource(standard()))
		first := b.subscribe("current")
		want := first.text()
		second := b.subscribe("current")
		if got := first.text(); got != want {
			t.Errorf("the first subscriber got %q when the second came, want the whole replay", got)
		}
		if got := second.text(); got != want {
			t.Errorf("the second subscriber got %q, want the replay", got)
		}
		third := b.subscribe("42")
		if got := first.text() + third.text(); got != "" {
			t.Errorf("a subscriber with another id than current caused %q", got)
		}
		for _, s := range []*stream{first, second, third} {
			s.cancel()
		}
	})
}

func TestReplayCanBeOlderThanAChange(t *testing.T) {
	inBubble(t, linstorsim.Options{ReplayDelay: time.Second}, func(t *testing.T, b *bed) {
		must(t, b.linstor.CreateResource(standard()))
		s := b.subscribe("current")
		must(t, b.cluster.Open(pvc, "node-a", false))
		pass(2 * time.Second)
		text := s.text()
		if !strings.HasSuffix(text, event("node-a", "true")+event("node-b", "true")+event("node-c", "true")) {
			t.Errorf("last words = %q, want the old values", text)
		}
		s.cancel()
	})
}

// events splits a stream's text and sorts it: the order between nodes is not fixed.
func events(text string) []string {
	list := strings.SplitAfter(text, "\n\n")
	list = list[:len(list)-1]
	slices.Sort(list)
	return list
}

func all(may string) string {
	return event("node-a", may) + event("node-b", may) + event("node-c", may)
}

func TestWhatMakesEvents(t *testing.T) {
	open := func(t *testing.T, b *bed) { must(t, b.cluster.Open(pvc, "node-a", false)) }
	cases := map[string]struct {
		before func(*testing.T, *bed)
		do     func(*testing.T, *bed)
		wait   time.Duration
		want   string
	}{
		"a pod starts": {do: open, want: all("false")},
		"a pod stops":  {before: open, do: func(_ *testing.T, b *bed) { b.cluster.Close(pvc, "node-a") }, want: all("true")},
		"the satellite process dies": {
			do:   func(_ *testing.T, b *bed) { b.linstor.StopSatellite("node-b") },
			want: event("node-b", ""),
		},
		"the satellite is cut off, before LINSTOR gives it up": {
			do:   func(_ *testing.T, b *bed) { b.linstor.CutSatellite("node-b") },
			wait: 5 * time.Second,
		},
		"the satellite is cut off": {
			do:   func(_ *testing.T, b *bed) { b.linstor.CutSatellite("node-b") },
			wait: 7 * time.Second, want: event("node-b", ""),
		},
		"the satellite is cut off for a moment": {
			do: func(_ *testing.T, b *bed) {
				b.linstor.CutSatellite("node-b")
				pass(3 * time.Second)
				b.linstor.RestoreSatellite("node-b")
			},
			wait: time.Minute,
		},
		"the satellite comes back": {
			before: func(_ *testing.T, b *bed) { b.linstor.StopSatellite("node-b") },
			do:     func(_ *testing.T, b *bed) { b.linstor.RestoreSatellite("node-b") },
			wait:   time.Minute, want: event("node-b", "true"),
		},
		"the Primary's node crashes": {
			before: open,
			do:     func(_ *testing.T, b *bed) { b.linstor.Crash("node-a") },
			wait:   time.Minute, want: event("node-a", "") + event("node-b", "true") + event("node-c", "true"),
		},
		"the Primary is isolated on the DRBD network": {
			before: open,
			do:     func(_ *testing.T, b *bed) { b.cluster.Isolate("node-a") },
			wait:   time.Minute, want: event("node-b", "true") + event("node-c", "true"),
		},
		"quorum is lost everywhere": {
			before: open,
			do: func(_ *testing.T, b *bed) {
				b.cluster.Isolate("node-a")
				b.cluster.Isolate("node-b")
			},
			wait: time.Minute,
		},
		"a resource is created on a node": {
			do: func(t *testing.T, b *bed) {
				must(t, b.linstor.RemoveReplica(pvc, "node-c"))
				must(t, b.linstor.MakeAvailable(pvc, "node-c"))
			},
			want: event("node-c", "") + event("node-c", "false") + event("node-c", "true"),
		},
		"a resource is deleted from a node": {
			do:   func(t *testing.T, b *bed) { must(t, b.linstor.RemoveReplica(pvc, "node-c")) },
			want: event("node-c", ""),
		},
		"a node is evacuated": {
			do: func(_ *testing.T, b *bed) { b.linstor.SetNodeFlags("node-b", linstorsim.FlagEvacuate) },
		},
		"the satellite restarts events2": {
			do:   func(_ *testing.T, b *bed) { b.linstor.RestartEvents("node-b") },
			wait: time.Second, want: event("node-b", "") + event("node-b", "true"),
		},
		"the frozen satellite's node crashes": {
			do: func(_ *testing.T, b *bed) {
				b.linstor.FreezeSatellite("node-b")
				b.linstor.Crash("node-b")
			},
			wait: time.Minute,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
				must(t, b.linstor.CreateResource(standard()))
				if tc.before != nil {
					tc.before(t, b)
				}
				s := b.subscribe("current")
				s.text()
				tc.do(t, b)
				pass(tc.wait)
				if diff := cmp.Diff(events(tc.want), events(s.text())); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
				s.cancel()
			})
		})
	}
}

func TestStreamsEnd(t *testing.T) {
	cases := map[string]struct {
		end  func(*linstorsim.Server)
		want error
	}{
		"dropped streams end with EOF":                {(*linstorsim.Server).DropStreams, io.EOF},
		"reset streams break off":                     {(*linstorsim.Server).ResetStreams, io.ErrUnexpectedEOF},
		"a restart of the controller breaks them off": {(*linstorsim.Server).Restart, io.ErrUnexpectedEOF},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
				must(t, b.linstor.CreateResource(standard()))
				s := b.subscribe("current")
				tc.end(b.linstor)
				if err := <-s.done; !errors.Is(err, tc.want) {
					t.Errorf("the stream ended with %v, want %v", err, tc.want)
				}
				pass(0)
				if got := b.linstor.Streams(); got != 0 {
					t.Errorf("%d streams are left", got)
				}
			})
		})
	}
}

func TestSilencedStreamStaysOpenAndSaysNothing(t *testing.T) {
	inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		must(t, b.linstor.CreateResource(standard()))
		silent := b.subscribe("current")
		silent.text()
		b.linstor.SilenceStreams()
		fresh := b.subscribe("")
		must(t, b.cluster.Open(pvc, "node-a", false))
		pass(time.Hour)
		if got := silent.text(); got != "" || len(silent.done) != 0 {
			t.Errorf("half-open stream said %q, ended %t", got, len(silent.done) != 0)
		}
		if diff := cmp.Diff(events(all("false")), events(fresh.text())); diff != "" {
			t.Errorf("new stream (-want +got):\n%s", diff)
		}
		silent.cancel()
		fresh.cancel()
	})
}

func TestRestartForgetsEverythingAndLearnsItAgain(t *testing.T) {
	inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		must(t, b.linstor.CreateResource(standard()))
		must(t, b.cluster.Open(pvc, "node-a", false))
		b.linstor.StopSatellite("node-c")
		b.linstor.Restart()
		if resp, err := b.client.Get(base + "/v1/nodes"); err == nil {
			_ = resp.Body.Close()
			t.Error("a controller that restarts answers")
		}
		pass(time.Second)
		s := b.subscribe("current")
		if got := s.text(); got != all("") {
			t.Errorf("replay right after the start = %q, want all unknown", got)
		}
		pass(time.Second)
		want := events(event("node-a", "false") + event("node-b", "false"))
		if diff := cmp.Diff(want, events(s.text())); diff != "" {
			t.Errorf("after the satellites returned (-want +got):\n%s", diff)
		}
		s.cancel()
	})
}

func TestEveryChangeIsTold(t *testing.T) {
	inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		must(t, b.linstor.CreateResource(standard()))
		s := b.subscribe("")
		for range 50 {
			must(t, b.cluster.Open(pvc, "node-a", false))
			b.cluster.Close(pvc, "node-a")
		}
		if got := len(events(s.text())); got != 300 {
			t.Errorf("%d events, want 300", got)
		}
		s.cancel()
	})
}
