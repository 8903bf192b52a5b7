package evidence

import "testing"

func TestFences(t *testing.T) {
	t.Parallel()

	cases := map[string]struct {
		quorum  string
		diskful int
		want    bool
	}{
		"majority":                           {"majority", 3, true},
		"all":                                {"all", 3, true},
		"off":                                {"off", 3, false},
		"an empty value":                     {"", 3, false},
		"a number above half":                {"2", 3, true},
		"a number above half of an even set": {"3", 4, true},
		"exactly half":                       {"2", 4, false},
		"below half":                         {"1", 3, false},
		"more than there are":                {"32", 3, true},
		"a negative number":                  {"-5", 3, false},
		"a number too large to be one":       {"99999999999999999999", 3, false},
		"a number with a blank":              {" 2", 3, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := Fences(c.quorum, c.diskful); got != c.want {
				t.Errorf("quorum %q of %d disks fences: %t, want %t", c.quorum, c.diskful, got, c.want)
			}
		})
	}
}
