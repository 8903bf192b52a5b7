package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
)

// ErrNotFound is what LINSTOR's own "not found" matches with errors.Is: the resource definition, resource
// group or node does not exist. Another server's 404 does not match.
var ErrNotFound = errors.New("not found in LINSTOR")

const (
	maxErrorBody    = 16 << 10
	maxErrorMessage = 300
)

// StatusError is an answer that is not what was asked for.
type StatusError struct {
	// Code is the HTTP status.
	Code int
	// Message is LINSTOR's own message, or what is wrong with the answer. It is one line.
	Message string
	// Linstor is set when the body was LINSTOR's list of return codes.
	Linstor bool
}

// Error implements error.
func (e *StatusError) Error() string {
	text := fmt.Sprintf("answered %d %s", e.Code, http.StatusText(e.Code))
	if e.Message != "" {
		text += ": " + e.Message
	}
	if e.Code == http.StatusUnauthorized || e.Code == http.StatusForbidden {
		text += "; check " + envBearerTokenFile + " or " + envUsername + " and " + envPassword
	}
	return text
}

// Is makes errors.Is(err, ErrNotFound) true for LINSTOR's own 404.
func (e *StatusError) Is(target error) bool {
	return target == ErrNotFound && e.Code == http.StatusNotFound && e.Linstor
}

// final reports whether a working LINSTOR controller has answered, so that no other need be asked.
func (e *StatusError) final() bool {
	return e.Linstor && e.Code < http.StatusInternalServerError ||
		e.Code == http.StatusUnauthorized || e.Code == http.StatusForbidden
}

// checkResponse returns a StatusError unless the response is a success of the wanted media type.
func checkResponse(resp *http.Response, want string) error {
	mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode/100 == 2 && (mediaType == want || mediaType == "") {
		return nil
	}
	statusErr := &StatusError{Code: resp.StatusCode}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err != nil {
		statusErr.Message = "and the answer broke off"
		return statusErr
	}
	if message, ok := linstorMessage(body); ok && resp.StatusCode/100 != 2 {
		statusErr.Message, statusErr.Linstor = message, true
		return statusErr
	}
	if mediaType != "" && mediaType != mediaJSON {
		statusErr.Message = fmt.Sprintf("a page of type %s; does %s point to LINSTOR's REST API?", mediaType, envControllers)
	}
	return statusErr
}

// linstorMessage reads a list of LINSTOR's return codes (ApiCallRc).
func linstorMessage(body []byte) (string, bool) {
	var codes []struct {
		Message string `json:"message"`
	}
	if err := json.Unmarshal(body, &codes); err != nil {
		return "", false
	}
	var messages []string
	for _, code := range codes {
		if code.Message != "" {
			messages = append(messages, code.Message)
		}
	}
	return OneLine(strings.Join(messages, "; ")), true
}

// OneLine makes foreign text fit for an error.
func OneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > maxErrorMessage {
		text = string(runes[:maxErrorMessage]) + "…"
	}
	return text
}
