package virtual

import (
	"context"
	"errors"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
)

// viewCache is a View as the cache of a manager, whose handlers end with the context.
type viewCache struct {
	*apimodel.View

	ctx context.Context //nolint:containedctx // of the process
}

var _ cache.Cache = viewCache{}

func (c viewCache) GetInformer(_ context.Context, o client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	return &informer{cache: c, object: o}, nil
}

func (viewCache) GetInformerForKind(context.Context, schema.GroupVersionKind, ...cache.InformerGetOption) (cache.Informer, error) {
	return nil, errors.New("informers are had by objects only")
}

func (viewCache) RemoveInformer(context.Context, client.Object) error { return nil }

func (viewCache) Start(context.Context) error { return nil }

// informer tells of the objects of one kind, which that of object is.
type informer struct {
	toolscache.SharedIndexInformer // nil: nothing else of it is asked for

	cache  viewCache
	object client.Object
}

func (i *informer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	kind := reflect.TypeOf(i.object)
	context.AfterFunc(i.cache.ctx, i.cache.OnUpdate(func(u apimodel.Update) {
		switch {
		case u.New == nil:
			if reflect.TypeOf(u.Old) == kind {
				h.OnDelete(u.Old)
			}
		case reflect.TypeOf(u.New) != kind:
		case u.Old == nil:
			h.OnAdd(u.New, false)
		default:
			h.OnUpdate(u.Old, u.New)
		}
	}))
	return registration{}, nil
}

func (i *informer) AddEventHandlerWithResyncPeriod(
	h toolscache.ResourceEventHandler, _ time.Duration,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(h)
}

func (i *informer) AddEventHandlerWithOptions(
	h toolscache.ResourceEventHandler, _ toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(h)
}

// registration is that of a handler that has been told of all there is.
type registration struct {
	toolscache.ResourceEventHandlerRegistration // nil: nothing else of it is asked for
}

func (registration) HasSynced() bool { return true }
