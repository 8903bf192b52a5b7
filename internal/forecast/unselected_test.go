package forecast

import "testing"

func TestTheLabelsThatASelectorAsksFor(t *testing.T) {
	t.Parallel()
	for selector, want := range map[string]string{
		"a=b":           "a=b",
		"a in (y,x)":    "a=x",
		"a=b,c":         "a=b c=true",
		"a!=b":          "",
		"a=b,!c":        "",
		"no, selector(": "",
	} {
		if got := assignments(selector); got != want {
			t.Errorf("%q asks for %q, want %q", selector, got, want)
		}
	}
}
