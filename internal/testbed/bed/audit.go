package bed

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// auditPolicy makes the API server write down who changed pods, attachments and nodes. Reads, Leases,
// Events and the status reports of kubelets would only be in the way. Of the high availability
// controller everything is kept, with what it sent.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: None
  verbs: [get, list, watch]
- level: None
  resources:
  - group: coordination.k8s.io
  - {group: "", resources: [events, serviceaccounts/token]}
  - group: events.k8s.io
  - group: authentication.k8s.io
  - group: authorization.k8s.io
- level: Request
  users: ["system:serviceaccount:` + ControllerNamespace + ":" + controllerAccount + `"]
- level: None
  userGroups: ["system:masters"]
  resources:
  - {group: "", resources: [nodes, nodes/status, pods/status]}
- level: Metadata
  resources:
  - {group: "", resources: [pods, pods/binding, pods/eviction, pods/status, nodes, nodes/status]}
  - {group: storage.k8s.io, resources: [volumeattachments, volumeattachments/status]}
`

// Request is a request to the API server that changed something, or tried to.
type Request struct {
	// Received is when it came to the API server, and At when that answered. The log has it a little later than both.
	Received, At time.Time
	// User sent it; one of the parts of a control plane by its usual short name, such as
	// "attachdetach-controller", "kube-scheduler", "csi-attacher" or "kubelet".
	User string
	// Verb is the API's verb: create, update, patch, delete or deletecollection.
	Verb string
	// Resource is the plural, with the subresource after a slash: "pods", "nodes/status".
	Resource string
	// Namespace and Name say which object.
	Namespace, Name string
	// Code is the HTTP status of the answer.
	Code int32
	// Body is what the high availability controller sent, nil for others.
	Body json.RawMessage
}

// auditFlags writes the policy and returns the API server's flags for it.
func (c *controlPlane) auditFlags() (map[string]string, error) {
	policy := filepath.Join(c.dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return nil, fmt.Errorf("audit policy: %w", err)
	}
	return map[string]string{"audit-policy-file": policy, "audit-log-path": filepath.Join(c.logDir, auditLog)}, nil
}

// auditLog is the name of the log of requests in the log folder.
const auditLog = "audit.log"

// Requests returns the requests since a time that changed pods, attachments or nodes, and all that the
// high availability controller changed anywhere, in the order in which they were answered.
func (b *Bed) Requests(since time.Time) ([]Request, error) {
	file, err := os.Open(filepath.Join(b.LogDir, auditLog))
	if err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	defer func() { _ = file.Close() }()
	var requests []Request
	for reader := bufio.NewReader(file); ; {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return requests, nil // a line that is not complete yet is of no interest
		}
		if err != nil {
			return nil, fmt.Errorf("audit log: %w", err)
		}
		var event auditv1.Event
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("audit log: %w", err)
		}
		if at := event.StageTimestamp.Time; event.ObjectRef != nil && !at.Before(since) {
			requests = append(requests, newRequest(&event))
		}
	}
}

// ControllerRequests returns what the high availability controller changed since a time, or tried to,
// apart from Leases and Events.
func (b *Bed) ControllerRequests(since time.Time) ([]Request, error) {
	all, err := b.Requests(since)
	var own []Request
	for _, r := range all {
		if r.User == ControllerName {
			own = append(own, r)
		}
	}
	return own, err
}

// newRequest translates an audit event.
func newRequest(event *auditv1.Event) Request {
	r := Request{
		Received: event.RequestReceivedTimestamp.Time, At: event.StageTimestamp.Time, User: userName(event), Verb: event.Verb,
		Resource: event.ObjectRef.Resource, Namespace: event.ObjectRef.Namespace, Name: event.ObjectRef.Name,
	}
	if event.ObjectRef.Subresource != "" {
		r.Resource += "/" + event.ObjectRef.Subresource
	}
	if event.ResponseStatus != nil {
		r.Code = event.ResponseStatus.Code
	}
	if event.RequestObject != nil {
		r.Body = event.RequestObject.Raw
	}
	return r
}

// userName returns a short name for who sent a request. Administrators go by the name of their program.
func userName(event *auditv1.Event) string {
	name := event.User.Username
	switch {
	case name == "system:serviceaccount:"+ControllerNamespace+":"+controllerAccount:
		return ControllerName
	case strings.HasPrefix(name, "system:"):
		return name[strings.LastIndex(name, ":")+1:]
	default:
		program, _, _ := strings.Cut(event.UserAgent, "/")
		return program
	}
}
