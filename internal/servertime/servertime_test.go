package servertime_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/servertime"
)

var noon = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

func TestLocal(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	// answer is one whose server's clock, shown in whole seconds, is behind by so much, ago before noon, after a wait of so long.
	answer := func(behind, ago, wait time.Duration) func(*servertime.Clock) {
		return func(c *servertime.Clock) {
			answered := noon.Add(-ago)
			c.Learn(answered.Add(-wait), answered, answered.Add(-behind).Truncate(time.Second))
		}
	}
	for name, tc := range map[string]struct {
		tell []func(*servertime.Clock)
		want time.Duration // from the server's time to ours
	}{
		"nothing is known":                           {nil, 0},
		"the server's clock is 10 min behind":        {[]func(*servertime.Clock){answer(10*time.Minute, 0, 0)}, 10 * time.Minute},
		"the server's clock is 10 min ahead":         {[]func(*servertime.Clock){answer(-10*time.Minute, 0, 0)}, -10 * time.Minute},
		"an answer within a second may seem younger": {[]func(*servertime.Clock){answer(0, 300*ms, 0)}, 700 * ms},
		"so may one that took long":                  {[]func(*servertime.Clock){answer(3*time.Second, 0, 4*time.Second)}, 3 * time.Second},
		"the best of several counts":                 {[]func(*servertime.Clock){answer(0, 2300*ms, 0), answer(0, 900*ms, 0), answer(0, 200*ms, 0)}, 100 * ms},
		"one that is a minute old does not":          {[]func(*servertime.Clock){answer(0, 61*time.Second, 0), answer(0, 200*ms, 0)}, 800 * ms},
		"one that contradicts it counts at once":     {[]func(*servertime.Clock){answer(0, 2*time.Second, 0), answer(10*time.Minute, time.Second, 0)}, 10 * time.Minute},
		"a clock that was set back is learnt anew":   {[]func(*servertime.Clock){answer(0, -time.Hour, 0), answer(time.Second, 0, 0)}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := servertime.New()
			for _, tell := range tc.tell {
				tell(c)
			}
			if got := c.Local(noon).Sub(noon); got != tc.want {
				t.Errorf("turned by %s, want %s", got, tc.want)
			}
			if got := c.Local(time.Time{}); !got.IsZero() {
				t.Errorf("no time is turned into %s", got)
			}
		})
	}
	var none *servertime.Clock
	if got := none.Local(noon); !got.Equal(noon) {
		t.Errorf("without a clock noon is %s", got)
	}
}

func TestTransport(t *testing.T) {
	t.Parallel()
	date := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Date", date) }))
	defer server.Close()
	c := servertime.New()
	client := &http.Client{Transport: c.Transport(http.DefaultTransport)}
	get := func() error {
		resp, err := client.Get(server.URL)
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	}
	ahead := func() time.Duration { return time.Until(c.Local(time.Now())) }
	for _, said := range []string{time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat), "some time ago"} {
		date = said
		if err := get(); err != nil {
			t.Fatal(err)
		}
		if got := ahead(); got < 59*time.Minute || got > 61*time.Minute {
			t.Errorf("after %q our clock is ahead by %s, want an hour", said, got)
		}
	}
	server.Close()
	if err := get(); err == nil {
		t.Error("a request to nobody has no error")
	}
}
