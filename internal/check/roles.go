package check

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/permissions"
)

// rolesAtFault tells of the roles and bindings of a Deployment that do not give its account what it lacks: which are not there, and who
// has written the others last.
func rolesAtFault(ctx context.Context, c client.Reader, deployment, account string, denied []permissions.Permission) []string {
	var namespaces, lines []string
	for _, p := range denied {
		namespaces = appendNew(namespaces, p.Namespace)
	}
	for _, namespace := range namespaces {
		for _, o := range shippedRoles(namespace, deployment+roleSuffix) {
			err := c.Get(ctx, client.ObjectKeyFromObject(o.Object), o.Object)
			switch {
			case apierrors.IsNotFound(err):
				lines = append(lines, o.name()+" does not exist")
			case apierrors.IsForbidden(err):
				return append(lines, "who has changed the roles could not be read: run the check from outside of the cluster, "+
					"by --kubeconfig, as somebody who may get clusterroles, clusterrolebindings, roles and rolebindings")
			case err != nil:
				lines = append(lines, fmt.Sprintf("%s could not be read: %v", o.name(), err))
			case !o.gives(account, denied):
				lines = append(lines, fmt.Sprintf("%s does not give them: its %s were last written by %s", o.name(), o.field, writer(o.Object, o.field)))
			}
		}
	}
	return lines
}

// roleObject is a role or a binding.
type roleObject struct {
	client.Object
	kind string
	// field is where it says what it gives.
	field string
}

// roleSuffix is what the names of roles and bindings have after that of the Deployment, however it was installed.
const roleSuffix = "-manager"

// shippedRoles returns the role of a name for a namespace and its binding, or those for the whole cluster; nothing is in them yet.
func shippedRoles(namespace, name string) []roleObject {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	if namespace == "" {
		return []roleObject{
			{&rbacv1.ClusterRole{ObjectMeta: meta}, "ClusterRole", "rules"},
			{&rbacv1.ClusterRoleBinding{ObjectMeta: meta}, "ClusterRoleBinding", "subjects"},
		}
	}
	return []roleObject{
		{&rbacv1.Role{ObjectMeta: meta}, "Role", "rules"},
		{&rbacv1.RoleBinding{ObjectMeta: meta}, "RoleBinding", "subjects"},
	}
}

// name returns kind and name.
func (o roleObject) name() string {
	if o.GetNamespace() == "" {
		return o.kind + " " + o.GetName()
	}
	return o.kind + " " + o.GetNamespace() + "/" + o.GetName()
}

// gives tells whether nothing of what is denied is missing here.
func (o roleObject) gives(account string, denied []permissions.Permission) bool {
	switch role := o.Object.(type) {
	case *rbacv1.ClusterRole:
		return grants(role.Rules, "", denied)
	case *rbacv1.Role:
		return grants(role.Rules, role.Namespace, denied)
	case *rbacv1.ClusterRoleBinding:
		return binds(role.Subjects, account)
	case *rbacv1.RoleBinding:
		return binds(role.Subjects, account)
	}
	return false
}

// grants tells whether rules, by the words that the shipped ones use, give all permissions of a namespace.
func grants(rules []rbacv1.PolicyRule, namespace string, wanted []permissions.Permission) bool {
	return !slices.ContainsFunc(wanted, func(p permissions.Permission) bool {
		return p.Namespace == namespace && !slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
			return len(r.ResourceNames) == 0 && slices.Contains(r.APIGroups, p.Group) && slices.Contains(r.Resources, p.Resource) &&
				slices.Contains(r.Verbs, p.Verb)
		})
	})
}

func binds(subjects []rbacv1.Subject, account string) bool {
	return slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
		return s.Kind == rbacv1.ServiceAccountKind && permissions.AccountUser(s.Namespace, s.Name) == account
	})
}

// writer tells who wrote a field of an object last, by the field managers that the API server has noted, and to what the object
// belongs by its owners and labels.
func writer(o client.Object, field string) string {
	var last metav1.ManagedFieldsEntry
	for _, entry := range o.GetManagedFields() {
		var fields map[string]json.RawMessage
		if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil || fields["f:"+field] == nil {
			continue
		}
		if last.Time.Before(entry.Time) || last.Manager == "" {
			last = entry
		}
	}
	name := "somebody who left no name"
	if last.Manager != "" {
		name = strconv.Quote(last.Manager)
	}
	if last.Time != nil {
		name += " at " + last.Time.UTC().Format("2006-01-02 15:04:05Z")
	}
	words := []string{name}
	for _, owner := range o.GetOwnerReferences() {
		words = append(words, "owner "+owner.Kind+" "+owner.Name)
	}
	if by := o.GetLabels()["app.kubernetes.io/managed-by"]; by != "" {
		words = append(words, "label app.kubernetes.io/managed-by="+by)
	}
	return strings.Join(words, ", ")
}
