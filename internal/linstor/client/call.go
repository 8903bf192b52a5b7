package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	golinstor "github.com/LINBIT/golinstor"
	lapi "github.com/LINBIT/golinstor/client"
)

// Kinds of the calls that have LINSTOR do something, as errors and metrics name them.
const (
	kindAutoplace  = "autoplace"
	kindEvacuate   = "evacuate"
	kindRestore    = "restore"
	kindProperties = "properties"
)

// maxAnswer bounds how much of an answer is read. LINSTOR has several entries for each resource of a node.
const maxAnswer = 16 << 20

// ErrNotSent is why a call has certainly not reached LINSTOR: there was no connection to send it by. Any other error leaves that open.
var ErrNotSent = errors.New("not sent")

// Answer is what LINSTOR answers to a call: of a call for many resources an entry for each, of which some may be errors while the others
// have happened.
type Answer struct {
	// Code is the HTTP status.
	Code int
	// Entries are all return codes.
	Entries []Entry
}

// Entry is one of LINSTOR's return codes.
type Entry struct {
	RetCode int64  `json:"ret_code"`
	Message string `json:"message"`
	Cause   string `json:"cause"`
	Details string `json:"details"`
}

// IsError reports whether what the entry is about has not happened.
func (e Entry) IsError() bool { return uint64(e.RetCode)&golinstor.MaskBitsType == golinstor.MaskError } //nolint:gosec // the same bits

// has reports whether the entry is of a return code, as golinstor has it, whatever it is about.
func (e Entry) has(code uint64) bool {
	const bits = golinstor.MaskBitsType | golinstor.MaskBitsCode
	return uint64(e.RetCode)&bits == code&bits //nolint:gosec // the same bits
}

// words are what the entry says, in one line.
func (e Entry) words() string {
	return OneLine(strings.Join([]string{e.Message, e.Cause, e.Details}, " "))
}

// Errors are LINSTOR's words on what has not happened; none where all has.
func (a Answer) Errors() []string {
	var words []string
	for _, e := range a.Entries {
		if e.IsError() {
			words = append(words, e.words())
		}
	}
	if len(words) == 0 && a.Code/100 != 2 {
		words = append(words, fmt.Sprintf("answered %d %s", a.Code, http.StatusText(a.Code)))
	}
	return words
}

// NotMoved are LINSTOR's words on what it leaves where it is, although it was told to evacuate the node.
func (a Answer) NotMoved() []string {
	var words []string
	for _, e := range a.Entries {
		if e.has(golinstor.WarnNotEvacuating) || e.IsError() {
			words = append(words, e.words())
		}
	}
	return words
}

// Autoplace has LINSTOR place one more replica of a definition on one of the nodes. They must not be none, which LINSTOR takes for all.
func (c *Client) Autoplace(ctx context.Context, definition string, nodes []string) (Answer, error) {
	if len(nodes) == 0 {
		return Answer{}, fmt.Errorf("placing a replica of %s: no node was named, which LINSTOR takes for any", definition)
	}
	request := lapi.AutoPlaceRequest{SelectFilter: lapi.AutoSelectFilter{AdditionalPlaceCount: 1, NodeNameList: nodes}}
	return c.call(ctx, kindAutoplace, http.MethodPost, definitionPath(definition)+"/autoplace", request)
}

// Evacuate has LINSTOR move everything off a node, but not to the others that are named.
func (c *Client) Evacuate(ctx context.Context, node string, doNotTarget []string) (Answer, error) {
	var body any // none where there is nothing to say, which older versions do not understand
	if len(doNotTarget) > 0 {
		body = lapi.NodeEvacuate{DoNotTarget: doNotTarget}
	}
	return c.call(ctx, kindEvacuate, http.MethodPut, nodePath(node)+"/evacuate", body)
}

// Restore takes back that LINSTOR was told to evacuate a node. It deletes nothing.
func (c *Client) Restore(ctx context.Context, node string) (Answer, error) {
	return c.call(ctx, kindRestore, http.MethodPut, nodePath(node)+"/restore", lapi.NodeRestore{})
}

// ChangeNode sets and removes properties of a node.
func (c *Client) ChangeNode(ctx context.Context, node string, set map[string]string, remove []string) (Answer, error) {
	return c.call(ctx, kindProperties, http.MethodPut, nodePath(node), lapi.GenericPropsModify{OverrideProps: set, DeleteProps: remove})
}

// ChangeDefinition sets and removes properties of a resource definition.
func (c *Client) ChangeDefinition(ctx context.Context, definition string, set map[string]string, remove []string) (Answer, error) {
	return c.call(ctx, kindProperties, http.MethodPut, definitionPath(definition), lapi.GenericPropsModify{OverrideProps: set, DeleteProps: remove})
}

// call has LINSTOR do something. It asks the endpoint in use and no other: LINSTOR may be at work on a call that was not answered, and none
// of them may be made twice. An answer that is LINSTOR's list is one whatever its status, and no error.
func (c *Client) call(ctx context.Context, kind, method, path string, body any) (Answer, error) {
	base, _ := c.Endpoint()
	ctx, cancel := context.WithTimeout(ctx, satelliteTimeout)
	defer cancel()
	answer, err := c.callTo(ctx, base, method, path, body)
	outcome := err
	if err == nil && answer.Code/100 != 2 {
		outcome = &StatusError{Code: answer.Code, Linstor: true}
	}
	c.observe(kind, outcome)
	if err != nil {
		err = fmt.Errorf("LINSTOR controller %s: %s: %w", base.Host, kind, err)
	}
	return answer, err
}

func (c *Client) callTo(ctx context.Context, base *url.URL, method, path string, body any) (answer Answer, err error) {
	header := http.Header{"Accept": {mediaJSON}}
	var text []byte
	if body != nil {
		header.Set("Content-Type", mediaJSON)
		if text, err = json.Marshal(body); err != nil {
			return Answer{}, fmt.Errorf("make request: %w", err)
		}
	}
	resp, err := c.send(ctx, method, base, path, header, text)
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return Answer{}, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	if err != nil {
		return Answer{}, err
	}
	defer closeBody(resp)
	answer.Code = resp.StatusCode
	if text, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer)); err != nil {
		return answer, fmt.Errorf("the answer broke off: %w", err)
	}
	if err := json.Unmarshal(text, &answer.Entries); err != nil && (resp.StatusCode/100 != 2 || len(text) > 0) {
		return answer, &StatusError{Code: resp.StatusCode, Message: OneLine(string(text))}
	}
	return answer, nil
}
