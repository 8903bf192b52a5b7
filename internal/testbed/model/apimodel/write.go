package apimodel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// terminating is a finalizer that nobody sees. It keeps the fake client from removing an object whose deletion
// grace runs.
const terminating = "apimodel.internal/terminating"

// writer serves one client.
type writer struct {
	*Model
	actor string
}

func (w writer) get(ctx context.Context, _ client.WithWatch, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	request := Request{Actor: w.actor, Verb: VerbGet, Kind: kindOf(o), Namespace: key.Namespace, Name: key.Name}
	if err := w.arrive(ctx, request); err != nil {
		return err
	}
	if err := w.read(key, o); err != nil {
		return err
	}
	conceal(o)
	return nil
}

// list selects by namespace, by label and, for pods, by node.
func (w writer) list(ctx context.Context, store client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
	gvk, err := store.GroupVersionKindFor(list)
	if err != nil {
		return err
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	options := new(client.ListOptions).ApplyOptions(opts)
	request := Request{Actor: w.actor, Verb: VerbList, Kind: gvk.Kind}
	byNode := options.FieldSelector != nil && !options.FieldSelector.Empty()
	if byNode {
		node, ok := options.FieldSelector.RequiresExactMatch("spec.nodeName")
		if !ok || gvk.Kind != "Pod" || len(options.FieldSelector.Requirements()) != 1 {
			return apierrors.NewBadRequest(fmt.Sprintf("the model cannot select %ss by %s", gvk.Kind, options.FieldSelector))
		}
		request.Node = node
	}
	if err := w.arrive(ctx, request); err != nil {
		return err
	}
	return w.readAll(gvk, list, func(o client.Object) bool {
		pod, ofPods := o.(*corev1.Pod)
		return (options.Namespace == "" || o.GetNamespace() == options.Namespace) &&
			(options.LabelSelector == nil || options.LabelSelector.Matches(labels.Set(o.GetLabels()))) &&
			(!byNode || ofPods && pod.Spec.NodeName == request.Node)
	})
}

func (w writer) create(ctx context.Context, store client.WithWatch, o client.Object, opts ...client.CreateOption) error {
	return w.write(ctx, requestFor(w.actor, VerbCreate, o, false), o, func(client.Object) error {
		o.SetUID(w.nextUID())
		o.SetCreationTimestamp(w.Now())
		switch o := o.(type) {
		case *corev1.Pod:
			o.Status = corev1.PodStatus{Phase: corev1.PodPending}
		case *storagev1.VolumeAttachment:
			o.Status = storagev1.VolumeAttachmentStatus{}
		case *corev1.PersistentVolume: // the API server's default
			if o.Status.Phase == "" {
				o.Status.Phase = corev1.VolumePending
			}
		}
		if err := send(o); err != nil {
			return err
		}
		return store.Create(ctx, o, opts...)
	})
}

func (w writer) update(ctx context.Context, o client.Object, status bool, do func() error) error {
	return w.write(ctx, requestFor(w.actor, VerbUpdate, o, status), o, func(old client.Object) error {
		if old == nil {
			return notFound(o, o.GetName())
		}
		if uid := o.GetUID(); uid != "" && uid != old.GetUID() {
			return conflict(o, "the UID in the request is %s, the object's is %s", uid, old.GetUID())
		}
		reveal(o, old)
		if err := send(o); err != nil {
			return err
		}
		return do()
	})
}

// send makes of an object what arrives at the API server when it is sent as JSON: times have no fractions of a second,
// and what is empty is absent.
func send(o client.Object) error {
	data, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("encoding the object: %w", err)
	}
	arrived := reflect.New(reflect.TypeOf(o).Elem())
	if err := json.Unmarshal(data, arrived.Interface()); err != nil {
		return fmt.Errorf("decoding the object: %w", err)
	}
	reflect.ValueOf(o).Elem().Set(arrived.Elem())
	return nil
}

func (w writer) patch(ctx context.Context, o client.Object, patch client.Patch, status bool, do func() error) error {
	return w.write(ctx, requestFor(w.actor, VerbPatch, o, status), o, func(old client.Object) error {
		if old == nil {
			return notFound(o, o.GetName())
		}
		if err := checkPatch(o, old, patch); err != nil {
			return err
		}
		return do()
	})
}

