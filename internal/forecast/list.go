package forecast

import (
	"maps"
	"slices"
)

// names are strings, each once.
type names map[string]bool

func (n names) sorted() []string { return slices.Sorted(maps.Keys(n)) }

// appendNew appends to a short list what it does not have.
func appendNew[T comparable](list []T, s T) []T {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// withObjects returns the findings that were found of something.
func withObjects(findings ...Finding) []Finding {
	return slices.DeleteFunc(findings, func(f Finding) bool { return len(f.Objects) == 0 })
}
