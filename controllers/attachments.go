package controllers

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// attachmentReader reads attachments, past the cache: one by one or, where many are wanted at a time, all together.
type attachmentReader struct {
	live   client.Reader
	lists  *batches[struct{}, map[string]*storagev1.VolumeAttachment]
	wanted atomic.Int32
	// single are those that are read one by one at the moment.
	single *semaphore.Weighted
	// all is how many there were by the last list.
	all atomic.Int32
}

const (
	// attachmentCrowd is how many attachments are wanted at a time for them to be read by one list of all, unless they are
	// fewer than one of attachmentShare: the API has no selector for those of a driver or a node.
	attachmentCrowd = 50
	attachmentShare = 10
	// attachmentSingle is how many are read one by one at a time: the API server rejects too many requests at a time.
	attachmentSingle = 100
)

func newAttachmentReader(live client.Reader) *attachmentReader {
	r := &attachmentReader{live: live, single: semaphore.NewWeighted(attachmentSingle)}
	r.lists = newBatches(
		func(ctx context.Context, _ string, _ []struct{}) (map[string]*storagev1.VolumeAttachment, error) {
			var list storagev1.VolumeAttachmentList
			if err := live.List(ctx, &list); err != nil {
				return nil, fmt.Errorf("listing VolumeAttachments: %w", err)
			}
			all := make(map[string]*storagev1.VolumeAttachment, len(list.Items))
			for i := range list.Items {
				all[list.Items[i].Name] = &list.Items[i]
			}
			r.all.Store(int32(len(all))) //nolint:gosec // far fewer
			return all, nil
		})
	return r
}

// read returns an attachment as it is now, which must not be changed; nil where there is none of that name.
func (r *attachmentReader) read(ctx context.Context, name string) (*storagev1.VolumeAttachment, error) {
	defer r.wanted.Add(-1)
	if r.wanted.Add(1) > max(attachmentCrowd, r.all.Load()/attachmentShare) {
		all, err := r.lists.do(ctx, "", struct{}{})
		return all[name], err
	}
	if err := r.single.Acquire(ctx, 1); err != nil {
		return nil, fmt.Errorf("waiting to read VolumeAttachment %s: %w", name, err)
	}
	defer r.single.Release(1)
	return r.get(ctx, name)
}

// get is read, never by a list.
func (r *attachmentReader) get(ctx context.Context, name string) (*storagev1.VolumeAttachment, error) {
	var va storagev1.VolumeAttachment
	err := r.live.Get(ctx, client.ObjectKey{Name: name}, &va)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading VolumeAttachment %s: %w", name, err)
	}
	return &va, nil
}
