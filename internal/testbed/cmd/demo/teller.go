package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
)

// silence is the longest time without a line.
const silence = 10 * time.Second

// teller prints what happens, with the seconds since a moment, and after a silence that it still waits.
type teller struct {
	mu       sync.Mutex
	zero     time.Time
	reminder *time.Timer
}

// newTeller begins at now, and ends by stop.
func newTeller() *teller {
	t := &teller{zero: time.Now()}
	t.reminder = time.AfterFunc(silence, func() { t.say("...") })
	return t
}

// begin starts to count the seconds again.
func (t *teller) begin(title string) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Printf("\n%s:\n\n", title)
	t.zero = time.Now()
	t.reminder.Reset(silence)
	return t.zero
}

// stop ends it.
func (t *teller) stop() { t.reminder.Stop() }

// step tells a step that begins.
func (t *teller) step(what string) { t.say("%s", what) }

func (t *teller) say(format string, args ...any) { t.sayAt(time.Now(), format, args...) }

// sayAt prints what happened at a moment.
func (t *teller) sayAt(at time.Time, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Printf("  %5.1f s  %s\n", at.Sub(t.zero).Seconds(), fmt.Sprintf(format, args...))
	t.reminder.Reset(silence)
}

// follow tells each step of a timeline since a time when it happens. The function that it returns ends that, and returns all steps.
func follow(ctx context.Context, timeline *bed.Timeline, since time.Time, t *teller) func() ([]bed.Step, error) {
	var steps []bed.Step
	ctx, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		done <- timeline.Follow(ctx, since, func(s bed.Step) {
			steps = append(steps, s)
			t.sayAt(s.At, "%-24s  %s", s.Who, s.What)
		})
	}()
	return func() ([]bed.Step, error) {
		stop()
		err := <-done
		return steps, err
	}
}

// part is one of the parts of the time from a crash to the replacement Running.
type part struct {
	what string
	took time.Duration
}

// parts returns where the seconds went of a pod with one volume. What was not seen is left out, and counts to the next part.
func parts(steps []bed.Step, crashed time.Time, pod, volume string) []part {
	var all []part
	from := crashed
	for _, p := range []struct{ who, says, what string }{
		{"DRBD on ", "resource " + volume + " may be promoted", "DRBD notices that its peer is gone, and the quorum moves on"},
		{bed.ControllerName, "pod " + pod + " ", "the controller's grace period, and its decision: the pod is deleted"},
		{"kube-scheduler", "pod " + pod + " placed", "Kubernetes creates the pod again and places it"},
		{"csi-attacher", "volume " + volume + " attached", "the volume is detached from the dead node and attached to the new one"},
		{"kubelet of ", "pod " + pod + " Running", "the kubelet mounts the volume and starts the pod"},
	} {
		for _, s := range steps {
			if strings.HasPrefix(s.Who, p.who) && strings.HasPrefix(s.What, p.says) && !s.At.Before(from) {
				all = append(all, part{p.what, s.At.Sub(from)})
				from = s.At
				break
			}
		}
	}
	return all
}
