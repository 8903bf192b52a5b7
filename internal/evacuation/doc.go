// Package evacuation decides, and only decides, how a node leaves and comes back on purpose: copy, drain, leave, return.
//
// [PlanFor] turns one immutable [Input] into one [Plan]. Nothing here asks LINSTOR or Kubernetes, waits, or looks at the wall clock: the
// caller gathers, the caller acts, and the time is an argument.
//
// Copying only adds. The user drains. Only then is LINSTOR asked to move the rest, once, and only through every one of the gates, because its
// evacuation deletes replicas without a second look: those that are not UpToDate, and the source of a move long after it was asked for.
// Four rules hold everywhere in the package:
//
//   - A value that LINSTOR does not report is unknown, and what is unknown is never a good copy, never drained and never settled.
//   - No step deletes a replica, a snapshot, a node or a pod.
//   - What LINSTOR is told to do rests on reads that are at most [MaxAge] old.
//   - What one leader has begun the next one finds in the annotation of the node, in the marks on resource definitions and by fresh reads.
//     The [Memory] of a process only saves questions.
//
// In the comments, N is the node that the plan is for.
package evacuation
