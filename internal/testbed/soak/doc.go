// Package soak breaks things at random on a test bed for as long as one likes, with one fail-over after the other, and
// counts what came of it: workloads that were removed although they could write or were not selected, workloads that
// did not move, what is left behind, and what the controller takes of memory and goroutines.
//
// The verdicts are of the world, not of the controller: of the API server's own log of requests, of the model of DRBD, and
// of the pods that run.
package soak
