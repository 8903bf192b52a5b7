// Package testbed has no code. It is the corridor to the rooms in which the controller is tried:
//
//   - model: models of what cannot run on one machine or in virtual time. drbd, linstorsim (a LINSTOR over it), csidriver
//     (LINSTOR's CSI driver), affinity (linstor-affinity-controller), apimodel (the Kubernetes API) and pipenet (connections in
//     memory).
//   - recordings: what a real LINSTOR said, replayed to the product's code and held against the model.
//   - virtual: the models put together to a small cluster in virtual time, on which the tests of the controllers tell their stories.
//   - sim: random histories on such models, and the invariants that must hold in each: `make sim`.
//   - page: the pages of the documentation as their readers read them, for the tests that follow them.
//   - bed: a cluster of real processes: Kubernetes' own control plane and kubelets and the controller as shipped, over
//     simulated machines and the models. Its scenarios are part of `make test`.
//   - soak: faults at random on a bed, for as long as one likes: `make soak`.
//   - bench: what docs/benchmarks.md claims, measured on beds: `make bench`.
//   - cmd: the programs behind `make demo`, `make playground`, `make soak` and `make bench`.
//
// A room uses only those above it in this list; the models use none.
package testbed
