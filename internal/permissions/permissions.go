// Package permissions knows what the controller must be allowed to do, and asks the API server whether it is.
package permissions

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/options"
)

const (
	// ClusterRole is the name of the shipped ClusterRole and of its binding. "ha-controller", their name in earlier releases, is that
	// of the Piraeus Operator's for the node agents of 1.x, which it applies by force every minute.
	ClusterRole = "piraeus-ha-controller-manager"
	// Role is the name of the shipped Roles and RoleBindings, which nothing else has in any namespace.
	Role = ClusterRole
)

// Permission is one verb on one resource.
type Permission struct {
	// Namespace is where it is needed; empty for the whole cluster.
	Namespace string
	// Group is the API group, empty for the core one. Resource may have a subresource after a slash.
	Group, Resource, Verb string
}

// String returns the permission as kubectl auth can-i takes it.
func (p Permission) String() string {
	resource, subresource, _ := strings.Cut(p.Resource, "/")
	text := p.Verb + " " + resource
	if p.Group != "" {
		text += "." + p.Group
	}
	if subresource != "" {
		text += " --subresource=" + subresource
	}
	if p.Namespace != "" {
		text += " --namespace=" + p.Namespace
	}
	return text
}

// required are the rules of the shipped roles, each with the options under which the controller does without it.
var required = []struct {
	own             bool   // in the controller's own namespace
	namespace       string // in this one; neither means the whole cluster
	group, resource string
	verbs           []string
	idle            func(options.Options) bool // nil where it is always needed
}{
	{resource: "nodes", verbs: []string{"get", "list", "patch", "watch"}},
	{resource: "nodes/status", verbs: []string{"patch"}, idle: func(o options.Options) bool { return !o.FastDetach && !o.Evacuation }},
	{resource: "namespaces", verbs: []string{"get"}, idle: func(o options.Options) bool { return !o.Evacuation }},
	{resource: "pods", verbs: []string{"delete", "list", "watch"}},
	{resource: "pods/status", verbs: []string{"patch"}},
	{resource: "persistentvolumes", verbs: []string{"get", "list", "watch"}},
	{resource: "persistentvolumeclaims", verbs: []string{"get"}},
	{group: "storage.k8s.io", resource: "csinodes", verbs: []string{"list", "watch"}},
	{group: "storage.k8s.io", resource: "volumeattachments", verbs: []string{"delete", "get", "list", "patch", "watch"}},
	{group: "events.k8s.io", resource: "events", verbs: []string{"create", "patch"}},
	{group: "authentication.k8s.io", resource: "tokenreviews", verbs: []string{"create"}, idle: openMetrics},
	{group: "authorization.k8s.io", resource: "subjectaccessreviews", verbs: []string{"create"}, idle: openMetrics},
	{namespace: corev1.NamespaceNodeLease, group: "coordination.k8s.io", resource: "leases", verbs: []string{"get", "list", "watch"}},
	{
		own: true, group: "coordination.k8s.io", resource: "leases", verbs: []string{"create", "get", "update"},
		idle: func(o options.Options) bool { return !o.LeaderElection },
	},
	{own: true, group: "apps", resource: "deployments", verbs: []string{"get"}},
	{own: true, group: "apps", resource: "replicasets", verbs: []string{"get"}, idle: namesDeployment},
	{own: true, resource: "pods", verbs: []string{"get"}, idle: namesDeployment},
}

// namesDeployment tells whether the Deployment that may pause is named, and need not be found by the controller's own pod.
func namesDeployment(o options.Options) bool { return o.PauseDeployment != "" }

// openMetrics tells whether nobody is asked who may read the metrics.
func openMetrics(o options.Options) bool { return !o.MetricsSecure || o.MetricsBindAddress == "0" }

// Required returns everything the controller must be allowed to with these options, where its own namespace is the given one.
func Required(own string, opts options.Options) []Permission {
	var all []Permission
	for _, r := range required {
		if r.idle != nil && r.idle(opts) {
			continue
		}
		namespace := r.namespace
		if r.own {
			namespace = own
		}
		for _, verb := range r.verbs {
			all = append(all, Permission{Namespace: namespace, Group: r.group, Resource: r.resource, Verb: verb})
		}
	}
	return all
}

// reviews is how many access reviews are asked for at a time.
const reviews = 8

// Denied asks the API server which of the permissions an account lacks; an empty account is that of the client.
// The answer has the order of wanted; an error means that it is not known. Everybody may ask about themselves, and about others whoever may create subjectaccessreviews.
func Denied(ctx context.Context, c client.Client, account string, wanted []Permission) ([]Permission, error) {
	var mu sync.Mutex
	var denied []Permission
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.SetLimit(reviews)
	for _, p := range wanted {
		tasks.Go(func() error {
			allowed, err := allowed(ctx, c, account, p)
			if err != nil {
				return fmt.Errorf("asking whether it may %s: %w", p, err)
			}
			if !allowed {
				mu.Lock()
				defer mu.Unlock()
				denied = append(denied, p)
			}
			return nil
		})
	}
	if err := tasks.Wait(); err != nil {
		return nil, err
	}
	slices.SortFunc(denied, func(a, b Permission) int { return slices.Index(wanted, a) - slices.Index(wanted, b) })
	return denied, nil
}

func allowed(ctx context.Context, c client.Client, account string, p Permission) (bool, error) {
	resource, subresource, _ := strings.Cut(p.Resource, "/")
	attributes := &authorizationv1.ResourceAttributes{
		Namespace: p.Namespace, Verb: p.Verb, Group: p.Group, Resource: resource, Subresource: subresource,
	}
	if account == "" {
		review := &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes},
		}
		err := c.Create(ctx, review)
		return review.Status.Allowed, err
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		ResourceAttributes: attributes, User: account, Groups: accountGroups(account),
	}}
	err := c.Create(ctx, review)
	return review.Status.Allowed, err
}

const accountPrefix = "system:serviceaccount:"

// AccountUser returns the user name of a ServiceAccount.
func AccountUser(namespace, name string) string { return accountPrefix + namespace + ":" + name }

// accountGroups returns the groups that every ServiceAccount is a member of.
func accountGroups(user string) []string {
	namespace, _, _ := strings.Cut(strings.TrimPrefix(user, accountPrefix), ":")
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}
}
