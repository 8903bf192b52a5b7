package check

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/controllers"
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

// required are the rules of the shipped roles.
var required = []struct {
	own             bool   // in the controller's own namespace
	namespace       string // in this one; neither means the whole cluster
	group, resource string
	verbs           []string
}{
	{resource: "nodes", verbs: []string{"get", "list", "patch", "watch"}},
	{resource: "nodes/status", verbs: []string{"patch"}},
	{resource: "pods", verbs: []string{"delete", "get", "list", "watch"}},
	{resource: "pods/status", verbs: []string{"patch"}},
	{resource: "persistentvolumes", verbs: []string{"list", "watch"}},
	{resource: "persistentvolumeclaims", verbs: []string{"get"}},
	{group: "storage.k8s.io", resource: "csinodes", verbs: []string{"list", "watch"}},
	{group: "storage.k8s.io", resource: "volumeattachments", verbs: []string{"delete", "get", "list", "patch", "watch"}},
	{group: "events.k8s.io", resource: "events", verbs: []string{"create", "patch"}},
	{group: "authentication.k8s.io", resource: "tokenreviews", verbs: []string{"create"}},
	{group: "authorization.k8s.io", resource: "subjectaccessreviews", verbs: []string{"create"}},
	{namespace: controllers.LeaseNamespace, group: "coordination.k8s.io", resource: "leases", verbs: []string{"get", "list", "watch"}},
	{own: true, group: "coordination.k8s.io", resource: "leases", verbs: []string{"create", "get", "update"}},
	{own: true, group: "apps", resource: "deployments", verbs: []string{"get"}},
}

// requiredPermissions returns everything the controller must be allowed to, where its own namespace is the given one.
func requiredPermissions(own string) []Permission {
	var all []Permission
	for _, r := range required {
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

// deniedPermissions asks the API server which of the permissions an account lacks; an empty account is that of the client.
// Everybody may ask about themselves, and about others whoever may create subjectaccessreviews.
func deniedPermissions(ctx context.Context, c client.Client, account string, wanted []Permission) ([]Permission, error) {
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

// accountUser returns the user name of a ServiceAccount.
func accountUser(namespace, name string) string { return accountPrefix + namespace + ":" + name }

// accountGroups returns the groups that every ServiceAccount is a member of.
func accountGroups(user string) []string {
	namespace, _, _ := strings.Cut(strings.TrimPrefix(user, accountPrefix), ":")
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}
}