// checkPatch enforces what a patch says of the object that it is for. The API server does so because UIDs cannot be
// changed; the fake client changes them.
func checkPatch(o, old client.Object, patch client.Patch) error {
	data, err := patch.Data(o)
	if err != nil {
		return fmt.Errorf("computing the patch: %w", err)
	}
	if patch.Type() == types.JSONPatchType {
		return checkOperations(old, data)
	}
	if patch.Type() != types.MergePatchType && patch.Type() != types.StrategicMergePatchType {
		return fmt.Errorf("the model has no patches of type %s", patch.Type())
	}
	var named struct {
		Metadata struct {
			UID             types.UID `json:"uid"`
			ResourceVersion string    `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(data, &named); err != nil {
		return fmt.Errorf("reading the patch: %w", err)
	}
	if uid := named.Metadata.UID; uid != "" && uid != old.GetUID() {
		return conflict(o, "the UID in the patch is %s, the object's is %s", uid, old.GetUID())
	}
	if v := named.Metadata.ResourceVersion; v != "" && v != old.GetResourceVersion() {
		return conflict(o, "the object has been modified; please apply your changes to the latest version and try again")
	}
	return nil
}

// checkOperations refuses a JSON patch whose tests fail, as the API server does.
func checkOperations(old client.Object, data []byte) error {
	operations, err := jsonpatch.DecodePatch(data)
	if err != nil {
		return fmt.Errorf("reading the patch: %w", err)
	}
	before, err := json.Marshal(old)
	if err != nil {
		return fmt.Errorf("encoding the object: %w", err)
	}
	if _, err := operations.Apply(before); err != nil {
		return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
	}
	return nil
}

// write does one write with nobody else writing, and tells the listeners what became of it.
func (w writer) write(ctx context.Context, request Request, o client.Object, do func(old client.Object) error) error {
	return w.record(ctx, Change{Request: request}, o, do)
}

func (w writer) record(ctx context.Context, change Change, o client.Object, do func(old client.Object) error) error {
	if err := w.arrive(ctx, change.Request); err != nil {
		return err
	}
	err := func() error {
		w.writing.Lock()
		defer w.writing.Unlock()
		old, err := w.current(o)
		if err != nil {
			return err
		}
		stored := deepCopy(old)
		failed := do(old)
		if failed != nil && !errors.Is(failed, errCutOff) {
			return failed
		}
		conceal(o)
		change.Time, change.Name = time.Now(), o.GetName()
		if change.New, err = w.current(o); err != nil {
			return err
		}
		if old != nil {
			conceal(old)
			change.Old = old
		}
		if change.New != nil {
			conceal(change.New)
		}
		if !sameContent(change.Old, change.New) {
			w.changed(change)
			return failed
		}
		if err := w.undo(o, stored); err != nil {
			return err
		}
		return failed
	}()
	w.deliver()
	return err
}

// undo gives an object the version back that it had before a write that changed nothing: the API server gives it no
// new one, and who has the old one must not get a conflict.
func (w writer) undo(o, stored client.Object) error {
	if stored == nil {
		return nil
	}
	o.SetResourceVersion(stored.GetResourceVersion())
	return w.tracker.Update(resourceOf(stored), stored, stored.GetNamespace())
}

func deepCopy(o client.Object) client.Object {
	if o == nil {
		return nil
	}
	copied, _ := o.DeepCopyObject().(client.Object)
	return copied
}

// sameContent tells whether a write changed nothing; the API server has no events for such a one.
func sameContent(before, after client.Object) bool {
	if before == nil || after == nil {
		return before == nil && after == nil
	}
	copied := deepCopy(before)
	copied.SetResourceVersion(after.GetResourceVersion())
	return equality.Semantic.DeepEqual(copied, after)
}

// conceal takes the model's own finalizer out of what clients see.
func conceal(o metav1.Object) {
	kept := slices.DeleteFunc(o.GetFinalizers(), func(f string) bool { return f == terminating })
	if len(kept) == 0 {
		kept = nil
	}
	o.SetFinalizers(kept)
}

// reveal puts it back into what a client wants to store.
func reveal(o, stored metav1.Object) {
	if slices.Contains(stored.GetFinalizers(), terminating) && !slices.Contains(o.GetFinalizers(), terminating) {
		o.SetFinalizers(append(o.GetFinalizers(), terminating))
	}
}
