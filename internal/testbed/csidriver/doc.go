// Package csidriver is the controller half of LINSTOR's CSI driver, as far as attaching goes: a gRPC
// service for the real CSI external-attacher, backed by a simulated LINSTOR.
//
// It follows linstor-csi 1.12: a volume is published on a node that is ONLINE in LINSTOR by making
// sure that there is a replica, a temporary diskless one if need be, and unpublished by removing that
// replica again. Publishing and unpublishing contact no other node, which is why a volume can be detached
// from a dead one. What linstor-csi has beyond that (creating, resizing, snapshots, listing) is missing;
// without the latter the external-attacher does not compare attachments with the storage periodically.
package csidriver
