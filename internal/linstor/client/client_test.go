package client

import (
	"errors"
	"net/http"
	"strings"
	"testing"
)

// page is an answer of whoever listens where LINSTOR is expected.
type page struct {
	code              int
	contentType, body string
}

func TestClientSaysWhatIsWrongInOneLine(t *testing.T) {
	const secret = "geheim"
	for name, tc := range map[string]struct {
		answer   page
		want     string
		notFound bool
	}{
		"LINSTOR's own 404": {
			page{404, "application/json", `[{"message":"Resource definition 'x' not found."}]`}, "Resource definition 'x' not found.", true,
		},
		"another server's 404":      {page{404, "text/html", "<html>"}, "text/html", false},
		"a 404 without a body":      {page{404, "", ""}, "404 Not Found", false},
		"HTML with a status of 200": {page{200, "text/html; charset=utf-8", "<html>"}, "does LS_CONTROLLERS point to", false},
		"401":                       {page{401, "application/json", `[{"message":"Unauthorized: token invalid"}]`}, "check LS_BEARER_TOKEN_FILE", false},
		"403":                       {page{403, "text/plain", "no"}, "403 Forbidden", false},
		"LINSTOR's own 500 over several lines": {
			page{500, "application/json", `[{"message":"one\ntwo"},{"message":"three"}]`}, "500 Internal Server Error: one two; three", false,
		},
		"503":                   {page{503, "text/html", "<html>\n</html>"}, "503 Service Unavailable", false},
		"JSON that breaks off":  {page{200, "application/json", `[{"name":"a"`}, "can not decode the answer", false},
		"entries without names": {page{200, "application/json", `[{"name":"a"},{}]`}, "element 1 has no name", false},
		"more entries than there can be": {
			page{200, "application/json", "[" + strings.Repeat(`{"name":"a"},`, maxElements) + `{"name":"a"}]`}, "more than 200000 elements", false,
		},
		"JSON of another shape": {page{200, "application/json", `{"a":1}`}, "can not decode the answer", false},
	} {
		t.Run(name, func(t *testing.T) {
			variables := map[string]string{envControllers: "http://u:" + secret + "@linstor", envPassword: secret}
			client, _ := recordingClient(t, variables, func(*http.Request) *http.Response {
				return response(tc.answer.code, tc.answer.contentType, tc.answer.body)
			})
			_, err := client.Nodes(t.Context())
			if err == nil {
				t.Fatal("no error")
			}
			text := err.Error()
			if !strings.Contains(text, tc.want) || !strings.Contains(text, "linstor:3370") {
				t.Errorf("%q and the controller are not in: %s", tc.want, text)
			}
			if strings.Contains(text, "\n") || strings.Contains(text, secret) {
				t.Errorf("not fit for a log: %s", text)
			}
			if got := errors.Is(err, ErrNotFound); got != tc.notFound {
				t.Errorf("is ErrNotFound: %v", got)
			}
		})
	}
}
