package evidence

import "testing"

func TestCouldHold(t *testing.T) {
	t.Parallel()

	cases := map[string]struct {
		votes Tally
		want  bool
	}{
		"all of one disk":                           {Tally{1, 1, 0, 0}, true},
		"none of one disk":                          {Tally{1, 0, 1, 1}, false},
		"one of two without a tie-breaker":          {Tally{2, 1, 0, 0}, false},
		"one of two with the tie-breaker":           {Tally{2, 1, 1, 1}, true},
		"one of two without the tie-breaker's vote": {Tally{2, 1, 1, 0}, false},
		"one of two with one of two diskless":       {Tally{2, 1, 2, 1}, false},
		"one of two with two of three diskless":     {Tally{2, 1, 3, 2}, true},
		"one of three with every diskless":          {Tally{3, 1, 2, 2}, false},
		"two of three against every diskless":       {Tally{3, 2, 2, 0}, true},
		"two of four with the tie-breaker":          {Tally{4, 2, 1, 1}, true},
		"three of four against the tie-breaker":     {Tally{4, 3, 1, 0}, true},
		"two of five with every diskless":           {Tally{5, 2, 1, 1}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := c.votes.CouldHold(); got != c.want {
				t.Errorf("CouldHold = %t, want %t", got, c.want)
			}
		})
	}
}

func TestWhoHasNoDiskTakesTheWordOfHalf(t *testing.T) {
	t.Parallel()
	votes := []Vote{{"client", Absent}, {"b", WithDisk}, {"c", WithDisk}}
	held := func(node string) bool { return node != "b" }
	if !CouldHold(votes, false, held) {
		t.Error("a tie-breaker beside c, to which the client has no connection, may give c quorum")
	}
	if CouldHold(votes, true, held) {
		t.Error("who has a disk knows each tie-breaker")
	}
}
