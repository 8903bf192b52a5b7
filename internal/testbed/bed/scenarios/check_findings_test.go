package scenarios_test

import (
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/check"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/forecast"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/permissions"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/bedtest"
)

// checkNamesAll provokes everything that the check finds fault with, and looks whether it names each, with what to do.
func checkNamesAll(s *bedtest.Scenario) {
	s.Start(s.Workload("well"))
	wronglyReplicated(s)
	unmovable(s)
	stuckByOptions(s)
	defer runAgent(s, s.Nodes[0])()
	withoutPermission(s, "nodes/status", "patch", func() {
		report, status := runCheck(s)
		if status != check.StatusUnprotected {
			s.T.Errorf("exit status %d, want %d", status, check.StatusUnprotected)
		}
		for _, want := range []struct{ code, about, remedy string }{
			{string(failover.NoQuorum), "off", "DrbdOptions/Resource/quorum majority"},
			{string(forecast.TooFewReplicas), "single", "--place-count 2"},
			{string(forecast.NoTieBreaker), "alone", "auto-add-quorum-tiebreaker"},
			{string(failover.UnsafeVolume), "unsafe", "--fail-over-unsafe-pods"},
			{string(failover.NoOwner), "orphan", "let a StatefulSet"},
			{string(forecast.DRBDOption), linstor.OptionOnNoQuorum, "suspend-io"},
			{string(forecast.DRBDOption), linstor.OptionOnNoDataAccessible, "suspend-io"},
			{string(forecast.DRBDOption), linstor.OptionOnSuspendedPrimaryOutdated, "force-secondary"},
			{string(forecast.DRBDOption), linstor.OptionRRConflict, "retry-connect"},
			{string(forecast.NodeAgent), "agents", "delete the agents' DaemonSet"},
			{string(failover.NodeAgentRuns), "well", "delete the agents' DaemonSet"},
			{string(forecast.MissingPermission), "patch nodes", "deploy/all.yaml"},
		} {
			if !slices.ContainsFunc(report.Findings, func(f forecast.Finding) bool {
				return string(f.Code) == want.code && strings.Contains(f.Message+" "+strings.Join(f.Objects, " "), want.about) &&
					strings.Contains(f.Remedy, want.remedy)
			}) {
				s.T.Errorf("no finding %s about %s with the remedy %q", want.code, want.about, want.remedy)
			}
		}
		if s.T.Failed() {
			s.T.Logf("findings: %+v", report.Findings)
		}
	})
}

// wronglyReplicated starts workloads whose volumes could not be taken over.
func wronglyReplicated(s *bedtest.Scenario) {
	off := s.Workload("off")
	off.Volumes[0].Quorum = "off"
	single := s.Workload("single")
	single.Nodes, single.Volumes[0].Nodes = s.Nodes[:1], s.Nodes[:1]
	alone := s.Workload("alone")
	alone.Nodes, alone.Volumes[0].Nodes, alone.Volumes[0].Quorum = s.Nodes[:2], s.Nodes[:2], "majority"
	for _, w := range []bed.Workload{off, single, alone} {
		s.Start(w)
	}
}

// unmovable starts pods that may not be removed.
func unmovable(s *bedtest.Scenario) {
	unsafe := s.Workload("unsafe")
	unsafe.Mutate = func(template *corev1.PodTemplateSpec) {
		template.Spec.Volumes = append(template.Spec.Volumes, corev1.Volume{
			Name: "scratch", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/tmp"}},
		})
	}
	s.Start(unsafe)

	volume := bed.Volume{Name: s.Name + "-orphan", Nodes: s.Nodes}
	s.Must(s.CreateVolume(s.Ctx, s.Name, volume))
	pod := barePod(s, "orphan", "example.com/orphan")
	pod.Labels = map[string]string{bed.SelectedLabel: bed.SelectedValue}
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: s.Nodes[0]}
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: volume.Name},
	}}}
	s.Must(s.Client.Create(s.Ctx, pod))
	s.Must(s.WaitFor(s.Ctx, "pod orphan to be bound", func() (bool, error) {
		err := s.Client.Get(s.Ctx, client.ObjectKeyFromObject(pod), pod)
		return pod.Spec.NodeName != "", err
	}))
}

// stuckByOptions gives resources DRBD options that leave a node stuck after a loss.
func stuckByOptions(s *bedtest.Scenario) {
	for name, options := range map[string]map[string]string{
		"failing":    {linstor.OptionOnNoQuorum: "io-error", linstor.OptionOnNoDataAccessible: "io-error"},
		"suspending": {linstor.OptionOnSuspendedPrimaryOutdated: "disconnect", linstor.OptionRRConflict: "disconnect"},
	} {
		w := s.Workload(name)
		s.Start(w)
		for key, value := range options {
			s.LINSTOR.SetDefinitionProperty(volumeOf(w), key, value)
		}
	}
}

func barePod(s *bedtest.Scenario, name, image string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: image}}},
	}
}

// withoutPermission takes a permission, the only verb of its rule, from the controller for as long as f runs.
func withoutPermission(s *bedtest.Scenario, resource, verb string, f func()) {
	role := &rbacv1.ClusterRole{}
	s.Must(s.Client.Get(s.Ctx, client.ObjectKey{Name: permissions.ClusterRole}, role))
	before := role.DeepCopy()
	role.Rules = slices.DeleteFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
		return slices.Contains(rule.Resources, resource) && slices.Equal(rule.Verbs, []string{verb})
	})
	s.Must(s.Client.Update(s.Ctx, role))
	resource, subresource, _ := strings.Cut(resource, "/")
	right := authorizationv1.ResourceAttributes{Verb: verb, Resource: resource, Subresource: subresource}
	defer func() {
		before.ResourceVersion = role.ResourceVersion
		s.Must(s.Client.Update(s.Ctx, before))
		waitPermission(s, bed.ControllerNamespace, "ha-controller", right, true)
	}()
	waitPermission(s, bed.ControllerNamespace, "ha-controller", right, false)
	f()
}

// waitPermission waits until the API server knows what the roles say of an account, which takes it a moment.
func waitPermission(s *bedtest.Scenario, namespace, account string, right authorizationv1.ResourceAttributes, allowed bool) {
	s.T.Helper()
	waitUntil(s, fmt.Sprintf("the permission of %s to be %t", account, allowed), func() bool {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:" + namespace + ":" + account,
			Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
			ResourceAttributes: &right,
		}}
		s.Must(s.Client.Create(s.Ctx, review))
		return review.Status.Allowed == allowed
	})
}
