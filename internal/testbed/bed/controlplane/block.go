package main

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
)

// asFilesystems shows raw block volumes to the kubelet as file systems: their devices need root, and loop devices of the machine. The CSI
// driver learns by a volume attribute that it is a raw block volume.
func asFilesystems(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err != nil || r.Method != http.MethodGet || response.StatusCode != http.StatusOK || !hasVolumes(r.URL.Path) {
			return response, err
		}
		body := response.Body
		reader, writer := io.Pipe()
		go func() {
			decoder, encoder := json.NewDecoder(body), json.NewEncoder(writer)
			decoder.UseNumber()
			for { // one object, or the events of a watch
				var object any
				err := decoder.Decode(&object)
				if err == nil {
					asFilesystem(object)
					err = encoder.Encode(object)
				}
				if err != nil {
					_ = writer.CloseWithError(err)
					return
				}
			}
		}()
		response.Body = &translated{reader, body}
		response.ContentLength = -1
		response.Header.Del("Content-Length")
		return response, nil
	})
}

// hasVolumes reports whether a path is of pods or volumes.
func hasVolumes(path string) bool {
	return strings.HasPrefix(path, "/api/v1/") && (strings.Contains(path, "/pods") || strings.Contains(path, "/persistentvolumes/"))
}

// asFilesystem translates pods and PersistentVolumes within an object.
func asFilesystem(object any) {
	switch object := object.(type) {
	case []any:
		for _, item := range object {
			asFilesystem(item)
		}
	case map[string]any:
		if devices, ok := object["volumeDevices"].([]any); ok {
			mounts, _ := object["volumeMounts"].([]any)
			for _, device := range devices {
				if device, ok := device.(map[string]any); ok {
					mounts = append(mounts, map[string]any{"name": device["name"], "mountPath": device["devicePath"]})
				}
			}
			object["volumeMounts"] = mounts
			delete(object, "volumeDevices")
		}
		if csi, ok := object["csi"].(map[string]any); ok && object["volumeMode"] == "Block" {
			attributes, _ := csi["volumeAttributes"].(map[string]any)
			if attributes == nil {
				attributes = map[string]any{}
			}
			attributes["testbed.piraeus.io/block"] = "true"
			csi["volumeAttributes"] = attributes
			object["volumeMode"] = "Filesystem"
		}
		for _, value := range object {
			asFilesystem(value)
		}
	}
}

// roundTripper is a function as a transport.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// translated is the body of an answer that was translated. Closing it closes the original.
type translated struct {
	*io.PipeReader
	original io.Closer
}

func (t *translated) Close() error {
	_ = t.PipeReader.Close()
	return t.original.Close()
}
