// Package kubelet simulates the kubelets of a cluster against a real API server, closely enough for
// the attach/detach, node lifecycle and StatefulSet controllers and the scheduler to behave as they do
// in production: node registration, Lease, Ready condition, status.volumesInUse, pods that start only
// once their volumes are attached and opened, graceful deletion, graceful shutdown. A simulated node can crash, return
// with a new boot ID, and lose the API while its containers run on.
//
// What is modeled and what is not:
//
//   - A volume enters status.volumesInUse before it is mounted and leaves it after it was unmounted,
//     and it is mounted only when both node.status.volumesAttached and its VolumeAttachment say that
//     it is attached, as in the volume manager of the real kubelet.
//   - Mounting a filesystem volume is one Storage.Open, unmounting it one Storage.Close. A raw block
//     volume is opened by the container (AnnotationOpenBlock). Nothing is written to the volumes.
//   - Containers are no processes, except for pods that the Runner takes. Images, probes, logs,
//     configMap and secret volumes, resource limits and pod networking do not exist.
//   - Kubelets read through informers that a Fleet shares, instead of one watch per node. What a
//     partitioned node would not see is withheld from it.
package kubelet
