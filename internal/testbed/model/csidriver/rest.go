package csidriver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

// rest makes the driver's requests to LINSTOR. Like the driver it sets no time of its own: a request may take as long as the
// caller allows.
type rest struct {
	client *http.Client
	url    string
}

// replica is one replica of a resource as LINSTOR shows it.
type replica struct {
	Name     string   `json:"name"`
	NodeName string   `json:"node_name"`
	Flags    []string `json:"flags"`
	State    struct {
		InUse bool `json:"in_use"`
	} `json:"state"`
}

func (r replica) diskless() bool { return slices.Contains(r.Flags, linstorsim.FlagDiskless) }

// node is a node as LINSTOR shows it.
type node struct {
	Name             string `json:"name"`
	ConnectionStatus string `json:"connection_status"`
}

// refusal is an answer of LINSTOR that is no success.
type refusal struct {
	call   string
	status int
	codes  []int64
	text   string
}

func (r refusal) Error() string { return fmt.Sprintf("LINSTOR %s: %d %s", r.call, r.status, r.text) }

// failInUse is LINSTOR's FAIL_IN_USE in the lower bits of a return code.
const (
	failInUse  = 997
	codeOfKind = 0xffff
)

func isNotFound(err error) bool {
	var r refusal
	return errors.As(err, &r) && r.status == http.StatusNotFound
}

func isInUse(err error) bool {
	var r refusal
	return errors.As(err, &r) && slices.ContainsFunc(r.codes, func(code int64) bool { return code&codeOfKind == failInUse })
}

// call makes one request, with a body where there is one, and reads the answer into an object where there is one.
func (l rest) call(ctx context.Context, method, path string, body, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("LINSTOR %s: %w", path, err)
	}
	if body == nil {
		text = nil
	}
	request, err := http.NewRequestWithContext(ctx, method, l.url+path, bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("LINSTOR %s: %w", path, err)
	}
	request.Header.Set("User-Agent", linstorsim.DriverAgent)
	response, err := l.client.Do(request)
	if err != nil {
		return fmt.Errorf("LINSTOR: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode >= http.StatusBadRequest {
		return refused(method+" "+path, response)
	}
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		return fmt.Errorf("LINSTOR %s: %w", path, err)
	}
	return nil
}

// refused reads an answer that is no success.
func refused(call string, response *http.Response) error {
	r := refusal{call: call, status: response.StatusCode}
	text, err := io.ReadAll(response.Body)
	var list []struct {
		RetCode int64  `json:"ret_code"`
		Message string `json:"message"`
	}
	if err != nil || json.Unmarshal(text, &list) != nil {
		return r
	}
	var messages []string
	for _, entry := range list {
		r.codes = append(r.codes, entry.RetCode)
		messages = append(messages, entry.Message)
	}
	r.text = strings.Join(messages, "; ")
	return r
}

func (l rest) nodes(ctx context.Context) (list []node, err error) {
	err = l.call(ctx, http.MethodGet, "/v1/nodes", nil, &list)
	return list, err
}

// view reads all resources; LINSTOR asks the satellites for it, and does not know the parameter by which golinstor asks it not to.
func (l rest) view(ctx context.Context) (list []replica, err error) {
	err = l.call(ctx, http.MethodGet, "/v1/view/resources?cached=true", nil, &list)
	return list, err
}

// definition reads a resource definition and its volumes.
func (l rest) definition(ctx context.Context, resource string) error {
	var object struct{}
	if err := l.call(ctx, http.MethodGet, definitionPath(resource), nil, &object); err != nil {
		return err
	}
	var volumes []struct{}
	return l.call(ctx, http.MethodGet, definitionPath(resource)+"/volume-definitions", nil, &volumes)
}

func (l rest) makeAvailable(ctx context.Context, resource, node string) error {
	body := map[string]bool{"diskful": false}
	return l.call(ctx, http.MethodPost, replicaPath(resource, node)+"/make-available", body, nil)
}

func (l rest) createDiskless(ctx context.Context, resource, node string) error {
	body := map[string]any{"resource": map[string]any{"flags": []string{linstorsim.FlagDiskless}}}
	return l.call(ctx, http.MethodPost, replicaPath(resource, node), body, nil)
}

func (l rest) delete(ctx context.Context, resource, node string) error {
	return l.call(ctx, http.MethodDelete, replicaPath(resource, node)+"?keep_tiebreaker=true", nil, nil)
}

func (l rest) allowTwoPrimaries(ctx context.Context, resource string, allow bool) error {
	body := map[string]any{"delete_props": []string{linstorsim.PropAllowTwoPrimaries}}
	if allow {
		body = map[string]any{"override_props": map[string]string{linstorsim.PropAllowTwoPrimaries: "yes"}}
	}
	return l.call(ctx, http.MethodPut, definitionPath(resource), body, nil)
}

func definitionPath(resource string) string { return "/v1/resource-definitions/" + resource }

func replicaPath(resource, node string) string {
	return definitionPath(resource) + "/resources/" + node
}
