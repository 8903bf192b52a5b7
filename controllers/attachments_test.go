package controllers

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/apimodel"
)

// readings reads as many attachments at a time, the last of which is not there, and returns how many requests that took.
func readings(t *testing.T, n int) (requests map[apimodel.Verb]int) {
	t.Helper()
	model := apimodel.New()
	for i := range n - 1 {
		va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("csi-", i)}}
		if err := model.Client("test").Create(t.Context(), va); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	requests = map[apimodel.Verb]int{}
	model.Fail(func(r apimodel.Request) error {
		mu.Lock()
		defer mu.Unlock()
		requests[r.Verb]++
		return nil
	})
	reader := newAttachmentReader(model.Client("reader"))
	reader.wanted.Add(int32(n)) // as if all had come already
	var callers sync.WaitGroup
	for i := range n {
		callers.Go(func() {
			name := fmt.Sprint("csi-", i)
			va, err := reader.read(t.Context(), name)
			if there := i < n-1; err != nil || there != (va != nil) || there && va.Name != name {
				t.Errorf("attachment %s: %v, %v", name, va, err)
			}
		})
	}
	callers.Wait()
	return requests
}

func TestManyAttachmentsAreReadTogether(t *testing.T) {
	t.Parallel()
	if got := readings(t, 1000); got[apimodel.VerbGet] > 0 || got[apimodel.VerbList] == 0 || got[apimodel.VerbList] > 500 {
		t.Errorf("requests %v", got)
	}
	if got := readings(t, 10); got[apimodel.VerbGet] != 10 || got[apimodel.VerbList] > 0 {
		t.Errorf("requests %v for a few", got)
	}
}

// A list of all is worth it for a good part of them.
func TestAFewOfAHugeNumberOfAttachmentsAreReadOneByOne(t *testing.T) {
	t.Parallel()
	model := apimodel.New()
	listed := false
	model.Fail(func(r apimodel.Request) error {
		listed = listed || r.Verb == apimodel.VerbList
		return nil
	})
	reader := newAttachmentReader(model.Client("reader"))
	reader.all.Store(10_000)
	for wanted, want := range map[int32]bool{999: false, 1000: true} {
		reader.wanted.Store(wanted)
		if _, err := reader.read(t.Context(), "csi-db"); err != nil || listed != want {
			t.Errorf("with %d others: listed %t, %v", wanted, listed, err)
		}
		listed = false
		reader.all.Store(10_000)
	}
}

// The API server rejects requests where too many of one account wait.
func TestNotTooManyAttachmentsAreReadOneByOneAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		model := apimodel.New()
		var reading, most atomic.Int32
		model.Delay(func(apimodel.Request) time.Duration {
			now := reading.Add(1)
			most.Store(max(most.Load(), now))
			time.AfterFunc(time.Second-time.Millisecond, func() { reading.Add(-1) }) // right before the answer lets another one begin
			return time.Second
		})
		reader := newAttachmentReader(model.Client("reader"))
		reader.all.Store(10_000)
		began := time.Now()
		var callers sync.WaitGroup
		for range 3 * attachmentSingle {
			callers.Go(func() {
				if _, err := reader.read(t.Context(), "csi-db"); err != nil {
					t.Error(err)
				}
			})
		}
		callers.Wait()
		if most.Load() > attachmentSingle || time.Since(began) != 3*time.Second {
			t.Errorf("%d at a time, all within %s", most.Load(), time.Since(began))
		}
	})
}

func TestAnAttachmentThatCannotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	for wanted, want := range map[int32]string{0: "reading VolumeAttachment csi-db", 1000: "listing VolumeAttachments"} {
		model := apimodel.New()
		model.Fail(func(apimodel.Request) error { return apierrors.NewInternalError(errors.New("etcd is away")) })
		reader := newAttachmentReader(model.Client("reader"))
		reader.wanted.Add(wanted)
		if va, err := reader.read(t.Context(), "csi-db"); va != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v, want an error with %q", va, err, want)
		}
	}
}
