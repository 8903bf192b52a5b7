package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// IndexReader reads a cache, and what the indexes find straight from its informers: for each event of LINSTOR several objects
// are looked up, and a List takes ten times as long as that. Those objects, and PersistentVolumes, are the cache's own and
// must not be changed.
type IndexReader struct {
	client.Reader
	pods, volumes, attachments toolscache.Indexer
}

// NewIndexReader registers the indexes with the cache's informers, which must not have started. driver is the CSI driver's name.
func NewIndexReader(ctx context.Context, c cache.Cache, driver string) (*IndexReader, error) {
	r := &IndexReader{Reader: c}
	for _, i := range indexes(driver) {
		informer, err := c.GetInformer(ctx, i.object, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("watching %T: %w", i.object, err)
		}
		indexed, ok := informer.(toolscache.SharedIndexInformer)
		if !ok {
			return nil, fmt.Errorf("indexing %T by %s: %T has no index", i.object, i.field, informer)
		}
		extract := func(o any) ([]string, error) {
			object, ok := o.(client.Object)
			if !ok {
				return nil, fmt.Errorf("%T is no object", o)
			}
			return i.extract(object), nil
		}
		if err := informer.AddIndexers(toolscache.Indexers{i.field: extract}); err != nil {
			return nil, fmt.Errorf("indexing %T by %s: %w", i.object, i.field, err)
		}
		switch i.object.(type) {
		case *corev1.Pod:
			r.pods = indexed.GetIndexer()
		case *corev1.PersistentVolume:
			r.volumes = indexed.GetIndexer()
		case *storagev1.VolumeAttachment:
			r.attachments = indexed.GetIndexer()
		}
	}
	return r, nil
}

// List implements client.Reader. With one field it looks that up in the index; everything else is for the cache.
func (r *IndexReader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) (err error) {
	field, value := "", ""
	for _, option := range options {
		if fields, ok := option.(client.MatchingFields); ok && len(fields) == 1 {
			for f, v := range fields {
				field, value = f, v
			}
		}
	}
	if field == "" {
		return r.Reader.List(ctx, list, options...)
	}
	switch list := list.(type) {
	case *corev1.PodList:
		list.Items, err = lookUp[corev1.Pod](r.pods, field, value)
	case *corev1.PersistentVolumeList:
		list.Items, err = lookUp[corev1.PersistentVolume](r.volumes, field, value)
	case *storagev1.VolumeAttachmentList:
		list.Items, err = lookUp[storagev1.VolumeAttachment](r.attachments, field, value)
	default:
		return r.Reader.List(ctx, list, options...)
	}
	return err
}

// Get implements client.Reader.
func (r *IndexReader) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	if volume, ok := o.(*corev1.PersistentVolume); ok {
		if known, exists, err := r.volumes.GetByKey(key.Name); err == nil && exists {
			if known, ok := known.(*corev1.PersistentVolume); ok {
				*volume = *known
				return nil
			}
		}
	}
	return r.Reader.Get(ctx, key, o, options...)
}

func lookUp[T any](indexer toolscache.Indexer, field, value string) ([]T, error) {
	objects, err := indexer.ByIndex(field, value)
	if err != nil {
		return nil, fmt.Errorf("looking up %s %s: %w", field, value, err)
	}
	items := make([]T, 0, len(objects))
	for _, o := range objects {
		if object, ok := o.(*T); ok {
			items = append(items, *object)
		}
	}
	return items, nil
}
