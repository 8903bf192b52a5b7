package linstor

import (
	"context"
	"time"
)

const (
	// askAgain is how long an answer may take until LINSTOR is asked once more: it has what there is one of in memory, and answers within
	// milliseconds. A request that got lost with its connection is answered only when its time is over.
	askAgain = time.Second
	// askedAtMost is how often that is in all.
	askedAtMost = 3
)

// again returns a read that asks once more where it takes long for an answer, and takes the first one.
func again(read func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		answers := make(chan error, askedAtMost)
		for range askedAtMost - 1 {
			go func() { answers <- read(ctx) }()
			select {
			case err := <-answers:
				return err
			case <-time.After(askAgain):
			}
		}
		go func() { answers <- read(ctx) }()
		return <-answers
	}
}
