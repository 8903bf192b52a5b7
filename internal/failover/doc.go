// Package failover decides, and only decides, whether a volume has lost its node.
//
// [Decide] turns one immutable [Input] into one [Decision]. Nothing here asks LINSTOR or Kubernetes,
// waits, or looks at the wall clock: the caller gathers, the caller acts, and the time is an argument.
//
// Three rules hold everywhere in the package:
//
//   - A value that LINSTOR does not report is unknown. Unknown is neither false nor 0, and nothing is
//     ever done on an unknown alone.
//   - A value read longer ago than [MaxAge] is unknown.
//   - A condition counts from the moment since which every reading confirmed it ([Fact.Since]).
//
// In the comments, A is the node the decision is about and R the volume's LINSTOR resource.
package failover
