package scenarios_test

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/check"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/bedtest"
)

// nothingTold checks that no Event, no object that the controller writes and no metric has a planted credential. The logs
// are looked through when the bed has ended, by bedtest.
func nothingTold(t *testing.T, b *bed.Bed) {
	t.Helper()
	for what, list := range map[string]client.ObjectList{
		"Events": &eventsv1.EventList{}, "nodes": &corev1.NodeList{}, "pods": &corev1.PodList{}, "attachments": &storagev1.VolumeAttachmentList{},
	} {
		if err := b.Client.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		if told := bed.Told(text); len(told) > 0 {
			t.Errorf("%s tell the %s", what, strings.Join(told, ", "))
		}
	}
	token, asked := metricsToken(t, b, "discreet"), 0
	for _, p := range b.ControllerProcesses() {
		answer, err := ask(t.Context(), metricsAddress(p), token)
		if err != nil {
			continue // a process that has ended
		}
		asked++
		if !strings.Contains(answer.body, "piraeus_ha_controller_linstor_requests_total") {
			t.Errorf("pod %s answers %d without the metrics of LINSTOR", p.Pod, answer.code)
		}
		if told := bed.Told([]byte(answer.body)); len(told) > 0 {
			t.Errorf("the metrics of pod %s tell the %s", p.Pod, strings.Join(told, ", "))
		}
	}
	if asked == 0 {
		t.Error("no process of the controller could be asked for metrics")
	}
}

// What the check prints has no credential, in no format.
func TestCheckTellsNoSecret(t *testing.T) {
	t.Parallel()
	s := bedtest.New(t, bedtest.Shared(t), 3)
	s.Start(s.Workload("db"))
	for _, format := range []string{"table", "json", "yaml"} {
		if out, problems, status := checkPrints(s, format); status != check.StatusProtected || out == "" {
			t.Errorf("%s: exit status %d:\n%s%s", format, status, out, problems)
		}
	}
}
