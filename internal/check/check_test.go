package check

import (
	"strings"
	"testing"
)

func TestAProtectedWorkload(t *testing.T) {
	t.Parallel()
	onBench(t, func(b *bench) {
		out, status := b.check()
		t.Log("\n" + out)
		if status != StatusProtected || !strings.Contains(out, "Every pod would survive") {
			t.Errorf("status %d", status)
		}
	})
}
