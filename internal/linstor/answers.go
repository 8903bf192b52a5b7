package linstor

import (
	"context"
	"fmt"
	"time"
)

// Answers asks LINSTOR for its nodes, and returns an error where it does not answer before the context ends or with
// nothing that can be understood. Another answer of the last second counts. It works whether or not the event stream does.
func (f *Feed) Answers(ctx context.Context) error {
	if err := f.readNodesSince(ctx, time.Now().Add(-sharedAge)); err != nil {
		return fmt.Errorf("ask LINSTOR for its nodes: %w", err)
	}
	return nil
}
