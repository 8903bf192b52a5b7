package testbed

import (
	"testing"
)

func TestStart(t *testing.T) {
	b, err := Start(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Stop()
	out, err := b.kubectl(t.Context(), "version")
	t.Log(out, err)
	ctx := t.Context()
	if err := b.WaitFor(ctx, "service account", func() (bool, error) {
		_, err := b.kubectl(t.Context(), "get", "sa", "default")
		return err == nil, err
	}); err != nil {
		t.Fatal(err)
	}
	t.Log(b.Err())
}
