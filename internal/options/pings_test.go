package options

import (
	"os"
	"testing"
)

func TestADeadConnectionToTheAPIIsNoticedWithinFiveSecondsUnlessTheUserSaysOtherwise(t *testing.T) {
	const idle, timeout = "HTTP2_READ_IDLE_TIMEOUT_SECONDS", "HTTP2_PING_TIMEOUT_SECONDS"
	for name, c := range map[string]struct {
		set                   map[string]string
		wantIdle, wantTimeout string
	}{
		"nothing is set":                {wantIdle: "2", wantTimeout: "3"},
		"the user has set both":         {set: map[string]string{idle: "30", timeout: "15"}, wantIdle: "30", wantTimeout: "15"},
		"the user has set one of them":  {set: map[string]string{timeout: "1"}, wantIdle: "2", wantTimeout: "1"},
		"the user has switched it off":  {set: map[string]string{idle: "0"}, wantIdle: "0", wantTimeout: "3"},
		"the user has set an empty one": {set: map[string]string{idle: ""}, wantIdle: "", wantTimeout: "3"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, variable := range []string{idle, timeout} {
				t.Setenv(variable, "") // so that it is restored
				if err := os.Unsetenv(variable); err != nil {
					t.Fatal(err)
				}
			}
			for variable, value := range c.set {
				t.Setenv(variable, value)
			}
			if err := PingAPI(); err != nil {
				t.Fatal(err)
			}
			if got := os.Getenv(idle); got != c.wantIdle {
				t.Errorf("%s is %q, want %q", idle, got, c.wantIdle)
			}
			if got := os.Getenv(timeout); got != c.wantTimeout {
				t.Errorf("%s is %q, want %q", timeout, got, c.wantTimeout)
			}
		})
	}
}
