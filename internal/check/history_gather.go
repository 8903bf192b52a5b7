package check

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// reportingController is the name by which the controller reports Events, and fieldReportingController the field that has it.
const (
	reportingController      = "piraeus-ha-controller"
	fieldReportingController = "reportingController"
)

// readRecords reads what tells of fail-overs. It needs no LINSTOR.
func (s sources) readRecords(ctx context.Context, c commandLine) (records, error) {
	d, err := readDeployment(ctx, s.api, c.controller, c.overrides)
	if err != nil {
		return records{}, err
	}
	var events eventsv1.EventList
	if err := s.api.List(ctx, &events, client.MatchingFields{fieldReportingController: reportingController}); err != nil {
		if apierrors.IsForbidden(err) {
			return records{}, fmt.Errorf("reading Events: %w; the controller's own account may not list them: "+
				"run the check outside of its pod, by an account that may list events.events.k8s.io, persistentvolumes, volumeattachments, pods and nodes", err)
		}
		return records{}, fmt.Errorf("reading Events: %w", err)
	}
	var volumes corev1.PersistentVolumeList
	var attachments storagev1.VolumeAttachmentList
	var pods corev1.PodList
	var nodes corev1.NodeList
	for _, list := range []client.ObjectList{&volumes, &attachments, &pods, &nodes} {
		if err := s.api.List(ctx, list); err != nil {
			return records{}, fmt.Errorf("reading the Kubernetes API: %w", err)
		}
	}
	slices.SortStableFunc(events.Items, func(a, b eventsv1.Event) int { return at(&a).Compare(at(&b)) })
	return records{
		driver: d.options.AttacherName, namespace: c.namespace, events: events.Items,
		volumes: volumes.Items, attachments: attachments.Items, pods: pods.Items, nodes: nodes.Items,
	}, nil
}
