// Package sim tries to break the controller. It lets the real feed, store, policy and reconcilers run in virtual
// time over the models of DRBD, LINSTOR and the Kubernetes API, lets a seed decide what happens to them, and holds
// everything the controller does against the truth of the models.
//
// A [History] is data: a small cluster and what happens to it, at which time. [Generate] makes one of a seed and of
// nothing else, so that a seed names it; [Run] plays it in a bubble and returns what was broken; [Shrink] drops steps until
// every one that is left is needed. The invariants are documented where they are checked: oracle.go for what is
// never done, liveness.go for what is done in time, leftovers.go for what must be gone when all is well again.
//
// In more than a third of them nodes leave on purpose: generate_planned.go draws that by random numbers of its own, so that the rest of a
// history is as it was, and the invariants are in oracle_planned.go, liveness_planned.go and leftovers_planned.go.
//
// The world of a history is as untidy as real ones: kinds.go names what is drawn, and counts it. Where an invariant is not held
// against a history, there is an excuse in excuses.go or pardon.go, which is counted too, and has a limit. Histories of another sort,
// by [GenerateOrdinary], have nothing in them but what happens every day; they show that none of it holds a fail-over up.
//
// Two runs of a history are not identical: goroutines that are due at the same instant run in any order, as they
// do in production.
package sim
