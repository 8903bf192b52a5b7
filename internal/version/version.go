// Package version tells which build of the controller is running.
//
// The Dockerfile and "make build" stamp version and commit with the linker, in this package's variables version and revision:
//
//	go build -ldflags "-X github.com/piraeusdatastore/piraeus-ha-controller/internal/version.version=v2.0.0" .
//
// A binary without such a stamp, as one from "go install", reports what the Go toolchain recorded about the module.
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

// version and revision are set by the linker, see the package comment. Where the checkout had been modified, revision ends in dirty.
var version, revision string

// dirty marks a commit that is not all of what was built.
const dirty = "-dirty"

// Version returns the version without a leading "v", such as "2.0.0" or "2.0.0-dev".
func Version() string {
	info, _ := debug.ReadBuildInfo()

	return pick(version, info)
}

// Commit returns the abbreviated commit the binary was built from, with "-dirty" appended where the checkout had been
// modified. It is empty where neither the linker nor the toolchain recorded it.
func Commit() string {
	info, _ := debug.ReadBuildInfo()

	return commit(revision, info)
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

// commit returns the stamped revision, else the one recorded in info, shortened to twelve digits.
func commit(stamped string, info *debug.BuildInfo) string {
	if stamped != "" {
		hash, modified := strings.CutSuffix(stamped, dirty)

		return short(hash, modified)
	}

	if info == nil {
		return ""
	}

	var hash string

	modified := false

	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			hash = s.Value
		case "vcs.modified":
			modified = s.Value == "true"
		}
	}

	return short(hash, modified)
}

// short abbreviates a commit and says whether there is more in the build.
func short(hash string, modified bool) string {
	hash = hash[:min(12, len(hash))]
	if hash != "" && modified {
		hash += dirty
	}

	return hash
}
