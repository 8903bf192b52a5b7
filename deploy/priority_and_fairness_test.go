package deploy

import (
	"slices"
	"strings"
	"testing"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/permissions"
)

// Where the flow does not match what the controller writes, the API server treats it as it does other accounts.
func TestWithTheComponentWhatAFailOverWritesHasAPriorityLevelOfItsOwn(t *testing.T) {
	t.Parallel()

	all, component := load(t), buildWithComponent(t, "priority-and-fairness")
	if len(component.flows) != 1 || len(component.levels) != 1 {
		t.Fatalf("built %d flows and %d priority levels", len(component.flows), len(component.levels))
	}

	flow, level := component.flows[0].Spec, component.levels[0]
	if got := flow.PriorityLevelConfiguration.Name; got != level.Name {
		t.Errorf("the flow is of priority level %q, want %q", got, level.Name)
	}

	var flows []string

	for _, rule := range flow.Rules {
		for _, subject := range rule.Subjects {
			account := subject.ServiceAccount
			if account == nil || account.Namespace != all.account.Namespace || account.Name != all.account.Name {
				t.Errorf("the flow is of %+v", subject)
			}
		}

		for _, resources := range rule.ResourceRules {
			flows = append(flows, eachRight(resources.Verbs, resources.APIGroups, resources.Resources)...)
		}
	}

	for _, role := range all.rules["ClusterRole /"+permissions.ClusterRole] {
		for _, right := range eachRight(role.Verbs, role.APIGroups, role.Resources) {
			verb, resource, _ := strings.Cut(right, " ")
			if (verb == "patch" || verb == "delete") && !slices.Contains(flows, right) && !strings.HasPrefix(resource, "events") {
				t.Errorf("%s is of no flow", right)
			}
		}
	}
}

func eachRight(verbs, groups, resources []string) (rights []string) {
	for _, verb := range verbs {
		for _, group := range groups {
			for _, resource := range resources {
				rights = append(rights, verb+" "+resource+" "+group)
			}
		}
	}

	return rights
}
