package options

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.uber.org/zap/zapcore"
)

// Flag describes one option of the command line for people.
type Flag struct {
	// Name is the name of the option, without dashes.
	Name string
	// Default is its default as it would be written on the command line, empty if there is none.
	Default string
	// Usage says in one sentence what it does.
	Usage string
	// NotForChart is set if the chart sets it itself, or it makes no sense in a pod.
	NotForChart bool
	// Repeated is set if it may be given several times.
	Repeated bool
}

// Flags returns every option, sorted by name.
func Flags() []Flag {
	var o Options
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	o.bind(fs)

	rows := map[string]option{}
	for _, row := range o.table() {
		rows[row.name] = row
	}

	var all []Flag
	fs.VisitAll(func(f *flag.Flag) {
		row := rows[f.Name] // the logger's options have none
		all = append(all, Flag{Name: f.Name, Default: f.DefValue, Usage: f.Usage, NotForChart: row.hidden, Repeated: row.repeated})
	})

	return all
}

// Usage writes what --help shows.
func Usage(w io.Writer) error {
	var b strings.Builder

	b.WriteString("Moves workloads off nodes that lost their LINSTOR storage.\n\n" +
		"Usage: piraeus-ha-controller [--option=value ...]\n" +
		"       piraeus-ha-controller check [--help]    tells what would survive the loss of its node now\n" +
		"       piraeus-ha-controller version           prints the version\n" +
		"       piraeus-ha-controller help [check]      prints this, or about the check\n\n" +
		"LINSTOR is found by the environment variables LS_CONTROLLERS, LS_USER_CERTIFICATE and so on.\n\nOptions:\n")

	for _, f := range Flags() {
		b.WriteString("  --" + f.Name)

		if f.Default != "" {
			b.WriteString("=" + f.Default)
		}

		b.WriteString("\n        " + f.Usage + "\n")
	}

	_, err := io.WriteString(w, b.String())

	return err
}

// list is the flag.Value of an option that may be repeated; each use adds a value once.
type list struct{ values *[]string }

// String returns nothing, because the built-in value is no default that a use of the option would replace.
func (list) String() string { return "" }

// Set adds one value.
func (l list) Set(value string) error {
	if !slices.Contains(*l.values, value) {
		// Clip keeps the append from writing into an array that a copy of the options shares.
		*l.values = append(slices.Clip(*l.values), value)
	}

	return nil
}

// verbosity is the flag.Value of --v, which sets the same level as --zap-log-level; of the two the last one counts.
type verbosity struct{ options *Options }

// String returns the default, which is what the flag package asks for.
func (verbosity) String() string { return "0" }

// Set takes a whole number. logr's verbosities are zap's levels below info, negated.
func (v verbosity) Set(s string) error {
	n, err := strconv.Atoi(s)

	switch {
	case err != nil:
		return errors.New("must be a whole number")
	case n < 0 || n > math.MaxInt8:
		return fmt.Errorf("must be between 0 and %d", math.MaxInt8)
	}

	v.options.Zap.Level = zapcore.Level(-n)

	return nil
}
