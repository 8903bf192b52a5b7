// Command chartschema tells the Helm chart which options the program has.
//
//	helm-tool schema -i values.yaml | chartschema   completes the schema of the chart's values, so that a misspelled option is refused
//	chartschema obsolete                            prints the options that mean nothing any more, and what takes their place
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode"

	"sigs.k8s.io/yaml"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/options"
)

func main() {
	tell := complete
	if slices.Equal(os.Args[1:], []string{"obsolete"}) {
		tell = obsolete
	}
	if err := tell(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "chartschema:", err)
		os.Exit(1)
	}
}

// schema is a part of a JSON schema.
type schema map[string]any

// obsolete writes the options that mean nothing any more as YAML, by name.
func obsolete(_ io.Reader, out io.Writer) error {
	all := map[string]string{}
	for _, flag := range options.ObsoleteFlags() {
		all[flag.Name] = flag.Usage
	}
	content, err := yaml.Marshal(all)
	if err != nil {
		return fmt.Errorf("writing obsolete options: %w", err)
	}
	_, err = out.Write(content)
	return err
}

// complete reads a schema, describes the value "options" in it, and writes it.
func complete(in io.Reader, out io.Writer) error {
	var document struct {
		Schema string            `json:"$schema"`
		Ref    string            `json:"$ref"`
		Defs   map[string]schema `json:"$defs"`
	}
	if err := json.NewDecoder(in).Decode(&document); err != nil {
		return fmt.Errorf("reading what helm-tool printed: %w", err)
	}
	const value = "helm-values.options"
	object, ok := document.Defs[value]
	if !ok {
		return fmt.Errorf("helm-tool printed no %s", value)
	}
	object["properties"], object["additionalProperties"] = properties(), false
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(document); err != nil {
		return fmt.Errorf("writing the schema: %w", err)
	}
	return nil
}

// properties returns the schema of each option, by its name and, as 1.x had it as well, by its name in camel case.
func properties() map[string]schema {
	all := map[string]schema{}
	add := func(name string, of schema) {
		all[name] = of
		all[camelCase(name)] = of
	}
	for _, flag := range options.ObsoleteFlags() {
		add(flag.Name, schema{"description": "Means nothing any more: " + flag.Usage, "deprecated": true})
	}
	for _, flag := range options.Flags() {
		if !flag.NotForChart {
			add(flag.Name, option(flag))
		}
	}
	return all
}

// option returns the schema of one option. YAML reads what looks like a number or a switch as such, whatever the program makes of it.
func option(flag options.Flag) schema {
	types := []string{"string", "number", "boolean"}
	if flag.Repeated {
		types = append(types, "array")
	}
	of := schema{"description": flag.Usage, "type": types}
	if flag.Default != "" {
		of["default"] = flag.Default
	}
	return of
}

// camelCase returns a name such as fastDetach for fast-detach.
func camelCase(name string) string {
	words := strings.Split(name, "-")
	for i, word := range words[1:] {
		runes := []rune(word)
		runes[0] = unicode.ToUpper(runes[0])
		words[i+1] = string(runes)
	}
	return strings.Join(words, "")
}
