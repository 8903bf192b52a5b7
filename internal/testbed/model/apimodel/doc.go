// Package apimodel is a model of the Kubernetes API for tests in virtual time: controller-runtime's fake client, which
// keeps and patches the objects, with what that one leaves out and a fail-over depends on.
//
//   - UID and resourceVersion are enforced as preconditions of deletions and in patches; a violation is a 409.
//   - Pods are deleted gracefully: the deletion timestamp is the end of the grace, a second deletion may only shorten
//     it, and the object goes when it is deleted with grace 0 and no finalizer is left. Nothing expires by itself:
//     that is for a kubelet.
//   - An eviction is a graceful deletion; there are no disruption budgets.
//   - Creation sets UID and creation timestamp, and drops the status of pods and attachments.
//   - Every write is told to listeners together with who did it, in order.
//   - A [View] is a cache in front of it: selected objects only, searchable by the indexes that a controller
//     registers, and as old as wanted.
//
// It takes its time from package time only and keeps no goroutine, so that it runs in a testing/synctest bubble.
//
// # What it leaves out
//
// Admission, validation, defaults other than a pod's deletion grace, owner references, server-side apply, API
// watches (use a View) and authorization, for which [Model.Fail] can stand.
package apimodel
