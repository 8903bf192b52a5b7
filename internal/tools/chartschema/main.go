// Command chartschema completes the schema of the Helm chart's values. What helm-tool makes of values.yaml comes in by standard input; the
// options that the program has itself are added to it, so that a misspelled one is refused.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/options"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "chartschema:", err)
		os.Exit(1)
	}
}

// chartsOwn are the options that the chart sets itself, or that make no sense in a pod.
var chartsOwn = []string{
	"kubeconfig", "leader-election", "leader-election-healtz-port", "leader-election-lease-name", "leader-election-namespace",
	"leader-election-resource-name", "version",
}

// former are the options that 1.x had and that mean nothing any more. The chart leaves them out and says so.
var former = []string{"drbd-status-interval", "fail-over-timeout", "node-name", "request-timeout"}

// schema is a part of a JSON schema.
type schema map[string]any

// run reads a schema, describes the value "options" in it, and writes it.
func run(in io.Reader, out io.Writer) error {
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
	for _, name := range former {
		add(name, schema{"description": "Of 1.x; it means nothing any more and is left out."})
	}
	for _, flag := range options.Flags() {
		if !slices.Contains(chartsOwn, flag.Name) {
			add(flag.Name, option(flag))
		}
	}
	return all
}

// option returns the schema of one option. YAML reads what looks like a number or a switch as such, whatever the program makes of it.
func option(flag options.Flag) schema {
	types := []string{"string", "number", "boolean"}
	if flag.Name == "shutdown-taint" { // may be repeated
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
