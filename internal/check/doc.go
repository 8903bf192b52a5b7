// Package check answers the question "would my workload survive the loss of its node now?" for every selected pod, and
// says what to change where it would not. It is the command "piraeus-ha-controller check".
//
// Three steps are kept apart: gathering the [Facts] from Kubernetes and LINSTOR, evaluating them into a [Report], which
// asks nobody, and printing the report. Whether a pod would be moved is not decided here but by the rules and gates of
// the controller itself, applied to an imagined loss ([failover.Foresee]). Nothing is ever changed in the cluster.
package check
