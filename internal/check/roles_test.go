package check

import (
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// deny has the API server deny one permission.
func deny(b *bench) {
	b.denied = func(a authorizationv1.ResourceAttributes, _ string) bool {
		return a.Resource == "nodes" && a.Subresource == "status" && a.Verb == "patch"
	}
}

// shippedClusterRoles are the cluster role and its binding, with what deny denies.
func shippedClusterRoles() []client.Object {
	meta := metav1.ObjectMeta{Name: "piraeus-ha-controller-manager"}
	return []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"nodes/status", "pods/status"}, Verbs: []string{"patch"}},
		}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: []rbacv1.Subject{
			{Kind: rbacv1.ServiceAccountKind, Namespace: "ha-controller", Name: "ha-controller"},
		}},
	}
}

// overwrittenRoles are the same where an operator has written the rules, and somebody has bound another account.
func overwrittenRoles() []client.Object {
	at := func(hour int) *metav1.Time {
		return &metav1.Time{Time: time.Date(2026, time.February, 3, hour, 5, 6, 0, time.UTC)}
	}
	fields := metav1.NewFieldsV1
	return []client.Object{
		&rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{
				Name:            "piraeus-ha-controller-manager",
				Labels:          map[string]string{"app.kubernetes.io/managed-by": "some-operator"},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "piraeus.io/v1", Kind: "LinstorCluster", Name: "linstorcluster", UID: "1"}},
				ManagedFields: []metav1.ManagedFieldsEntry{
					{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "rbac.authorization.k8s.io/v1", Time: at(3), FieldsType: "FieldsV1", FieldsV1: fields(`{"f:rules":{}}`)},
					{Manager: "some-operator", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "rbac.authorization.k8s.io/v1", Time: at(4), FieldsType: "FieldsV1", FieldsV1: fields(`{"f:rules":{}}`)},
					{Manager: "labeller", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "rbac.authorization.k8s.io/v1", Time: at(5), FieldsType: "FieldsV1", FieldsV1: fields(`{"f:metadata":{"f:labels":{}}}`)},
				},
			},
			Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"patch"}}},
		},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{
				Name: "piraeus-ha-controller-manager",
				ManagedFields: []metav1.ManagedFieldsEntry{
					{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "rbac.authorization.k8s.io/v1", Time: at(3), FieldsType: "FieldsV1", FieldsV1: fields(`{"f:roleRef":{},"f:subjects":{}}`)},
				},
			},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "piraeus-datastore", Name: "ha-controller"}},
		},
	}
}
