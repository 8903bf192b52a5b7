// Package csidriver is the controller half of LINSTOR's CSI driver, as far as attaching goes: a gRPC
// service for the real CSI external-attacher, which speaks to the simulated LINSTOR by REST.
//
// It makes the requests of linstor-csi 1.12 in their order, and as an option those of 1.10. What it knows of nodes and replicas it
// reads through two caches. Each is a lock that is held while the request runs, so that one request that hangs holds up every
// attach and detach of the cluster. Attaching reads all resources, for which LINSTOR asks every satellite with thin volumes;
// detaching a replica with a disk contacts no node, which is why a volume can be detached from a dead one. There is no lock for
// each volume, and what else takes time is LINSTOR's.
//
// What linstor-csi has beyond that (creating, resizing, snapshots, listing) is missing;
// without the latter the external-attacher does not compare attachments with the storage periodically.
package csidriver
