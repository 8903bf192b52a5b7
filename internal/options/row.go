package options

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"
)

// option is a row of the table.
type option struct {
	name string
	// bind adds the flag to fs and sets the field to its default.
	bind func(fs *flag.FlagSet)
	// check returns an error for each value that breaks a rule.
	check func() error
	// hidden and repeated are NotForChart and Repeated of Flag.
	hidden, repeated bool
}

// rule returns what is wrong with a value, empty if nothing is.
type rule[T any] func(T) string

// row returns the row of an option with one value.
func row[T string | bool | int | int64 | time.Duration](name string, field *T, initial T, usage string, rules ...rule[T]) option {
	return option{
		name: name,
		bind: func(fs *flag.FlagSet) {
			*field = initial
			switch field := any(field).(type) {
			case *string:
				fs.StringVar(field, name, *field, usage)
			case *bool:
				fs.BoolVar(field, name, *field, usage)
			case *int:
				fs.IntVar(field, name, *field, usage)
			case *int64:
				fs.Int64Var(field, name, *field, usage)
			case *time.Duration:
				fs.DurationVar(field, name, *field, usage)
			}
		},
		check: func() error { return broken(name, *field, rules) },
	}
}

// repeated returns the row of an option that may be given several times. Its values are added to the initial one.
func repeated(name string, field *[]string, initial, usage string, rules ...rule[string]) option {
	return option{
		name: name, repeated: true,
		bind: func(fs *flag.FlagSet) {
			*field = []string{initial}
			fs.Var(list{field}, name, usage)
		},
		check: func() error {
			var errs []error
			for _, value := range *field {
				errs = append(errs, broken(name, value, rules))
			}
			return errors.Join(errs...)
		},
	}
}

// custom returns the row of an option that reads and checks its value itself.
func custom(name string, value flag.Value, usage string) option {
	return option{name: name, bind: func(fs *flag.FlagSet) { fs.Var(value, name, usage) }, check: func() error { return nil }}
}

// notForChart marks an option that the chart sets itself, or that makes no sense in a pod.
func (o option) notForChart() option {
	o.hidden = true
	return o
}

// broken returns the error of the first rule that the value breaks, on one line.
func broken[T any](name string, value T, rules []rule[T]) error {
	for _, r := range rules {
		if fault := r(value); fault != "" {
			return fmt.Errorf("invalid option --%s=%q: %s", name, fmt.Sprint(value), strings.ReplaceAll(fault, "\n", " "))
		}
	}
	return nil
}
