package bed

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestATimelineTellsEachStepWhileItHappensOnceItsAuthorIsKnown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		timeline := &Timeline{bed: &Bed{LogDir: t.TempDir()}}
		audit := filepath.Join(timeline.bed.LogDir, auditLog)
		if err := os.WriteFile(audit, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var told []string
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- timeline.Follow(ctx, began, func(s Step) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, fmt.Sprintf("%s %s: %s", time.Since(began).Round(time.Second), s.Who, s.What))
			})
		}()
		want := func(lines ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(told, lines) {
				t.Errorf("after %s told %q, want %q", time.Since(began), told, lines)
			}
		}

		timeline.Note("you", "power loss")
		time.Sleep(5 * time.Second)
		want("0s you: power loss")

		deletion := author{"delete", "pods", "shop", "orders-0"}
		timeline.add("?", deletion, "pod deleted")
		time.Sleep(settled / 2) // the audit log is written after the watchers were told
		line := fmt.Sprintf(`{"stageTimestamp":%q,"verb":"delete","user":{"username":"system:serviceaccount:ha-controller:ha-controller"},`+
			`"objectRef":{"resource":"pods","namespace":"shop","name":"orders-0"}}`+"\n", time.Now().Format(metav1.RFC3339Micro))
		if err := os.WriteFile(audit, []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
		want("0s you: power loss")
		time.Sleep(time.Second)
		timeline.Note("kubelet", "pod Running")
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		want("0s you: power loss", "6s "+ControllerName+": pod deleted", "8s kubelet: pod Running")
	})
}
