package client

import (
	"crypto/tls"
	"crypto/x509"
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
	if e.Code == http.StatusBadRequest && !e.Linstor {
		text += "; does LINSTOR serve HTTPS there? initialize-token-auth without no_https turns it on; check " + envControllers
	}
	return text
}

// Is makes errors.Is(err, ErrNotFound) true for LINSTOR's own 404.
func (e *StatusError) Is(target error) bool {
	return target == ErrNotFound && e.Code == http.StatusNotFound && e.Linstor
}

// IsUnauthorized reports whether LINSTOR has answered that it does not know who asks.
func IsUnauthorized(err error) bool {
	statusErr, ok := errors.AsType[*StatusError](err)
	return ok && statusErr.Code == http.StatusUnauthorized
}

// explained adds to an error of a connection what a person can do about it, as far as that is known. anonymous is set for TLS without a certificate of
// the client.
func explained(err error, anonymous bool) error {
	var (
		name      x509.HostnameError
		authority x509.UnknownAuthorityError
		record    tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &name) && len(name.Certificate.DNSNames)+len(name.Certificate.IPAddresses) == 0:
		return fmt.Errorf("%w: LINSTOR's certificate names no host, so that nothing can trust it, as initialize-token-auth makes it; "+
			"use that with no_https, or give LINSTOR a keystore of your own", err)
	case errors.As(err, &name), errors.As(err, &authority):
		return fmt.Errorf("%w; check the certificate of LINSTOR's controller, and %s", err, envRootCA)
	case errors.As(err, &record):
		return fmt.Errorf("%w; does LINSTOR serve HTTP there? check %s", err, envControllers)
	case strings.Contains(err.Error(), "malformed HTTP response"):
		return fmt.Errorf("%w; does LINSTOR serve HTTPS there? initialize-token-auth without no_https turns it on; check %s", err, envControllers)
	case anonymous && (errors.Is(err, io.EOF) || strings.Contains(err.Error(), "remote error: tls")):
		return fmt.Errorf("%w; LINSTOR closes the connection to who has no certificate if it wants one: check %s and %s", err, envUserCert, envUserKey)
	}
	return err
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
