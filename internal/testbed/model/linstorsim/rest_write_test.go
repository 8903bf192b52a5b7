package linstorsim_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

// change makes a call and returns the status, the body and how long it took.
func (b *bed) change(method, path, body string) (int, string, time.Duration) {
	b.t.Helper()
	begin := time.Now()
	request, err := http.NewRequestWithContext(b.t.Context(), method, base+path, strings.NewReader(body))
	must(b.t, err)
	response, err := b.client.Do(request)
	must(b.t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	must(b.t, err)
	return response.StatusCode, string(text), time.Since(begin)
}

func TestAnAdministratorChangesThings(t *testing.T) {
	const majority = `{"override_props":{"DrbdOptions/Resource/quorum":"majority"}}`
	cases := map[string]struct {
		fault        linstorsim.AdjustFault
		method, path string
		body         string
		status       int
		took         time.Duration
		wanted, runs string
	}{
		"quorum on the definition": {
			method: http.MethodPut, path: "/v1/resource-definitions/pvc-1", body: majority,
			status: http.StatusOK, wanted: "majority", runs: "majority",
		},
		"quorum on the definition, adjust fails": {
			fault: linstorsim.AdjustFailsAtOptions, method: http.MethodPut, path: "/v1/resource-definitions/pvc-1", body: majority,
			status: http.StatusInternalServerError, wanted: "majority", runs: "off",
		},
		"quorum on the definition, adjust hangs": {
			fault: linstorsim.AdjustHangs, method: http.MethodPut, path: "/v1/resource-definitions/pvc-1", body: majority,
			status: http.StatusInternalServerError, took: 45 * time.Second, wanted: "majority", runs: "off",
		},
		"quorum on the group": {
			method: http.MethodPut, path: "/v1/resource-groups/DfltRscGrp", body: majority,
			status: http.StatusOK, wanted: "majority", runs: "majority",
		},
		"quorum on the group, adjust hangs": {
			fault: linstorsim.AdjustHangs, method: http.MethodPut, path: "/v1/resource-groups/DfltRscGrp", body: majority,
			status: http.StatusInternalServerError, took: 45 * time.Second, wanted: "majority", runs: "off",
		},
		"quorum on the controller": {
			method: http.MethodPost, path: "/v1/controller/properties", body: majority,
			status: http.StatusCreated, wanted: "majority", runs: "off",
		},
		"quorum on a node": {
			method: http.MethodPut, path: "/v1/nodes/node-a", body: majority, status: http.StatusBadRequest, wanted: "off", runs: "off",
		},
		"quorum on a resource": {
			method: http.MethodPut, path: "/v1/resource-definitions/pvc-1/resources/node-a", body: majority,
			status: http.StatusBadRequest, wanted: "off", runs: "off",
		},
		"quorum taken from a definition that has none of its own": {
			method: http.MethodPut, path: "/v1/resource-definitions/pvc-1", body: `{"delete_props":["DrbdOptions/Resource/quorum"]}`,
			status: http.StatusOK, wanted: "off", runs: "off",
		},
		"an unknown definition": {
			method: http.MethodPut, path: "/v1/resource-definitions/none", body: majority,
			status: http.StatusNotFound, wanted: "off", runs: "off",
		},
		"nonsense": {
			method: http.MethodPut, path: "/v1/resource-definitions/pvc-1", body: "nonsense",
			status: http.StatusBadRequest, wanted: "off", runs: "off",
		},
		"an ONLINE node is lost": {
			method: http.MethodDelete, path: "/v1/nodes/node-a/lost", status: http.StatusInternalServerError, wanted: "off", runs: "off",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
				must(t, b.linstor.CreateResource(pair()))
				b.linstor.SetAdjustFault("node-a", pvc, tc.fault)
				status, text, took := b.change(tc.method, tc.path, tc.body)
				if status != tc.status || took != tc.took {
					t.Errorf("answer %d %s after %s, want %d after %s", status, text, took, tc.status, tc.took)
				}
				if failed := strings.Contains(text, `"ret_code":-`); failed != (tc.status >= http.StatusBadRequest) {
					t.Errorf("the answer has an error entry: %t: %s", failed, text)
				}
				if got := b.wanted(); got != tc.wanted {
					t.Errorf("the definition shows %s, want %s", got, tc.wanted)
				}
				if got := b.running()["node-a"]; got != tc.runs {
					t.Errorf("node-a runs %s, want %s", got, tc.runs)
				}
			})
		})
	}
}

func TestAnAdministratorLosesANode(t *testing.T) {
	inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		must(t, b.linstor.CreateResource(pair()))
		b.linstor.Isolate("node-a")
		pass(20 * time.Second)
		if status, text, _ := b.change(http.MethodDelete, "/v1/nodes/node-a/lost", ""); status != http.StatusOK {
			t.Errorf("answer %d %s", status, text)
		}
		b.wantList("without node-a", "node-b")
	})
}
