package linstorsim

import (
	"maps"
	"slices"
)

// kept is the text of an object as REST answers it, with copies of all that it was made of and that may change. It
// is compared with the object at every look: nothing that changes an object has to know that its text is kept.
type kept struct {
	props  map[string]string
	flags  []string
	values *values
	text   []byte
}

// of returns the text of an object with these properties, flags and values. It is rendered anew unless all of
// them are what they were last time. The text must not be changed.
func (k *kept) of(props map[string]string, flags []string, v *values, render func() any) []byte {
	if k.text == nil || v != k.values || !slices.Equal(flags, k.flags) || !maps.Equal(props, k.props) {
		*k = kept{props: maps.Clone(props), flags: slices.Clone(flags), values: v, text: encode(render())}
	}
	return k.text
}

// resourceText is one replica as JSON, with its volumes as in view/resources or without.
func (s *Server) resourceText(d *definition, rsc *resource, withVolumes bool) []byte {
	k := &rsc.inList
	if withVolumes {
		k = &rsc.inView
	}
	return k.of(rsc.props, rsc.flags, rsc.values, func() any { return s.resource(d, rsc, withVolumes) })
}

// definitionText is one definition as JSON.
func (s *Server) definitionText(d *definition, withVolumes bool) []byte {
	k := &d.plain
	if withVolumes {
		k = &d.withVolumes
	}
	return k.of(d.props, d.flags, nil, func() any { return s.definition(d, withVolumes) })
}
