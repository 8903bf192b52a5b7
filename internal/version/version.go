// Package version tells which build of the controller is running.
//
// The release build stamps the version with the linker:
//
//	go build -ldflags "-X github.com/piraeusdatastore/piraeus-ha-controller/internal/version.version=v2.0.0" .
//
// A binary without that stamp, such as one from "go install", reports what the Go toolchain recorded about the module.
package version

import (
	"runtime"
	"runtime/debug"
	"strings"
)

// name is how the controller calls itself towards the APIs it uses.
const name = "piraeus-ha-controller"

// development is reported where neither the linker nor the toolchain recorded a version.
const development = "2.0.0-dev"

// version is set by the linker, see the package comment.
var version string

// Version returns the version without a leading "v", such as "2.0.0" or "2.0.0-dev".
func Version() string {
	info, _ := debug.ReadBuildInfo()

	return pick(version, info)
}

// Commit returns the abbreviated commit the binary was built from, with "-dirty" appended where the checkout had been
// modified. It is empty where the toolchain did not record it, as in a build without version control.
func Commit() string {
	info, _ := debug.ReadBuildInfo()

	return commit(info)
}

// String returns one line for people: the name, the version, the commit if known, and the Go release and platform.
func String() string {
	var b strings.Builder

	b.WriteString(name + " " + Version())

	if c := Commit(); c != "" {
		b.WriteString(" (" + c + ")")
	}

	b.WriteString(" " + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH)

	return b.String()
}

// UserAgent returns the product token for the User-Agent header, "piraeus-ha-controller/<version>". It is sent to the
// Kubernetes API, whose audit log and managed fields show it, and to the LINSTOR controller.
func UserAgent() string {
	return name + "/" + Version()
}

// pick returns the stamped version, else the version of the main module, else the development version. The toolchain
// calls a module "(devel)" when it knows no version, and invents a pseudo-version for a checkout without a release tag
// of the right major; neither means anything to a user.
func pick(stamped string, info *debug.BuildInfo) string {
	if stamped != "" {
		return strings.TrimPrefix(stamped, "v")
	}

	if info == nil {
		return development
	}

	v := info.Main.Version
	if v == "" || v == "(devel)" || strings.HasPrefix(v, "v0.0.0-") {
		return development
	}

	return strings.TrimPrefix(v, "v")
}

// commit returns the revision recorded in info, shortened to twelve digits.
func commit(info *debug.BuildInfo) string {
	if info == nil {
		return ""
	}

	var revision, dirty string

	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}

	if revision == "" {
		return ""
	}

	return revision + dirty
}
