package linstor

import (
	"testing"

	"github.com/go-logr/logr"
)

// What LINSTOR shows of all replicas answers the values with which a stream begins. It answers nothing that somebody else has asked for meanwhile, such as an
// event that brought news.
func TestAResyncAnswersEarlyEventsOnly(t *testing.T) {
	t.Parallel()
	f := NewFeed(&Client{}, NewStore(), logr.Discard(), Options{})
	f.pollEarly("early")
	f.Poll("news")
	f.pollEarly("early-and-news")
	f.Poll("early-and-news")
	f.Poll("news-and-early")
	f.pollEarly("news-and-early")
	f.schedule.answered()
	for name, want := range map[string]bool{"early": false, "news": true, "early-and-news": true, "news-and-early": true} {
		if asked := !f.schedule.singles[name].asked.IsZero(); asked != want {
			t.Errorf("%s: still asked for: %t, want %t", name, asked, want)
		}
	}
}

// A reading that failed is asked for again, and nobody's opening a stream takes that back.
func TestAReplayTakesBackNothingThatOthersHaveAskedFor(t *testing.T) {
	t.Parallel()
	f := NewFeed(&Client{}, NewStore(), logr.Discard(), Options{})
	f.pollEarly("failed")
	one := f.schedule.singles["failed"]
	f.begin(nil, []*single{one}, one.asked)
	f.pollAgain("failed")
	f.schedule.answered()
	if one.asked.IsZero() {
		t.Error("it is not asked for any more")
	}
}
