package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
)

// lastWords is how long a look waits for the next one of LINSTOR's answers when its time is over and it has all on one volume.
const lastWords = 50 * time.Millisecond

// errNoWord is why nothing follows from what LINSTOR has not said in time.
var errNoWord = errors.New("no answer in time")

// words are LINSTOR's answers about the resources that a look asks for.
type words struct {
	linstor Linstor
	// maxAge is how old a reading may be that serves as an answer.
	maxAge  time.Duration
	answers chan word
	// known are the errors of those that have answered, by resource, and asked are all.
	known map[string]error
	asked map[string]bool
	// over is closed when nobody waits for the answers any more.
	over chan struct{}
}

type word struct {
	resource string
	err      error
}

func newWords(from Linstor, maxAge time.Duration) *words {
	return &words{
		linstor: from, maxAge: maxAge,
		answers: make(chan word), known: make(map[string]error), asked: make(map[string]bool), over: make(chan struct{}),
	}
}

// ask asks for the resources of the volumes that were not asked for yet, all at once. The questions outlive the look, until lifetime ends:
// where LINSTOR is slow to answer many together, they find that out only after it, and those of the next look are asked one by one.
func (w *words) ask(ctx, lifetime context.Context, volumes []*volume) {
	for _, v := range volumes {
		for _, resource := range v.resources {
			if v.err != nil || w.asked[resource] {
				continue
			}
			w.asked[resource] = true
			go func() {
				ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
				defer cancel()
				defer context.AfterFunc(lifetime, cancel)()
				err := safely(func() error {
					_, err := w.linstor.Refresh(ctx, resource, w.maxAge)
					return err
				})
				select {
				case w.answers <- word{resource, err}:
				case <-w.over:
				}
			}()
		}
	}
}

// wait waits until a time for the answers to all volumes, and longer for those to the first one, unless more is lost on the node: another
// look is needed for that anyway. It gives the volumes an error of which not all has answered, or has answered with an error.
func (w *words) wait(ctx context.Context, until time.Time, more <-chan struct{}, volumes []*volume) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	for over := false; w.anyAwaited(volumes) && ctx.Err() == nil; {
		var calls <-chan struct{}
		if over {
			calls = more
		}
		select {
		case answer := <-w.answers:
			w.known[answer.resource] = answer.err
			if over {
				timer.Reset(lastWords)
			}
			continue
		case <-timer.C:
			over = true
			w.take()
			if !w.anyComplete(volumes) {
				continue
			}
		case <-calls:
		case <-ctx.Done():
		}
		break
	}
	for _, v := range volumes {
		if v.err == nil {
			v.err = w.errorOf(v)
		}
	}
}

// take takes the answers that have come already: the time may have been over before anybody could wait for them.
func (w *words) take() {
	for {
		select {
		case answer := <-w.answers:
			w.known[answer.resource] = answer.err
		default:
			return
		}
	}
}

// anyAwaited tells whether an answer is missing to a volume that has not been given up.
func (w *words) anyAwaited(volumes []*volume) bool {
	for _, v := range volumes {
		for _, resource := range v.resources {
			if _, answered := w.known[resource]; v.err == nil && !answered {
				return true
			}
		}
	}
	return false
}

func (w *words) anyComplete(volumes []*volume) bool {
	for _, v := range volumes {
		if v.err == nil && w.errorOf(v) == nil {
			return true
		}
	}
	return false
}

// errorOf is why not all is known of a volume. That LINSTOR has none of the resources but the lost one is an answer, too.
func (w *words) errorOf(v *volume) error {
	for i, resource := range v.resources {
		err, answered := w.known[resource]
		if !answered {
			return fmt.Errorf("reading resource %s from LINSTOR: %w", resource, errNoWord)
		}
		if err != nil && (i == 0 || !errors.Is(err, linstor.ErrNotFound)) {
			return fmt.Errorf("reading resource %s from LINSTOR: %w", resource, err)
		}
	}
	return nil
}
