package controllers

import (
	"encoding/json"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// jsonPatch is a patch whose content becomes its JSON.
type jsonPatch struct {
	kind    types.PatchType
	content any
}

// mergePatch returns a patch of the annotations of an object and of other fields; nil removes an annotation. The API server answers with a
// conflict if the object has another UID by now, or another version; any version will do if that is empty.
func mergePatch(uid types.UID, version string, annotations, fields map[string]any) client.Patch {
	meta := map[string]any{"uid": uid}
	if version != "" {
		meta["resourceVersion"] = version
	}
	if annotations != nil {
		meta["annotations"] = annotations
	}
	content := map[string]any{"metadata": meta}
	maps.Copy(content, fields)
	return jsonPatch{types.StrategicMergePatchType, content}
}

// replacePatch returns a patch that replaces the value at a path (RFC 6902). The API server rejects it as invalid if the object has another UID
// by now, or another value there.
func replacePatch(uid types.UID, path string, before, after any) client.Patch {
	operation := func(op, path string, value any) map[string]any {
		return map[string]any{"op": op, "path": path, "value": value}
	}
	return jsonPatch{types.JSONPatchType, []map[string]any{
		operation("test", "/metadata/uid", uid), operation("test", path, before), operation("replace", path, after),
	}}
}

// Type implements client.Patch.
func (p jsonPatch) Type() types.PatchType { return p.kind }

// Data implements client.Patch.
func (p jsonPatch) Data(client.Object) ([]byte, error) {
	text, err := json.Marshal(p.content)
	if err != nil {
		return nil, fmt.Errorf("encoding a patch: %w", err)
	}
	return text, nil
}
