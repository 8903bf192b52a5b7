package linstor

import (
	"net/http"
	"strings"
	"testing"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/recordings"
)

func TestWhatARecordedListLeavesOutIsUnknown(t *testing.T) {
	t.Parallel()
	for _, recording := range recordings.Names(t) {
		t.Run(recording, func(t *testing.T) {
			t.Parallel()
			for _, line := range recordings.Load(t, recording).Lines {
				if line.Status == http.StatusOK && strings.Contains(line.Get, "/resources") {
					leavesOut(t, line.Body)
				}
			}
		})
	}
}
