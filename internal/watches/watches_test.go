package watches

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
)

// api is an API server whose objects change every second, and a watch of it.
type api struct {
	began time.Time
	// deaf is set while the watch delivers nothing, back by how much the API has gone back, and away while it does not answer.
	deaf atomic.Bool
	back atomic.Int64
	away atomic.Bool
	// quiet is set if no object of the kind changes, so that its watch is told what etcd has reached only a minute after a list.
	quiet   atomic.Bool
	reached atomic.Int64
}

func (a *api) version() int64 { return 1000 + int64(time.Since(a.began)/time.Second) - a.back.Load() }

func (a *api) live(context.Context) (string, error) {
	if a.away.Load() {
		return "", errors.New("connection refused")
	}
	return strconv.FormatInt(a.version(), 10), nil
}

func (a *api) watched() string {
	if !a.deaf.Load() && !a.quiet.Load() {
		a.reached.Store(a.version())
	}
	return strconv.FormatInt(a.reached.Load(), 10)
}

// list makes the API server find out what etcd has reached.
func (a *api) list(context.Context) error {
	if version := a.version(); a.quiet.Load() {
		time.AfterFunc(time.Minute, func() { a.reached.Store(version) })
	}
	return nil
}

// ends runs the comparison of one process, and returns when it ends; the channel stays open if it does not.
func (a *api) ends(t *testing.T, leads, acts bool, turn func(context.Context) error) <-chan time.Time {
	t.Helper()
	elected := make(chan struct{})
	if leads {
		close(elected)
	}
	w := New(Pace{}, logr.Discard())
	w.Live, w.Elected, w.Acting, w.Turn, w.Dead = a.live, elected, func() bool { return acts }, turn, func() {}
	w.Add("*v1.Pod", a.watched, a.list)
	ended := make(chan time.Time, 1)
	go func() {
		if err := w.Start(t.Context()); err != nil {
			ended <- time.Now()
		}
	}()
	return ended
}

func atOnce(context.Context) error { return nil }

func TestAProcessWithADeadWatchEnds(t *testing.T) {
	t.Parallel()
	deaf := func(a *api) { a.deaf.Store(true) }
	for name, tc := range map[string]struct {
		what        func(a *api)
		leads, acts bool
		from, to    time.Duration // it ends between; not at all if both are zero
	}{
		"a watch that delivers":         {what: func(*api) {}},
		"a watch of what never changes": {what: func(a *api) { a.quiet.Store(true) }},
		"a standby ends":                {what: deaf, from: 2 * time.Minute, to: 3 * time.Minute},
		"a leader ends later":           {what: deaf, leads: true, from: 4 * time.Minute, to: 5 * time.Minute},
		"a leader ends later still while it acts": {
			what: deaf, leads: true, acts: true, from: 6 * time.Minute, to: 7 * time.Minute,
		},
		"a standby ends once etcd was restored":     {what: func(a *api) { a.deaf.Store(true); a.back.Store(500) }, to: 31 * time.Second},
		"nobody ends while the API does not answer": {what: func(a *api) { a.deaf.Store(true); a.away.Store(true) }},
		"nobody ends because a watch was behind for a minute": {what: func(a *api) {
			a.deaf.Store(true)
			time.AfterFunc(time.Minute, func() { a.deaf.Store(false) })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := &api{began: time.Now()}
				ended := a.ends(t, tc.leads, tc.acts, atOnce)
				<-time.After(5*time.Minute + time.Second)
				tc.what(a)
				begun := time.Now()
				select {
				case at := <-ended:
					if took := at.Sub(begun); took < tc.from || took > tc.to {
						t.Errorf("the process ended after %s, want %s to %s", took, tc.from, tc.to)
					}
				case <-time.After(time.Hour):
					if tc.to != 0 {
						t.Error("the process did not end")
					}
				}
			})
		})
	}
}

func TestNothingFollowsFromWhatIsNotKnown(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ lease, reached []string }{
		"nothing was listed yet":             {[]string{"7", "8"}, []string{"", ""}},
		"versions that are no numbers":       {[]string{"x", "y"}, []string{"9", "9"}},
		"nobody writes the Lease":            {[]string{"7", "7"}, []string{"9", "9"}},
		"the watch was ahead for the moment": {[]string{"7", "9"}, []string{"8", "9"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := New(Pace{}, logr.Discard())
			at := 0
			w.Live = func(context.Context) (string, error) { return tc.lease[at], nil }
			w.Add("*v1.Pod", func() string { return tc.reached[at] }, func(context.Context) error { return nil })
			for ; at < len(tc.lease); at++ {
				if kind := w.deadOne(t.Context()); kind != "" {
					t.Errorf("at comparison %d the watch of %s is dead", at, kind)
				}
			}
		})
	}
}

func TestAProcessThatHasNotItsTurnGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &api{began: time.Now()}
		turn := make(chan struct{})
		ended := a.ends(t, false, false, func(ctx context.Context) error {
			select {
			case <-turn:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		<-time.After(time.Minute)
		a.deaf.Store(true)
		<-time.After(10*time.Minute + rand.N(time.Minute))
		select {
		case <-ended:
			t.Fatal("the process has ended")
		default:
		}
		close(turn)
		<-time.After(time.Second)
		select {
		case <-ended:
		default:
			t.Error("the process goes on")
		}
	})
}
