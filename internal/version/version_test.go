package version

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestPick(t *testing.T) {
	t.Parallel()

	cases := map[string]struct {
		stamped string
		info    *debug.BuildInfo
		want    string
	}{
		"the linker's stamp wins over the module version": {
			stamped: "v2.1.0", info: &debug.BuildInfo{Main: debug.Module{Version: "v2.0.0"}}, want: "2.1.0",
		},
		"an installed module reports its own version": {
			info: &debug.BuildInfo{Main: debug.Module{Version: "v2.0.3"}}, want: "2.0.3",
		},
		"a build of an unknown version is a development build": {
			info: &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, want: development,
		},
		"a checkout without a tag is a development build": {
			info: &debug.BuildInfo{Main: debug.Module{Version: "v0.0.0-20260101000000-0123456789ab+dirty"}}, want: development,
		},
		"a binary without build information is a development build": {want: development},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			if got := pick(tc.stamped, tc.info); got != tc.want {
				t.Errorf("pick() = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestCommit(t *testing.T) {
	t.Parallel()

	cases := map[string]struct {
		stamped string
		info    *debug.BuildInfo
		want    string
	}{
		"no build information":       {},
		"a build without a revision": {info: &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.modified", Value: "true"}}}},
		"a clean checkout": {
			info: &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}}},
			want: "0123456789ab",
		},
		"a modified checkout": {
			info: &debug.BuildInfo{Settings: []debug.BuildSetting{
				{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"},
			}},
			want: "0123456789ab-dirty",
		},
		"the linker's stamp wins over the checkout": {
			stamped: "abcdef0123456789",
			info:    &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}}},
			want:    "abcdef012345",
		},
		"the linker's stamp of a modified checkout": {stamped: "abcdef0123456789-dirty", want: "abcdef012345-dirty"},
		"a stamp that is short already":             {stamped: "abcdef0", want: "abcdef0"},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			if got := commit(tc.stamped, tc.info); got != tc.want {
				t.Errorf("commit() = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestUserAgentIsOneProductToken(t *testing.T) {
	t.Parallel()

	product, v, found := strings.Cut(UserAgent(), "/")
	if !found || product != name || v == "" || strings.ContainsAny(v, " /()") {
		t.Errorf("UserAgent() = %q, want %q followed by a version", UserAgent(), name+"/")
	}
}
