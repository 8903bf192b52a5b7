package deploy

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// readObjects returns the objects of a file.
func readObjects(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return parseObjects(t, content)
}

// parseObjects returns the objects of a stream of YAML documents.
func parseObjects(t *testing.T, content []byte) (all []*unstructured.Unstructured) {
	t.Helper()
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		var document json.RawMessage
		err := documents.Decode(&document)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if string(document) == "null" { // nothing but comments
			continue
		}
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(document); err != nil {
			t.Fatalf("%v\n%s", err, document)
		}
		all = append(all, o)
	}
}

// writeObjects returns a file with what was rendered, for kubectl.
func writeObjects(t *testing.T, content []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rendered.yaml")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// kustomize builds a kustomization whose text may name config/ by $CONFIG.
func kustomize(t *testing.T, text string) []byte {
	t.Helper()
	dir := t.TempDir()
	config, err := filepath.Abs("../config")
	if err != nil {
		t.Fatal(err)
	}
	// Kustomize takes no absolute path for a folder.
	if config, err = filepath.Rel(dir, config); err != nil {
		t.Fatal(err)
	}
	text = strings.ReplaceAll(text, "$CONFIG", config)
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return output(t, exec.CommandContext(t.Context(), "go", "tool", "-modfile=../internal/tools/pinned/go.mod", "kustomize", "build", dir))
}

// output returns what a command prints; where it fails the test ends with what it complains about.
func output(t *testing.T, cmd *exec.Cmd) []byte {
	t.Helper()
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, complaint.String())
	}
	return out
}
