package linstor

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// unansweringPatience is how long a satellite may take to tell LINSTOR how full its thin pools are, which takes well below a second.
	// A satellite that was cut off is given up after 7 s.
	unansweringPatience = 5 * time.Second
	// unansweringReads is how many satellites are asked at a time.
	unansweringReads = 16
)

// Unanswering returns the nodes that LINSTOR calls ONLINE and that do not answer what it asks them before it can tell of all
// resources: how full their thin pools are. LINSTOR waits 45 s for each, and whoever wants that answer waits as well, the CSI driver
// for each volume that it attaches. Each node is asked through LINSTOR, for itself; LINSTOR answers for others in the meantime, or
// this is an error.
func (f *Feed) Unanswering(ctx context.Context) ([]string, error) {
	if err := f.Answers(ctx); err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var late []string
	tasks, asking := errgroup.WithContext(ctx)
	tasks.SetLimit(unansweringReads)
	for _, node := range f.store.Nodes() {
		if !isTrue(node.Online) {
			continue
		}
		tasks.Go(func() error {
			answers, err := f.client.AnswersFor(asking, node.Name, unansweringPatience)
			if err == nil && !answers {
				mu.Lock()
				late = append(late, node.Name)
				mu.Unlock()
			}
			return err
		})
	}
	if err := tasks.Wait(); err != nil {
		return nil, err
	}
	if len(late) == 0 {
		return nil, nil
	}
	// Where LINSTOR itself does not answer any more, that says nothing of its satellites; and one that it has given up is no news.
	if err := f.readNodes(ctx, time.Now()); err != nil {
		return nil, fmt.Errorf("ask LINSTOR for its nodes: %w", err)
	}
	late = slices.DeleteFunc(late, func(name string) bool {
		node, ok := f.store.Node(name)
		return !ok || !isTrue(node.Online)
	})
	slices.Sort(late)
	return late, nil
}

// Answers asks LINSTOR for its nodes, and returns an error where it does not answer before the context ends or with
// nothing that can be understood. Another answer of the last second counts. It works whether or not the event stream does.
func (f *Feed) Answers(ctx context.Context) error {
	if err := f.readNodes(ctx, time.Now().Add(-sharedAge)); err != nil {
		return fmt.Errorf("ask LINSTOR for its nodes: %w", err)
	}
	return nil
}
