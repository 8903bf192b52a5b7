// Package forecast answers the question "would my workload survive the loss of its node now?" for every selected pod, and says what to change if it
// would not. Every replica of the controller serves its [Report] to the command check.
//
// The replica gathers the [Facts] from what it knows (package controllers), and an [Evaluation] makes the report of them; it asks nobody. Whether a
// pod would be moved is decided by the rules and gates of the controller itself, applied to an imagined loss ([failover.Foresee]).
package forecast
